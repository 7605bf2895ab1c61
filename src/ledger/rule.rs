//! The rule: a unit may start when the N-th newest entry is a span old; or, in a bucket, when there is room for it.

use std::time::Duration;

use super::bucket::{Bucket, Level};
use super::calendar::Calendar;
use super::stamp::Stamp;

/// One bound of the rule: no half-open interval of `span` holds more than `quota` units, or what its shape says.
///
/// ```
/// use outgate::ledger::{Boundary, Bucket, Calendar, Shape, Stamp, Term};
///
/// let window = Term::new(10, 1_050_000).cold(250_000);
/// let bucket = Term::bucket(Bucket::new(500_000_000, 20_000_000_000)); // one unit in half a second, 40 at once
/// assert_eq!((window.shape, bucket.quota, bucket.span), (Shape::Window, 40, 20_000_000));
///
/// let hour = |number: i64| Stamp::from_micros(number * 3_600_000_000);
/// let boundaries = [0, 1, 2, 3].map(|number| Boundary::new(hour(number), hour(number)));
/// let hourly = Term::calendar(100, 3_601_000_000, Calendar::new(1_000_000, boundaries)); // between one and two o'clock
/// # let _ = hourly;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Term {
    /// Units allowed in any span; of a bucket, how many it holds.
    pub quota: u32,
    /// Window and guard together, in microseconds; of a bucket, how long it takes to drain.
    pub span: i64,
    /// For how many microseconds more a cold call counts, which probably opened a connection first.
    pub cold: i64,
    /// What the bound is.
    pub shape: Shape,
}

/// What a bound is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shape {
    /// So many units in any span.
    Window,
    /// So many units at once, and as many more as have drained since.
    Bucket(Bucket),
    /// So many units between two boundaries.
    Calendar(Calendar),
}

impl Term {
    /// At most `quota` units in any `span` microseconds.
    #[must_use]
    pub const fn new(quota: u32, span: i64) -> Self {
        Self { quota, span, cold: 0, shape: Shape::Window }
    }

    /// What a bucket holds.
    #[must_use]
    pub fn bucket(bucket: Bucket) -> Self {
        Self { shape: Shape::Bucket(bucket), ..Self::new(bucket.units(), bucket.span()) }
    }

    /// At most `quota` units between two boundaries; an entry counts for `span` microseconds at most.
    #[must_use]
    pub const fn calendar(quota: u32, span: i64, calendar: Calendar) -> Self {
        Self { shape: Shape::Calendar(calendar), ..Self::new(quota, span) }
    }

    /// The same, where cold calls count for so many microseconds more.
    #[must_use]
    pub const fn cold(self, micros: i64) -> Self {
        Self { cold: micros, ..self }
    }

    /// The bucket, where it is one.
    pub(crate) const fn as_bucket(&self) -> Option<Bucket> {
        match self.shape {
            Shape::Bucket(bucket) => Some(bucket),
            Shape::Window | Shape::Calendar(_) => None,
        }
    }

    /// The same bound where an entry stands for so many units, rounded to whole entries so that no more units start.
    pub(crate) fn in_entries_of(self, units: u32) -> Self {
        match self.shape {
            Shape::Bucket(bucket) => {
                let bucket = Bucket::new(bucket.interval.saturating_mul(units.into()), bucket.depth);
                Self { quota: bucket.units(), shape: Shape::Bucket(bucket), ..self }
            }
            Shape::Window | Shape::Calendar(_) => Self { quota: self.quota / units.max(1), ..self },
        }
    }

    /// A window of entries of so many units each that comes at the rate of one of single units, and no faster.
    pub(crate) fn at_the_pace_of(self, single: Self, units: u32) -> Self {
        let all = i128::from(self.quota) * i128::from(units) * i128::from(single.span);
        let span = (all + i128::from(single.quota.max(1)) - 1) / i128::from(single.quota.max(1));
        let span = i64::try_from(span).unwrap_or(single.span);
        if self.slides() { Self { span, ..self } } else { self }
    }

    /// Whether it is a window that may begin at any moment.
    pub(crate) const fn slides(self) -> bool {
        matches!(self.shape, Shape::Window)
    }

    /// The time that one unit takes, in microseconds.
    pub(crate) fn interval(self) -> i64 {
        match self.shape {
            Shape::Bucket(bucket) => (bucket.interval + 999) / 1_000,
            _ => (self.span + i64::from(self.quota) - 1) / i64::from(self.quota.max(1)),
        }
    }

