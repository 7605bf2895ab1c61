//! How a connection is made.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, RedisError, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{CONNECT_TIMEOUT, Link, reached_within};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::fault::takes_no_connection;
use crate::store::redis::fault::{Fault, serves_nobody, with_code};
use crate::store::redis::server::Server;
use crate::store::redis::{format, script, tls};

/// What the other end has not acknowledged for so long is not delivered any more, and ends its connection: a store remembers a message for
/// over a minute, and one that came again after that would act twice. By itself a kernel goes on for a quarter of an hour.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const DELIVERED_WITHIN: Duration = Duration::from_secs(30);

/// A connection by which nothing came for so long is looked at, and again so long after. What lies between drops one that rests without a
/// word to either end, and its next call would find the store silent.
const IDLE: Duration = Duration::from_secs(15);
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const PROBE_AGAIN: Duration = Duration::from_secs(5);

/// While answers tell of a loss of data the format is claimed again so often.
const CLAIM_AGAIN: Duration = Duration::from_secs(2);

/// A connection that was made, and whether its server took no writes, so that it may not know which format is kept.
pub(super) struct Made {
    pub(super) connection: MultiplexedConnection,
    pub(super) took_no_writes: bool,
}

impl Link {
    /// A new connection, or that another release keeps another format here; or why there is none.
    pub(super) async fn connect(&self) -> Result<Result<Made, StoreError>, RedisError> {
        or_why_not(&self.client, self.response_timeout, self.made()).await
    }

    async fn made(&self) -> Result<Result<Made, StoreError>, RedisError> {
        let mut connection = connect(&self.client, self.response_timeout).await?;
        // Asked first and alone: a server that wants a password hangs up on who sends it whole scripts without one.
        let mut greet = redis::pipe();
        greet.cmd("PING").add_command(format::claim(&self.prefix)).ignore_errors();
        let greeted: Vec<Result<Value, RedisError>> = greet.query_async(&mut connection).await?;
        let mut greeted = greeted.into_iter();
        if let Some(Err(error)) =
            greeted.next().filter(|pong| pong.as_ref().is_err_and(|error| error.code() == Some("NOAUTH")))
        {
            return Err(error);
        }
        let took_no_writes = match greeted.next() {
            Some(Ok(kept)) => {
                if let Err(error) = format::judge(&self.prefix, &kept) {
                    return Ok(Err(error));
                }
                false
            }
            // The format is looked at once: not before the server can say it.
            Some(Err(error)) if serves_nobody(&error) => return Err(error),
            // Whatever else is refused does not change when it takes writes, as that another node of a Cluster has the key.
            Some(Err(error)) => {
                self.note_format_elsewhere(&error);
                Fault::of(&error) == Fault::Passing
            }
            None => false,
        };
        let mut load = redis::pipe();
        // That of most calls. The others are sent whole where they are not known.
        load.cmd("INFO").cmd("SCRIPT").arg("LOAD").arg(&script::book().body).ignore_errors();
        // A new connection takes several round trips for so much, and a call takes one.
        let mut patient = connection.clone();
        patient.set_response_timeout(CONNECT_TIMEOUT.max(self.response_timeout));
        let loaded: Result<Vec<Result<Value, RedisError>>, RedisError> = load.query_async(&mut patient).await;
        match loaded {
            Err(error) if error.is_io_error() => Err(error),
            // Where loading is forbidden, or the server still reads its data, the calls themselves will say so.
            answers => {
                self.doubt(answers.unwrap_or_default().into_iter().next());
                Ok(Ok(Made { connection, took_no_writes }))
            }
        }
    }

    /// Has it known again which format is kept, once in a while. That another one is, is found as it is connected to.
    pub(super) async fn claim_again(&self, connection: &mut MultiplexedConnection) {
        {
            let mut current = self.current();
            if current.claimed.is_some_and(|at| at.elapsed() < CLAIM_AGAIN) {
                return;
            }
            current.claimed = Some(Instant::now());
        }
        let claimed: Result<Value, RedisError> = format::claim(&self.prefix).query_async(connection).await;
        if let Err(error) = claimed {
            self.note_format_elsewhere(&error);
        }
    }

    /// Another node of a Cluster may know which format is kept.
    fn note_format_elsewhere(&self, refusal: &RedisError) {
        if let (Some("MOVED"), Some(is_elsewhere)) = (refusal.code(), &self.format_elsewhere) {
            is_elsewhere.store(true, Ordering::Relaxed);
        }
    }

    /// Warns of what a server says of itself, if it is allowed to.
    fn doubt(&self, report: Option<Result<Value, RedisError>>) {
        let report: Option<String> =
            report.and_then(Result::ok).and_then(|report| redis::from_redis_value(report).ok());
        for doubt in Server(&report.unwrap_or_default()).doubts() {
            if self.health.is_due(doubt.name(), "") {
                doubt.warn();
            }
        }
    }
}

