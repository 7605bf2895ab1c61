//! What is to be seen of the upstreams of a store.

mod calls;
mod described;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Log, LogUsage, Message, MessageId, PauseUsage, Reply, ScopeId, SeatLimit, Slower, Term};
use outgate::processes::{Counted, DescribedLimit, Description, Kind, Processes, ScopeInUse};
use outgate::store::{StoreError, StoreErrorKind, UpstreamFound};
use outgate::{RedisStore, Store};

use self::calls::calls_of;
use self::described::as_most_do;

/// What limits count that say nothing of it.
const CALLS: &str = "calls";
/// More than ever start within a second.
const MANY: u32 = 1_000_000;

/// An upstream.
pub(crate) struct Seen {
    pub(crate) found: UpstreamFound,
    pub(crate) processes: Processes,
    /// How its processes describe it; of several as most do.
    pub(crate) description: Option<Description>,
    /// How many of them describe it otherwise.
    pub(crate) others: usize,
    /// The pause of the whole upstream, or of all that share limits with it.
    pub(crate) paused: Option<PauseUsage>,
    /// Millionths of the quotas of the whole upstream that are left.
    pub(crate) rate: u32,
    /// That its calls come slower since refusals.
    pub(crate) slower: Option<Slower>,
    pub(crate) limits: Vec<LimitSeen>,
    /// Scopes that are in use.
    pub(crate) scopes: Vec<ScopeInUse>,
    /// Calls that started within the last second, or are booked: of all scopes that are shown, where not all callers share a limit on calls.
    pub(crate) calls: u64,
}

/// An upstream that cannot be read, and why.
pub(crate) struct Unread {
    pub(crate) found: UpstreamFound,
    pub(crate) error: StoreError,
}

/// How much of a limit is used, by everybody or in one scope.
pub(crate) struct LimitSeen {
    pub(crate) text: Arc<str>,
    pub(crate) scope: Option<ScopeInUse>,
    /// Units that have started, and count.
    pub(crate) used: u64,
    /// Units that start soon: they are booked.
    pub(crate) booked: u64,
    /// What is allowed now.
    pub(crate) quota: u64,
    pub(crate) outside: u64,
    /// How long until the next unit, where that is known.
    pub(crate) next: Option<Duration>,
    /// The pause of its scope.
    pub(crate) paused: Option<PauseUsage>,
    pub(crate) rate: u32,
    pub(crate) slower: Option<Slower>,
}

impl Seen {
    /// Callers that wait.
    pub(crate) fn callers(&self) -> u64 {
        self.processes.all.iter().map(|process| u64::from(process.presence.callers)).sum()
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

    /// How long the one had waited who had waited longest, when its process said so last: by now it may have gone.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let waiting = self.processes.all.iter().filter(|process| process.presence.callers > 0);
        waiting.map(|process| process.presence.oldest).max()
    }
}

fn ledger_of(found: &UpstreamFound, description: Option<&Description>, scope: Option<ScopeId>) -> Arc<str> {
    Arc::clone(description.and_then(|description| description.shard_of(scope)).unwrap_or(&found.ledger))
}

/// Every upstream, or one, with so many scopes of each kind. One that cannot be read hides no other.
pub(crate) async fn all(
    store: &RedisStore,
    name: Option<&str>,
    scopes: usize,
) -> Result<Vec<Result<Seen, Unread>>, Box<dyn Error>> {
    let found = match name {
        Some(name) => store.upstreams_named(name).await?,
        None => store.upstreams().await?,
    };
    let mut all = Vec::new();
    for found in found {
        match of(store, found.clone(), scopes).await {
            Ok(seen) => all.extend(seen.map(Ok)),
            // It is not that of one upstream.
            Err(error) if matches!(error.kind(), StoreErrorKind::Unreachable | StoreErrorKind::Unavailable) => {
                return Err(error.into());
            }
            Err(error) => all.push(Err(Unread { found, error })),
        }
    }
    match name {
        Some(name) if all.is_empty() => Err(Unused(unused(name, &store.upstreams().await?)).into()),
        _ => Ok(all),
    }
}

/// An upstream that somebody names: one at least, and several where some of its processes share its limits with others and some do not, or
/// under another name, as while a release is rolled out. And why some of it cannot be read.
pub(crate) async fn those(store: &RedisStore, name: &str) -> Result<(Vec<Seen>, Option<StoreError>), Box<dyn Error>> {
    let (mut seen, mut unread) = (Vec::new(), None);
    for row in all(store, Some(name), 0).await? {
        match row {
            Ok(row) => seen.push(row),
            Err(row) => unread = unread.or(Some(row.error)),
        }
    }
    match unread {
        Some(error) if seen.is_empty() => Err(error.into()),
        unread => Ok((seen, unread)),
    }
}

/// No process uses an upstream that somebody names.
#[derive(Debug)]
pub(crate) struct Unused(String);

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unused {}

fn unused(name: &str, found: &[UpstreamFound]) -> String {
    // Keys outlive those who have left.
    let names: Vec<_> = found.iter().map(|found| &*found.name).filter(|other| *other != name).collect();
    let used = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("no process has used an upstream {name:?} lately; in use: {used}")
}

