//! An upstream that has been found to be in order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderName;

use crate::client::auth_breaker::Breaker;
use crate::client::connections::Connections;
use crate::client::estimated::Estimated;
use crate::client::observing::Observer;
use crate::client::retry::Budget;
use crate::client::unlearned::Unlearned;
use crate::config::call::Call;
use crate::config::charges::{Charges, Scopes};
use crate::config::description::Description;
use crate::config::limit::Limit;
use crate::config::name::shown;
use crate::config::upstream::Upstream;
use crate::config::upstream::shards::shard_of;
use crate::counts::Counts;
use crate::error::{AfterRefusals, ConfigError};
use crate::ledger::{Log, ScopeId, SeatLimit, Slower};
use crate::queue::crowd::Crowd;
use crate::queue::handover::Handover;
use crate::queue::pacing::{LATE_AT_MOST, stale_after_all};
use crate::queue::presence::Attendance;
use crate::queue::seats::SeatRules;
use crate::queue::settling::Settling;
use crate::queue::shard::Shard;
use crate::queue::table::Key;
use crate::store::WithoutStore;

/// An upstream, checked. Where it is changed while its calls wait, another takes its place.
#[derive(Debug)]
pub(crate) struct Registered {
    /// Which upstream it is: its place among those registered first, or else a number that no other has.
    index: usize,
    /// Larger than that of any whose place it took.
    edition: u64,
    /// Another has taken its place, or it was removed.
    is_replaced: AtomicBool,
    /// From the one whose place it took.
    pub(crate) handover: Arc<Handover>,
    pub(crate) upstream: Upstream,
    pub(crate) charges: Charges,
    pub(crate) stale_after: Duration,
    pub(crate) counts: Counts,
    pub(crate) crowd: Arc<Crowd>,
    /// Where its scopes lie, one at least.
    shards: Vec<Arc<Shard>>,
    /// Has others know who waits here.
    pub(crate) attendance: Arc<Attendance>,
    pub(crate) settling: Arc<Settling>,
    /// None where nothing is estimated.
    pub(crate) estimated: Option<Arc<Estimated>>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) breaker: Option<Arc<Breaker>>,
    /// Where calls do not wait, and are counted as they would have.
    pub(crate) observer: Option<Arc<Observer>>,
    /// None where it makes no difference whether a call opens one.
    pub(crate) connections: Option<Arc<Connections>>,
    /// What the program calls some scopes.
    scope_names: HashMap<ScopeId, Arc<str>>,
    /// The header that told last how much is left.
    learned_from: Mutex<Option<HeaderName>>,
    pub(crate) unlearned: Unlearned,
    pub(crate) spans: Spans,
}

/// Each limit that refusals may be evidence of, with the span of its term.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans(Arc<[(i64, Limit)]>);

impl Spans {
    fn new(upstream: &Upstream, charges: &Charges) -> Self {
        let logs = [charges.evidence(), charges.calls_of_all()];
        let span = |(log, term, _): (usize, usize, u32)| charges.logs()[log].terms[term].span;
        let all = upstream.limits.iter().zip(charges.limits());
        let of_calls = all.filter(|(_, (log, ..))| logs.contains(&Some(*log)));
        Self(of_calls.map(|(limit, at)| (span(at), limit.clone())).collect())
    }

    /// What callers are told of what refusals have left.
    pub(crate) fn after_refusals(&self, of: Slower) -> AfterRefusals {
        let mut limits = self.0.iter().filter(|(span, _)| *span == of.span).map(|(_, limit)| limit);
        // One of a scope, and one of all: which of them is meant is not said.
        let limit = limits.next().filter(|first| limits.all(|other| other.quota() == first.quota())).cloned();
        AfterRefusals::new(limit, f64::from(of.rate) / 1e6, of.left)
    }
}

impl Registered {
    /// An upstream that is registered first under its name.
    pub(crate) fn new(index: usize, upstream: Upstream) -> Result<Arc<Self>, ConfigError> {
        Self::checked(index, upstream).map(Arc::new)
    }

