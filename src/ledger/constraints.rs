//! What an upstream imposed on a scope: a pause, a wider guard, outside use.

use super::outside_use::{OutsideUse, expected, grid, lapse};
use super::{Cause, LEAP, Log, Pause, Pausing, Report, ScopeId, SlidingLog, Stamp, Term, earliest, micros};

/// Thousandths by which an unexplained refusal first widens every span, and the most that there ever are.
const FIRST_WIDENING: u32 = 50;
const MAX_WIDENING: u32 = 1_000;

/// Where an upstream imposed nothing.
static NOTHING: Constraints = Constraints { pause: None, guard: None, outside: OutsideUse::none() };

/// What an upstream imposed on a scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Constraints {
    pause: Option<Pausing>,
    guard: Option<Guard>,
    outside: OutsideUse,
}

/// Spans wider by so many thousandths, falling evenly to none.
#[derive(Clone, Copy, Debug)]
struct Guard {
    widened: u32,
    since: Stamp,
    lapse: Stamp,
}

/// What is in force for the logs of a scope: what was imposed on it, and on the whole upstream.
#[derive(Debug)]
pub(super) struct InForce<'a> {
    now: Stamp,
    own: Option<Pausing>,
    upstreams: Option<Pausing>,
    widened: u32,
    outside: &'a OutsideUse,
}

impl Constraints {
    pub(super) fn nothing() -> &'static Self {
        &NOTHING
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.pause.is_none() && self.guard.is_none() && self.outside.is_empty()
    }

    /// What of it still matters, or will again where the clock has leapt ahead and is set back.
    fn kept(&self, now: Stamp) -> Self {
        let since = now.plus(-LEAP);
        let guard = self.guard.filter(|guard| guard.lapse > since);
        Self { pause: self.pausing(since), guard, outside: self.outside.at(since) }
    }

    /// Whether nothing of it matters any more.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.pausing(now).is_none() && self.guard.is_none_or(|guard| guard.lapse <= now) && self.outside.is_spent(now)
    }

    /// The pause, while it means anything.
    fn pausing(&self, now: Stamp) -> Option<Pausing> {
        self.pause.filter(|pause| pause.forgotten > now)
    }

    /// By how many thousandths spans are wider now.
    pub(super) fn widened(&self, now: Stamp) -> u32 {
        self.guard.filter(|guard| guard.lapse > now).map_or(0, |guard| guard.widened_at(now))
    }

    /// What is in force for a scope that this was imposed on, and `all` on its upstream.
    pub(super) fn in_force(&self, now: Stamp, all: &Self, scope: Option<ScopeId>) -> InForce<'_> {
        let upstreams = scope.and_then(|scope| all.pausing(now).map(|pause| staggered(pause, scope)));
        InForce { now, own: self.pausing(now), upstreams, widened: all.widened(now), outside: &self.outside }
    }

    /// Lets nobody send for a while: until when, whether this refusal began it, and when the row of refusals is forgotten.
    pub(super) fn pause(&mut self, now: Stamp, pause: &Pause) -> (Stamp, bool, Stamp) {
        let (next, first) = Pausing::after(self.pausing(now), now, pause);
        if next.forgotten > now {
            *self = Self { pause: Some(next), ..self.kept(now) };
        }
        (next.until, first, next.forgotten)
    }

    /// Enters what others use of the same quota by what was reported of `log`. Says how much that is, and whether a refusal is
    /// left that nothing explains.
    pub(super) fn learn(
        &mut self,
        now: Stamp,
        log: &Log,
        entries: Option<&SlidingLog>,
        report: &Report,
    ) -> (u32, bool) {
        let (mut next, mut entered, mut most) = (self.kept(now), false, 0);
        let counted = report.started.unwrap_or(now).plus(micros(report.late)).min(now);
        for of in &report.quotas {
            let (Term { quota, span }, window) = (of.term, micros(of.window));
            if counted.plus(window) <= now {
                continue; // Nothing that the upstream counted counts any more.
            }
            // After so long, entries of before may be forgotten and would look like outside use: all that came since count.
            let late = counted.plus(grid(span)) < now;
            let used = |entries: &SlidingLog| {
                if late { entries.used(now, span) } else { entries.used_at(counted, window) }
            };
            let used = u32::try_from(entries.map_or(0, used)).unwrap_or(u32::MAX);
            let units = expected(quota.saturating_sub(used).saturating_sub(of.remaining)).min(quota);
            let lapse = lapse(now, micros(of.reset), span);
            if units > 0 && lapse > now {
                entered |= next.outside.enter(now, &log.unit, of.term, units, lapse);
                most = most.max(units);
            }
        }
        let unexplained = report.refused && !next.outside.concerns(&log.unit, now);
        if entered {
            *self = next;
        }
        (most, unexplained)
    }

    /// Widens every span after a refusal that nothing explains; of a call from before they were widened, it is of the same
    /// incident.
    pub(super) fn widen(&mut self, now: Stamp, report: &Report) {
        let (started, memory) = (report.started.unwrap_or(now), micros(report.memory));
        if self.guard.is_some_and(|guard| guard.lapse > now && started < guard.since) {
            return;
        }
        let widened = (2 * self.widened(now)).clamp(FIRST_WIDENING, MAX_WIDENING);
        *self = Self { guard: Some(Guard { widened, since: now, lapse: now.plus(memory.max(1)) }), ..self.kept(now) };
    }
}

