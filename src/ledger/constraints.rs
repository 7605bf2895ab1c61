//! What an upstream told of a home: a hold, a wider guard, foreign use. Pure: time is an argument.

use super::outside_use::{Foreign, expected, grid, lapse};
use super::{Cause, Held, Hold, Home, Lesson, Log};
use super::{SlidingLog, Stamp, earliest};
use super::{Term, micros};

/// Thousandths by which an unexplained refusal first widens every span, and the most that there ever are.
const FIRST_WIDENING: u32 = 50;
const MAX_WIDENING: u32 = 1_000;
/// A scope's name up to here says when it comes back after a hold on its upstream.
const NAME: usize = 40;

/// What an upstream told of a home.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    hold: Option<Held>,
    guard: Option<Guard>,
    foreign: Foreign,
}

/// Spans wider by so many thousandths, falling evenly to none.
#[derive(Clone, Copy, Debug)]
struct Guard {
    widened: u32,
    since: Stamp,
    lapse: Stamp,
}

/// What was told of a home and its upstream, as an ask heeds it.
#[derive(Debug)]
pub(crate) struct Heeded<'a> {
    now: Stamp,
    holds: Vec<Held>,
    widened: u32,
    foreign: &'a Foreign,
}

impl Told {
    pub(super) const fn nothing() -> Self {
        Self { hold: None, guard: None, foreign: Foreign::none() }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.hold.is_none() && self.guard.is_none() && self.foreign.is_empty()
    }

    /// What of it still matters.
    fn at(&self, now: Stamp) -> Self {
        let guard = self.guard.filter(|guard| guard.lapse > now);
        Self { hold: self.held(now), guard, foreign: self.foreign.at(now) }
    }

    /// Whether nothing of it matters any more.
    pub(crate) fn is_spent(&self, now: Stamp) -> bool {
        self.held(now).is_none() && self.guard.is_none_or(|guard| guard.lapse <= now) && self.foreign.is_spent(now)
    }

    /// Until when the hold or the guard may delay a start.
    pub(crate) fn until(&self) -> Stamp {
        let (hold, guard) = (self.hold.map(|hold| hold.over()), self.guard.map(|guard| guard.lapse));
        hold.max(guard).unwrap_or(Stamp::from_micros(i64::MIN))
    }

    /// Whether anything of it may delay a start.
    pub(crate) fn may_delay(&self, now: Stamp) -> bool {
        self.until() > now || !self.foreign.is_spent(now)
    }

    /// The hold, while it means anything.
    fn held(&self, now: Stamp) -> Option<Held> {
        self.hold.filter(|hold| hold.forgotten > now)
    }

    /// By how many thousandths spans are wider now.
    pub(crate) fn widened(&self, now: Stamp) -> u32 {
        self.guard.filter(|guard| guard.lapse > now).map_or(0, |guard| guard.widened_at(now))
    }

    /// What an ask of `home` heeds of this, and of what was told of the whole upstream, where this is the home of a scope.
    pub(crate) fn heed(&self, now: Stamp, all: Option<&Self>, home: &Home) -> Heeded<'_> {
        let of_all = all.and_then(|all| all.held(now)).map(|hold| staggered(hold, home.split().1));
        let holds = self.held(now).into_iter().chain(of_all).collect();
        Heeded { now, holds, widened: all.unwrap_or(self).widened(now), foreign: &self.foreign }
    }

    /// Lets nobody send for a while: until when, whether this refusal began it, and when the row of refusals is forgotten.
    pub(crate) fn hold(&mut self, now: Stamp, hold: &Hold) -> (Stamp, bool, Stamp) {
        let mut told = self.at(now);
        let (next, first) = Held::after(told.hold, now, hold);
        if next.forgotten > now {
            told.hold = Some(next);
            *self = told;
        }
        (next.until, first, next.forgotten)
    }

    /// Enters what others use of the same quota by the upstream's reports on `log`. Says how much that is, and whether a refusal
    /// is left that nothing explains.
    pub(crate) fn learn(&mut self, now: Stamp, log: &Log, entries: &SlidingLog, lesson: &Lesson) -> (u32, bool) {
        let (mut told, mut entered, mut most) = (self.at(now), false, 0);
        let counted = lesson.started.unwrap_or(now).plus(micros(lesson.late)).min(now);
        for report in &lesson.reports {
            let (Term { quota, span }, window) = (report.term, micros(report.window));
            if counted.plus(window) <= now {
                continue; // Nothing that the upstream counted counts any more.
            }
            // After so long, entries of before may be forgotten and would look like foreign use: all that came since count.
            let late = counted.plus(grid(span)) < now;
            let used = if late { entries.used(now, span) } else { entries.used_at(counted, window) };
            let used = u32::try_from(used).unwrap_or(u32::MAX);
            let units = expected(quota.saturating_sub(used).saturating_sub(report.remaining)).min(quota);
            let lapse = lapse(now, micros(report.reset), span);
            if units > 0 && lapse > now {
                entered |= told.foreign.enter(&log.name, report.term, units, lapse);
                most = most.max(units);
            }
        }
        let unexplained = lesson.refused && !told.foreign.concerns(&log.name);
        if entered {
            *self = told;
        }
        (most, unexplained)
    }

    /// Widens every span after a refusal that nothing explains; of a call from before they were widened, it is of the same
    /// incident.
    pub(crate) fn widen(&mut self, now: Stamp, lesson: &Lesson) {
        let (started, memory) = (lesson.started.unwrap_or(now), micros(lesson.memory));
        if self.guard.is_some_and(|guard| guard.lapse > now && started < guard.since) {
            return;
        }
        let widened = (2 * self.widened(now)).clamp(FIRST_WIDENING, MAX_WIDENING);
        *self = Self { guard: Some(Guard { widened, since: now, lapse: now.plus(memory.max(1)) }), ..self.at(now) };
    }
}