    /// The same upstream under the same name, added later: `edition` is one that no other has.
    pub(crate) fn added(edition: u64, upstream: Upstream) -> Result<Arc<Self>, ConfigError> {
        let index = usize::try_from(edition).unwrap_or(usize::MAX);
        Self::checked(index, upstream).map(|new| Arc::new(Self { edition, ..new }))
    }

    /// Takes the place of `before`: what was learned of the upstream goes on.
    pub(crate) fn replacing(before: &Self, edition: u64, upstream: Upstream) -> Result<Arc<Self>, ConfigError> {
        let mut new = Self::checked(before.index, upstream)?;
        (new.edition, new.handover) = (edition, Arc::new(Handover::begun()));
        let (old, now) = (&before.upstream, &new.upstream);
        new.crowd = Arc::clone(&before.crowd);
        new.shards.iter_mut().zip(&before.shards).for_each(|(new, before)| Arc::make_mut(new).follow(before));
        if before.home().ledger == new.home().ledger {
            new.attendance = Arc::clone(&before.attendance);
            if new.policy() == WithoutStore::ThrottleLocally && before.policy() != WithoutStore::ThrottleLocally {
                new.attendance.hurry();
            }
        }
        let estimates = |of: &Upstream| (of.estimates.clone(), of.estimates_per_thousand);
        if estimates(old) == estimates(now) {
            new.estimated.clone_from(&before.estimated);
        }
        if old.retry_share == now.retry_share {
            new.budget = Arc::clone(&before.budget);
        }
        if (old.break_after, &old.backoff) == (now.break_after, &now.backoff) && new.breaker.is_some() {
            new.breaker = before.breaker.clone().or(new.breaker);
        }
        if new.observer.is_some() {
            new.observer = before.observer.clone().or(new.observer);
        }
        if new.connections.is_some() {
            new.connections = before.connections.clone().or(new.connections);
        }
        new.learned_from = Mutex::new(before.learned_from());
        Ok(Arc::new(new))
    }

    fn checked(index: usize, upstream: Upstream) -> Result<Self, ConfigError> {
        let charges = upstream.checked_charges(index)?;
        let policy = upstream.without_store.unwrap_or_default();
        let shard = |ledger| Shard::new(ledger, &upstream.name, policy, charges.calendars(&upstream)).into();
        let shards = upstream.ledgers().into_iter().map(shard).collect();
        let counts = Counts::of(&upstream, &charges);
        let crowd = Arc::new(Crowd::new(upstream.max_waiting, counts.clone()));
        // Where nobody is counted by windows no slot comes late.
        let guards = upstream.limits.iter().map(Limit::guard_or_default);
        let stale_after = if upstream.limits.is_empty() { LATE_AT_MOST } else { stale_after_all(guards) };
        let settling = Arc::new(Settling::new(charges.counted(&upstream)));
        if let Some(of) = upstream.settles.iter().find(|of| settling.logs_of(&of.unit).next().is_none()) {
            return Err(ConfigError::new(&upstream.name, "settle_by", format!("no limit counts {}", shown(&of.unit))));
        }
        upstream.check_estimates(&charges)?;
        let estimated = Estimated::new(&upstream, counts.clone());
        let budget = Arc::new(Budget::new(upstream.retry_share));
        let new = |limit| Arc::new(Breaker::new(Arc::clone(&upstream.name), limit, upstream.backoff.clone()));
        let breaker = upstream.break_after.filter(|_| !upstream.observes).map(new);
        let observer = upstream.observes.then(Arc::default);
        let connections = charges.logs().iter().any(Log::minds_cold).then(|| Arc::new(Connections::new()));
        let of_value = |&(value, ref name): &(ScopeId, Arc<str>)| {
            let scope = charges.scopes(&Call::new().of_scope(value), None).narrowest?;
            Some((scope, Arc::clone(name)))
        };
        let scope_names = upstream.scope_names.iter().filter_map(of_value).collect();
        let spans = Spans::new(&upstream, &charges);
        Ok(Self {
            index,
            edition: 0,
            is_replaced: AtomicBool::new(false),
            handover: Arc::new(Handover::none()),
            upstream,
            charges,
            stale_after,
            counts,
            crowd,
            shards,
            attendance: Arc::default(),
            settling,
            estimated,
            budget,
            breaker,
            observer,
            connections,
            scope_names,
            learned_from: Mutex::default(),
            unlearned: Unlearned::default(),
            spans,
        })
    }

