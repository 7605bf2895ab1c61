//! The connection to the server: made when needed, replaced when it is no longer to be trusted.

mod connecting;
#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
mod node;
#[cfg(feature = "redis-cluster")]
mod redirected;
#[cfg(feature = "redis-sentinel")]
mod witnessed;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout};

use self::connecting::Made;
#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
pub(super) use self::connecting::{connect, or_why_not};
pub(super) use self::connecting::{in_runtime, tuned};
#[cfg(feature = "redis-cluster")]
pub(super) use self::redirected::Missed;
#[cfg(feature = "redis-sentinel")]
pub(super) use self::witnessed::Witnessed;
use super::call::Call;
use super::fault::{Fault, Said, is_demoted, of_connecting, serves_nobody};
use super::health::Health;
use super::one_at_a_time::OneAtATime;
use super::script::Script;
use super::unreadable::Unreadable;
use crate::error::{StoreError, StoreErrorKind};
use crate::ledger::{Refused, Reply};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A new connection takes so many answers of the server, one after another: to encrypt, to log in, to greet, and to load what calls need.
const ANSWERS: u32 = 4;
/// Whoever connects has come to an end by so much later, where it is polled.
const GRACE: Duration = Duration::from_millis(500);
/// What could not be connected to so lately is not connected to again: queues of one process that wait for a server are many, and so are
/// the processes.
const FRESH: Duration = Duration::from_millis(50);
/// A server that was demoted is connected to again at once, as its address may lead to another one by now, and then so often; one that
/// was promoted no more often, as some calls that write are served where others are refused.
const LEFT_AGAIN: Duration = Duration::from_millis(500);

const REFUSED: &str = "the store refused the call";

/// One connection for all clones of a store.
pub(super) struct Link {
    client: Client,
    /// Of the keys, which are of one format.
    prefix: Box<str>,
    response_timeout: Duration,
    current: Mutex<Current>,
    /// Held by the one call that connects; the others wait for its outcome.
    connecting: OneAtATime,
    /// The newest connection by which anything was answered but what its role is.
    answered: AtomicU64,
    /// Where it is said that a node was connected to which does not know in which format all is kept.
    format_elsewhere: Option<Arc<AtomicBool>>,
    pub(super) health: Health,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// When the last one was made.
    made: Option<Instant>,
    /// Attempts to connect that have ended.
    attempts: u64,
    /// What the last of them came to where it failed, and when.
    failure: Option<(StoreError, Instant)>,
    /// Which connection this is, so that a late failure of an old one does not throw away its successor.
    generation: u64,
    /// The server took no writes as it was made: once it does, the next one is to say which format is kept.
    took_no_writes: bool,
    /// When a connection was last given up as its server was demoted, or promoted.
    left: Option<Instant>,
    /// When the format was last claimed again, as data was lost.
    claimed: Option<Instant>,
}

/// A call that failed, and whether the same call over a new connection may fare better.
#[derive(Clone)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) heals_by_connecting: bool,
    /// It may pass by itself, or where another server takes over.
    #[cfg_attr(not(feature = "redis-sentinel"), expect(dead_code, reason = "there is no other server"))]
    pub(super) passes: bool,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { passes: error.serves_nobody(), error, heals_by_connecting: false }
    }
}

impl Link {
    pub(super) fn new(client: Client, prefix: &str, response_timeout: Duration) -> Self {
        Self {
            client: tuned(client),
            prefix: prefix.into(),
            response_timeout,
            current: Mutex::default(),
            connecting: OneAtATime::within(connects_within(response_timeout) + GRACE),
            answered: AtomicU64::new(0),
            format_elsewhere: None,
            health: Health::default(),
        }
    }

