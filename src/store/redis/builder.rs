//! How a store in Redis is set up.

use std::fmt;
use std::time::Duration;

use redis::{Client, RedisError};

#[cfg(feature = "redis-sentinel")]
use super::address::Address;
#[cfg(feature = "redis-cluster")]
use super::cluster::Cluster;
use super::link::Link;
#[cfg(feature = "redis-sentinel")]
use super::sentinel::Sentinel;
use super::{Reach, RedisStore, tls, trial};
use crate::error::{StoreError, StoreErrorKind};

/// Nobody waits longer for an answer.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Where a Sentinel listens, unless its URL says otherwise.
#[cfg(feature = "redis-sentinel")]
const SENTINEL_PORT: u16 = 26_379;

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
    #[cfg(feature = "redis-sentinel")]
    Sentinel(Box<Sentinels>),
}

/// Which primary is meant, who names it, and how its servers are connected to.
#[cfg(feature = "redis-sentinel")]
struct Sentinels {
    name: String,
    clients: Vec<Client>,
    servers: Client,
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

    #[cfg(feature = "redis-sentinel")]
    pub(super) fn by_sentinels<U: AsRef<str>>(name: &str, urls: impl IntoIterator<Item = U>) -> Self {
        let clients: Result<Vec<_>, _> = urls.into_iter().map(|url| sentinel(url.as_ref())).collect();
        let target = || {
            let refused = |words| Err(StoreError::new(StoreErrorKind::Refused, words));
            let (clients, servers) = (clients?, client("redis://127.0.0.1")?);
            match (clients.is_empty(), name.is_empty() || name.contains(char::is_whitespace)) {
                (true, _) => refused("the URL of a Sentinel is needed at least"),
                (_, true) => refused("the name of a primary must not be empty, nor hold blanks"),
                _ => Ok(Target::Sentinel(Box::new(Sentinels { name: name.to_owned(), clients, servers }))),
            }
        };
        Self::to(target())
    }

    /// How the servers are connected to that Sentinels name: what this URL says of user, password, database and encryption. Its host and
    /// its port say nothing.
    ///
    /// # Default
    ///
    /// `redis://any/0`: without a user, without encryption
    #[cfg(feature = "redis-sentinel")]
    pub fn servers(mut self, url: &str) -> Self {
        self.target = match self.target {
            Ok(Target::Sentinel(sentinels)) => over_network(url, "the servers are")
                .map(|servers| Target::Sentinel(Box::new(Sentinels { servers, ..*sentinels }))),
            Ok(_) => Err(StoreError::new(StoreErrorKind::Refused, "no Sentinel names the server of this store")),
            Err(error) => Err(error),
        };
        self
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
    /// A new connection is made within four timeouts, or 2 s if that is more: it takes several answers, one after another. A host that says
    /// nothing at all is given up after two timeouts, or 2 s. A message without an answer is sent once more, where it may be. So it fails at the
    /// latest
    ///
    /// * on one server after two timeouts and the time for a connection; where there was none before, that time later. Each time that the server
    ///   has forgotten the script takes up to one timeout more.
    /// * in a Cluster after one timeout and twice the time for a connection.
    /// * behind Sentinels after half a timeout and the time for a connection. Of that it waits for replicas for a quarter of the timeout at a time.
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
            #[cfg(feature = "redis-sentinel")]
            Reach::Sentinel(sentinel) => sentinel.tried(&store.prefix).await?,
        }
        Ok(store)
    }

    /// The store, which connects when it is first needed. What the server refuses, the calls will say.
    ///
    /// # Errors
    ///
    /// When the URL is none, says what nobody would heed, or asks for encryption that no feature brings, or the prefix is empty or has a brace or a blank, or the response timeout
    /// is zero or longer than a minute.
    pub fn open(self) -> Result<RedisStore, StoreError> {
        let Self { target, prefix, response_timeout } = self;
        let target = target?;
        if prefix.is_empty() || prefix.contains(['{', '}']) || prefix.contains(char::is_whitespace) {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "a prefix must not be empty, nor hold braces or blanks",
            ));
        }
        if response_timeout.is_zero() || response_timeout > LONGEST_TIMEOUT {
            let words = "the response timeout of a store must be longer than nothing, and a minute at most";
            return Err(StoreError::new(StoreErrorKind::Refused, words));
        }
        let reach = match target {
            Target::Server(client) => Reach::Server(Link::new(*client, &prefix, response_timeout).into()),
            #[cfg(feature = "redis-cluster")]
            Target::Cluster(seeds) => Reach::Cluster(Cluster::new(seeds, &prefix, response_timeout).into()),
            #[cfg(feature = "redis-sentinel")]
            Target::Sentinel(sentinels) => {
                let Sentinels { name, clients, servers } = *sentinels;
                Reach::Sentinel(Sentinel::new(&name, clients, servers, &prefix, response_timeout).into())
            }
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
    if let Some(words) = unheeded(url) {
        return Err(StoreError::new(StoreErrorKind::Refused, words));
    }
    let words = if tls::is_asked_for(url) && !tls::IS_THERE {
        tls::MISSING
    } else {
        "this is no URL of a Redis server, such as redis://127.0.0.1:6379"
    };
    let refused = |error: RedisError| StoreError::new(StoreErrorKind::Refused, words).caused_by(error);
    tls::prepared(Client::open(url).map_err(refused)?)
}