impl Guard {
    fn widened_at(&self, now: Stamp) -> u32 {
        let length = i128::from(self.lapse.as_micros()) - i128::from(self.since.as_micros());
        let left = (i128::from(self.lapse.as_micros()) - i128::from(now.as_micros())).min(length);
        u32::try_from(i128::from(self.widened) * left / length.max(1)).unwrap_or(0)
    }
}

impl Heeded<'_> {
    fn terms(&self, log: &Log) -> impl Iterator<Item = Term> {
        log.terms.iter().map(|term| self.term(*term))
    }

    /// A term, its span widened.
    pub(crate) fn term(&self, term: Term) -> Term {
        Term { span: wider(term.span, self.widened), ..term }
    }

    /// The end of the longest hold, and the gravest cause.
    pub(crate) fn held(&self) -> Option<(Stamp, Cause)> {
        let lasting = self.holds.iter().filter(|hold| hold.until > self.now).map(|hold| (hold.until, hold.cause));
        lasting.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))
    }

    /// For how long an entry of each log counts, in microseconds.
    pub(crate) fn retentions<'b>(&self, logs: &'b [Log]) -> impl Iterator<Item = i64> + Clone + use<'b> {
        let widened = self.widened;
        logs.iter().map(move |log| wider(log.retention(), widened))
    }

    /// Units missing from a term's quota now.
    pub(crate) fn foreign(&self, log: &Log, term: Term) -> u32 {
        self.foreign.units(&log.name, term, self.now)
    }

    /// The rule, for `units` of a log: the earliest start, not before `floor`.
    pub(crate) fn earliest(
        &self,
        floor: Stamp,
        log: &Log,
        units: u64,
        nth_newest: impl Fn(usize) -> Option<Stamp>,
    ) -> Stamp {
        let count = usize::try_from(units).unwrap_or(usize::MAX);
        let mut start = earliest(floor, self.terms(log), count, &nth_newest);
        if !self.holds.is_empty() {
            let interval = self.terms(log).map(Term::interval).max().unwrap_or(0);
            let newest = nth_newest(1);
            start = self.holds.iter().fold(start, |start, hold| start.max(hold.earliest(newest, interval, units)));
        }
        if !self.foreign.is_empty() {
            for term in log.terms.iter() {
                start = self.foreign.beside(&log.name, *term, self.term(*term), start, units, &nth_newest);
            }
        }
        start
    }
}

/// A span wider by so many thousandths.
fn wider(span: i64, widened: u32) -> i64 {
    span.saturating_add((span / 1_000).saturating_mul(widened.into()))
}

/// The hold on a whole upstream, as a scope sees it: somewhat later, each by its name, so that not all come back in one
/// moment. All are at full rate at the same time.
fn staggered(hold: Held, scope: &str) -> Held {
    let share = scope.bytes().take(NAME).fold(0_u16, |share, byte| share.wrapping_mul(31).wrapping_add(byte.into()));
    let later = hold.recovery.saturating_mul(share.into()) / 131_072;
    Held { until: hold.until.plus(later), recovery: hold.recovery - later, ..hold }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_guard_may_last_for_ever() {
        let lesson = Lesson { memory: Duration::MAX, ..Lesson::default() };
        let (now, mut told) = (Stamp::from_micros(1_795_170_949_790_213), Told::default());
        for widened in [50, 100, 200, 400, 800, 1_000, 1_000] {
            told.widen(now, &lesson);
            assert_eq!((told.widened(now), told.widened(now.plus(1))), (widened, widened - 1));
        }
    }
}