    /// Calls a script.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let (mut connection, generation) = self.connection_for(call).await?;
        let answer = run(&mut connection, call.script(), &|cmd| call.write(cmd)).await;
        self.judged(answer, connection, generation, call).await
    }

    /// Asks it something, and reads the answer.
    pub(super) async fn ask<T>(&self, command: &Cmd, read: impl FnOnce(&Value) -> Option<T>) -> Result<T, StoreError> {
        let (answer, generation) = self.answer_to(command, read).await?;
        self.is_up(generation, false);
        Ok(answer)
    }

    /// The same, and over which connection: of what it says of its role, which tells nothing of whether it serves calls.
    pub(super) async fn answer_to<T>(
        &self,
        command: &Cmd,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<(T, u64), StoreError> {
        let (mut connection, generation) = self.connection().await?;
        match command.query_async(&mut connection).await {
            Ok(answer) => {
                let answer = self.read(generation, || read(&answer).ok_or_else(StoreError::senseless));
                answer.map(|answer| (answer, generation)).map_err(|failure| failure.error)
            }
            Err(error) if Fault::of(&error) == Fault::Lasting => Err(self.refused(error, None)),
            Err(error) => Err(self.failed(error, generation).error),
        }
    }

    /// What an answer means.
    async fn judged(
        &self,
        answer: Result<Value, RedisError>,
        mut connection: MultiplexedConnection,
        generation: u64,
        call: Call<'_>,
    ) -> Result<Reply, Failure> {
        match answer {
            Ok(answer) => {
                let reply = self.read(generation, || call.read(&answer))?;
                let has_written = call.writes() && has_written(&reply);
                self.is_up(generation, has_written);
                if has_written && self.current().took_no_writes {
                    self.leave(generation);
                }
                if matches!(&reply, Reply::Grant(grant) if grant.lost) {
                    // Maybe it is also lost in which format all is kept.
                    Box::pin(self.claim_again(&mut connection)).await;
                }
                Ok(reply)
            }
            Err(error) if error.code() == Some("OUTDATED") => Err(StoreError::from(Refused::Outdated).into()),
            Err(error) if error.code() == Some("DUPLICATE") => Err(StoreError::from(Refused::Duplicate).into()),
            // Not complained of, unless the next connection leads to the same server.
            Err(error) if error.code() == Some("MOVED") && self.leave(generation) => {
                Err(Failure { error: refusal(REFUSED, error), heals_by_connecting: true, passes: false })
            }
            Err(error) if Fault::of(&error) == Fault::Lasting => {
                let write = |cmd: &mut Cmd| call.write(cmd);
                let unreadable = Box::pin(Unreadable::find(&error, &mut connection, &write)).await;
                Err(Failure { error: self.refused(error, unreadable), heals_by_connecting: false, passes: false })
            }
            Err(error) => Err(self.failed(error, generation)),
        }
    }

    /// What is read of an answer, unless it is one to something else.
    fn read<T>(&self, generation: u64, read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, Failure> {
        read().map_err(|error| {
            if self.disconnect(generation, &error) {
                self.health.is_down(&error);
            }
            Failure { error, heals_by_connecting: true, passes: true }
        })
    }

    /// The connection in use, or a new one, and its generation.
    pub(super) async fn connection(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        in_runtime()?;
        let attempts = {
            let current = self.current();
            if let Some(connection) = &current.connection {
                return Ok((connection.clone(), current.generation));
            }
            current.attempts
        };
        // Boxed, as every call would have room for it.
        Box::pin(self.new_connection(attempts)).await
    }

    /// The same for a call, where it is not too late for that by then.
    async fn connection_for(&self, call: Call<'_>) -> Result<(MultiplexedConnection, u64), Failure> {
        let connection = self.connection().await?;
        if call.is_too_late() { Err(StoreError::late().into()) } else { Ok(connection) }
    }

    /// A new one, unless another call has made one since there were so many attempts.
    async fn new_connection(&self, attempts: u64) -> Result<(MultiplexedConnection, u64), StoreError> {
        let _connecting = self.connecting.turn().await;
        let begun = {
            let current = self.current();
            if let Some(connection) = &current.connection {
                return Ok((connection.clone(), current.generation));
            }
            // Somebody else tried while this call waited, or just before: what he found is news enough.
            if let Some((failure, at)) = &current.failure
                && (current.attempts > attempts || at.elapsed() < FRESH)
            {
                return Err(failure.clone());
            }
            current.attempts
        };
        let made = timeout(connects_within(self.response_timeout), self.connect()).await;
        {
            // Where this one took too long, another may have taken its place.
            let current = self.current();
            if let Some(connection) = current.connection.as_ref().filter(|_| current.attempts != begun) {
                return Ok((connection.clone(), current.generation));
            }
        }
        let made = match made {
            Ok(Ok(made)) => made.inspect_err(|error| self.health.complain("format", "", error)),
            Ok(Err(error)) => Err(self.not_connected(error)),
            Err(_) => {
                let error = unreachable(&format!("{}: it does not answer", self.cannot_be_connected_to()));
                self.health.is_down(&error);
                Err(error)
            }
        };
        let mut current = self.current();
        current.attempts += 1;
        current.generation += 1;
        match made {
            Ok(Made { connection, took_no_writes }) => {
                (current.failure, current.took_no_writes) = (None, took_no_writes);
                current.made = Some(Instant::now());
                current.connection = Some(connection.clone());
                Ok((connection, current.generation))
            }
            Err(error) => {
                current.failure = Some((error.clone(), Instant::now()));
                Err(error)
            }
        }
    }

    /// What does not pass by itself is told every minute: somebody has to mend it.
    fn refused(&self, error: RedisError, unreadable: Option<Unreadable>) -> StoreError {
        let code = error.code().unwrap_or_default().to_owned();
        let (key, error) = match unreadable {
            Some(unreadable) => {
                let words = StoreError::new(StoreErrorKind::Refused, unreadable.words());
                (unreadable.key, words.explained_by(Said(error)))
            }
            None => (String::new(), refusal(REFUSED, error)),
        };
        self.health.complain(&code, &key, &error);
        error
    }

    /// Where it is, and never as whom it was to be connected to.
    fn cannot_be_connected_to(&self) -> String {
        format!("the store at {} cannot be connected to", self.client.get_connection_info().addr())
    }

    fn not_connected(&self, error: RedisError) -> StoreError {
        let (fault, code) = (of_connecting(&error), error.code().unwrap_or_default().to_owned());
        let error = not_reached(&self.cannot_be_connected_to(), error);
        if fault == Fault::Lasting {
            self.health.complain(&code, "", &error);
        } else {
            self.health.is_down(&error);
        }
        error
    }

    /// What passes by itself, or with the connection.
    fn failed(&self, error: RedisError, generation: u64) -> Failure {
        let lost = Fault::of(&error) == Fault::Lost;
        let heals_by_connecting = lost || (is_demoted(&error) && self.leave(generation));
        // As idle ones are: the next one tells whether the server is down.
        let was_closed = error.is_connection_dropped() && self.has_answered(generation);
        let error =
            if lost { unreachable("the store did not answer").caused_by(Said(error)) } else { unavailable(error) };
        if lost {
            self.disconnect(generation, &error);
        }
        if !was_closed {
            self.health.is_down(&error);
        }
        Failure { error, heals_by_connecting, passes: true }
    }

    /// After a reply that was swallowed or doubled the next ones may answer the wrong calls: never uses this connection again. Says
    /// whether it was in use. Where it was made just now, and has answered nothing, the next one is of no more use: not at once.
    fn disconnect(&self, generation: u64, why: &StoreError) -> bool {
        let mut current = self.current();
        let was_in_use = current.generation == generation && current.connection.take().is_some();
        if was_in_use && !self.has_answered(generation) && current.made.is_some_and(|at| at.elapsed() < FRESH) {
            current.failure = Some((why.clone(), Instant::now()));
        }
        was_in_use
    }

    fn has_answered(&self, generation: u64) -> bool {
        self.answered.load(Ordering::Relaxed) >= generation
    }

    /// Gives up the connection to a server that was demoted or promoted, unless that was done just before. Says whether another one is to
    /// be had.
    fn leave(&self, generation: u64) -> bool {
        let mut current = self.current();
        if current.generation != generation || current.connection.is_none() {
            return true;
        }
        if current.left.is_some_and(|at| at.elapsed() < LEFT_AGAIN) {
            return false;
        }
        (current.left, current.connection) = (Some(Instant::now()), None);
        true
    }

    /// It has answered something that writes or does not.
    fn is_up(&self, generation: u64, writes: bool) {
        self.answered.fetch_max(generation, Ordering::Relaxed);
        self.health.is_up(writes);
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server that takes no writes would have refused what this is the answer to: an ask that changes nothing writes nothing.
const fn has_written(reply: &Reply) -> bool {
    !matches!(reply, Reply::Grant(grant) if !grant.remembered)
}

/// In which a new connection is made where each answer comes within so long: a network that is slow is none that is down.
pub(super) fn connects_within(response_timeout: Duration) -> Duration {
    CONNECT_TIMEOUT.max(ANSWERS * response_timeout)
}

/// In which a server is found to talk to: it has to be reached, and may have to be asked to log in.
pub(super) fn reached_within(response_timeout: Duration) -> Duration {
    CONNECT_TIMEOUT.max(2 * response_timeout)
}

/// In which a call is answered for which a server had to be looked for, or connected to.
#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
pub(super) fn served_within(response_timeout: Duration) -> Duration {
    connects_within(response_timeout) + response_timeout / 2
}

/// Runs a script by its hash, or by its body where the server has forgotten it.
pub(super) async fn run(
    connection: &mut MultiplexedConnection,
    script: &Script,
    encode: &(impl Fn(&mut Cmd) + Sync),
) -> Result<Value, RedisError> {
    match script.by_hash(encode).query_async(connection).await {
        Err(error) if is_unknown_script(&error) => script.by_body(encode).query_async(connection).await,
        answer => answer,
    }
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(super) fn refusal(message: &str, error: RedisError) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message).caused_by(Said(error))
}

/// What passes by itself.
pub(super) fn unavailable(error: RedisError) -> StoreError {
    let kind = if serves_nobody(&error) { StoreErrorKind::Unavailable } else { StoreErrorKind::Refused };
    StoreError::new(kind, "the store cannot be used now").caused_by(Said(error))
}

/// Why a server cannot be reached, in words and its own.
pub(super) fn not_reached(words: &str, error: RedisError) -> StoreError {
    match of_connecting(&error) {
        Fault::Lost => unreachable(words).caused_by(Said(error)),
        Fault::Passing => unavailable(error),
        Fault::Lasting => refusal(words, error),
    }
}

pub(super) fn unreachable(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, message)
}