/// One upstream; nothing where nobody uses it any more.
async fn of(store: &RedisStore, found: UpstreamFound, most: usize) -> Result<Option<Seen>, StoreError> {
    let body = Body::Processes { upstream: Arc::clone(&found.name) };
    let reply = store.apply(&Message::new(Arc::clone(&found.ledger), MessageId::nobodys(), body)).await?;
    let processes = reply.processes().ok_or_else(senseless)?;
    if processes.all.is_empty() {
        return Ok(None);
    }
    let (description, others) = as_most_do(&processes);
    let scopes = ScopeInUse::of(&processes);
    // Nothing limits this log but what the whole upstream is told, and all that share limits with it.
    let own = description.as_ref().and_then(own_of);
    let (whole, _) = usage(store, &found.ledger, vec![Log::new(CALLS, []).of(own)], Vec::new()).await?;
    let whole = whole.into_iter().next().ok_or_else(senseless)?;
    let (mut limits, mut calls) = (Vec::new(), 0);
    if let Some(description) = &description {
        calls = calls_of(store, &found, description, &scopes).await?;
        for (kind, of) in description.kinds.iter().enumerate() {
            if of.is_everybody {
                limits.extend(used(store, &found, description, kind, of.without_value(), None).await?);
                continue;
            }
            for scope in scopes.iter().filter(|scope| scope.kind == of.name).take(most) {
                let seen = used(store, &found, description, kind, Some(scope.scope), Some(scope)).await?;
                limits.extend(seen);
            }
        }
    }
    let (paused, rate, slower) = (whole.paused, whole.rate, whole.slower);
    Ok(Some(Seen { found, processes, description, others, paused, rate, slower, limits, scopes, calls }))
}

/// The scope of all callers of an upstream that shares limits with others.
pub(crate) fn own_of(description: &Description) -> Option<ScopeId> {
    description.kinds.iter().filter(|kind| kind.is_everybody).find_map(Kind::without_value)
}

/// The name of a kind that upstreams have in common as they share limits, without the name of these.
pub(crate) fn common_name<'a>(found: &UpstreamFound, kind: &'a Kind) -> Option<&'a str> {
    kind.name.strip_prefix(&*found.ledger)?.strip_prefix('/')
}

/// How much is used of the limits of one scope, or of those that all callers share.
pub(crate) async fn limits_of(
    store: &RedisStore,
    seen: &Seen,
    scope: Option<ScopeId>,
) -> Result<Vec<LimitSeen>, StoreError> {
    let Some(description) = &seen.description else { return Ok(Vec::new()) };
    let known = seen.scopes.iter().find(|known| Some(known.scope) == scope);
    let mut limits = Vec::new();
    for (kind, of) in description.kinds.iter().enumerate() {
        let is_meant = scope.is_none() == of.is_everybody && known.is_none_or(|known| known.kind == of.name);
        if is_meant {
            let scope = if of.is_everybody { of.without_value() } else { scope };
            limits.extend(used(store, &seen.found, description, kind, scope, known).await?);
        }
    }
    Ok(limits)
}

/// How much is used of the limits of one kind.
async fn used(
    store: &RedisStore,
    found: &UpstreamFound,
    description: &Description,
    kind: usize,
    scope: Option<ScopeId>,
    of: Option<&ScopeInUse>,
) -> Result<Vec<LimitSeen>, StoreError> {
    let (mut logs, seats) = description.of_scope(kind, scope);
    // What counts within this very moment is booked.
    for log in &mut logs {
        log.terms = log.terms.iter().copied().chain([Term::new(MANY, 1)]).collect();
    }
    let (logs, taken) = usage(store, &ledger_of(found, Some(description), scope), logs, seats).await?;
    let mut taken = taken.into_iter();
    let mut limits = Vec::new();
    for limit in description.limits.iter().filter(|limit| limit.kind == kind) {
        let (paused, rate, slower) =
            logs.first().map_or((None, 1_000_000, None), |log| (log.paused, log.rate, log.slower));
        let mut seen = LimitSeen {
            text: Arc::clone(&limit.text),
            scope: of.cloned(),
            used: 0,
            booked: 0,
            quota: limit.quota.into(),
            outside: 0,
            next: None,
            paused,
            rate,
            slower,
        };
        if let Counted::InLog { log, term, units } = limit.counted {
            // Those of other kinds are not among the logs.
            let before = description.logs.iter().take(log).filter(|(of, _)| *of == kind).count();
            let terms = &logs.get(before).ok_or_else(senseless)?.terms;
            let Some((ahead, terms)) = terms.split_last() else { return Err(senseless()) };
            let follows = |other: &DescribedLimit| match other.counted {
                Counted::InLog { log: of, term: first, .. } if of == log && first > term => Some(first),
                _ => None,
            };
            let end = description.limits.iter().filter_map(follows).min().unwrap_or(terms.len());
            let its = terms.get(term..end).unwrap_or_default();
            let (Some(window), next) = (its.first(), its.iter().map(|term| term.next).max()) else {
                return Err(senseless());
            };
            let (units, booked) = (u64::from(units), ahead.used.min(window.used));
            (seen.used, seen.booked) = (units * u64::from(window.used - booked), units * u64::from(booked));
            seen.quota = units * u64::from(window.quota);
            (seen.outside, seen.next) = (units * u64::from(window.outside), next);
        } else {
            seen.used = taken.next().ok_or_else(senseless)?.into();
        }
        limits.push(seen);
    }
    Ok(limits)
}

async fn usage(
    store: &RedisStore,
    ledger: &Arc<str>,
    logs: Vec<Log>,
    seats: Vec<SeatLimit>,
) -> Result<(Vec<LogUsage>, Vec<u32>), StoreError> {
    let body = Body::Usage { logs: logs.into(), seats: seats.into() };
    match store.apply(&Message::new(Arc::clone(ledger), MessageId::nobodys(), body)).await? {
        Reply::Usage { logs, seats } => Ok((logs, seats)),
        _ => Err(senseless()),
    }
}

fn senseless() -> StoreError {
    StoreError::new(StoreErrorKind::Malformed, "the store's answer makes no sense")
}
