//! How a number tells a time.

use super::number::Number;

const EPOCH_SECONDS_FROM: u64 = 1_000_000_000;
const EPOCH_MILLIS_FROM: u64 = 1_000_000_000_000;

/// How a number tells a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeUnit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
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
}
