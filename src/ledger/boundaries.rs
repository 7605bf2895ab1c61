//! Boundaries of calendar windows that processes name: where they differ for one log, it is quiet from before the earlier to after
//! the later.
//!
//! `lua/boundaries.lua` says the same in Redis.

use std::sync::Arc;

use super::{Ask, Boundary, Calendar, LEAP, Ledger, Log, Shape, Stamp, Term};

/// The boundaries that were named lately, by the store's own clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Boundaries(Vec<Named>);

/// One boundary, as wide as all who named it make it.
#[derive(Clone, Debug)]
struct Named {
    log: Arc<str>,
    /// Of the term.
    span: i64,
    boundary: Boundary,
    /// When it counts no more, by log time: it is past for everybody, even where the clock was set back since.
    lapse: Stamp,
}

impl Named {
    fn is_of(&self, log: &Log, term: Term) -> bool {
        self.log == log.unit && self.span == term.span
    }
}

impl Boundaries {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are past.
    pub(super) fn are_past(&self, now: Stamp) -> bool {
        self.0.iter().all(|named| named.lapse <= now)
    }

    /// Those that are not past at `since`.
    pub(super) fn at(&self, since: Stamp) -> Self {
        Self(self.0.iter().filter(|named| named.lapse > since).cloned().collect())
    }

    /// A calendar of a log, each of its boundaries as wide as others named it. What counts no more may be kept or not: it widens none.
    pub(super) fn widened(&self, now: Stamp, log: &Log, term: Term, calendar: Calendar) -> Calendar {
        if self.is_empty() {
            return calendar;
        }
        let of = |at: usize| {
            let all = self.0.iter().filter(|named| named.is_of(log, term) && named.lapse > now);
            all.fold(calendar.boundaries[at], |boundary, named| boundary.and(named.boundary, calendar.length(at)))
        };
        Calendar { boundaries: std::array::from_fn(of), ..calendar }
    }

    /// Takes note of the boundaries of a log that are not past by log time, which is ahead of the store's clock by `correction`. Says
    /// whether there was any news.
    fn enter(&mut self, now: Stamp, correction: i64, log: &Log, term: Term, calendar: Calendar) -> bool {
        let [first, .., last] = calendar.boundaries.map(|boundary| boundary.from.plus(correction));
        if now < first || last <= now {
            // By a wrong clock: nothing is granted, and nothing kept.
            return false;
        }
        let (wide, mut is_news) = (self.widened(now, log, term, calendar), false);
        for boundary in wide.boundaries {
            let lapse = boundary.to.plus(correction).plus(calendar.guard).plus(LEAP);
            let covers = |named: &Named| named.is_of(log, term) && named.boundary == boundary && named.lapse >= lapse;
            if lapse <= now || self.0.iter().any(covers) {
                continue;
            }
            let is_within = |named: &Named| {
                named.is_of(log, term) && boundary.from <= named.boundary.from && named.boundary.to <= boundary.to
            };
            let known = self.0.iter().filter(|named| is_within(named)).map(|named| named.lapse).max();
            self.0.retain(|named| !is_within(named));
            let lapse = known.map_or(lapse, |known| known.max(lapse));
            self.0.push(Named { log: Arc::clone(&log.unit), span: term.span, boundary, lapse });
            is_news = true;
        }
        is_news
    }
}

impl Boundary {
    /// This and another, where they are taken to be one: both together are shorter than half a window.
    fn and(self, other: Self, window: i64) -> Self {
        let both = Self::new(self.from.min(other.from), self.to.max(other.to));
        let length = both.to.as_micros().saturating_sub(both.from.as_micros());
        if length.saturating_mul(2) < window { both } else { self }
    }
}

