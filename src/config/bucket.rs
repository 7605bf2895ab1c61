//! A limit that is a bucket: what is said of it, and the term that it stands for.

use std::time::Duration;

use super::limit::{MAX_GUARD, MIN_WINDOW};
use crate::error::ConfigError;
use crate::ledger::{Bucket, Term, micros};

/// The longest time in which a bucket may fill.
const MAX_TIME_TO_FILL: Duration = Duration::from_secs(60 * 86_400);
/// The default guard of a bucket is a twentieth of the time in which it fills, within these bounds.
const MIN_DEFAULT_GUARD: Duration = Duration::from_millis(10);
const SHORT_GUARD: Duration = Duration::from_millis(50);
const LONG_GUARD: Duration = Duration::from_secs(1);
/// A call that probably opens a connection arrives later than others by so much at most, and not by more than a quarter of the
/// time in which the bucket fills.
const MOST_COLD: Duration = Duration::from_millis(250);

/// How long a bucket takes to fill.
pub(super) const fn time_to_fill(capacity: u32, refill: u32, per: Duration) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    if refill == 0 {
        return Duration::MAX;
    }
    let nanos = (per.as_nanos() * capacity as u128).div_ceil(refill as u128);
    if nanos / SECOND > u64::MAX as u128 {
        return Duration::MAX;
    }
    #[expect(clippy::cast_possible_truncation, reason = "both are in range")]
    Duration::new((nanos / SECOND) as u64, (nanos % SECOND) as u32)
}

/// The guard of a bucket that fills within that time, of which one unit takes `unit`.
pub(super) fn default_guard(fills: Duration, unit: Duration) -> Duration {
    (fills / 20).clamp(MIN_DEFAULT_GUARD, (unit / 20).clamp(SHORT_GUARD, LONG_GUARD))
}

/// What is wrong with a bucket, its capacity and its guard aside.
pub(super) fn check(
    upstream: &str,
    refill: u32,
    per: Duration,
    fills: Duration,
    burst: Option<u32>,
) -> Result<(), ConfigError> {
    let wrong = |field, reason: String| Err(ConfigError::new(upstream, field, reason));
    if refill == 0 {
        return wrong("limit.refill", "0 units: the bucket would never fill".to_owned());
    }
    if per.is_zero() {
        return wrong("limit.per", "no time: all units would flow in at once".to_owned());
    }
    if fills < MIN_WINDOW || fills > MAX_TIME_TO_FILL {
        let reason = format!("{refill} units in {per:?} fill the bucket in {fills:?}, not in 1 ms to 60 days");
        return wrong("limit.refill", reason);
    }
    if burst.is_some() {
        let reason = "the capacity of a bucket is its burst: for another, give it another capacity".to_owned();
        return wrong("limit.burst", reason);
    }
    Ok(())
}

