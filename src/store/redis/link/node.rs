//! A server that is one of several.

#[cfg(feature = "redis-cluster")]
use std::sync::{Arc, atomic::AtomicBool};
use std::time::Duration;

use redis::Client;

use super::Link;
use crate::store::redis::health::Health;

impl Link {
    /// A link to one of several servers, which traces name.
    pub(in crate::store::redis) fn to_node(
        client: Client,
        prefix: &str,
        response_timeout: Duration,
        node: &str,
    ) -> Self {
        Self { health: Health::of_node(node), ..Self::new(client, prefix, response_timeout) }
    }

    /// The same, which says there whenever it was connected to and does not know in which format all is kept: another node does.
    #[cfg(feature = "redis-cluster")]
    pub(in crate::store::redis) fn telling_of_formats(self, is_elsewhere: Arc<AtomicBool>) -> Self {
        Self { format_elsewhere: Some(is_elsewhere), ..self }
    }

    /// Whether there is a connection to it, for all that is known.
    #[cfg(feature = "redis-sentinel")]
    pub(in crate::store::redis) fn is_connected(&self) -> bool {
        self.current().connection.is_some()
    }
}