/// A new connection.
pub(in crate::store::redis) async fn connect(
    client: &Client,
    response_timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(reached_within(response_timeout)))
        .set_response_timeout(Some(response_timeout))
        .set_pipeline_buffer_size(1_024);
    tls::choose_provider();
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(with_code)
}

/// What comes of a new connection, or why the server hangs up on it. One that takes no connection says so in a line before it is asked
/// anything, and the client drops what comes while nothing is in flight: so it is connected to once more, by a client that waits for that line.
pub(in crate::store::redis) async fn or_why_not<T>(
    client: &Client,
    response_timeout: Duration,
    made: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match made.await {
        Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
            Err(said_instead(client, response_timeout).await.unwrap_or(error))
        }
        made => made,
    }
}

/// What a server says where the answer to `HELLO` should be, which the client waits for before a connection counts as made.
async fn said_instead(client: &Client, response_timeout: Duration) -> Option<RedisError> {
    let info = client.get_connection_info();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = Client::open(info.clone().set_redis_settings(settings)).ok()?;
    let error = connect(&client, response_timeout).await.err()?;
    // What a server says of that command itself is not why it has hung up.
    takes_no_connection(&error).then_some(error)
}

/// Timers panic elsewhere.
pub(in crate::store::redis) fn in_runtime() -> Result<(), StoreError> {
    match Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(StoreError::new(StoreErrorKind::Refused, "the store can be used within a Tokio runtime only")),
    }
}

/// Small messages must leave at once, and not arrive late. A dead peer is noticed by the response timeout. All else is as the user says; whoever names no
/// library needs no right to do so.
pub(in crate::store::redis) fn tuned(client: Client) -> Client {
    let info = client.get_connection_info();
    let (mut tcp, mut redis) = (info.tcp_settings().clone().set_nodelay(true), info.redis_settings().clone());
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if tcp.user_timeout().is_none() {
        tcp = tcp.set_user_timeout(DELIVERED_WITHIN);
    }
    if tcp.keepalive().is_none() {
        let alive = TcpKeepalive::new().with_time(IDLE);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let alive = alive.with_interval(PROBE_AGAIN);
        tcp = tcp.set_keepalive(alive);
    }
    if redis.lib_name().is_none() {
        redis = redis.set_skip_set_lib_name();
    }
    Client::open(info.clone().set_tcp_settings(tcp).set_redis_settings(redis)).unwrap_or(client)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::store::redis::link::FRESH;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_client_says_of_its_connections_is_kept() {
        use redis::io::tcp::TcpSettings;
        use redis::{IntoConnectionInfo as _, RedisConnectionInfo};

        let own = TcpKeepalive::new().with_time(Duration::from_secs(99));
        let tcp = TcpSettings::default().set_user_timeout(Duration::from_secs(7)).set_keepalive(own.clone());
        let named = RedisConnectionInfo::default().set_lib_name("billing", "1");
        let plain = tuned(Client::open("redis://127.0.0.1").unwrap());
        let tcp_of_plain = plain.get_connection_info().tcp_settings();
        assert_eq!(tcp_of_plain.user_timeout(), Some(DELIVERED_WITHIN));
        let probed = TcpKeepalive::new().with_time(IDLE).with_interval(PROBE_AGAIN);
        assert_eq!(format!("{:?}", tcp_of_plain.keepalive()), format!("{:?}", Some(&probed)));
        for (redis, skips) in [(RedisConnectionInfo::default(), true), (named, false)] {
            let info = "redis://127.0.0.1".into_connection_info().unwrap();
            let client = Client::open(info.set_tcp_settings(tcp.clone()).set_redis_settings(redis)).unwrap();
            let tuned = tuned(client);
            let (tcp, redis) =
                (tuned.get_connection_info().tcp_settings(), tuned.get_connection_info().redis_settings());
            assert!(tcp.nodelay() && tcp.user_timeout() == Some(Duration::from_secs(7)));
            assert_eq!(format!("{:?}", tcp.keepalive()), format!("{:?}", Some(&own)));
            assert_eq!(redis.skip_set_lib_name(), skips);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_reached_is_not_stormed_however_many_queues_wait_for_it() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let client = Client::open(format!("redis://{closed}")).unwrap();
        let (link, began) = (Arc::new(Link::new(client, "outgate", CONNECT_TIMEOUT)), Instant::now());
        let mut queues = JoinSet::new();
        for queue in 0..50 {
            let link = Arc::clone(&link);
            queues.spawn(async move {
                sleep(Duration::from_millis(queue)).await;
                for _ in 0..20 {
                    assert!(link.connection().await.is_err());
                    sleep(Duration::from_millis(50)).await;
                }
            });
        }
        queues.join_all().await;
        let most = began.elapsed().as_millis() / FRESH.as_millis() + 1;
        let attempts = link.current().attempts;
        assert!(attempts > 1 && u128::from(attempts) <= most, "{attempts} attempts, {most} at most");
    }
}
