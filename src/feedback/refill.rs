//! The rate at which a bucket fills.

use std::time::Duration;

use super::number::Number;

/// A rate at which a quota comes back: so many units every so often.
///
/// ```
/// use outgate::feedback::Refill;
/// use std::time::Duration;
///
/// assert_eq!(Refill::new(100, Duration::from_secs(4)).per_second(), 25.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refill {
    units: u32,
    every: Duration,
}

impl Refill {
    /// `units` come back in each `every`.
    #[must_use]
    pub const fn new(units: u32, every: Duration) -> Self {
        Self { units, every }
    }

    /// Units that come back in each [`every`](Self::every).
    #[must_use]
    pub const fn units(self) -> u32 {
        self.units
    }

    /// The time in which [`units`](Self::units) come back.
    #[must_use]
    pub const fn every(self) -> Duration {
        self.every
    }

    /// Units that come back in a second; zero where nothing ever does.
    #[must_use]
    pub fn per_second(self) -> f64 {
        if self.every.is_zero() { 0.0 } else { f64::from(self.units) / self.every.as_secs_f64() }
    }

    /// The rate of a decimal number of units per `every`.
    pub(super) fn of(number: Number, every: Duration) -> Option<Self> {
        let (units, over) = number.ratio()?;
        if units == 0 || every.is_zero() {
            return None;
        }
        Some(Self::new(units, every.checked_mul(over)?))
    }

    /// Until one unit has come back, rounded up to tenths of a second; `None` where nothing ever does.
    ///
    /// Upstreams round the rates that they print, so that the exact quotient may be a little short.
    pub(super) fn one_unit(self) -> Option<Duration> {
        let one = self.every.checked_div(self.units)?;
        let tenths = one.as_nanos().div_ceil(100_000_000);
        Some(Duration::from_millis(u64::try_from(tenths).ok()?.checked_mul(100)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_comes_back_after_its_share_of_the_time_rounded_up() {
        let cases = [("0.0167", Some(59_900)), ("0.5", Some(2_000)), ("5", Some(200)), ("30", Some(100)), ("0", None)];
        for (rate, millis) in cases {
            let refill = Refill::of(Number::parse(rate).unwrap(), Duration::from_secs(1));
            assert_eq!(refill.and_then(Refill::one_unit), millis.map(Duration::from_millis), "{rate}");
        }
        assert_eq!(Refill::new(0, Duration::MAX).one_unit(), None);
        assert_eq!(Refill::new(1, Duration::MAX).one_unit(), None);
    }

    #[test]
    fn a_rate_is_exact_per_second() {
        let refill = Refill::of(Number::parse("0.0167").unwrap(), Duration::from_secs(1)).unwrap();
        assert_eq!((refill.units(), refill.every()), (167, Duration::from_secs(10_000)));
        assert!((refill.per_second() - 0.0167).abs() < f64::EPSILON);
        assert!(Refill::new(5, Duration::ZERO).per_second().abs() < f64::EPSILON);
    }
}
