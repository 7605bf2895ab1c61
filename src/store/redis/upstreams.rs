//! Which upstreams processes use, by the names of the keys in which they say so.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use redis::Value;

use super::link::Link;
use super::{Reach, RedisStore, trial};
use crate::config::name::fault;
use crate::error::StoreError;

/// Keys that one step of the search looks at.
const AT_ONCE: u32 = 1_000;

/// An upstream that processes use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct UpstreamFound {
    /// What its processes call it.
    pub name: Arc<str>,
    /// Whose logs its calls are charged in: its own name, or that under which several upstreams [share limits](crate::Upstream::shares).
    pub ledger: Arc<str>,
}

impl UpstreamFound {
    /// The upstream of this name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, ledger: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ledger: ledger.into() }
    }
}

impl RedisStore {
    /// The upstreams that processes use which share the prefix, those of the last three minutes: what `outgate status` lists. Looks at the
    /// names of all keys, of every master of a Cluster, in small steps: for people who look, not for each call. Its user needs `+scan`.
    ///
    /// ```no_run
    /// # async fn who() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::store::{RedisStore, UpstreamFound};
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1").await?;
    /// let found = store.upstreams().await?;
    /// assert!(found.contains(&UpstreamFound::new("github", "github")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the store cannot be reached, refuses it, sends the search back to where it is, or is one node of a Cluster and not set up as one.
    pub async fn upstreams(&self) -> Result<Vec<UpstreamFound>, StoreError> {
        self.search("*}:processes*", Wanted::All, named_by).await
    }

    /// The same of one name: none where no process uses it, and several where some share its limits with others and some do not. It is found
    /// also while other masters of a Cluster cannot be reached; then some may be missing.
    ///
    /// ```no_run
    /// # async fn who() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::store::{RedisStore, UpstreamFound};
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1").await?;
    /// let found = store.upstreams_named("mail").await?;
    /// assert_eq!(found, [UpstreamFound::new("mail", "account")]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`upstreams`](Self::upstreams); of a Cluster only where it is not found on the masters that can be reached.
    pub async fn upstreams_named(&self, name: &str) -> Result<Vec<UpstreamFound>, StoreError> {
        let read = |rest: &str| named_by(rest).filter(|found| *found.name == *name);
        self.search("*}:processes*", Wanted::Any, read).await
    }

    /// The names of the ledgers in which the store keeps what it knows of an upstream: its own, and those of its
    /// [shards](crate::Upstream::shards); whether or not any process uses it. Of upstreams that share limits there is one, under the name of these. It looks
    /// as [`upstreams`](Self::upstreams) does.
    ///
    /// ```no_run
    /// # async fn who() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = outgate::RedisStore::connect("redis://127.0.0.1").await?;
    /// for ledger in store.ledgers_of("shop").await? {
    ///     println!("{ledger}"); // shop, shop#1
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`upstreams`](Self::upstreams).
    pub async fn ledgers_of(&self, upstream: &str) -> Result<Vec<Arc<str>>, StoreError> {
        let behind = format!("{}*}}*:state", escaped(upstream));
        self.search(&behind, Wanted::All, |rest| ledger_of(upstream, rest)).await
    }

    /// What is read of the names of keys that match behind the prefix and a brace.
    async fn search<T: Ord>(
        &self,
        behind: &str,
        wanted: Wanted,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, StoreError> {
        let front = format!("{}:v1:{{", self.prefix);
        let pattern = escaped(&front) + behind;
        let mut found = BTreeSet::new();
        let mut take = |key: &str| found.extend(key.strip_prefix(&front).and_then(&read));
        let outcome = match &self.reach {
            Reach::Server(link) => {
                // One that has not all slots would show some upstreams, as if there were no more.
                trial::has_all(&mut link.connection().await?.0).await?;
                scan(link, &pattern, &mut take).await
            }
            #[cfg(feature = "redis-cluster")]
            Reach::Cluster(cluster) => {
                let mut outcome = Ok(());
                for node in cluster.masters().await? {
                    outcome = outcome.and(scan(&node.link, &pattern, &mut take).await);
                }
                outcome
            }
            #[cfg(feature = "redis-sentinel")]
            Reach::Sentinel(sentinel) => scan(&sentinel.reached().await?.link, &pattern, &mut take).await,
        };
        if matches!(wanted, Wanted::All) || found.is_empty() {
            outcome?;
        }
        Ok(found.into_iter().collect())
    }
}

/// What a search has to find.
#[derive(Clone, Copy)]
enum Wanted {
    /// All that there is.
    All,
    /// Something: a master that cannot be reached hides nothing of what is found.
    Any,
}

async fn scan(link: &Link, pattern: &str, take: &mut impl FnMut(&str)) -> Result<(), StoreError> {
    let (mut cursor, mut seen) = ("0".to_owned(), HashSet::new());
    loop {
        let mut step = redis::cmd("SCAN");
        step.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(AT_ONCE);
        let read = |answer: &Value| redis::from_redis_value_ref::<(String, Vec<String>)>(answer).ok();
        let (next, keys) = link.ask(&step, read).await?;
        if next != "0" && !seen.insert(next.clone()) {
            // A server that sends back to where the search was would never end it.
            return Err(StoreError::senseless());
        }
        for key in &keys {
            take(key);
        }
        if next == "0" {
            return Ok(());
        }
        cursor = next;
    }
}

/// The upstream of a key, of which the prefix and a brace were taken away; none that no user can name so.
fn named_by(rest: &str) -> Option<UpstreamFound> {
    let (ledger, kept) = rest.split_once('}')?;
    let name = match kept.strip_prefix(":processes")? {
        "" => ledger,
        of => of.strip_prefix('@')?,
    };
    [name, ledger].iter().all(|name| fault(name).is_none()).then(|| UpstreamFound::new(name, ledger))
}

/// The ledger of a key of the state of an upstream, of one of its shards or of a scope there.
fn ledger_of(upstream: &str, rest: &str) -> Option<Arc<str>> {
    let (ledger, kept) = rest.split_once('}')?;
    let is_its = ledger.strip_prefix(upstream).is_some_and(|shard| shard.is_empty() || shard.starts_with('#'));
    let is_state = kept == ":state" || kept.starts_with('/') && kept.ends_with(":state");
    (is_its && is_state && !ledger.starts_with('~')).then(|| ledger.into())
}

/// A text as a pattern that matches it alone.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if "*?[]\\^-".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_upstream() {
        let found = |name: &str, ledger: &str| Some(UpstreamFound::new(name, ledger));
        let cases = [
            ("up}:processes", found("up", "up")),
            ("account}:processes@mail", found("mail", "account")),
            ("up}:processesx", None),
            ("up}:state", None),
            ("~try-1}:processes", None),
            ("up", None),
            ("a\u{1b}]0;owned\u{7}b}:processes", None),
            ("account}:processes@a\u{1b}b", None),
            ("\u{1b}}:processes@mail", None),
            ("account}:processes@", None),
            ("}:processes", None),
        ];
        for (rest, expected) in cases {
            assert_eq!(named_by(rest), expected, "{rest}");
        }
        let kept = ["up}:state", "up}/5f:state", "up#1}:state", "up-2}:state", "up}:processes", "~up}:state"];
        let ledgers = kept.map(|rest| ledger_of("up", rest));
        assert_eq!(
            ledgers.map(|ledger| ledger.as_deref().map(str::to_owned)),
            [Some("up"), Some("up"), Some("up#1"), None, None, None].map(|of| of.map(str::to_owned))
        );
        assert_eq!(escaped("a*[b]:v1:{"), "a\\*\\[b\\]:v1:{");
    }
}