impl Guard {
    fn widened_at(&self, now: Stamp) -> u32 {
        let length = i128::from(self.lapse.as_micros()) - i128::from(self.since.as_micros());
        let left = (i128::from(self.lapse.as_micros()) - i128::from(now.as_micros())).min(length);
        u32::try_from(i128::from(self.widened) * left / length.max(1)).unwrap_or(0)
    }
}

impl InForce<'_> {
    /// A term, its span widened.
    pub(super) fn term(&self, term: Term) -> Term {
        Term { span: wider(term.span, self.widened), ..term }
    }

    /// The pauses that may delay a start.
    fn pauses(&self) -> impl Iterator<Item = Pausing> {
        self.own.into_iter().chain(self.upstreams)
    }

    /// Whether others use a part of a log's quota at `start`.
    pub(super) fn is_shared(&self, log: &Log, start: Stamp) -> bool {
        self.outside.concerns(&log.unit, start)
    }

    /// Whether a pause still lets calls come slower then.
    pub(super) fn is_recovering(&self, start: Stamp) -> bool {
        self.pauses().any(|pause| start < pause.over())
    }

    /// The end of the longest pause, and the gravest cause.
    pub(super) fn paused(&self) -> Option<(Stamp, Cause)> {
        let lasting = self.pauses().filter(|pause| pause.until > self.now).map(|pause| (pause.until, pause.cause));
        lasting.reduce(longer)
    }

    /// For how long an entry of a log counts, in microseconds.
    pub(super) fn retention(&self, log: &Log) -> i64 {
        wider(log.retention(), self.widened)
    }

    /// Units missing from a term's quota now.
    pub(super) fn outside(&self, log: &Log, term: Term) -> u32 {
        self.outside.units(&log.unit, term, self.now)
    }

    /// The rule, for `units` of a log: the earliest start, not before `floor`.
    pub(super) fn earliest(
        &self,
        floor: Stamp,
        log: &Log,
        units: u64,
        nth_newest: impl Fn(usize) -> Option<Stamp>,
    ) -> Stamp {
        let count = usize::try_from(units).unwrap_or(usize::MAX);
        let mut start = earliest(floor, log.terms.iter().map(|term| self.term(*term)), count, &nth_newest);
        if self.own.is_some() || self.upstreams.is_some() {
            let interval = log.terms.iter().map(|term| self.term(*term).interval()).max().unwrap_or(0);
            let newest = nth_newest(1);
            start = self.pauses().fold(start, |start, pause| start.max(pause.earliest(newest, interval, units)));
        }
        if !self.outside.is_empty() {
            for term in log.terms.iter() {
                start = self.outside.beside(&log.unit, *term, self.term(*term), start, units, &nth_newest);
            }
        }
        start
    }
}

