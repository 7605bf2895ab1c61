//! What is in force for the logs of a scope: what was imposed on it, and on the whole upstream.

use std::cell::Cell;

use super::boundaries::Boundaries;
use super::cold::ColdCalls;
use super::constraints::Constraints;
use super::outside_use::OutsideUse;
use super::pause::Pausing;
use super::rate::{FULL, Rate, lowered};
use super::rule::{Entries, earliest};
use super::{Log, PauseUsage, Reason, ScopeId, Shape, Slower, Stamp, Term};

/// So often a start is looked for where one rule moves it to where another does not allow it.
const ROUNDS: usize = 16;

/// What is in force for the logs of a scope.
#[derive(Debug)]
pub(super) struct InForce<'a> {
    now: Stamp,
    /// By how much log time is ahead of the store's clock.
    correction: i64,
    /// A call that looks whether a pause still holds lengthens it for all others.
    own: Cell<Option<Pausing>>,
    upstreams: Cell<Option<Pausing>>,
    /// Whose scope, where it is not the whole upstream.
    scope: Option<ScopeId>,
    rates: [Option<Rate>; 2],
    /// Millionths of the quotas that are left by hand.
    by_hand: i64,
    cold: &'a ColdCalls,
    outside: &'a OutsideUse,
    boundaries: &'a Boundaries,
    /// Nobody starts before: data was lost.
    settles: Stamp,
}

