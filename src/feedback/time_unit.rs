//! How a number tells a time.

use super::number::Number;

const EPOCH_SECONDS_FROM: u64 = 1_000_000_000;
const EPOCH_MILLIS_FROM: u64 = 1_000_000_000_000;

/// How a number tells a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeUnit {
    /// Seconds from now; since 1970 where they are 10^9 or more.
    Seconds,
    /// Milliseconds from now; since 1970 where they are 10^12 or more.
    Millis,
    /// Seconds since 1970.
    EpochSeconds,
    /// Milliseconds since 1970.
    EpochMillis,
}

impl TimeUnit {
    /// The unit that the magnitude of a number suggests.
    pub(super) const fn of(number: Number) -> Self {
        match number.floor() {
            EPOCH_MILLIS_FROM.. => Self::EpochMillis,
            EPOCH_SECONDS_FROM.. => Self::EpochSeconds,
            _ => Self::Seconds,
        }
    }

    /// This unit; that of a time since 1970 where the number would be a length of some thirty years, or more.
    pub(super) const fn or_epoch(self, number: Number) -> Self {
        match (self, Self::of(number)) {
            (Self::Seconds, epoch) | (Self::Millis, epoch @ Self::EpochMillis) => epoch,
            (unit, _) => unit,
        }
    }
}
