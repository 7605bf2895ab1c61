//! Logs in Redis, shared by a cluster.

#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
mod address;
mod builder;
mod call;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod complaints;
mod fault;
mod format;
mod health;
mod link;
mod one_at_a_time;
mod script;
#[cfg(feature = "redis-sentinel")]
mod sentinel;
mod server;
mod tls;
mod trial;
mod unreadable;
mod upstreams;
mod wire;

use std::fmt;
use std::sync::Arc;

use ::redis::Client;

pub use self::builder::RedisStoreBuilder;
use self::call::Call;
#[cfg(feature = "redis-cluster")]
use self::cluster::Cluster;
use self::link::{Failure, Link};
#[cfg(feature = "redis-sentinel")]
use self::sentinel::Sentinel;
pub use self::upstreams::UpstreamFound;
use super::{Applied, Applying, Store};
use crate::error::StoreError;
use crate::ledger::{Message, Reply};
#[cfg(any(test, feature = "testing"))]
use crate::store::clock::ManualClock;

/// Keeps the logs in one Redis 7.0 or Valkey 7.2, for every process that uses the same server and prefix. Clones share a connection.
///
/// Each message is one script call: one round trip. The server's clock is the only clock. A broken connection, a reply
/// that never comes, a server that restarts, forgets its scripts, turns read-only or has its slots taken over by a replica each heal by
/// themselves: the next call makes a new connection, where the URL may lead to another server by then. Going down and coming up are traced once; that a
/// connection was closed between calls is not, where the next one serves. What does not pass by itself, a missing permission or
/// a key that somebody else wrote to, is a warning at once and every minute, and the error of each call says what to do.
///
/// One server, with the feature `redis-cluster` a Cluster, or with the feature `redis-sentinel` a primary that Sentinels name; one whose `maxmemory-policy` is `noeviction`, as what an
/// evicted log held has to be re-reported.
///
/// # URLs
///
/// | URL | reaches |
/// |---|---|
/// | `redis://user:word@host:6379/2` | database 2, as this user; what is left out is `default`, none, 6379 and 0 |
/// | `rediss://…` | the same, encrypted: by the feature `redis-rustls` with aws-lc-rs, unless the program has installed another provider, or by `redis-native-tls` |
/// | `unix:///run/redis.sock?db=2&user=user&pass=word` | a server on this machine |
///
/// In a user or a password, write characters that mean something in a URL by their codes: `@` as `%40`, `:` as `%3A`, `/` as `%2F`, `#` as `%23`, `?` as `%3F`.
/// A user needs a password; where the server asks for none, any will do. What a URL says beside these, but for `?protocol=3` and `rediss://…#insecure`, is an error. Trusted are the
/// authorities that the machine trusts; certificates of your own go into a client for [`builder_on`](Self::builder_on), or into the file that
/// `SSL_CERT_FILE` names.
///
/// # Default
///
/// * prefix: `outgate`; every key begins with it
/// * response timeout: 1 s; a connection must be made within 4 s
///
/// # Permissions
///
/// [`connect`](Self::connect) tries all that the scripts need.
///
/// ```
/// # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::{Limit, RedisStore, Throttle, Upstream};
///
/// let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let mail = Upstream::new("mail").limit(Limit::per_second(5));
/// let throttle = Throttle::builder().store(store).upstream(mail).build()?;
/// # drop(throttle);
/// # Ok(())
/// # }
/// ```
#[doc = include_str!("../../lua/ACL.md")]
#[derive(Clone)]
pub struct RedisStore {
    reach: Reach,
    prefix: Arc<str>,
    #[cfg(any(test, feature = "testing"))]
    clock: Option<ManualClock>,
}

