//! The connection to the server: made when needed, replaced when it is no longer to be trusted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::timeout;

use super::script::{self, Script};
use crate::error::{StoreError, StoreErrorKind};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// What a server says that serves nobody, whatever the keys.
const REFUSALS_OF_EVERYTHING: [&str; 10] =
    ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY"];

/// One connection for all clones of a store.
pub(super) struct Link {
    client: Client,
    response_timeout: Duration,
    current: Mutex<Current>,
    /// Held by the one call that connects; the others wait for its outcome.
    connecting: tokio::sync::Mutex<()>,
    down: AtomicBool,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// Attempts to connect that have ended.
    attempts: u64,
    failure: Option<StoreError>,
    /// Which connection this is, so that a late failure of an old one does not throw away its successor.
    generation: u64,
}

/// A call that failed, and whether the same call over a new connection may fare better.
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) heals_by_connecting: bool,
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client: tuned(client),
            response_timeout: RESPONSE_TIMEOUT,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            down: AtomicBool::new(false),
        }
    }

    pub(super) fn with_response_timeout(&self, response_timeout: Duration) -> Self {
        Self { response_timeout, ..Self::new(self.client.clone()) }
    }

    /// Calls a script by its hash, or by its body where the server has forgotten it.
    pub(super) async fn call(&self, script: &Script, encode: &(impl Fn(&mut Cmd) + Sync)) -> Result<Value, Failure> {
        let (mut connection, generation) = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => {
                return Err(Failure { error, heals_by_connecting: false });
            }
        };
        let mut answer = run(&mut connection, "EVALSHA", &script.hash, encode).await;
        if matches!(&answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
            answer = run(&mut connection, "EVAL", &script.body, encode).await;
        }
        match answer {
            Ok(value) => {
                self.is_up();
                Ok(value)
            }
            Err(error) => Err(self.failed(error, generation)),
        }
    }

    /// The connection in use, or a new one, and its generation.
    pub(super) async fn connection(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        let attempts = {
            let current = self.current();
            if let Some(connection) = &current.connection {
                return Ok((connection.clone(), current.generation));
            }
            current.attempts
        };
        // Whoever connects may be polled no more.
        let Ok(_connecting) = timeout(2 * CONNECT_TIMEOUT, self.connecting.lock()).await else {
            return Err(unreachable("the store cannot be connected to: another call has not got through"));
        };
        {
            let current = self.current();
            if let Some(connection) = &current.connection {
                return Ok((connection.clone(), current.generation));
            }
            // Somebody else tried while this call waited: what he found is news enough.
            if let Some(failure) = current.failure.as_ref().filter(|_| current.attempts > attempts) {
                return Err(failure.clone());
            }
        }
        let made = match timeout(CONNECT_TIMEOUT, self.connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(unreachable("the store cannot be connected to").caused_by(error)),
            Err(_) => Err(unreachable("the store cannot be connected to: it does not answer")),
        };
        let mut current = self.current();
        current.attempts += 1;
        current.generation += 1;
        match made {
            Ok(connection) => {
                current.failure = None;
                current.connection = Some(connection.clone());
                Ok((connection, current.generation))
            }
            Err(error) => {
                current.failure = Some(error.clone());
                drop(current);
                self.is_down(&error);
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(self.response_timeout))
            .set_pipeline_buffer_size(1_024);
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut load = redis::pipe();
        for script in script::all() {
            load.cmd("SCRIPT").arg("LOAD").arg(&script.body).ignore();
        }
        // Where loading is forbidden, or the server still reads its data, the calls themselves will say so.
        match load.exec_async(&mut connection).await {
            Err(error) if error.is_io_error() => Err(error),
            _ => Ok(connection),
        }
    }

    fn failed(&self, error: RedisError, generation: u64) -> Failure {
        if error.code() == Some("OUTDATED") {
            return Failure { error: StoreError::outdated(), heals_by_connecting: false };
        }
        let lost = error.is_io_error() || error.is_timeout() || error.is_unrecoverable_error();
        let code = error.code();
        let demoted = code == Some("READONLY");
        let refuses_everything = code.is_some_and(|code| REFUSALS_OF_EVERYTHING.contains(&code));
        if lost || demoted {
            // After a swallowed reply the next ones may answer the wrong calls: never use this connection again.
            let mut current = self.current();
            if current.generation == generation {
                current.connection = None;
            }
        }
        let (kind, words) = if lost {
            (StoreErrorKind::Unreachable, "the store did not answer")
        } else {
            (StoreErrorKind::Refused, "the store refused the call")
        };
        let error = StoreError::new(kind, words).caused_by(error);
        if lost || refuses_everything {
            self.is_down(&error);
        }
        Failure { error, heals_by_connecting: lost || demoted }
    }

    fn is_down(&self, error: &StoreError) {
        if !self.down.swap(true, Ordering::Relaxed) {
            tracing::warn!(error = error as &dyn std::error::Error, "store down");
        }
    }

    fn is_up(&self) {
        if self.down.load(Ordering::Relaxed) && self.down.swap(false, Ordering::Relaxed) {
            tracing::info!("store up");
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(
    connection: &mut MultiplexedConnection,
    verb: &str,
    script: &str,
    encode: &(impl Fn(&mut Cmd) + Sync),
) -> Result<Value, RedisError> {
    let mut cmd = redis::cmd(verb);
    cmd.arg(script);
    encode(&mut cmd);
    cmd.query_async(connection).await
}

/// Small messages must leave at once. A dead peer is noticed by the response timeout.
fn tuned(client: Client) -> Client {
    let settings = TcpSettings::default().set_nodelay(true);
    let info = client.get_connection_info().clone().set_tcp_settings(settings);
    Client::open(info).unwrap_or(client)
}

fn unreachable(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, message)
}
