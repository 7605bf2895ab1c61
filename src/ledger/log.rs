//! The sliding log and the one rule: a unit may start when the N-th newest entry is a span old.
//!
//! `lua/log.lua` says the same in Redis, and a property test holds the two together.

use std::collections::VecDeque;

use super::{Stamp, Term, earliest};

/// Entries a log may hold beyond twice its longest quota before it is trimmed, so that trimming is rare and cheap.
pub(crate) const TRIM_SLACK: usize = 64;

/// Newer entries that a slot may have and still be handed back.
const MAX_DEPTH: usize = 10_000;

/// The start times of one upstream × scope × unit, one entry per unit, in ascending order.
///
/// ```
/// use outgate::ledger::{SlidingLog, Stamp, Term};
///
/// let at = Stamp::from_micros;
/// let mut log = SlidingLog::new();
/// log.append(at(100), 2, 1_000);
/// let terms = [Term::new(2, 1_000)]; // two units in any 1,000 µs
/// assert_eq!(log.earliest(at(200), &terms, 1), at(1_100));
/// ```
#[derive(Clone, Debug, Default)]
pub struct SlidingLog {
    starts: VecDeque<Stamp>,
    /// The longest span that anybody who wrote here counts; it only grows while the log holds an entry.
    retention: i64,
}

