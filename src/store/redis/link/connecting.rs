//! How a connection is made.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::runtime::Handle;

use super::CONNECT_TIMEOUT;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::tls;

/// A new connection.
pub(in crate::store::redis) async fn connect(
    client: &Client,
    response_timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(response_timeout))
        .set_pipeline_buffer_size(1_024);
    tls::choose_provider();
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Timers panic elsewhere.
pub(in crate::store::redis) fn in_runtime() -> Result<(), StoreError> {
    match Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(StoreError::new(StoreErrorKind::Refused, "the store can be used within a Tokio runtime only")),
    }
}

/// Small messages must leave at once. A dead peer is noticed by the response timeout.
pub(in crate::store::redis) fn tuned(client: Client) -> Client {
    let settings = TcpSettings::default().set_nodelay(true);
    let info = client.get_connection_info().clone().set_tcp_settings(settings);
    Client::open(info).unwrap_or(client)
}
