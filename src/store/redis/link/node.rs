//! A server that is one of several.

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

    /// Whether there is a connection to it, for all that is known.
    #[cfg(feature = "redis-sentinel")]
    pub(in crate::store::redis) fn is_connected(&self) -> bool {
        self.current().connection.is_some()
    }
}