impl SlidingLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The entry with `n - 1` newer ones; `None` when the log is shorter, or `n` is zero.
    #[must_use]
    pub fn nth_newest(&self, n: usize) -> Option<Stamp> {
        let index = self.starts.len().checked_sub(n)?;
        self.starts.get(index).copied()
    }

    /// The rule: the earliest start, not before `floor`, for `cost` units under every term.
    ///
    /// A cost above a term's quota can never start; ask [`Term::quota`] first.
    #[must_use]
    pub fn earliest(&self, floor: Stamp, terms: &[Term], cost: u32) -> Stamp {
        earliest(floor, terms.iter().copied(), cost as usize, |n| self.nth_newest(n))
    }

    /// Enters `cost` units that start at `start`, which must not lie before the newest entry, and count for `retention`
    /// microseconds.
    pub fn append(&mut self, start: Stamp, cost: u32, retention: i64) {
        debug_assert!(self.nth_newest(1).is_none_or(|newest| newest <= start), "a log is sorted");
        if self.starts.is_empty() {
            self.retention = 0;
        }
        self.retention = self.retention.max(retention);
        self.starts.extend(std::iter::repeat_n(start, cost as usize));
    }

    /// Entries count for so long at least, in microseconds.
    pub(crate) fn keep(&mut self, retention: i64) {
        self.retention = self.retention.max(retention);
    }

    /// Takes up to `cost` units that start at `start` out again; what was never entered changes nothing.
    ///
    /// A start with more than 10,000 newer entries is kept: in Redis it would cost milliseconds to find.
    pub fn hand_back(&mut self, start: Stamp, cost: u32) {
        let end = self.starts.partition_point(|&entry| entry <= start);
        if self.starts.len() - end > MAX_DEPTH {
            return;
        }
        let begin = self.starts.partition_point(|&entry| entry < start);
        let from = begin.max(end.saturating_sub(cost as usize));
        self.starts.drain(from..end);
    }

    /// Forgets the entries that nobody counts any more, once the log is well over twice `quota`, its longest, entries long.
    ///
    /// By time only: a log cut to a number of entries would forget a call that counts again once a later slot is handed back. And
    /// as of an entry with a whole quota behind it: where the clock has leapt ahead, so many may have been granted by that before
    /// it is taken back, and what came before them counts again then.
    pub(crate) fn trim(&mut self, now: Stamp, quota: u32) {
        let quota = quota as usize;
        if self.starts.len() > 2 * quota + TRIM_SLACK {
            let as_of = self.nth_newest(quota + 1).map_or(now, |before| before.min(now));
            let counting = self.starts.partition_point(|entry| entry.plus(self.retention) <= as_of);
            self.starts.drain(..counting);
        }
    }

    /// Units that count at `now` in a span: started within it, or booked for later.
    #[must_use]
    pub fn used(&self, now: Stamp, span: i64) -> usize {
        self.starts.len() - self.starts.partition_point(|entry| entry.plus(span) <= now)
    }

    /// Units that counted in a span at any time from `from` to `until`: those that started later do not.
    pub(crate) fn used_between(&self, from: Stamp, until: Stamp, span: i64) -> usize {
        let begun = self.starts.partition_point(|&entry| entry <= until);
        begun.saturating_sub(self.starts.partition_point(|entry| entry.plus(span) <= from))
    }

    /// Whether no entry counts any more.
    #[must_use]
    pub fn is_spent(&self, now: Stamp) -> bool {
        self.nth_newest(1).is_none_or(|newest| newest.plus(self.retention) <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// Name, entries, terms, cost, and the earliest start at 50.
    type Case<'a> = (&'a str, &'a [i64], &'a [Term], u32, i64);

    fn log(starts: &[i64]) -> SlidingLog {
        let mut log = SlidingLog::new();
        for &start in starts {
            log.append(at(start), 1, 100);
        }
        log
    }

    #[test]
    fn the_rule() {
        let two = [Term::new(2, 100)];
        let both = [Term::new(3, 100), Term::new(1, 10)];
        let cases: [Case<'_>; 10] = [
            ("an empty log means no wait", &[], &two, 1, 50),
            ("one free unit means no wait", &[40], &two, 1, 50),
            ("a full log waits for the N-th newest", &[10, 40], &two, 1, 110),
            ("older entries do not matter", &[1, 2, 10, 40], &two, 1, 110),
            ("an entry stops counting after exactly a span", &[-50, 40], &two, 1, 50),
            ("a start never lies before the newest entry", &[70], &two, 1, 70),
            ("a cost of two waits for the newest", &[10, 40], &two, 2, 140),
            ("a cost of two beside one entry waits for it", &[40], &two, 2, 140),
            ("the strictest term governs", &[45], &both, 1, 55),
            ("each of several terms may govern", &[10, 20, 30], &both, 1, 110),
        ];
        for (name, starts, terms, cost, expected) in cases {
            assert_eq!(log(starts).earliest(at(50), terms, cost), at(expected), "{name}");
        }
    }

    #[test]
    fn handing_back_takes_as_many_equal_stamps_as_the_cost_and_no_other() {
        let mut log = log(&[1, 5, 5, 5, 9]);
        log.hand_back(at(5), 2);
        assert_eq!(log.starts, [at(1), at(5), at(9)]);
        log.hand_back(at(5), 2);
        log.hand_back(at(4), 1);
        assert_eq!(log.starts, [at(1), at(9)]);
    }

    #[test]
    fn trimming_is_by_time_and_by_the_longest_retention() {
        let mut log = SlidingLog::new();
        log.append(at(0), 1, 1_000);
        log.append(at(10), 100, 50);
        log.append(at(1_005), 2, 50);
        log.trim(at(999), 1);
        assert_eq!(log.starts.len(), 103, "somebody counts for 1,000 µs");
        log.trim(at(1_005), 1);
        assert_eq!(log.starts.len(), 102);
        log.append(at(2_000), 2, 50);
        log.trim(at(1_010), 100);
        assert_eq!(log.starts.len(), 104, "not yet worth it");
        log.trim(at(1_010), 2);
        assert_eq!(log.starts.len(), 104, "not as of the newest, where the clock may have leapt");
        log.trim(at(2_000), 1);
        assert_eq!(log.starts, [at(1_005), at(1_005), at(2_000), at(2_000)]);
    }

    #[test]
    fn used_counts_what_started_within_the_span_and_what_is_booked() {
        let log = log(&[1, 50, 99, 150]);
        assert_eq!(log.used(at(100), 50), 2);
        assert_eq!(log.used(at(99), 50), 3);
    }
}
