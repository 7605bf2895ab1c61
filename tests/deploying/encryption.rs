//! Encrypted connections, to a server with a certificate that is made here.

#![cfg_attr(not(any(feature = "redis-rustls", feature = "redis-native-tls")), allow(dead_code, unused_imports))]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use outgate::testing::{RedisServer, Reply};
use outgate::{RedisStore, store::StoreErrorKind};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::{Failure, Outcome, told, used};

/// The certificate of a server, and the authority that says who it is.
struct Certified {
    dir: PathBuf,
}

impl Certified {
    fn new() -> Result<Self, Failure> {
        let dir = env::temp_dir().join(format!("outgate-tls-{}-{:016x}", std::process::id(), fastrand::u64(..)));
        fs::create_dir(&dir)?;
        let mut authority = CertificateParams::new(Vec::new())?;
        // Two of one name would be taken for one that signs itself.
        authority.distinguished_name.push(DnType::CommonName, "an authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        fs::write(dir.join("authority"), authority.self_signed(&key)?.pem())?;
        let authority = Issuer::new(authority, key);
        let key = KeyPair::generate()?;
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        fs::write(dir.join("certificate"), CertificateParams::new(names)?.signed_by(&key, &authority)?.pem())?;
        fs::write(dir.join("key"), key.serialize_pem())?;
        Ok(Self { dir })
    }

    /// Has a server speak TLS on a port of its own.
    fn words(&self) -> Vec<String> {
        let file = |name: &str| self.dir.join(name).to_string_lossy().into_owned();
        let files = [("cert", "certificate"), ("key", "key"), ("ca-cert", "authority")];
        let files = files.into_iter().flat_map(|(option, name)| [format!("--tls-{option}-file"), file(name)]);
        ["--tls-port", "{free}", "--tls-auth-clients", "no"].map(str::to_owned).into_iter().chain(files).collect()
    }
}

impl Drop for Certified {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn tls_port(server: &RedisServer) -> Result<String, Failure> {
    let Reply::Array(port) = told(server, &["CONFIG", "GET", "tls-port"])? else { return Err("no port".into()) };
    Ok(port.get(1).and_then(Reply::text).ok_or("no port")?.to_owned())
}

/// A server that speaks TLS.
struct Encrypted {
    server: RedisServer,
    port: String,
    certified: Certified,
}

impl Encrypted {
    fn start() -> Result<Self, Failure> {
        let certified = Certified::new()?;
        let words = certified.words();
        let server = RedisServer::start_with(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        told(&server, &["ACL", "SETUSER", "billing", "on", ">secret", "~*", "+@all"])?;
        let port = tls_port(&server)?;
        Ok(Self { server, port, certified })
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://billing:secret@{host}:{}/2", self.port)
    }
}

#[cfg(not(any(feature = "redis-rustls", feature = "redis-native-tls")))]
#[tokio::test]
async fn without_a_feature_for_it_the_error_names_the_features() -> Outcome {
    for scheme in ["rediss", "valkeys"] {
        let error = RedisStore::open(&format!("{scheme}://127.0.0.1")).err().ok_or("opened")?;
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(error.to_string().contains("`redis-rustls` or `redis-native-tls`"), "{error}");
    }
    Ok(())
}

#[cfg(any(feature = "redis-rustls", feature = "redis-native-tls"))]
mod with_a_feature {
    use redis::{Client, TlsCertificates};

    use super::*;

    const URL: &str = "OUTGATE_TEST_URL";
    #[cfg(feature = "redis-cluster")]
    const URLS: &str = "OUTGATE_TEST_URLS";

    /// Run by the test below, in an environment of its own.
    #[tokio::test]
    #[ignore = "a part of another test"]
    async fn a_program_of_its_own() -> Outcome {
        #[cfg(feature = "redis-cluster")]
        if let Ok(urls) = env::var(URLS) {
            return used(RedisStore::cluster(urls.split(' ')).connect().await?).await;
        }
        let Ok(url) = env::var(URL) else { return Ok(()) };
        used(RedisStore::connect(&url).await?).await
    }

