//! Logs in Redis, shared by a cluster.

mod builder;
mod complaints;
mod fault;
mod link;
mod script;
mod server;
mod tls;
mod trial;
mod unreadable;
mod wire;

use std::fmt;
use std::sync::Arc;

use ::redis::{Client, Cmd};

pub use self::builder::RedisStoreBuilder;
use self::link::Link;
use super::{Applied, Applying, Store};
use crate::error::StoreError;
use crate::ledger::Message;
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
/// # URLs
///
/// | URL | reaches |
/// |---|---|
/// | `redis://user:word@host:6379/2` | database 2, as this user; what is left out is `default`, none, 6379 and 0 |
/// | `rediss://…` | the same, encrypted: by the feature `redis-rustls` with aws-lc-rs, unless the program has installed another provider, or by `redis-native-tls` |
/// | `unix:///run/redis.sock?db=2&user=user&pass=word` | a server on this machine |
///
/// A character that has a meaning in a URL is written as `%40`. Trusted are the authorities that the machine trusts; certificates of
/// your own go into a client for [`builder_on`](Self::builder_on), or into the file that `SSL_CERT_FILE` names.
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

    /// Calls the script of a message. A call whose outcome is unknown is made once more where it may be: every message acts once
    /// however often it comes.
    async fn call(&self, message: &Message) -> Applied {
        message.check()?;
        let (wire, script) = (self.wire(), wire::script(message));
        let encode = |cmd: &mut Cmd| wire.write(cmd, message);
        // What it says of the latest time holds for now, and not for a second try.
        let may_repeat = message.latest.is_none();
        let answer = match self.link.call(script, &encode).await {
            Err(failure) if failure.heals_by_connecting && may_repeat => self.link.call(script, &encode).await,
            answer => answer,
        };
        wire::reply(message, &answer.map_err(|failure| failure.error)?)
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

impl Store for RedisStore {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(self.call(message))
    }
}
