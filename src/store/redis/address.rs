//! Where a server listens.

use std::fmt;
use std::sync::Arc;

use redis::{Client, ConnectionAddr};

use super::fault::Said;
use crate::error::{StoreError, StoreErrorKind};

/// A server, by where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// A client of the server there, to which everything is as to the one of `like`, but for where it is.
    pub(super) fn client(&self, like: &Client) -> Result<Client, StoreError> {
        let (host, port) = (self.host.to_string(), self.port);
        let info = like.get_connection_info().clone();
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let refused = |error| {
            StoreError::new(StoreErrorKind::Refused, format!("{self} cannot be reached")).caused_by(Said(error))
        };
        Client::open(info.set_addr(addr)).map_err(refused)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
