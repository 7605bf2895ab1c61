//! Logs in Redis, shared by a cluster.

mod builder;
mod complaints;
mod fault;
mod link;
mod script;
mod trial;
mod unreadable;
mod wire;

use std::fmt;
use std::sync::Arc;

use ::redis::{Client, Cmd, Value};
use async_trait::async_trait;

pub use self::builder::RedisStoreBuilder;
use self::link::Link;
use self::script::Script;
use super::Store;
use crate::error::StoreError;
use crate::ledger::{Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MessageId};
#[cfg(any(test, feature = "testing"))]
use crate::store::clock::ManualClock;

/// Keeps the logs in one Redis 7.0 or Valkey 7.2, for every process that uses the same server and prefix. Clones share a connection.
///
/// Each message is one script call: one round trip. The server's clock is the only clock. A broken connection, a reply
/// that never comes, a server that restarts, forgets its scripts or turns read-only each heal by themselves: the next
/// call makes a new connection. Going down and coming up are traced once. What does not pass by itself, a missing permission or
/// a key that somebody else wrote to, is a warning at once and every minute, and the error of each call says what to do.
///
/// One server, and no Cluster of several masters; one whose `maxmemory-policy` is `noeviction`, as a log that is evicted is
/// forgotten.
///
/// For `rediss://` add the `redis` crate with a TLS feature of your choice to your own dependencies: this crate forces none on you.
///
/// # Default
///
/// * prefix: `outgate`; every key begins with it
/// * response timeout: 1 s; a connection must be made within 2 s
///
/// # Permissions
///
/// [`connect`](Self::connect) tries all that the scripts need.
#[doc = include_str!("../../lua/ACL.md")]
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    prefix: Arc<str>,
    #[cfg(any(test, feature = "testing"))]
    clock: Option<ManualClock>,
}

impl RedisStore {
    /// Sets up a store on the server of a `redis://` URL; ends in [`connect`](RedisStoreBuilder::connect) or
    /// [`open`](RedisStoreBuilder::open).
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::at(url)
    }

    /// Sets up a store on a client of the `redis` crate, for settings that a URL cannot express.
    ///
    /// The one place where that crate's types show: it ties you to its version 1.
    pub fn builder_on(client: Client) -> RedisStoreBuilder {
        RedisStoreBuilder::on(Ok(client))
    }

    /// A store on the server of a `redis://` URL, once the server has answered and everything that the store needs of it
    /// has been tried.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// A store on the server of a `redis://` URL, which is connected to when first needed.
    ///
    /// # Errors
    ///
    /// When the URL is none.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).open()
    }

    /// The same server on a clock that the test moves; keys then expire never.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Calls a script. A call whose outcome is unknown is made once more where it may be: every message acts once however often
    /// it comes.
    async fn call(
        &self,
        script: &Script,
        may_repeat: bool,
        encode: impl Fn(&mut Cmd) + Sync,
    ) -> Result<Value, StoreError> {
        match self.link.call(script, &encode).await {
            Err(failure) if failure.heals_by_connecting && may_repeat => {
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
        // What it says of the latest time holds for now, and not for a second try.
        let may_repeat = ask.latest.is_none();
        wire::grant(ask, &self.call(script::book(), may_repeat, |cmd| wire.book(cmd, ask)).await?)
    }

    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError> {
        let wire = self.wire();
        self.call(script::hand_back(), true, |cmd| wire.hand_back(cmd, message)).await.map(drop)
    }

    async fn hold(&self, home: &Home, id: MessageId, hold: &Hold) -> Result<Incident, StoreError> {
        let wire = self.wire();
        wire::incident(&self.call(script::hold(), true, |cmd| wire.hold(cmd, home, id, hold)).await?)
    }

    async fn learn(&self, home: &Home, id: MessageId, log: &Log, lesson: &Lesson) -> Result<Learned, StoreError> {
        let wire = self.wire();
        wire::learned(&self.call(script::learn(), true, |cmd| wire.learn(cmd, home, id, log, lesson)).await?)
    }

    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError> {
        let wire = self.wire();
        wire::usage(logs, &self.call(script::usage(), true, |cmd| wire.usage(cmd, home, logs)).await?)
    }
}