/// What the URL of a socket may say behind its path.
const SOCKET: [&str; 4] = ["db", "user", "pass", "protocol"];
/// As whom everybody is logged in who says no user.
const DEFAULT_USER: &str = "default";

/// What is wrong with a URL that says something which nobody would heed. That is not repeated: it may be a piece of a password.
fn unheeded(url: &str) -> Option<&'static str> {
    let url = redis::parse_redis_url(url)?;
    let says = |name: &str| url.query_pairs().any(|(said, _)| said == name);
    if url.scheme().contains("unix") {
        if url.fragment().is_some() || url.query_pairs().any(|(name, _)| !SOCKET.contains(&&*name)) {
            return Some(
                "the URL of a socket has nothing but `db`, `user`, `pass` and `protocol` behind a `?`, and nothing behind a `#`: in its                  path, a user or a password write it as %23",
            );
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Some("the URL of a socket names a user or a password before a host: write ?user=user&pass=word");
        }
        let words = "the URL of a socket names a user without a password, as whom nobody would be logged in: write ?user=user&pass=word";
        let is_named = url.query_pairs().any(|(name, user)| name == "user" && user != DEFAULT_USER);
        return (is_named && !says("pass")).then_some(words);
    }
    let is_encrypted = ["rediss", "valkeys"].contains(&url.scheme());
    if url.fragment().is_some_and(|part| !is_encrypted || part != "insecure") {
        return Some(
            "the URL of a Redis server has nothing behind a `#`, but for `#insecure` of `rediss://`: in a user or a password \
             write it as %23",
        );
    }
    if url.query_pairs().any(|(name, _)| name != "protocol") {
        return Some(
            "the URL of a Redis server has nothing behind a `?` but `protocol`: write a database as in redis://host/2, a user \
             and a password as in redis://user:word@host, and a `?` in one of them as %3F",
        );
    }
    (!["", DEFAULT_USER].contains(&url.username()) && url.password().is_none_or(str::is_empty)).then_some(
        "the URL of a Redis server names a user without a password, as whom nobody would be logged in: write both as in \
         redis://user:word@host, with any word for a user that needs none; a password alone as in redis://:word@host",
    )
}

/// A node of a Cluster, as one may be.
#[cfg(feature = "redis-cluster")]
fn node(url: &str) -> Result<Client, StoreError> {
    let client = over_network(url, "a Cluster is")?;
    if client.get_connection_info().redis_settings().db() != 0 {
        return Err(StoreError::new(StoreErrorKind::Refused, "a Cluster has no database but 0"));
    }
    Ok(client)
}

