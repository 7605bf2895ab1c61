//! Logs in Redis, shared by a cluster.

mod link;
mod script;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Client, Cmd, Value};
use async_trait::async_trait;

use self::link::Link;
use self::script::Script;
use super::{Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, Store};
#[cfg(any(test, feature = "testing"))]
use crate::clock::ManualClock;
use crate::error::{StoreError, StoreErrorKind};

/// Keeps the logs in one Redis 7.0 or Valkey 7.2, for every process that uses the same server and prefix. Clones share a connection.
///
/// Each message is one script call: one round trip. The server's clock is the only clock. A broken connection, a reply
/// that never comes, a server that restarts, forgets its scripts or turns read-only each heal by themselves: the next
/// call makes a new connection. Going down and coming up are traced once.
///
/// For `rediss://` add the `redis` crate with a TLS feature of your choice to your own dependencies: this crate forces none on you.
///
/// # Default
///
/// * prefix: `outgate`; every key begins with it
/// * response timeout: 500 ms; a connection must be made within 1 s
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    prefix: Arc<str>,
    #[cfg(any(test, feature = "testing"))]
    clock: Option<ManualClock>,
}

impl RedisStore {
    /// A store on the server of a `redis://` URL, once it has answered.
    ///
    /// # Errors
    ///
    /// When the URL is none, or the server cannot be reached now. [`RedisStore::open`] does not ask for the latter.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let store = Self::open(url)?;
        store.link.connection().await?;
        Ok(store)
    }

    /// A store on the server of a `redis://` URL, which is connected to when first needed.
    ///
    /// # Errors
    ///
    /// When the URL is none.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let words = if url.starts_with("rediss:") {
            "this needs a TLS feature of the `redis` crate, to be turned on in your own dependencies"
        } else {
            "this is no URL of a Redis server, such as redis://127.0.0.1:6379"
        };
        let client =
            Client::open(url).map_err(|error| StoreError::new(StoreErrorKind::Refused, words).caused_by(error))?;
        Ok(Self::on(client))
    }

    /// A store on a client of the `redis` crate, for settings that a URL cannot express.
    ///
    /// The one place where that crate's types show: it ties you to its version 1.
    #[must_use]
    pub fn from_redis_client(client: Client) -> Self {
        Self::on(client)
    }

    /// The same store under another prefix: what its keys begin with.
    ///
    /// # Errors
    ///
    /// When the prefix is empty or has a brace or a blank.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, StoreError> {
        if prefix.is_empty() || prefix.contains(['{', '}']) || prefix.contains(char::is_whitespace) {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "a prefix must not be empty, nor hold braces or blanks",
            ));
        }
        self.prefix = prefix.into();
        Ok(self)
    }

    /// The same server over a connection of its own, on which an answer is given up after `timeout`.
    ///
    /// A message is sent twice before its call fails, so that a call ends within two timeouts and two seconds.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.link = Arc::new(self.link.with_response_timeout(timeout));
        self
    }

    /// The same server on a clock that the test moves; keys then expire never.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    fn on(client: Client) -> Self {
        Self {
            link: Arc::new(Link::new(client)),
            prefix: "outgate".into(),
            #[cfg(any(test, feature = "testing"))]
            clock: None,
        }
    }

    /// Calls a script. A call whose outcome is unknown is made once more: every message acts once however often it comes.
    async fn call(&self, script: &Script, encode: impl Fn(&mut Cmd) + Sync) -> Result<Value, StoreError> {
        match self.link.call(script, &encode).await {
            Err(failure) if failure.heals_by_connecting => {
                self.link.call(script, &encode).await.map_err(|failure| failure.error)
            }
            answer => answer.map_err(|failure| failure.error),
        }
    }

    fn wire(&self) -> wire::Wire<'_> {
        #[cfg(any(test, feature = "testing"))]
        let supplied = self.clock.as_ref().map(ManualClock::now);
        #[cfg(not(any(test, feature = "testing")))]
        let supplied = None;
        wire::Wire::new(&self.prefix, supplied)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn book(&self, ask: &Ask) -> Result<Grant, StoreError> {
        let wire = self.wire();
        wire::grant(ask, &self.call(script::book(), |cmd| wire.book(cmd, ask)).await?)
    }

    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError> {
        let wire = self.wire();
        self.call(script::hand_back(), |cmd| wire.hand_back(cmd, message)).await.map(drop)
    }

    async fn hold(&self, home: &Home, hold: &Hold) -> Result<Incident, StoreError> {
        let wire = self.wire();
        wire::incident(&self.call(script::hold(), |cmd| wire.hold(cmd, home, hold)).await?)
    }

    async fn learn(&self, home: &Home, log: &Log, lesson: &Lesson) -> Result<Learned, StoreError> {
        let wire = self.wire();
        wire::learned(&self.call(script::learn(), |cmd| wire.learn(cmd, home, log, lesson)).await?)
    }

    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError> {
        let wire = self.wire();
        wire::usage(logs, &self.call(script::usage(), |cmd| wire.usage(cmd, home, logs)).await?)
    }
}