/// Of two pauses the longer, for the graver cause.
pub(super) fn longer(one: (Stamp, Cause), other: (Stamp, Cause)) -> (Stamp, Cause) {
    (one.0.max(other.0), one.1.max(other.1))
}

/// A span wider by so many thousandths.
fn wider(span: i64, widened: u32) -> i64 {
    span.saturating_add((span / 1_000).saturating_mul(widened.into()))
}

/// The pause of a whole upstream, as a scope sees it: somewhat later, each by its hash, so that not all come back in one
/// moment. All are at full rate at the same time.
fn staggered(pause: Pausing, scope: ScopeId) -> Pausing {
    let later = pause.recovery.saturating_mul(scope.first_bits().into()) / 131_072;
    Pausing { until: pause.until.plus(later), recovery: pause.recovery - later, ..pause }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::QuotaReport;

    #[test]
    fn a_guard_may_last_for_ever() {
        let report = Report { memory: Duration::MAX, ..Report::default() };
        let (now, mut constraints) = (Stamp::from_micros(1_795_170_949_790_213), Constraints::default());
        for widened in [50, 100, 200, 400, 800, 1_000, 1_000] {
            constraints.widen(now, &report);
            assert_eq!((constraints.widened(now), constraints.widened(now.plus(1))), (widened, widened - 1));
        }
    }

    #[test]
    fn what_lapsed_while_the_clock_had_leapt_ahead_matters_again_when_it_is_set_back() {
        let (at, log) = (Stamp::from_micros, Log::new("calls", [Term::new(10, 60_000_000)]));
        let report = |remaining, refused| Report {
            quotas: vec![QuotaReport::new(log.terms[0], Duration::from_secs(60), remaining, Duration::from_secs(1))],
            refused,
            memory: Duration::from_secs(5),
            ..Report::default()
        };
        let mut constraints = Constraints::default();
        constraints.pause(at(0), &Pause::new(Duration::from_secs(5)));
        constraints.widen(at(0), &report(10, true));
        constraints.learn(at(0), &log, None, &report(4, false));
        let (leapt, other) = (at(10_000_000), Log::new("points", log.terms.clone()));
        assert!(constraints.is_spent(leapt));
        assert_eq!(constraints.learn(leapt, &log, None, &report(10, true)), (0, true), "nothing explains it then");
        constraints.learn(leapt, &other, None, &report(1, false));
        assert_eq!(constraints.widened(at(0)), 50);
        let nothing = Constraints::default();
        let in_force = constraints.in_force(at(0), &nothing, None);
        assert_eq!(in_force.paused(), Some((at(5_000_000), Cause::Refusal)));
        assert_eq!(in_force.outside(&log, log.terms[0]), 7);
    }

    #[test]
    fn scopes_come_back_one_by_one_within_half_of_the_recovery() {
        let mut all = Constraints::default();
        let pause = Pause { recovery: Duration::from_micros(131_072), ..Pause::new(Duration::from_millis(1)) };
        all.pause(Stamp::from_micros(0), &pause);
        let nothing = Constraints::default();
        let until = |bits: u128| {
            let scope = ScopeId::from_bits(bits << 112);
            nothing.in_force(Stamp::from_micros(0), &all, Some(scope)).paused().map(|(until, _)| until.as_micros())
        };
        assert_eq!([until(0), until(1), until(65_535)], [Some(1_000), Some(1_001), Some(66_535)]);
        assert_eq!(nothing.in_force(Stamp::from_micros(0), &all, None).paused(), None, "it is the upstream's own");
    }
}