/// A Sentinel, which listens on a port of its own.
#[cfg(feature = "redis-sentinel")]
fn sentinel(url: &str) -> Result<Client, StoreError> {
    let client = over_network(url, "a Sentinel is")?;
    let info = client.get_connection_info();
    let names_port = reqwest::Url::parse(url).is_ok_and(|url| url.port().is_some());
    match info.addr() {
        redis::ConnectionAddr::Tcp(host, _) | redis::ConnectionAddr::TcpTls { host, .. } if !names_port => {
            Address::new(host, SENTINEL_PORT).client(&client)
        }
        _ => Ok(client),
    }
}

/// A server that is not reached by a socket of this machine, as what `is` not.
#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn over_network(url: &str, is: &str) -> Result<Client, StoreError> {
    let client = client(url)?;
    if matches!(client.get_connection_info().addr(), redis::ConnectionAddr::Unix(_)) {
        let words = format!("{is} not reached by a socket of this machine");
        return Err(StoreError::new(StoreErrorKind::Refused, words));
    }
    Ok(client)
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_timeout_that_can_be_none_is_an_error() {
        let opened = |timeout| RedisStore::builder("redis://127.0.0.1").response_timeout(timeout).open();
        for timeout in [Duration::ZERO, LONGEST_TIMEOUT + Duration::from_nanos(1), Duration::MAX] {
            let error = opened(timeout).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("response timeout"), "{timeout:?}: {error}");
        }
        for timeout in [Duration::from_millis(1), LONGEST_TIMEOUT] {
            assert!(opened(timeout).is_ok(), "{timeout:?}");
        }
    }

    #[test]
    fn what_a_url_says_and_nobody_heeds_is_an_error_that_repeats_none_of_it() {
        let name = "s3cret";
        for (rest, why) in [
            ("host/?s3cret=2", "redis://host/2"),
            ("host?protocol=3&s3cret", "redis://host/2"),
            ("s3cret?x@host", "%3F"),
            ("s3cret@host", "redis://user:word@host"),
            ("s3cret:@host/2", "redis://:word@host"),
            ("s3cret#x@host", "%23"),
            ("host/2#s3cret", "%23"),
            ("host/2#", "%23"),
        ] {
            for scheme in ["redis", "rediss", "valkey", "valkeys"] {
                let url = format!("{scheme}://{rest}");
                let stores = [
                    RedisStore::open(&url),
                    #[cfg(feature = "redis-cluster")]
                    RedisStore::cluster(["redis://host", &url]).open(),
                    #[cfg(feature = "redis-sentinel")]
                    RedisStore::sentinel("mymaster", ["redis://host", &url]).open(),
                    #[cfg(feature = "redis-sentinel")]
                    RedisStore::sentinel("mymaster", ["redis://host"]).servers(&url).open(),
                ];
                for store in stores {
                    let Err(error) = store else { panic!("{url} was opened") };
                    let words = format!("{error} {error:?}");
                    let is_missing = !tls::IS_THERE && tls::is_asked_for(&url);
                    assert!(words.contains(why) || (is_missing && words.contains(tls::MISSING)), "{url}: {words}");
                    assert!(!words.contains(name) && !words.contains("x@"), "{url}: {words}");
                }
            }
        }
        for url in ["redis://host?", "redis://user:word@host/2?protocol=3", "redis://:w%23%3F@host/"] {
            assert!(RedisStore::open(url).is_ok(), "{url}");
        }
        for url in ["rediss://user:word@host/2?protocol=3#insecure", "valkeys://host#insecure"] {
            assert_eq!(RedisStore::open(url).is_ok(), tls::IS_THERE, "{url}");
        }
        let error = RedisStore::open("unix:///run/redis.sock?user=s3cret").err().map(|error| error.to_string());
        let words = error.unwrap_or_else(|| panic!("it was opened"));
        assert!(words.contains("user=user&pass=word") && !words.contains(name), "{words}");
    }
}
