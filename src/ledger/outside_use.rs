//! Outside use: what others use of the same quota.

use std::sync::Arc;

use super::{Stamp, Term};

/// Ends closer together than this part of a span are one, so that a term has few steps; and others are taken to use as large
/// a part of what they have used by the time that ours arrive.
const STEPS: u32 = 16;

/// Units of one term that others have used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    log: Arc<str>,
    /// The term's, unwidened.
    span: i64,
    units: u32,
    /// When they count no more.
    lapse: Stamp,
}

/// What others use of the quotas of a scope: for each term, in order of their ends, ever fewer units.
#[derive(Clone, Debug, Default)]
pub(super) struct OutsideUse(Vec<Step>);

impl OutsideUse {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    /// What of it still counts.
    pub(super) fn at(&self, now: Stamp) -> Self {
        Self(self.0.iter().filter(|step| step.lapse > now).cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing of it counts any more.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.0.iter().all(|step| step.lapse <= now)
    }

    /// Units missing from a term's quota now.
    pub(super) fn units(&self, log: &str, term: Term, now: Stamp) -> u32 {
        self.of(log, term).find(|step| step.lapse > now).map_or(0, |step| step.units)
    }

    /// Whether others use any part of a log's quotas now.
    pub(super) fn concerns(&self, log: &str, now: Stamp) -> bool {
        self.0.iter().any(|step| *step.log == *log && step.lapse > now)
    }

    /// Enters units that others have used until `lapse`, and says whether that is news. Of two that last equally long the
    /// greater number counts.
    pub(super) fn enter(&mut self, now: Stamp, log: &Arc<str>, term: Term, units: u32, lapse: Stamp) -> bool {
        let grid = grid(term.span);
        let outlasts = |step: &Step| step.lapse > now && step.units >= units && step.lapse.plus(grid) >= lapse;
        if self.of(log, term).any(outlasts) {
            return false;
        }
        let same = |step: &Step| *step.log == **log && step.span == term.span;
        self.0.retain(|step| !same(step) || step.units > units || step.lapse > lapse.plus(grid));
        let at = self.0.iter().position(|step| same(step) && step.lapse > lapse).unwrap_or(self.0.len());
        self.0.insert(at, Step { log: Arc::clone(log), span: term.span, units, lapse });
        true
    }

    /// The earliest start, not before `start`, under a term of which others use a part: until each step lapses, its units are
    /// missing from the quota, and ours come one after another, so that each can be answered before the next. `wide` is the
    /// term, widened.
    pub(super) fn beside(
        &self,
        log: &str,
        term: Term,
        wide: Term,
        mut start: Stamp,
        units: u64,
        nth_newest: impl Fn(usize) -> Option<Stamp>,
    ) -> Stamp {
        let (interval, cost) = (wide.interval(), i64::try_from(units).unwrap_or(i64::MAX));
        for step in self.of(log, term) {
            if step.lapse <= start {
                continue;
            }
            let n = i64::from(term.quota) - i64::from(step.units) - cost + 1;
            let ready = match usize::try_from(n) {
                Ok(n) if n > 0 => {
                    let ready = nth_newest(n).map_or(start, |entry| start.max(entry.plus(wide.span)));
                    let ready = nth_newest(1).map_or(ready, |newest| ready.max(newest.plus(interval)));
                    ready.plus((cost - 1).saturating_mul(interval))
                }
                _ => step.lapse,
            };
            if ready < step.lapse {
                return ready;
            }
            start = step.lapse;
        }
        start
    }

    fn of<'a>(&'a self, log: &'a str, term: Term) -> impl Iterator<Item = &'a Step> {
        self.0.iter().filter(move |step| *step.log == *log && step.span == term.span)
    }
}

/// Units that others have used, and those that they use by the time that ours arrive, at the pace of a whole span.
pub(super) const fn expected(units: u32) -> u32 {
    units.saturating_add(units.div_ceil(STEPS))
}

/// When units count no more that reset after so long: at most a span away.
pub(super) fn lapse(now: Stamp, reset: i64, span: i64) -> Stamp {
    now.plus(reset.saturating_add(grid(span)).min(span))
}

/// The part of a span within which one end, or the moment of a report, is as good as another.
pub(super) fn grid(span: i64) -> i64 {
    span / i64::from(STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units and when they lapse.
    type Steps<'a> = &'a [(u32, i64)];

    const SPAN: i64 = 160;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    fn outside(steps: Steps<'_>) -> (OutsideUse, Arc<str>, Term) {
        let (mut outside, log, term) = (OutsideUse::default(), Arc::from("calls"), Term::new(10, SPAN));
        for &(units, lapse) in steps {
            outside.enter(at(0), &log, term, units, at(lapse));
        }
        (outside, log, term)
    }

    #[test]
    fn of_all_reports_the_most_units_count_at_any_time() {
        let cases: [(Steps<'_>, Steps<'_>); 8] = [
            (&[(4, 100)], &[(4, 100)]),
            (&[(4, 100), (3, 90)], &[(4, 100)]),
            (&[(4, 100), (3, 110)], &[(4, 100)]),
            (&[(3, 110), (4, 100)], &[(4, 100)]),
            (&[(4, 100), (3, 200)], &[(4, 100), (3, 200)]),
            (&[(3, 200), (4, 100)], &[(4, 100), (3, 200)]),
            (&[(4, 100), (3, 200), (5, 300)], &[(5, 300)]),
            (&[(4, 100), (2, 300), (3, 200), (3, 250)], &[(4, 100), (3, 250), (2, 300)]),
        ];
        for (entered, kept) in cases {
            let steps: Vec<_> = outside(entered).0.0.iter().map(|step| (step.units, step.lapse.as_micros())).collect();
            assert_eq!(steps, kept, "{entered:?}");
        }
    }

    #[test]
    fn foreign_units_are_missing_from_the_quota_until_they_lapse() {
        let (outside, log, term) = outside(&[(4, 100), (2, 500)]);
        // Eight entries, the newest at 8; ten units in any 160, one each 16.
        let nth = |n: usize| 8_usize.checked_sub(n).map(|older| at(i64::try_from(older).unwrap() + 1));
        let earliest = |start, units| outside.beside(&log, term, term, at(start), units, nth).as_micros();
        assert_eq!(earliest(50, 1), 161, "8 of 10 are ours, 2 are outside");
        assert_eq!(earliest(500, 1), 500, "all lapsed");
        let empty = |start, units| outside.beside(&log, term, term, at(start), units, |_| None).as_micros();
        assert_eq!((empty(50, 1), empty(50, 9)), (50, 500), "as many as the others leave");
        assert_eq!((empty(50, 2), empty(50, 3)), (66, 82), "one after another");
        let one = |n| (n == 1).then_some(at(190));
        assert_eq!(outside.beside(&log, term, term, at(200), 1, one), at(206), "after the newest");
        assert_eq!(outside.beside("points", term, term, at(50), 10, |_| None), at(50), "another log");
        let other = Term::new(10, 7);
        assert_eq!(outside.beside(&log, other, other, at(50), 10, |_| None), at(50), "another term");
    }

    #[test]
    fn units_count_until_their_reset_and_at_most_for_a_span() {
        let cases = [(0, 25, 35), (7, 25, 42), (0, 155, 160), (50, 9_999, 210), (0, i64::MAX, 160)];
        for (now, reset, expected) in cases {
            assert_eq!(lapse(at(now), reset, SPAN).as_micros(), expected, "{now} {reset}");
        }
    }
}
