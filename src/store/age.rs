//! How old a message is, by a clock that goes on while the machine stands still.

use std::time::{Duration, SystemTime};

/// A message may be sent again for so long: well within the shortest time for which a store remembers one that still matters.
pub(crate) const REPEATED_WITHIN: Duration = Duration::from_secs(30);

/// When a message was written first, as the machine's clock had it: that may be set, but others stand still with some machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written(SystemTime);

impl Written {
    /// It is written now.
    pub(crate) fn now() -> Self {
        Self(SystemTime::now())
    }

    /// Whether that is so long ago that a store may have acted by it and have forgotten that. Where the clock was set back since, nobody knows.
    pub(crate) fn is_old(self) -> bool {
        self.0.elapsed().map_or(true, |age| age >= REPEATED_WITHIN)
    }

    /// One that was written so much earlier.
    #[cfg(test)]
    pub(crate) fn earlier_by(self, age: Duration) -> Self {
        Self(self.0 - age)
    }

    /// One that a clock shows which was set back by so much since.
    #[cfg(test)]
    pub(crate) fn later_by(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}
