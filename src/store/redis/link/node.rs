//! A server that is one of several.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Client;

use super::Link;

impl Link {
    /// A link to one of several servers, which traces name.
    pub(in crate::store::redis) fn to_node(
        client: Client,
        prefix: &str,
        response_timeout: Duration,
        node: &str,
    ) -> Self {
        Self { node: Some(node.into()), ..Self::new(client, prefix, response_timeout) }
    }

    /// Another one serves in its place.
    pub(in crate::store::redis) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        if self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(node = self.node.as_deref(), "store up: other nodes serve in place of this one");
        }
    }
}
