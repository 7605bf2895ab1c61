//! Who uses an upstream, and how they describe it: all that has to be known to tell it something.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Message, MessageId, ScopeId};
use outgate::processes::{Description, Kind, Processes, ScopeInUse};
use outgate::store::{StoreError, UpstreamFound};
use outgate::{RedisStore, Store};

use super::described::as_most_do;
use super::senseless;

/// An upstream, and who uses it.
pub(crate) struct Known {
    pub(crate) found: UpstreamFound,
    pub(crate) processes: Processes,
    /// How its processes describe it; of several as most do.
    pub(crate) description: Option<Description>,
    /// How many of them describe it otherwise.
    pub(crate) others: usize,
    /// Scopes that are in use.
    pub(crate) scopes: Vec<ScopeInUse>,
}

impl Known {
    /// One upstream; nothing where nobody uses it any more.
    pub(super) async fn of(store: &RedisStore, found: UpstreamFound) -> Result<Option<Self>, StoreError> {
        let body = Body::Processes { upstream: Arc::clone(&found.name) };
        let reply = store.apply(&Message::new(Arc::clone(&found.ledger), MessageId::nobodys(), body)).await?;
        let processes = reply.processes().ok_or_else(senseless)?;
        if processes.all.is_empty() {
            return Ok(None);
        }
        let (description, others) = as_most_do(&processes);
        let scopes = ScopeInUse::of(&processes);
        Ok(Some(Self { found, processes, description, others, scopes }))
    }

    /// Callers that wait.
    pub(crate) fn callers(&self) -> u64 {
        self.processes.all.iter().map(|process| u64::from(process.presence.callers)).sum()
    }

    /// How long the one had waited who had waited longest, when its process said so last: by now it may have gone.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let waiting = self.processes.all.iter().filter(|process| process.presence.callers > 0);
        waiting.map(|process| process.presence.oldest).max()
    }

    /// Where the store keeps a scope; or all that is said of the whole upstream. Of all releases that are there, which may have other shards.
    pub(crate) fn ledgers(&self, scope: Option<ScopeId>) -> Vec<Arc<str>> {
        let of = |description: &Description| match scope {
            None if !description.shards.is_empty() => description.shards.clone(),
            _ => vec![ledger_of(&self.found, Some(description), scope)],
        };
        let all: BTreeSet<_> = self.descriptions().iter().flat_map(of).collect();
        if all.is_empty() { vec![Arc::clone(&self.found.ledger)] } else { all.into_iter().collect() }
    }

    /// How its processes describe it, of whatever release.
    pub(crate) fn descriptions(&self) -> Vec<Description> {
        self.processes.descriptions.iter().filter_map(|(.., text)| Description::read(text)).collect()
    }

    /// Whether any process has named a scope, or its program gives it a name.
    pub(crate) fn names(&self, scope: ScopeId) -> bool {
        let mut given = self.description.iter().flat_map(|description| &description.names);
        self.scopes.iter().any(|known| known.scope == scope) || given.any(|(known, _)| *known == scope)
    }
}

pub(super) fn ledger_of(found: &UpstreamFound, description: Option<&Description>, scope: Option<ScopeId>) -> Arc<str> {
    Arc::clone(description.and_then(|description| description.shard_of(scope)).unwrap_or(&found.ledger))
}

/// The scope of all callers of an upstream that shares limits with others.
pub(crate) fn own_of(description: &Description) -> Option<ScopeId> {
    description.kinds.iter().filter(|kind| kind.is_everybody).find_map(Kind::without_value)
}

/// The name of a kind that upstreams have in common as they share limits, without the name of these.
pub(crate) fn common_name<'a>(found: &UpstreamFound, kind: &'a Kind) -> Option<&'a str> {
    kind.name.strip_prefix(&*found.ledger)?.strip_prefix('/')
}

/// An upstream that somebody names: one at least, and several where some of its processes share its limits with others and some do not, or
/// under another name, as while a release is rolled out. And why some of it cannot be read.
pub(crate) async fn those(store: &RedisStore, name: &str) -> Result<(Vec<Known>, Option<StoreError>), Box<dyn Error>> {
    let (mut all, mut unread) = (Vec::new(), None);
    for found in store.upstreams_named(name).await? {
        match Known::of(store, found).await {
            Ok(known) => all.extend(known),
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    match unread {
        Some(error) if all.is_empty() => Err(error.into()),
        None if all.is_empty() => Err(Unused::of(store, name).await?.into()),
        unread => Ok((all, unread)),
    }
}

/// No process uses an upstream that somebody names.
#[derive(Debug)]
pub(crate) struct Unused(String);

impl Unused {
    pub(super) async fn of(store: &RedisStore, name: &str) -> Result<Self, StoreError> {
        let found = store.upstreams().await?;
        // Keys outlive those who have left.
        let names: Vec<_> = found.iter().map(|found| &*found.name).filter(|other| *other != name).collect();
        let used = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Ok(Self(format!("no process has used an upstream {name:?} lately; in use: {used}")))
    }
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unused {}
