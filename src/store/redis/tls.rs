//! Encrypted connections: what they need, and in which words it is asked for.

use redis::{Client, ConnectionAddr};

use crate::error::{StoreError, StoreErrorKind};

/// Whether a URL or a client asks for encryption that nobody has turned on.
pub(super) const MISSING: &str =
    "an encrypted connection needs the feature `redis-rustls` or `redis-native-tls` of outgate";

/// Whether any of the features is on.
pub(super) const IS_THERE: bool = cfg!(any(feature = "redis-rustls", feature = "redis-native-tls"));

/// Whether a URL asks for encryption.
pub(super) fn is_asked_for(url: &str) -> bool {
    ["rediss:", "valkeys:"].iter().any(|scheme| url.starts_with(scheme))
}

/// A client that can connect, where it is one with encryption.
///
/// # Errors
///
/// Where no feature brings encryption, or the machine has no certificates of authorities or some that cannot be read.
pub(super) fn prepared(client: Client) -> Result<Client, StoreError> {
    if !matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(client);
    }
    if !IS_THERE {
        return Err(StoreError::new(StoreErrorKind::Refused, MISSING));
    }
    #[cfg(feature = "redis-rustls")]
    let client = by_rustls::trusting(client)?;
    Ok(client)
}

/// Chooses who does the cryptography, where the program has not: rustls panics when it has to choose among several, or has none.
pub(super) fn choose_provider() {
    #[cfg(feature = "redis-rustls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been quicker.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

#[cfg(feature = "redis-rustls")]
mod by_rustls {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use redis::{Client, ConnectionAddr, TlsCertificates};
    use rustls::RootCertStore;

    use crate::error::{StoreError, StoreErrorKind};

    /// The client with the authorities that this machine trusts, unless it brings its own.
    ///
    /// Left to itself the crate `redis` trusts nobody as soon as somebody else turns on its feature for the other kind of TLS.
    pub(super) fn trusting(client: Client) -> Result<Client, StoreError> {
        let info = client.get_connection_info();
        if !matches!(info.addr(), ConnectionAddr::TcpTls { insecure: false, tls_params: None, .. }) {
            return Ok(client);
        }
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(authorities()?.into_bytes()) };
        let refused = |error| StoreError::new(StoreErrorKind::Refused, "no encryption can be set up").caused_by(error);
        Client::build_with_tls(info.clone(), certificates).map_err(refused)
    }

    /// The certificates of the authorities that this machine trusts, as PEM.
    fn authorities() -> Result<String, StoreError> {
        let found = rustls_native_certs::load_native_certs();
        if let Some(error) = found.errors.into_iter().next() {
            // The crate `redis` reads them once more, and connects nobody then.
            let words = "certificates of the authorities that this machine trusts cannot be read";
            return Err(StoreError::new(StoreErrorKind::Refused, words).caused_by(error));
        }
        let mut known = RootCertStore::empty();
        let mut all = String::new();
        for certificate in found.certs {
            let text = STANDARD.encode(&certificate);
            // One that makes no sense must not keep the others away.
            if known.add(certificate).is_ok() {
                all.extend(["-----BEGIN CERTIFICATE-----\n", &text, "\n-----END CERTIFICATE-----\n"]);
            }
        }
        if all.is_empty() {
            let words = "this machine trusts no authority: install its certificates (Debian: ca-certificates), or name a file of \
                         them in SSL_CERT_FILE";
            return Err(StoreError::new(StoreErrorKind::Refused, words));
        }
        Ok(all)
    }
}