impl Ledger {
    /// Takes note of the boundaries that an ask names.
    pub(super) fn enter_boundaries(&mut self, now: Stamp, ask: &Ask) {
        let correction = self.time.correction();
        for log in ask.logs.iter().filter(|log| log.has_calendar()) {
            let scope = self.scope_mut(log.scope);
            scope.constrain(|of, _| {
                let mut next = of.boundaries.clone();
                let mut is_news = false;
                for term in log.terms.iter() {
                    if let Shape::Calendar(calendar) = term.shape {
                        is_news |= next.enter(now, correction, log, *term, calendar);
                    }
                }
                if is_news {
                    *of = of.kept(now);
                    of.boundaries = next.at(now.plus(-LEAP));
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Grant, Message, MessageId, Reply, Run};

    const HOUR: i64 = 3_600_000_000;
    const GUARD: i64 = 1_000_000;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// Ten units a day, as somebody names it whose midnight is so much later.
    fn log(later: i64) -> Log {
        let midnight = |day: i64| at(later + day * 24 * HOUR);
        let boundaries = [-1, 0, 1, 2].map(|day| Boundary::new(midnight(day), midnight(day)));
        Log::new("calls", [Term::calendar(10, 25 * HOUR, Calendar::new(GUARD, boundaries))])
    }

    fn ask(ledger: &mut Ledger, now: i64, number: u64, log: Log, units: u32) -> Grant {
        let runs = if units > 0 { vec![Run::new(1, [units])] } else { Vec::new() };
        let message = Message::new("up", MessageId::new(1, "", number), Ask::new([log], runs));
        ledger.apply(at(now), &message).ok().and_then(Reply::grant).unwrap()
    }

    fn start(grant: &Grant) -> i64 {
        grant
            .answers(1)
            .find(|answer| answer.verdict.is_granted())
            .map_or(grant.next, |answer| answer.start)
            .as_micros()
    }

    #[test]
    fn it_is_quiet_from_before_the_earlier_to_after_the_later_for_both() {
        for [first, second] in [[0, HOUR], [HOUR, 0]] {
            let mut ledger = Ledger::new();
            ask(&mut ledger, 20 * HOUR, 1, log(first), 10);
            // Nobody of these starts anything: they only say when their midnight is.
            assert_eq!(start(&ask(&mut ledger, 21 * HOUR, 2, log(second), 1)), 25 * HOUR + GUARD);
            assert_eq!(start(&ask(&mut ledger, 21 * HOUR, 3, log(first), 1)), 25 * HOUR + GUARD);
            let mut empty = Ledger::new();
            ask(&mut empty, 20 * HOUR, 1, log(first), 0);
            ask(&mut empty, 20 * HOUR, 2, log(second), 0);
            let quiet = 24 * HOUR - GUARD;
            assert_eq!(start(&ask(&mut empty, quiet - 1, 3, log(first), 1)), quiet - 1);
            assert_eq!(start(&ask(&mut empty, quiet, 4, log(first), 1)), 25 * HOUR);
        }
    }

    #[test]
    fn what_was_named_long_ago_is_forgotten() {
        let mut ledger = Ledger::new();
        ask(&mut ledger, 20 * HOUR, 1, log(0), 0);
        ask(&mut ledger, 20 * HOUR, 2, log(HOUR), 0);
        let count = |ledger: &Ledger| ledger.upstream.constraints().boundaries.0.len();
        assert_eq!(count(&ledger), 2, "this midnight, and the next");
        ask(&mut ledger, 49 * HOUR, 3, log(24 * HOUR), 0);
        assert_eq!(count(&ledger), 2, "of the first nothing is left, the second may still be named, and a third is");
        assert!(!ledger.upstream.constraints().boundaries.are_past(at(50 * HOUR)));
        assert!(ledger.upstream.constraints().boundaries.are_past(at(90 * HOUR)));
    }

    #[test]
    fn what_is_past_widens_no_boundary_whether_it_was_forgotten_or_not() {
        for news in [false, true] {
            let mut ledger = Ledger::new();
            ask(&mut ledger, 24 * HOUR + HOUR / 4, 1, log(HOUR), 10);
            ask(&mut ledger, 24 * HOUR + HOUR / 2, 2, log(0), 0);
            if news {
                // With what this one names what is past is forgotten.
                ask(&mut ledger, 26 * HOUR, 3, log(24 * HOUR), 0);
            }
            assert_eq!(start(&ask(&mut ledger, 26 * HOUR, 4, log(HOUR), 1)), 26 * HOUR, "{news}");
        }
    }

    #[test]
    fn a_boundary_that_others_named_counts_where_the_clock_was_set_back_since() {
        let mut ledger = Ledger::new();
        ask(&mut ledger, 20 * HOUR, 1, log(0), 0);
        ask(&mut ledger, 20 * HOUR, 2, log(HOUR), 0);
        let set_back = 10 * GUARD;
        let ask = Ask::new([log(0)], vec![Run::new(1, [1])]);
        let message =
            Message { known: Some(at(25 * HOUR + 5 * GUARD)), ..Message::new("up", MessageId::new(1, "", 3), ask) };
        let grant = ledger.apply(at(25 * HOUR - 5 * GUARD), &message).ok().and_then(Reply::grant).unwrap();
        assert_eq!(start(&grant), 25 * HOUR + set_back);
    }

    #[test]
    fn boundaries_half_a_window_apart_are_two() {
        let mut ledger = Ledger::new();
        ask(&mut ledger, HOUR, 1, log(0), 0);
        ask(&mut ledger, HOUR, 2, log(-13 * HOUR), 0);
        assert_eq!(start(&ask(&mut ledger, 12 * HOUR, 3, log(0), 1)), 12 * HOUR);
    }
}