    fn program() -> Result<Command, Failure> {
        let mut program = Command::new(env::current_exe()?);
        program.args(["--exact", "encryption::with_a_feature::a_program_of_its_own", "--ignored", "--nocapture"]);
        Ok(program)
    }

    /// Runs it where the machine trusts the authority.
    fn runs(certified: &Certified, variable: &str, value: &str) -> Outcome {
        let mut program = program()?;
        let output = program.env("SSL_CERT_FILE", certified.dir.join("authority")).env(variable, value).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{value}: {said}");
        Ok(())
    }

    #[test]
    fn a_url_is_all_it_takes_where_the_machine_trusts_the_authority() -> Outcome {
        let encrypted = Encrypted::start()?;
        for host in ["localhost", "127.0.0.1"] {
            runs(&encrypted.certified, URL, &encrypted.url(host))?;
        }
        let keys = told(&encrypted.server, &["INFO", "keyspace"])?;
        assert!(keys.text().is_some_and(|text| text.contains("db2")), "{keys:?}");
        Ok(())
    }

    #[cfg(feature = "redis-rustls")]
    #[test]
    fn authorities_that_cannot_be_read_are_named() -> Outcome {
        let encrypted = Encrypted::start()?;
        let (url, dir) = (encrypted.url("localhost"), &encrypted.certified.dir);
        let (there, missing) = (dir.join("authority"), dir.join("missing"));
        let mut blind = program()?;
        blind.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", &missing);
        let mut half_blind = program()?;
        half_blind.env("SSL_CERT_FILE", there).env("SSL_CERT_DIR", &missing);
        for mut program in [blind, half_blind] {
            let output = program.env(URL, &url).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            let named = format!("at '{}'", missing.display());
            assert!(said.contains("Refused: certificates of the authorities") && said.contains(&named), "{said}");
        }
        Ok(())
    }

    #[cfg(feature = "redis-cluster")]
    #[test]
    fn all_nodes_of_a_cluster_are_reached_as_its_url_says() -> Outcome {
        let certified = Certified::new()?;
        let words = certified.words();
        // Else nodes name the ports on which they are not encrypted.
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--tls-cluster", "yes"]).collect();
        let cluster = outgate::testing::RedisCluster::start_with(3, 0, &words)?;
        for node in cluster.nodes() {
            // What is not encrypted serves tests alone.
            told(node, &["ACL", "SETUSER", "billing", "on", ">secret", "~*", "+@all"])?;
        }
        let url = |host: &str| Ok(format!("rediss://billing:secret@{host}:{}", tls_port(&cluster.nodes()[0])?));
        runs(
            &certified,
            URLS,
            &["localhost", "127.0.0.1"].map(url).into_iter().collect::<Result<Vec<_>, Failure>>()?.join(" "),
        )
    }

    #[tokio::test]
    async fn a_client_may_bring_an_authority_of_its_own() -> Outcome {
        let encrypted = Encrypted::start()?;
        let root_cert = Some(fs::read(encrypted.certified.dir.join("authority"))?);
        let certificates = TlsCertificates { client_tls: None, root_cert };
        let client = Client::build_with_tls(encrypted.url("localhost"), certificates)?;
        used(RedisStore::builder_on(client).connect().await?).await
    }

    #[tokio::test]
    async fn an_authority_that_nobody_trusts_is_an_error_that_says_so() -> Outcome {
        let encrypted = Encrypted::start()?;
        let error = RedisStore::connect(&encrypted.url("localhost")).await.err().ok_or("connected")?;
        let words = error.to_string();
        assert!(words.contains("certificate") && !words.contains("secret"), "{words}");
        assert_eq!(error.kind(), StoreErrorKind::Refused, "it stays so: {words}");
        Ok(())
    }

    #[tokio::test]
    async fn a_server_that_speaks_no_tls_and_one_that_speaks_it_unasked_are_errors() -> Outcome {
        let encrypted = Encrypted::start()?;
        for url in [format!("rediss://{}", encrypted.server.addr()), format!("redis://127.0.0.1:{}", encrypted.port)] {
            let error = RedisStore::connect(&url).await.err().ok_or("connected")?;
            assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
        }
        Ok(())
    }
}