/// What a store reaches.
#[derive(Clone)]
enum Reach {
    Server(Arc<Link>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Arc<Cluster>),
    #[cfg(feature = "redis-sentinel")]
    Sentinel(Arc<Sentinel>),
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
    ///
    /// ```
    /// # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::RedisStore;
    ///
    /// let client = redis::Client::open("redis://127.0.0.1")?;
    /// let store = RedisStore::builder_on(client).prefix("billing").connect().await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder_on(client: Client) -> RedisStoreBuilder {
        RedisStoreBuilder::on(client)
    }

    /// Sets up a store on a Cluster, of which some nodes are at these URLs; ends in [`connect`](RedisStoreBuilder::connect) or
    /// [`open`](RedisStoreBuilder::open).
    ///
    /// All keys of an upstream lie on one node, and so do those of upstreams that [share limits](crate::Upstream::shares);
    /// different upstreams are spread over the nodes, and so are the [shards](crate::Upstream::shards) of one that is too large for a node. What the first URL says of user, password and encryption goes for all nodes.
    ///
    /// Calls go on while slots are moved and when a replica takes over, as soon as it has. What a primary had not told its
    /// replica by then is re-reported by the processes that were granted it; what processes had been granted that have ended may be granted again.
    ///
    /// ```no_run
    /// # async fn of_cluster() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = outgate::RedisStore::cluster(["redis://10.0.0.1", "redis://10.0.0.2"]).connect().await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis-cluster")]
    pub fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        RedisStoreBuilder::of_cluster(urls)
    }

    /// Sets up a store on the primary of this name, by the Sentinels at these URLs, of which all should be said; ends in [`connect`](RedisStoreBuilder::connect) or
    /// [`open`](RedisStoreBuilder::open).
    ///
    /// What a URL says of user, password and encryption goes for that Sentinel, and its port is 26379 where it says none; for the
    /// servers that is said by [`servers`](RedisStoreBuilder::servers).
    ///
    /// An answer counts once every replica that may be made primary has what was written: so a failover forgets nothing, as long as no replica is left out, and
    /// an old primary that still accepts what is written grants nothing. Each message takes as much longer as the slowest replica takes to
    /// say that it has it, and those of a process come one after another. A replica that has no data yet is not
    /// waited for; one that has stopped or is silent is until most of the Sentinels give it up as well, or for 4 s while most of them answer. Going on without a replica is
    /// a warning: what is granted until it follows again is lost, should it be made primary nevertheless. One of priority 0 is waited for like any
    /// other, as that may change; of one that is further away than a quarter of the response timeout calls stand still for 4 s now and then. `min-replicas-to-write 1`
    /// on the servers forbids going on without any: calls then wait, once all have been silent for `min-replicas-max-lag`.
    ///
    /// Calls go on as soon as the Sentinels name the new primary. As long as none can be reached, they go on with the one that is known, if
    /// its replicas follow it; where half of them or fewer can be, if every replica does that it knows, but for those that most had given up before.
    ///
    /// ```no_run
    /// # async fn by_sentinels() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::RedisStore;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let store = RedisStore::sentinel("mymaster", sentinels).servers("redis://user:word@any/2").connect().await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis-sentinel")]
    pub fn sentinel<U: AsRef<str>>(name: &str, urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        RedisStoreBuilder::by_sentinels(name, urls)
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
    /// ```
    /// use outgate::RedisStore;
    ///
    /// let store = RedisStore::open("redis://127.0.0.1")?; // calls wait until the server is there
    /// # drop(store);
    /// # Ok::<(), outgate::store::StoreError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the URL is none.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).open()
    }

    /// The same server on a clock that the test moves; keys then expire never.
    ///
    /// ```
    /// use outgate::RedisStore;
    /// use outgate::ledger::Stamp;
    /// use outgate::testing::ManualClock;
    ///
    /// let clock = ManualClock::new(Stamp::from_micros(0));
    /// let store = RedisStore::open("redis://127.0.0.1")?.with_clock(clock);
    /// # drop(store);
    /// # Ok::<(), outgate::store::StoreError>(())
    /// ```
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Calls the script of a message. A call whose outcome is unknown is made once more where it may be.
    async fn call(&self, message: &Message) -> Applied {
        message.check()?;
        let call = Call::new(message, self.wire());
        let answer = match self.reach.call(call).await {
            Err(failure) if failure.heals_by_connecting && call.may_repeat() => self.reach.call(call.again()).await,
            answer => answer,
        };
        answer.map_err(|failure| failure.error)
    }

    fn wire(&self) -> wire::Wire<'_> {
        #[cfg(any(test, feature = "testing"))]
        let supplied = self.clock.as_ref().map(ManualClock::now);
        #[cfg(not(any(test, feature = "testing")))]
        let supplied = None;
        wire::Wire::new(&self.prefix, supplied)
    }
}

impl Reach {
    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        match self {
            Self::Server(link) => link.call(call).await,
            // Boxed, as a call of one server would have room for it.
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(cluster) => Box::pin(cluster.call(call)).await,
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel(sentinel) => Box::pin(sentinel.call(call)).await,
        }
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
