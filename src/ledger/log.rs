//! The sliding log and the one rule: a unit may start when the N-th newest entry is a span old.
//!
//! `lua/log.lua` says the same in Redis, and a property test holds the two together.

use std::collections::VecDeque;

use super::bucket::{Bucket, Level, Levels};
use super::life::Life;
use super::rule::{Entries, earliest};
use super::{Stamp, Term};

/// A log is trimmed that has more entries than so many of its longest quotas and some slack, so that trimming is rare and cheap.
const TRIM_QUOTAS: usize = 3;
const TRIM_SLACK: usize = 64;

/// Newer entries that a slot may have and still be handed back.
const MAX_DEPTH: usize = 20_000;
/// The same, and room comes back in a bucket, where those that start together count as no more than so many.
const DEEP_IN_BUCKET: usize = 1_000;
const TOGETHER: usize = 16;

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
    /// How full the buckets are that the log is written for.
    levels: Option<Box<Levels>>,
    /// What is known of it where it may be lost: mostly nothing.
    life: Option<Box<Life>>,
}

impl SlidingLog {
    /// An empty log.
    #[must_use]
    pub const fn new() -> Self {
        Self { starts: VecDeque::new(), retention: 0, levels: None, life: None }
    }

    /// The entry with `n - 1` newer ones; `None` when the log is shorter, or `n` is zero.
    #[must_use]
    pub fn nth_newest(&self, n: usize) -> Option<Stamp> {
        let index = self.starts.len().checked_sub(n)?;
        self.starts.get(index).copied()
    }

    /// The newest entry that does not start later than that.
    pub(super) fn newest_by(&self, by: Stamp) -> Option<Stamp> {
        self.starts.partition_point(|start| *start <= by).checked_sub(1).map(|at| self.starts[at])
    }

    /// The rule: the earliest start, not before `floor`, for `cost` units under every term.
    ///
    /// A cost above a term's quota can never start; ask [`Term::quota`] first.
    #[must_use]
    pub fn earliest(&self, floor: Stamp, terms: &[Term], cost: u32) -> Stamp {
        earliest(floor, floor, terms.iter().map(|term| (*term, *term)), cost as usize, self)
    }

    /// Enters `cost` units that start at `start`, which must not lie before the newest entry, and count for `retention`
    /// microseconds.
    #[inline]
    pub fn append(&mut self, start: Stamp, cost: u32, retention: i64) {
        self.enter(start, cost as usize, retention);
    }

    #[inline]
    fn enter(&mut self, start: Stamp, units: usize, retention: i64) {
        debug_assert!(self.nth_newest(1).is_none_or(|newest| newest <= start), "a log is sorted");
        if self.starts.is_empty() {
            self.retention = 0;
        }
        self.retention = self.retention.max(retention);
        if units == 1 {
            return self.starts.push_back(start);
        }
        self.starts.extend(std::iter::repeat_n(start, units));
    }

    /// Enters units that start then, in ascending order, among what is there, as [`append`](Self::append) does behind it. What would lie
    /// deeper than a slot may be handed back is entered later than it starts, and buckets are taken to have been full before: that is safe.
    pub(super) fn insert(&mut self, steps: &[(Stamp, u32)], retention: i64) {
        let deepest = self.nth_newest(MAX_DEPTH);
        let place = |start: Stamp| deepest.map_or(start, |deepest| start.max(deepest));
        let Some(&(first, _)) = steps.first() else { return };
        self.retention = if self.starts.is_empty() { retention } else { self.retention.max(retention) };
        let newer = self.starts.split_off(self.starts.partition_point(|&entry| entry <= place(first)));
        let mut newer = newer.into_iter().peekable();
        for &(start, units) in steps {
            let start = place(start);
            self.starts.extend(std::iter::from_fn(|| newer.next_if(|&entry| entry <= start)));
            self.starts.extend(std::iter::repeat_n(start, units as usize));
        }
        self.starts.extend(newer);
        self.levels = None;
    }

    /// The oldest entry.
    fn oldest(&self) -> Option<Stamp> {
        self.starts.front().copied()
    }

    /// What is known of it where it may be lost.
    pub(super) fn life(&self) -> Life {
        self.life.as_deref().copied().unwrap_or_default()
    }

    /// Keeps known, as of `now`, that it is there: for whoever counts its entries for so long; since then at the latest, where
    /// a debt was `told`. Says nothing any more of an empty one.
    pub(super) fn live_on(&mut self, now: Stamp, counts: i64, told: Option<Stamp>) {
        let (Some(newest), Some(oldest)) = (self.nth_newest(1), self.oldest()) else { return self.begin_anew() };
        let life = self.life().going_on(now, counts, newest, oldest, told);
        if life == Life::NONE {
            return self.begin_anew();
        }
        **self.life.get_or_insert_default() = life;
    }

    /// Nothing is known of it: it was lost, or what was lost was entered again.
    pub(super) fn begin_anew(&mut self) {
        self.life = None;
    }