impl<'a> InForce<'a> {
    /// What is in force at `now` for a scope that `own` was imposed on, and `all` on its upstream.
    pub(super) fn new(now: Stamp, (own, scope): (&'a Constraints, Option<ScopeId>), all: &Constraints) -> Self {
        // What is void since the whole upstream was released.
        let released = scope.map_or(Stamp::NEVER, |_| all.releases.by_hand());
        let slow_of = |of: &Constraints, since: Stamp| of.slow.filter(|slow| slow.until > now && slow.began >= since);
        let rate_of = |of: &Constraints, since| of.rate_since(now, since).filter(|rate| rate.lapse() > now);
        let others = scope.map(|_| all);
        let slow = [slow_of(own, released), others.and_then(|all| slow_of(all, Stamp::NEVER))];
        Self {
            now,
            correction: 0,
            own: Cell::new(own.pausing(now).filter(|pause| pause.began >= released)),
            upstreams: Cell::new(others.and_then(|all| all.pausing(now))),
            scope,
            rates: [rate_of(own, released), others.and_then(|all| rate_of(all, Stamp::NEVER))],
            by_hand: slow.iter().flatten().map(|slow| slow.factor).min().unwrap_or(FULL),
            cold: own.cold(),
            outside: own.outside(),
            boundaries: &own.boundaries,
            settles: own.loss.map_or(Stamp::NEVER, |loss| loss.settles),
        }
    }

    /// The same where log time is ahead of the store's clock by so many microseconds.
    pub(super) const fn corrected_by(mut self, correction: i64) -> Self {
        self.correction = correction;
        self
    }

    /// A term of a log, its quota lowered, and its boundaries by log time, as wide as others named them.
    pub(super) fn term(&self, log: &Log, mut term: Term) -> Term {
        if let Shape::Calendar(calendar) = term.shape {
            let wide = self.boundaries.widened(self.now, log, term, calendar);
            term.shape = Shape::Calendar(wide.later_by(self.correction));
        }
        let rates = self.rates.iter().flatten().map(|rate| rate.factor_of(term, self.now));
        let factor = rates.min().unwrap_or(FULL).min(self.by_hand);
        lowered(term, factor)
    }

    /// The pauses that may delay a start.
    fn pauses(&self) -> impl Iterator<Item = Pausing> {
        let upstreams = self.upstreams.get().zip(self.scope).map(|(pause, scope)| staggered(pause, scope));
        self.own.get().into_iter().chain(upstreams)
    }

    /// Whether a call that starts then is to look whether a pause still holds.
    pub(super) fn is_looked_at(&self, start: Stamp) -> bool {
        self.pauses().any(|pause| pause.is_looked_at(start))
    }

    /// A call that starts then looks whether the pauses still hold, that of this scope only where the call is charged here:
    /// nobody else does so for a while.
    pub(super) fn look(&self, start: Stamp, is_charged: bool) {
        let looked = |pause: Pausing| if pause.is_looked_at(start) { pause.looked(start) } else { pause };
        if is_charged || self.scope.is_none() {
            self.own.set(self.own.get().map(looked));
        }
        self.upstreams.set(self.upstreams.get().map(looked));
    }

    /// The pause of the scope itself, and that of its upstream, as they are now.
    pub(super) const fn pausing(&self) -> [Option<Pausing>; 2] {
        [self.own.get(), self.upstreams.get()]
    }

    /// Whether calls that start then come one after another.
    pub(super) fn comes_one_by_one(&self, log: &Log, start: Stamp) -> bool {
        let is_outside = |term: &Term| self.outside.since(&log.unit, *term, start).is_some();
        let is_shared = log.terms.iter().any(is_outside) || self.cold.concern(&log.unit, self.now);
        is_shared || self.pauses().any(|pause| start < pause.over())
    }

    /// Whether a pause is over, and calls come slower now.
    pub(super) fn is_after_pause(&self) -> bool {
        self.pauses().any(|pause| pause.until <= self.now && self.now < pause.over())
    }

    /// The end of the longest pause, and the gravest reason.
    pub(super) fn paused(&self) -> Option<(Stamp, Reason)> {
        let lasting = self.pauses().filter(|pause| pause.until > self.now).map(|pause| (pause.until, pause.reason()));
        lasting.reduce(longer)
    }

    /// The end of the last pause that is remembered, whether it lasts or not, and the gravest reason.
    pub(super) fn last_pause(&self) -> Option<(Stamp, Reason)> {
        self.pauses().map(|pause| (pause.until, pause.reason())).reduce(longer)
    }

    /// The pause that lasts longest, for whoever asks.
    pub(super) fn longest_pause(&self) -> Option<PauseUsage> {
        let pause = self
            .pauses()
            .filter(|pause| pause.until > self.now)
            .reduce(|one, other| if other.until > one.until { other } else { one })?;
        let (left, told) = (pause.until.since(self.now), pause.told.since(self.now));
        let (since, Reason { cause, status }) = (self.now.since(pause.began), pause.reason());
        Some(PauseUsage::new(left, told.max(left), since, cause, status))
    }

    /// Millionths of the quotas that are left of those that a rate is for.
    pub(super) fn rate(&self) -> u32 {
        let rates = self.rates.iter().flatten().map(|rate| rate.factor(self.now));
        u32::try_from(rates.min().unwrap_or(FULL).min(self.by_hand).min(FULL)).unwrap_or(u32::MAX)
    }

    /// That calls come slower since refusals: by a rate, or one after another.
    pub(super) fn slower(&self) -> Option<Slower> {
        let of_rate = |rate: &Rate| {
            let left = u32::try_from(rate.factor(self.now)).ok().filter(|left| i64::from(*left) < FULL)?;
            Some(Slower::new(left, rate.span(), rate.lapse().since(self.now)))
        };
        let of_pause = |pause: Pausing| {
            let left = pause.over().since(self.now);
            (pause.recovery > 0 && !left.is_zero()).then(|| Slower::new(1_000_000, 0, left))
        };
        self.rates.iter().flatten().filter_map(of_rate).chain(self.pauses().filter_map(of_pause)).reduce(Slower::and)
    }

    /// What rates leave of a log's terms.
    pub(super) fn terms(&self, log: &Log) -> impl Iterator<Item = Term> {
        log.terms.iter().map(|term| self.term(log, *term))
    }

    /// For how long an entry of a log counts, in microseconds.
    pub(super) fn retention(&self, log: &Log) -> i64 {
        self.terms(log).map(|term| term.span).max().unwrap_or(0)
    }

    /// Units missing from a term's quota now.
    pub(super) fn outside(&self, log: &Log, term: Term) -> u32 {
        self.outside.units(&log.unit, term, self.now)
    }

    /// Since when others are known to use a part of a term's quota.
    pub(super) fn outside_since(&self, log: &Log, term: Term) -> Option<Stamp> {
        self.outside.since(&log.unit, term, self.now)
    }

    /// Units of a term that cold calls take, and the log counts no more.
    pub(super) fn cold(&self, log: &Log, term: Term) -> u64 {
        self.cold.units(&log.unit, &term, self.now)
    }

    /// The rule, for `units` of a log: the earliest start, not before `floor`.
    pub(super) fn earliest(&self, floor: Stamp, log: &Log, units: u64, entries: &impl Entries) -> Stamp {
        until_nothing_moves(log.has_calendar(), floor, |start| self.earliest_once(start, log, units, entries))
    }

    fn earliest_once(&self, floor: Stamp, log: &Log, units: u64, entries: &impl Entries) -> Stamp {
        let (count, nth_newest) = (usize::try_from(units).unwrap_or(usize::MAX), |n| entries.nth_newest(n));
        let floor = floor.max(self.settles);
        let mut start =
            earliest(self.now, floor, log.terms.iter().map(|term| (*term, self.term(log, *term))), count, entries);
        if self.own.get().is_some() || self.upstreams.get().is_some() {
            let interval = log.terms.iter().map(|term| self.term(log, *term).interval()).max().unwrap_or(0);
            let newest = nth_newest(1);
            start = self.pauses().fold(start, |start, pause| start.max(pause.earliest(newest, interval, units)));
        }
        if !self.outside.is_empty() {
            for term in log.terms.iter().filter(|term| term.slides()) {
                start = self.outside.beside(&log.unit, *term, self.term(log, *term), start, units, nth_newest);
            }
        }
        self.cold.earliest(start, log, |term| self.term(log, term), units, entries)
    }
}

/// The start that nothing moves any more: before a boundary of a calendar one that something else moves may be moved again.
pub(super) fn until_nothing_moves(has_calendar: bool, floor: Stamp, earliest: impl Fn(Stamp) -> Stamp) -> Stamp {
    let (mut start, mut found) = (floor, earliest(floor));
    for _ in 1..if has_calendar { ROUNDS } else { 1 } {
        if found == start {
            break;
        }
        (start, found) = (found, earliest(found));
    }
    found
}

/// That calls come slower since refusals, by what is in force in any of these scopes.
pub(super) fn slower(scopes: &[InForce<'_>]) -> Option<Slower> {
    scopes.iter().filter_map(InForce::slower).reduce(Slower::and)
}

/// Of two pauses the longer, for the graver reason.
pub(super) fn longer(one: (Stamp, Reason), other: (Stamp, Reason)) -> (Stamp, Reason) {
    (one.0.max(other.0), one.1.or_graver(other.1))
}

/// The pause of a whole upstream, as a scope sees it: somewhat later, each by its hash, so that not all come back in one
/// moment. All are at full rate at the same time.
fn staggered(pause: Pausing, scope: ScopeId) -> Pausing {
    let later = pause.recovery.saturating_mul(scope.first_bits().into()) / 131_072;
    Pausing { until: pause.until.plus(later), recovery: pause.recovery - later, ..pause }
}
