//! A bucket: units drain out of it one after another, and it holds only so many. Its level is kept beside its log.
//!
//! `lua/bucket.lua` says the same in Redis.

use super::Stamp;
use super::pause::{FAR, float, whole};

/// No level is counted any higher, in nanoseconds: as much as Lua counts exactly.
const MOST: i64 = 9_000_000_000_000_000;

/// A bucket that units drain out of one after another. In nanoseconds, since a unit may take a broken number of microseconds.
///
/// ```
/// use outgate::ledger::Bucket;
///
/// let bucket = Bucket::new(500_000_000, 20_000_000_000);
/// assert_eq!((bucket.units(), bucket.span()), (40, 20_000_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Bucket {
    /// How long one unit takes to drain.
    pub interval: i64,
    /// How long all that it holds take to drain; at least one unit.
    pub depth: i64,
}

impl Bucket {
    /// A bucket out of which a unit drains in `interval` nanoseconds, and all that it holds in `depth`.
    #[must_use]
    pub const fn new(interval: i64, depth: i64) -> Self {
        let interval = if interval < 1 { 1 } else { interval };
        Self { interval, depth: if depth < interval { interval } else { depth } }
    }

    /// A bucket that drains so many times more slowly, and holds what drains in the same time.
    ///
    /// The arithmetic is that of Lua, operation by operation, whose numbers are floats.
    pub(super) fn lowered(self, times: f64) -> Self {
        let interval = float(self.interval);
        Self::new(whole((interval * times).ceil().min(FAR.max(interval))), self.depth)
    }

    /// How many whole units it holds.
    #[must_use]
    pub fn units(self) -> u32 {
        u32::try_from(self.depth / self.interval).unwrap_or(u32::MAX)
    }

    /// How long all that it holds take to drain, in microseconds, rounded up.
    #[must_use]
    pub const fn span(self) -> i64 {
        micros(self.depth)
    }
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The start of the newest unit that is in it.
    at: Stamp,
    /// So many nanoseconds after that it is empty.
    nanos: i64,
    /// The same where each unit takes as long to drain as a lowered rate leaves it.
    slowed: i64,
    /// How long that is; zero where no rate was lowered.
    by: i64,
    /// How many entries of the log that start then are in it.
    counted: usize,
    /// What the log does not explain came into it at this start or before.
    unexplained: Stamp,
}

impl Level {
    /// An empty bucket.
    pub(crate) const EMPTY: Self =
        Self { at: Stamp::NEVER, nanos: 0, slowed: 0, by: 0, counted: 0, unexplained: Stamp::from_micros(i64::MIN) };

    /// An empty bucket, which slows its units as this one does.
    pub(super) const fn emptied(self) -> Self {
        Self { by: self.by, ..Self::EMPTY }
    }

    /// A full bucket, whose newest unit started then.
    pub(super) const fn full(at: Stamp, bucket: Bucket) -> Self {
        Self { at, nanos: bucket.depth, slowed: 0, by: 0, counted: 1, unexplained: at }
    }

    /// The start of the newest unit that is in it.
    pub(super) const fn at(self) -> Stamp {
        self.at
    }

    /// How many entries of the log that start then are in it.
    pub(super) const fn counted(self) -> usize {
        self.counted
    }

    pub(super) const fn counting(self, counted: usize) -> Self {
        Self { counted, ..self }
    }

    /// The same, of which the log does not explain all.
    pub(super) const fn unexplained(self) -> Self {
        Self { unexplained: self.at, ..self }
    }

    /// Whether it is higher than a bucket is deep, of which some is left.
    pub(super) fn is_above(self, bucket: Bucket, now: Stamp) -> bool {
        self.nanos > bucket.depth && self.left(now) > 0
    }

    /// Nanoseconds until it is empty.
    fn left(self, now: Stamp) -> i64 {
        drained(self.nanos, self.at, now)
    }

    /// The same level, and its units since, as of then: where that is later, some have drained.
    fn since(self, start: Stamp) -> Self {
        if start <= self.at {
            return self;
        }
        let [nanos, slowed] = [self.nanos, self.slowed].map(|nanos| drained(nanos, self.at, start));
        Self { at: start, nanos, slowed, counted: 0, ..self }
    }

    /// How high it is where that is left of its bucket: the same units take less where more is left than when they came, but never more.
    ///
    /// The arithmetic is that of Lua, operation by operation, whose numbers are floats.
    fn height(self, left: Bucket) -> i64 {
        if left.interval >= self.by {
            return self.nanos.max(self.slowed);
        }
        whole((float(self.slowed) * (float(left.interval) / float(self.by))).ceil()).max(self.nanos)
    }

    /// Units that are in it, the one that drains included, where that is left of its bucket.
    pub(crate) fn units(self, now: Stamp, left: Bucket) -> u32 {
        let nanos = drained(self.height(left), self.at, now);
        u32::try_from((nanos + left.interval - 1) / left.interval).unwrap_or(u32::MAX)
    }

    /// The level after units that start then, each of which takes so long to drain.
    pub(crate) fn entered(self, start: Stamp, units: usize, interval: i64) -> Self {
        self.with(start, units).higher(units, interval, self.slower(interval))
    }

    /// The same, where so much is left of its bucket.
    pub(crate) fn filled(self, start: Stamp, units: usize, bucket: Bucket, left: Bucket) -> Self {
        self.read_by(bucket, left).with(start, units).higher(units, bucket.interval, left.interval)
    }

    /// The level after units that the log does not hold, where so much is left of its bucket.
    pub(super) fn owing(self, units: usize, bucket: Bucket, left: Bucket) -> Self {
        self.read_by(bucket, left).higher(units, bucket.interval, left.interval).unexplained()
    }

