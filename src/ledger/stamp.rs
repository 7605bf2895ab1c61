//! Log time: whole microseconds.

use std::fmt;
use std::time::Duration;

/// A start time on the store's clock, in microseconds.
///
/// Only differences between stamps of one store mean anything.
///
/// ```
/// use outgate::ledger::Stamp;
/// use std::time::Duration;
///
/// let (earlier, later) = (Stamp::from_micros(5), Stamp::from_micros(12));
/// assert_eq!((later.as_micros(), later.since(earlier)), (12, Duration::from_micros(7)));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(i64);

impl Stamp {
    /// No moment: what is said of a period that nobody was counted in.
    pub(crate) const NEVER: Self = Self(0);

    /// The stamp of a number of microseconds since the store's epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the store's epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this stamp lies; zero if it does not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This stamp moved by some microseconds.
    pub(crate) const fn plus(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}µs", self.0)
    }
}

/// Whole microseconds of a duration, rounded up, saturating far beyond every allowed window.
pub(crate) fn micros(duration: Duration) -> i64 {
    let whole = duration.as_secs().saturating_mul(1_000_000);
    let micros = whole.saturating_add(duration.subsec_nanos().div_ceil(1_000).into());
    i64::try_from(micros).unwrap_or(i64::MAX).min(i64::MAX / 4)
}