    /// Loses its entries, but not what is known of them.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn lose(&mut self) {
        *self = Self { life: self.life.take(), ..Self::new() };
    }

    /// Entries count for so long at least, in microseconds.
    pub(crate) fn keep(&mut self, retention: i64) {
        self.retention = self.retention.max(retention);
    }

    /// Takes up to `cost` units that start at `start` out again; what was never entered changes nothing.
    ///
    /// A start with more than 20,000 newer entries is kept: in Redis it would cost a millisecond to find.
    pub fn hand_back(&mut self, start: Stamp, cost: u32) {
        let end = self.starts.partition_point(|&entry| entry <= start);
        if self.starts.len() - end > MAX_DEPTH {
            return;
        }
        let begin = self.starts.partition_point(|&entry| entry < start);
        let from = begin.max(end.saturating_sub(cost as usize));
        if let Some(mut levels) = self.levels.take() {
            if from < end && self.is_near_in_bucket(end) {
                levels.change(|bucket, level| {
                    let newer = self.entered_since(level.emptied(), end, bucket.interval);
                    self.caught_up(level, bucket.interval).taken_out(start, end - from, newer, bucket.interval)
                });
            }
            self.levels = Some(levels);
        }
        self.starts.drain(from..end);
    }

    /// Whether it is well over three times `quota`, its longest, entries long: trimmed it keeps up to two and a half of a busy one, as
    /// entries are kept for up to half longer than they count.
    pub(super) fn is_long(&self, quota: u32) -> bool {
        self.starts.len() > TRIM_QUOTAS * quota as usize + TRIM_SLACK
    }

    /// Forgets the entries that nobody counts any more, once the log is [long](Self::is_long).
    ///
    /// By time only: a log cut to a number of entries would forget a call that counts again once a later slot is handed back. And
    /// as of an entry with a whole quota behind it: where the clock has leapt ahead, so many may have been granted by that before
    /// it is taken back, and what came before them counts again then.
    pub(crate) fn trim(&mut self, now: Stamp, quota: u32) {
        if self.is_long(quota) {
            let as_of = self.nth_newest(quota as usize + 1).map_or(now, |before| before.min(now));
            let counting = self.starts.partition_point(|entry| entry.plus(self.retention) <= as_of);
            self.starts.drain(..counting);
        }
    }

    /// Enters starts, each with its units, as [`append`](Self::append) does; they fill the buckets among these terms, and `left` is what rates
    /// leave of each.
    #[inline]
    pub(super) fn fill(&mut self, terms: &[Term], left: &[Term], starts: &[(Stamp, usize)], retention: i64) {
        if terms.iter().all(|term| term.as_bucket().is_none()) {
            return starts.iter().for_each(|&(start, units)| self.enter(start, units, retention));
        }
        let buckets = terms.iter().zip(left).filter_map(|(given, left)| given.as_bucket().zip(left.as_bucket()));
        let buckets: Vec<_> = buckets.map(|(bucket, left)| (bucket, left, self.level(bucket))).collect();
        for &(start, units) in starts {
            self.enter(start, units, retention);
        }
        for (bucket, left, level) in buckets {
            let filled = |level: Level, &(start, units): &(Stamp, usize)| level.filled(start, units, bucket, left);
            self.levels.get_or_insert_default().set(bucket, starts.iter().fold(level, filled));
        }
    }

    /// Fills the buckets among these terms, of which `left` is what rates leave, with units that calls used beyond their charges, and that the
    /// log does not hold.
    pub(super) fn owe(&mut self, terms: &[Term], left: &[Term], units: u32) {
        let buckets = terms.iter().zip(left).filter_map(|(given, left)| given.as_bucket().zip(left.as_bucket()));
        let owing = |(bucket, left): (Bucket, Bucket)| (bucket, self.level(bucket).owing(units as usize, bucket, left));
        // Two that drain as fast have one level.
        let owing: Vec<_> = buckets.map(owing).collect();
        for (bucket, level) in owing {
            self.levels.get_or_insert_default().set(bucket, level);
        }
    }

    /// Units that started at `first` or later may arrive as late as `late`: they fill a bucket as if they had started then.
    pub(super) fn arrive(&mut self, bucket: Bucket, first: Stamp, late: Stamp) {
        let units = self.starts.len() - self.starts.partition_point(|&entry| entry < first);
        let level = self.level(bucket);
        let later = level.arriving(late, units, bucket.interval);
        if units > 0 && later != level {
            self.levels.get_or_insert_default().set(bucket, later);
        }
    }

    /// The upstream told that so many units were left of its bucket, which fills within `fills` nanoseconds, when it counted a call that
    /// started at `started`, and none from after `counted`. What ours does not explain is of others, and fills it as well. Says how many
    /// units that are.
    pub(super) fn told(&mut self, bucket: Bucket, fills: i64, left: u32, started: Stamp, counted: Stamp) -> u32 {
        // Of the last unit that has not flowed in yet a part may have.
        let left = i64::from(left).saturating_add(1).saturating_mul(bucket.interval);
        let newer = self.starts.partition_point(|&entry| entry <= counted);
        let theirs = Level::told(started, fills.saturating_sub(left));
        let theirs = self.entered_since(theirs, newer, bucket.interval);
        let (level, units) = self.level(bucket).raised_to(theirs, bucket.interval);
        if units > 0 {
            self.levels.get_or_insert_default().set(bucket, level);
        }
        units
    }

    /// A level that is known, with what was entered since it was.
    fn caught_up(&self, level: Level, interval: i64) -> Level {
        let begin = self.starts.partition_point(|&entry| entry < level.at());
        let end = self.starts.partition_point(|&entry| entry <= level.at());
        let missed = (end - begin).saturating_sub(level.counted());
        self.entered_since(level.entered(level.at(), missed, interval), end, interval)
    }

    /// A level with the entries from some place on.
    fn entered_since(&self, level: Level, from: usize, interval: i64) -> Level {
        self.runs(from).fold(level, |level, (start, units)| level.entered(start, units, interval))
    }

    /// Whether so few entries lie behind a place that a slot before it leaves room in a bucket when it is handed back.
    fn is_near_in_bucket(&self, from: usize) -> bool {
        let deep = self.runs(from).try_fold(DEEP_IN_BUCKET, |left, (_, units)| left.checked_sub(units.min(TOGETHER)));
        deep.is_some()
    }

    /// The starts of the entries from some place on, each with how many start then.
    fn runs(&self, mut from: usize) -> impl Iterator<Item = (Stamp, usize)> {
        std::iter::from_fn(move || {
            let &start = self.starts.get(from)?;
            // Mostly each has its own.
            let alone = self.starts.get(from + 1).is_none_or(|&next| next > start);
            let end = if alone { from + 1 } else { self.starts.partition_point(|&entry| entry <= start) };
            Some((start, end - std::mem::replace(&mut from, end)))
        })
    }

    /// Keeps the levels of which nothing was known but the log: to presume one reads twice as many entries as the bucket holds.
    pub(super) fn keep_presumed(&mut self, terms: &[Term]) {
        for bucket in terms.iter().filter_map(Term::as_bucket) {
            let is_known = self.levels.as_ref().is_some_and(|levels| levels.of(bucket.interval).is_some());
            if !is_known && !self.starts.is_empty() {
                let level = self.presumed(bucket);
                self.levels.get_or_insert_default().set(bucket, level);
            }
        }
    }

    /// The level of a bucket that nothing is known of but the log: it was full, as far back as that matters.
    fn presumed(&self, bucket: Bucket) -> Level {
        let first = self.starts.len().saturating_sub(2 * bucket.units() as usize);
        let Some(&oldest) = self.starts.get(first) else { return Level::EMPTY };
        let level = self.entered_since(Level::full(oldest, bucket), first + 1, bucket.interval);
        let equal = self.starts.len() - self.starts.partition_point(|&entry| entry < level.at());
        level.counting(equal)
    }

    /// Units that count at `now` in a span: started within it, or booked for later.
    #[must_use]
    pub fn used(&self, now: Stamp, span: i64) -> usize {
        self.starts.len() - self.starts.partition_point(|entry| entry.plus(span) <= now)
    }

    /// Units that started at a moment or later.
    pub(super) fn used_since(&self, since: Stamp) -> usize {
        self.starts.len() - self.starts.partition_point(|&entry| entry < since)
    }

    /// Units that counted in a span at any time from `from` to `until`: those that started later do not.
    pub(crate) fn used_between(&self, from: Stamp, until: Stamp, span: i64) -> usize {
        let begun = self.starts.partition_point(|&entry| entry <= until);
        begun.saturating_sub(self.starts.partition_point(|entry| entry.plus(span) <= from))
    }

    /// Whether no entry counts any more.
    ///
    /// ```
    /// use outgate::ledger::{SlidingLog, Stamp};
    ///
    /// let at = Stamp::from_micros;
    /// let mut log = SlidingLog::new();
    /// log.append(at(100), 2, 1_000); // two units, which count for 1,000 µs
    /// log.hand_back(at(100), 1);
    /// assert_eq!((log.nth_newest(1), log.used(at(200), 1_000)), (Some(at(100)), 1));
    /// assert!(log.is_spent(at(1_100)));
    /// ```
    #[must_use]
    pub fn is_spent(&self, now: Stamp) -> bool {
        self.nth_newest(1).is_none_or(|newest| newest.plus(self.retention) <= now)
            && self.life().is_over(now)
            && self.levels.as_ref().is_none_or(|levels| levels.is_spent(now))
    }
}

impl Entries for SlidingLog {
    fn nth_newest(&self, n: usize) -> Option<Stamp> {
        self.nth_newest(n)
    }

    fn level(&self, bucket: Bucket) -> Level {
        let known = self.levels.as_ref().and_then(|levels| levels.of(bucket.interval));
        known.map_or_else(|| self.presumed(bucket), |level| self.caught_up(level, bucket.interval))
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
