//! What is to be seen of the upstreams of a store.

mod calls;
mod described;
mod known;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Log, LogUsage, Message, MessageId, PauseUsage, Reply, ScopeId, SeatLimit, Slower, Term};
use outgate::processes::{Counted, DescribedLimit, Description, ScopeInUse};
use outgate::store::{StoreError, StoreErrorKind, UpstreamFound};
use outgate::{RedisStore, Store};

use self::calls::calls_of;
pub(crate) use self::known::{Known, Unused, common_name, those};
use self::known::{ledger_of, own_of};

/// What limits count that say nothing of it.
const CALLS: &str = "calls";
/// More than ever start within a second.
const MANY: u32 = 1_000_000;

/// An upstream, and what is used of its limits.
pub(crate) struct Seen {
    pub(crate) known: Known,
    /// The pause of the whole upstream, or of all that share limits with it.
    pub(crate) paused: Option<PauseUsage>,
    /// Millionths of the quotas of the whole upstream that are left.
    pub(crate) rate: u32,
    /// That its calls come slower since refusals.
    pub(crate) slower: Option<Slower>,
    pub(crate) limits: Vec<LimitSeen>,
    /// Calls that started within the last second: of all scopes that are shown, where not all callers share a limit on calls.
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

/// Every upstream, or one: by a walk through all keys of the store.
pub(crate) async fn found(store: &RedisStore, name: Option<&str>) -> Result<Vec<UpstreamFound>, StoreError> {
    match name {
        Some(name) => store.upstreams_named(name).await,
        None => store.upstreams().await,
    }
}

/// Every upstream, or one that is to be there: how it was found, and with so many scopes of each kind.
pub(crate) async fn at_first(
    store: &RedisStore,
    name: Option<&str>,
    scopes: usize,
) -> Result<(Vec<UpstreamFound>, Vec<Result<Seen, Unread>>), Box<dyn Error>> {
    let found = found(store, name).await?;
    let all = all(store, &found, scopes).await?;
    match name {
        Some(name) if all.is_empty() => Err(Unused::of(store, name).await?.into()),
        _ => Ok((found, all)),
    }
}

/// The upstreams that were found, with so many scopes of each kind. One that cannot be read hides no other.
pub(crate) async fn all(
    store: &RedisStore,
    found: &[UpstreamFound],
    scopes: usize,
) -> Result<Vec<Result<Seen, Unread>>, Box<dyn Error>> {
    let mut all = Vec::new();
    for found in found {
        match of(store, found.clone(), scopes).await {
            Ok(seen) => all.extend(seen.map(Ok)),
            // It is not that of one upstream.
            Err(error) if matches!(error.kind(), StoreErrorKind::Unreachable | StoreErrorKind::Unavailable) => {
                return Err(error.into());
            }
            Err(error) => all.push(Err(Unread { found: found.clone(), error })),
        }
    }
    Ok(all)
}

/// One upstream; nothing where nobody uses it any more.
async fn of(store: &RedisStore, found: UpstreamFound, most: usize) -> Result<Option<Seen>, StoreError> {
    let Some(known) = Known::of(store, found).await? else { return Ok(None) };
    // Nothing limits this log but what the whole upstream is told, and all that share limits with it.
    let own = known.description.as_ref().and_then(own_of);
    let (whole, _) = usage(store, &known.found.ledger, vec![Log::new(CALLS, []).of(own)], Vec::new()).await?;
    let whole = whole.into_iter().next().ok_or_else(senseless)?;
    let (mut limits, mut calls) = (Vec::new(), 0);
    if let Some(description) = &known.description {
        calls = calls_of(store, &known, description).await?;
        for (kind, of) in description.kinds.iter().enumerate() {
            if of.is_everybody {
                limits.extend(used(store, &known.found, description, kind, of.without_value(), None).await?);
                continue;
            }
            for scope in known.scopes.iter().filter(|scope| scope.kind == of.name).take(most) {
                let seen = used(store, &known.found, description, kind, Some(scope.scope), Some(scope)).await?;
                limits.extend(seen);
            }
        }
    }
    let (paused, rate, slower) = (whole.paused, whole.rate, whole.slower);
    Ok(Some(Seen { known, paused, rate, slower, limits, calls }))
}

/// How much is used of the limits of one scope, or of those that all callers share.
pub(crate) async fn limits_of(
    store: &RedisStore,
    upstream: &Known,
    scope: Option<ScopeId>,
) -> Result<Vec<LimitSeen>, StoreError> {
    let Some(description) = &upstream.description else { return Ok(Vec::new()) };
    let known = upstream.scopes.iter().find(|known| Some(known.scope) == scope);
    let mut limits = Vec::new();
    for (kind, of) in description.kinds.iter().enumerate() {
        let is_meant = scope.is_none() == of.is_everybody && known.is_none_or(|known| known.kind == of.name);
        if is_meant {
            let scope = if of.is_everybody { of.without_value() } else { scope };
            limits.extend(used(store, &upstream.found, description, kind, scope, known).await?);
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