/// The term that a bucket stands for where each entry is so many units: the guard is taken out of its capacity. Where less than an entry
/// is left so, it is a window in which one may start.
pub(super) fn term(capacity: u32, refill: u32, per: Duration, guard: Duration, entry: u32) -> Term {
    let nanos = |nanos: u128| i64::try_from(nanos).unwrap_or(i64::MAX / 4);
    let entry = u128::from(entry.max(1));
    let per_entry = (per.as_nanos().saturating_mul(entry)).div_ceil(u128::from(refill.max(1))).max(1);
    let interval = nanos(per_entry);
    let guard_nanos = nanos(guard.min(MAX_GUARD).as_nanos());
    let depth = nanos(per_entry.saturating_mul(capacity.into()) / entry).saturating_sub(guard_nanos);
    let cold = (time_to_fill(capacity, refill, per) / 4).min(MOST_COLD);
    if depth < interval {
        let span = micros(Duration::from_nanos(interval.unsigned_abs())).saturating_add(micros(guard));
        return Term::new(1, span).cold(micros(cold));
    }
    Term::bucket(Bucket::new(interval, depth)).cold(micros(cold))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::limit::{Limit, MAX_QUOTA};

    const SECOND: Duration = Duration::from_secs(1);

    #[expect(clippy::needless_pass_by_value, reason = "limits are made where they are tested")]
    fn only(limit: Limit) -> Term {
        let terms = limit.terms("up").unwrap();
        assert_eq!(terms.len(), 1, "{limit:?}");
        terms[0]
    }

    #[test]
    fn a_bucket_is_one_term_with_the_guard_out_of_its_capacity() {
        let term = only(Limit::bucket(40, 2, SECOND));
        assert_eq!(term, Term::bucket(Bucket::new(500_000_000, 19_950_000_000)).cold(250_000));
        assert_eq!((term.quota, term.span), (39, 19_950_000));
        let exact = only(Limit::bucket(40, 2, SECOND).guard(Duration::ZERO));
        assert_eq!((exact.quota, exact.span), (40, 20_000_000));
        let broken = only(Limit::bucket(7, 7, SECOND).guard(Duration::ZERO));
        assert_eq!(broken.shape, Term::bucket(Bucket::new(142_857_143, 7 * 142_857_143)).shape, "rounded up");
        let fast = only(Limit::bucket(1_000_000, 700_000, SECOND).guard(Duration::ZERO));
        assert_eq!(fast.as_bucket().unwrap().interval, 1_429);
    }

    #[test]
    fn of_a_bucket_whose_entries_are_many_units_an_entry_is_rounded_and_not_each_unit() {
        let bytes = Limit::bucket(100_000_000, 400_000_000, SECOND).of("bytes");
        // 2.5 ns for each.
        let entry = bytes.window_term_in_entries_of(8_192);
        assert_eq!(entry.as_bucket().unwrap(), Bucket::new(20_480, 237_500_000));
        assert_eq!(entry.quota, 11_596);
    }

    #[test]
    fn of_a_bucket_of_one_unit_each_takes_its_time_and_the_guard() {
        assert_eq!(only(Limit::bucket(1, 10, SECOND)), Term::new(1, 110_000).cold(25_000));
        assert_eq!(only(Limit::bucket(1, 1, 20 * SECOND)), Term::new(1, 21_000_000).cold(250_000));
        let narrow = Limit::bucket(2, 100, SECOND).guard(Duration::from_millis(15));
        assert_eq!(only(narrow), Term::new(1, 25_000).cold(5_000), "half a unit is left of two");
    }

    #[test]
    fn the_default_guard_of_a_bucket_costs_a_twentieth_of_it_at_most_and_seldom_more_than_50_ms() {
        let guards = [
            (Limit::bucket(40, 2, SECOND), 50),
            (Limit::bucket(100, 100, SECOND), 50),
            (Limit::bucket(20, 100, SECOND), 10),
            (Limit::bucket(1, 1, SECOND), 50),
            (Limit::bucket(5, 1, 600 * SECOND), 1_000),
            (Limit::bucket(30, 1, 10 * SECOND), 500),
        ];
        for (limit, millis) in guards {
            assert_eq!(limit.guard_or_default(), Duration::from_millis(millis), "{limit:?}");
        }
    }

    #[test]
    fn an_impossible_bucket_names_its_field() {
        let cases = [
            (Limit::bucket(0, 1, SECOND), "limit.capacity"),
            (Limit::bucket(MAX_QUOTA + 1, 1, SECOND), "limit.capacity"),
            (Limit::bucket(5, 0, SECOND), "limit.refill"),
            (Limit::bucket(5, 1, Duration::ZERO), "limit.per"),
            (Limit::bucket(5, 1, Duration::MAX), "limit.refill"),
            (Limit::bucket(1, u32::MAX, Duration::from_nanos(1)), "limit.refill"),
            (Limit::bucket(1_000_000, 1, 100 * SECOND), "limit.refill"),
            (Limit::bucket(5, 1_000, SECOND), "limit.guard"),
            (Limit::bucket(5, 1, SECOND).burst(2), "limit.burst"),
            (Limit::bucket(5, 1, SECOND).guard(Duration::MAX), "limit.guard"),
        ];
        for (limit, field) in cases {
            let error = limit.terms("shop").unwrap_err();
            assert_eq!((error.upstream(), error.field()), ("shop", field), "{limit:?}");
        }
    }
}