    /// How long each unit takes by the rate that it was read by, which takes so long at the full one.
    const fn slower(self, interval: i64) -> i64 {
        if self.by == 0 { interval } else { self.by }
    }

    fn read_by(self, bucket: Bucket, left: Bucket) -> Self {
        let by = if left.interval == bucket.interval { 0 } else { left.interval };
        Self { slowed: self.height(left), by, ..self }
    }

    fn with(self, start: Stamp, units: usize) -> Self {
        let (since, counted) = (self.since(start), if start < self.at { 0 } else { units });
        Self { counted: since.counted + counted, ..since }
    }

    fn higher(self, units: usize, interval: i64, slower: i64) -> Self {
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        let higher = |nanos: i64, interval: i64| nanos.saturating_add(units.saturating_mul(interval)).min(MOST);
        Self { nanos: higher(self.nanos, interval), slowed: higher(self.slowed, slower), ..self }
    }

    /// The level after so many units were taken out that started then, where the units since are as many as `newer` says by
    /// themselves.
    pub(super) fn taken_out(self, start: Stamp, units: usize, newer: Self, interval: i64) -> Self {
        let units = if start > self.at { 0 } else { units };
        // It may have drained before what is left in it came, of which the log says nothing.
        let out = if start <= self.unexplained { 0 } else { units };
        let taken = i64::try_from(out).unwrap_or(i64::MAX).saturating_mul(interval);
        let counted = if start == self.at { self.counted.saturating_sub(units) } else { self.counted };
        let nanos = self.nanos.saturating_sub(taken).max(newer.left(self.at)).max(0);
        // No promise hangs on this one: what it says of lower rates need not be proved.
        let taken = i64::try_from(units).unwrap_or(i64::MAX).saturating_mul(self.slower(interval));
        let slowed = self.slowed.saturating_sub(taken).max(drained(newer.slowed, newer.at, self.at).min(self.slowed));
        let left = Self { nanos, slowed, counted, ..self };
        // Before its newest unit it may have been emptier than that.
        if nanos == 0 { left.unexplained() } else { left }
    }

    /// The level where so many units, the newest, arrive as late as that.
    pub(super) fn arriving(self, late: Stamp, units: usize, interval: i64) -> Self {
        let units = i64::try_from(units).unwrap_or(i64::MAX).saturating_mul(interval).min(MOST);
        let nanos = nanos_between(self.at, late).saturating_add(units).min(MOST);
        if nanos > self.nanos { Self { nanos, ..self }.unexplained() } else { self }
    }

    /// A level of which the upstream says that it was at least so high then.
    pub(super) const fn told(at: Stamp, nanos: i64) -> Self {
        Self { at, nanos: if nanos > 0 { nanos } else { 0 }, ..Self::EMPTY }
    }

    /// The level raised to another, and by how many units, rounded up.
    pub(super) fn raised_to(self, other: Self, interval: i64) -> (Self, u32) {
        let at = self.at.max(other.at);
        let ours = self.since(at);
        let more = (other.left(at) - ours.nanos).max(0);
        let units = more.saturating_add(interval - 1) / interval;
        (Self { nanos: ours.nanos + more, ..ours }.unexplained(), u32::try_from(units).unwrap_or(u32::MAX))
    }

    /// The earliest start, not before `start`, for some units, where that is left of its bucket. More than it holds start when it is empty.
    pub(crate) fn earliest(self, start: Stamp, left: Bucket, units: usize) -> Stamp {
        let wanted = i64::try_from(units).unwrap_or(i64::MAX).saturating_mul(left.interval);
        let room = left.depth.saturating_sub(wanted).max(0);
        start.max(self.at.plus(micros(self.height(left) - room)))
    }

    /// When it is empty whatever was in it before.
    pub(super) fn lapse(self, depth: i64) -> Stamp {
        self.at.plus(micros(self.slowed.max(self.nanos).saturating_add(depth)))
    }
}

/// The levels that are known of one log.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels(Vec<Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    bucket: Bucket,
    level: Level,
}

impl Levels {
    /// The level of a bucket out of which units drain that fast.
    pub(super) fn of(&self, interval: i64) -> Option<Level> {
        self.0.iter().find(|known| known.bucket.interval == interval).map(|known| known.level)
    }

    pub(super) fn set(&mut self, bucket: Bucket, level: Level) {
        match self.0.iter_mut().find(|known| known.bucket.interval == bucket.interval) {
            Some(known) => {
                known.bucket.depth = known.bucket.depth.max(bucket.depth);
                known.level = level;
            }
            None => self.0.push(Known { bucket, level }),
        }
    }

    /// Changes each of them.
    pub(super) fn change(&mut self, mut change: impl FnMut(Bucket, Level) -> Level) {
        for known in &mut self.0 {
            known.level = change(known.bucket, known.level);
        }
    }

    /// When none of them matters any more.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.0.iter().all(|known| known.level.lapse(known.bucket.depth) <= now)
    }
}

/// Microseconds, rounded up.
const fn micros(nanos: i64) -> i64 {
    nanos.saturating_add(999).div_euclid(1_000)
}

/// What is left of so many nanoseconds from then on.
fn drained(nanos: i64, from: Stamp, now: Stamp) -> i64 {
    nanos.saturating_sub(nanos_between(from, now)).max(0)
}

/// From one stamp to another, which may lie before it.
const fn nanos_between(from: Stamp, to: Stamp) -> i64 {
    to.as_micros().saturating_sub(from.as_micros()).saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