    /// Whether its units come one by one to those who wait: by an even pace; from a bucket, which is empty then; or from a short window of so few
    /// that two of them fill `horizon`, in microseconds. Of a longer one many may be free at once.
    pub(crate) fn comes_one_by_one(self, horizon: i64) -> bool {
        let is_short = || self.slides() && self.span <= horizon.saturating_mul(8);
        self.quota == 1 || self.is_bucket() || is_short() && self.interval().saturating_mul(2) >= horizon
    }

    /// How long so many units take at its rate.
    pub(crate) fn time_of(self, units: u64) -> Duration {
        match self.shape {
            Shape::Bucket(bucket) => Duration::from_nanos(bucket.interval.unsigned_abs().saturating_mul(units)),
            _ => Duration::from_micros(self.span.unsigned_abs().saturating_mul(units)) / self.quota.max(1),
        }
    }

    /// How long until a unit behind so many others may go, which wait: what resets by the calendar comes back all at once.
    pub(crate) fn time_behind(self, units: u64) -> Duration {
        match self.shape {
            Shape::Calendar(_) => {
                let quotas = units / u64::from(self.quota.max(1));
                Duration::from_micros(self.span.unsigned_abs().saturating_mul(quotas))
            }
            _ => self.time_of(units),
        }
    }

    /// Whether it resets by the calendar.
    pub(crate) const fn is_calendar(self) -> bool {
        matches!(self.shape, Shape::Calendar(_))
    }

    /// Whether it is a bucket, into which units flow one by one.
    pub(crate) const fn is_bucket(self) -> bool {
        matches!(self.shape, Shape::Bucket(_))
    }

    /// How long so many units take at least, where as many are free as there can be.
    pub(crate) fn time_of_at_least(self, units: u64) -> Duration {
        let quota = u64::from(self.quota.max(1));
        match self.shape {
            Shape::Bucket(_) => self.time_of(units.saturating_sub(quota)),
            // Nothing, where the next boundary is near.
            Shape::Calendar(_) => Duration::ZERO,
            // Every whole quota takes at least one more span.
            Shape::Window => Duration::from_micros(self.span.unsigned_abs().saturating_mul(units / quota)),
        }
    }

    /// How many units its rate lets start within a time, one after another.
    pub(crate) fn at_rate(self, time: Duration) -> u64 {
        let units = match self.shape {
            Shape::Bucket(bucket) => time.as_micros() * 1_000 / u128::from(bucket.interval.unsigned_abs().max(1)),
            _ => u128::from(self.quota) * time.as_micros() / u128::from(self.span.unsigned_abs().max(1)),
        };
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

/// What a log holds, as the rule looks at it.
pub(crate) trait Entries {
    /// The entry with `n - 1` newer ones; `None` when there are fewer, or `n` is zero.
    fn nth_newest(&self, n: usize) -> Option<Stamp>;

    /// How full a bucket is.
    fn level(&self, bucket: Bucket) -> Level;
}

/// The rule: the earliest start, not before `floor`, under terms of which a rate may leave less: each as it is given, and what is left.
#[inline]
pub(crate) fn earliest(
    now: Stamp,
    floor: Stamp,
    terms: impl Iterator<Item = (Term, Term)>,
    units: usize,
    entries: &impl Entries,
) -> Stamp {
    let newest = entries.nth_newest(1).unwrap_or(floor);
    terms.fold(floor.max(newest), |start, (given, left)| {
        if let (Some(bucket), Some(lowered)) = (given.as_bucket(), left.as_bucket()) {
            return entries.level(bucket).earliest(start, lowered, units);
        }
        // What is more than a lowered quota starts when nothing else counts.
        let n = (left.quota as usize + 1).saturating_sub(units).max(1);
        if let Shape::Calendar(calendar) = left.shape {
            return calendar.earliest(now, start, entries.nth_newest(n));
        }
        entries.nth_newest(n).map_or(start, |entry| start.max(entry.plus(left.span)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Boundary;

    #[test]
    fn what_resets_by_the_calendar_is_there_for_all_who_wait_at_once() {
        const HOUR: i64 = 3_600_000_000;
        let calendar = Term::calendar(100, HOUR, Calendar::new(0, [Boundary::new(Stamp::NEVER, Stamp::NEVER); 4]));
        let behind = |term: Term| [0, 99, 100, 250].map(|units| term.time_behind(units).as_secs());
        assert_eq!(behind(calendar), [0, 0, 3_600, 7_200]);
        assert_eq!(behind(Term::new(100, HOUR)), [0, 3_564, 3_600, 9_000], "at its rate");
    }
}
