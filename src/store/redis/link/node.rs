//! A server that is one of several.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Client, Cmd, Value};

use super::Link;
use crate::error::StoreError;
use crate::store::redis::fault::Fault;

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

    /// Asks it something, and reads the answer.
    pub(in crate::store::redis) async fn ask<T>(
        &self,
        command: &Cmd,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let (mut connection, generation) = self.connection().await?;
        match command.query_async(&mut connection).await {
            Ok(answer) => {
                let answer = self.read(generation, || read(&answer).ok_or_else(StoreError::senseless));
                answer.map_err(|failure| failure.error)
            }
            Err(error) if Fault::of(&error) == Fault::Lasting => Err(self.refused(error, None)),
            Err(error) => Err(self.failed(error, generation).error),
        }
    }

    /// Another one serves in its place.
    pub(in crate::store::redis) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        if self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(node = self.node.as_deref(), "store up: other nodes serve in place of this one");
        }
    }
}
