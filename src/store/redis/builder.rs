//! How a store in Redis is set up.

use std::fmt;
use std::time::Duration;

use redis::{Client, RedisError};

#[cfg(feature = "redis-cluster")]
use super::cluster::Cluster;
use super::link::Link;
use super::{Reach, RedisStore, tls, trial};
use crate::error::{StoreError, StoreErrorKind};

/// Sets a [`RedisStore`] up; [`RedisStore::builder`] begins.
///
/// # Default
///
/// * prefix: `outgate`
/// * response timeout: 1 s
///
/// ```
/// use outgate::RedisStore;
/// use std::time::Duration;
///
/// let builder = RedisStore::builder("redis://127.0.0.1").prefix("billing");
/// let store = builder.response_timeout(Duration::from_millis(500)).open()?;
/// # drop(store);
/// # Ok::<(), outgate::store::StoreError>(())
/// ```
#[must_use]
pub struct RedisStoreBuilder {
    target: Result<Target, StoreError>,
    prefix: String,
    response_timeout: Duration,
}

/// What is connected to.
enum Target {
    Server(Box<Client>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Vec<Client>),
}

impl Target {
    fn server(client: Client) -> Self {
        Self::Server(Box::new(client))
    }
}

impl RedisStoreBuilder {
    pub(super) fn at(url: &str) -> Self {
        Self::to(client(url).map(Target::server))
    }

    pub(super) fn on(client: Client) -> Self {
        Self::to(tls::prepared(client).map(Target::server))
    }

    #[cfg(feature = "redis-cluster")]
    pub(super) fn of_cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Self {
        let seeds: Result<Vec<_>, _> = urls.into_iter().map(|url| node(url.as_ref())).collect();
        let refused = || Err(StoreError::new(StoreErrorKind::Refused, "a Cluster needs the URL of a node at least"));
        Self::to(seeds.and_then(|seeds| if seeds.is_empty() { refused() } else { Ok(Target::Cluster(seeds)) }))
    }

    fn to(target: Result<Target, StoreError>) -> Self {
        Self { target, prefix: "outgate".to_owned(), response_timeout: Duration::from_secs(1) }
    }

    /// What the store's keys begin with: one word, without braces. Stores with different prefixes share nothing.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// For how long an answer is awaited.
    ///
    /// A message is sent twice before its call fails, so that a call ends within two timeouts and two seconds, in a Cluster four.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// The store, once the server has answered and every command that the scripts need has been tried under the prefix.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and when the server cannot be reached now, or refuses something: a password or a permission
    /// is missing, it is a replica, a node of a Cluster with several masters, or older than Redis 7.0. Of a Cluster every node
    /// that has slots is tried.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.open()?;
        match &store.reach {
            Reach::Server(link) => trial::run(link, &store.prefix).await?,
            #[cfg(feature = "redis-cluster")]
            Reach::Cluster(cluster) => cluster.tried(&store.prefix).await?,
        }
        Ok(store)
    }

    /// The store, which connects when it is first needed. What the server refuses, the calls will say.
    ///
    /// # Errors
    ///
    /// When the URL is none, or asks for encryption that no feature brings, or the prefix is empty or has a brace or a blank.
    pub fn open(self) -> Result<RedisStore, StoreError> {
        let Self { target, prefix, response_timeout } = self;
        let target = target?;
        if prefix.is_empty() || prefix.contains(['{', '}']) || prefix.contains(char::is_whitespace) {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "a prefix must not be empty, nor hold braces or blanks",
            ));
        }
        let reach = match target {
            Target::Server(client) => Reach::Server(Link::new(*client, response_timeout).into()),
            #[cfg(feature = "redis-cluster")]
            Target::Cluster(seeds) => Reach::Cluster(Cluster::new(seeds, response_timeout).into()),
        };
        Ok(RedisStore {
            reach,
            prefix: prefix.into(),
            #[cfg(any(test, feature = "testing"))]
            clock: None,
        })
    }
}

fn client(url: &str) -> Result<Client, StoreError> {
    let words = if tls::is_asked_for(url) && !tls::IS_THERE {
        tls::MISSING
    } else {
        "this is no URL of a Redis server, such as redis://127.0.0.1:6379"
    };
    let refused = |error: RedisError| StoreError::new(StoreErrorKind::Refused, words).caused_by(error);
    tls::prepared(Client::open(url).map_err(refused)?)
}

/// A node of a Cluster, as one may be.
#[cfg(feature = "redis-cluster")]
fn node(url: &str) -> Result<Client, StoreError> {
    let client = client(url)?;
    let info = client.get_connection_info();
    let words = if matches!(info.addr(), redis::ConnectionAddr::Unix(_)) {
        "a Cluster is not reached by a socket of this machine"
    } else if info.redis_settings().db() != 0 {
        "a Cluster has no database but 0"
    } else {
        return Ok(client);
    };
    Err(StoreError::new(StoreErrorKind::Refused, words))
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