    /// The limits on calls in flight of the callers of some scopes.
    pub(crate) fn seats_of(&self, scopes: &Scopes) -> Option<SeatRules> {
        // Every call comes by here: where nothing limits calls in flight it takes no allocation.
        let lease = self.upstream.in_flight.first().map(Limit::lease_or_default)?;
        let limits = self.charges.seats_of(scopes);
        (!limits.is_empty() && !self.upstream.observes).then_some(SeatRules { limits, lease })
    }

    /// The lines for seats of the callers of some scopes, where other callers need the same seats: that which fewest share is the first.
    #[inline]
    pub(crate) fn lines_of(&self, scopes: &Scopes) -> Vec<SeatRules> {
        let Some(rules) = self.charges.is_any_seat_shared().then(|| self.seats_of(scopes)).flatten() else {
            return Vec::new();
        };
        let of = |limit: &SeatLimit| SeatRules { limits: [*limit].into(), lease: rules.lease };
        rules.limits.iter().rev().map(of).collect()
    }

    /// The header that told last how much is left.
    pub(crate) fn learned_from(&self) -> Option<HeaderName> {
        self.learned_from.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn learn_from(&self, header: &HeaderName) {
        let mut last = self.learned_from.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(header) {
            *last = Some(header.clone());
        }
    }

    /// What the program calls a scope.
    pub(crate) fn name_of(&self, scope: ScopeId) -> Option<Arc<str>> {
        self.scope_names.get(&scope).map(Arc::clone)
    }

    /// How others are told of it: a hash, and the text.
    pub(crate) fn description(&self) -> (u64, Arc<str>) {
        let home = self.home();
        let logs = home.calendars.around(self.charges.logs(), home.time.known());
        let text = Description::of(&self.upstream, &self.charges, &logs, &self.scope_names).to_string();
        (Description::hash(&text), text.into())
    }

    /// Where the logs of a scope lie, by the one that few share.
    pub(crate) fn shard(&self, scope: Option<ScopeId>) -> &Arc<Shard> {
        &self.shards[shard_of(scope, self.shards.len())]
    }

    /// Where callers of no scope lie, and what others say of the whole upstream.
    pub(crate) fn home(&self) -> &Arc<Shard> {
        self.shard(None)
    }

    /// All of them, the home first.
    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// The one that the store calls so.
    pub(crate) fn shard_called(&self, ledger: &str) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| &*shard.ledger == ledger)
    }

    /// What becomes of calls while the store cannot answer.
    pub(crate) fn policy(&self) -> WithoutStore {
        self.upstream.without_store.unwrap_or_default()
    }

    /// The stream of messages about some of its scopes: those of upstreams that share limits differ, and those of what took the place of
    /// another.
    pub(crate) fn stream(&self, scopes: &str) -> Arc<str> {
        let name = &self.upstream.name;
        match (self.upstream.ledger() == name, self.edition) {
            (true, 0) => scopes.into(),
            (false, 0) => format!("{scopes}@{name}").into(),
            (true, edition) => format!("{scopes}~{edition}").into(),
            (false, edition) => format!("{scopes}@{name}~{edition}").into(),
        }
    }

    /// Another takes its place, or none: no queue is made for it any more.
    pub(crate) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Release);
    }

    /// Whether its callers have to look for the upstream anew.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// Whether both are one upstream, if not of one edition.
    pub(crate) const fn is_same(&self, other: &Self) -> bool {
        self.index == other.index
    }

    /// Which upstream it is, of whatever edition.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Which of the same upstream it is.
    pub(crate) const fn edition(&self) -> u64 {
        self.edition
    }

    /// Whose queues the callers of a scope stand in: of the scope that few share, where there are several.
    pub(crate) const fn key(&self, scope: Option<ScopeId>) -> Key {
        (self.index, scope)
    }

    /// Whose calls a value is about that is said without a name.
    pub(crate) fn scope_of(&self, value: &[u8]) -> Option<ScopeId> {
        self.charges.scopes(&Call::new().scope(value), None).narrowest
    }
}
