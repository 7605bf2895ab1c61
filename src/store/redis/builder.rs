//! How a store in Redis is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Client, RedisError};

use super::link::Link;
use super::{RedisStore, tls, trial};
use crate::error::{StoreError, StoreErrorKind};

/// Sets a [`RedisStore`] up; [`RedisStore::builder`] begins.
///
/// # Default
///
/// * prefix: `outgate`
/// * response timeout: 1 s
#[must_use]
pub struct RedisStoreBuilder {
    client: Result<Client, StoreError>,
    prefix: String,
    response_timeout: Duration,
}

impl RedisStoreBuilder {
    pub(super) fn at(url: &str) -> Self {
        let words = if tls::is_asked_for(url) && !tls::IS_THERE {
            tls::MISSING
        } else {
            "this is no URL of a Redis server, such as redis://127.0.0.1:6379"
        };
        let refused = |error: RedisError| StoreError::new(StoreErrorKind::Refused, words).caused_by(error);
        Self::on(Client::open(url).map_err(refused))
    }

    pub(super) fn on(client: Result<Client, StoreError>) -> Self {
        Self { client, prefix: "outgate".to_owned(), response_timeout: Duration::from_secs(1) }
    }

    /// What the store's keys begin with: one word, without braces. Stores with different prefixes share nothing.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// For how long an answer is awaited.
    ///
    /// A message is sent twice before its call fails, so that a call ends within two timeouts and two seconds.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// The store, once the server has answered and every command that the scripts need has been tried under the prefix.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and when the server cannot be reached now, or refuses something: a password or a permission
    /// is missing, it is a replica, a node of a Cluster with several masters, or older than Redis 7.0.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.open()?;
        let (mut connection, _) = store.link.connection().await?;
        trial::run(&mut connection, &store.prefix).await?;
        Ok(store)
    }

    /// The store, which connects when it is first needed. What the server refuses, the calls will say.
    ///
    /// # Errors
    ///
    /// When the URL is none, or asks for encryption that no feature brings, or the prefix is empty or has a brace or a blank.
    pub fn open(self) -> Result<RedisStore, StoreError> {
        let Self { client, prefix, response_timeout } = self;
        let client = tls::prepared(client?)?;
        if prefix.is_empty() || prefix.contains(['{', '}']) || prefix.contains(char::is_whitespace) {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                "a prefix must not be empty, nor hold braces or blanks",
            ));
        }
        Ok(RedisStore {
            link: Arc::new(Link::new(client, response_timeout)),
            prefix: prefix.into(),
            #[cfg(any(test, feature = "testing"))]
            clock: None,
        })
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
