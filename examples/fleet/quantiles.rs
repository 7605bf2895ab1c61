//! How long it took most of the time, nearly always, and at worst.

use std::fmt;
use std::time::Duration;

/// Times, in order.
pub(crate) struct Quantiles(Vec<Duration>);

impl Quantiles {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that so many in a thousand do not exceed; nothing where there are none.
    pub(crate) fn at(&self, per_mille: usize) -> Option<Duration> {
        let last = self.0.len().checked_sub(1)?;
        self.0.get(self.0.len() * per_mille / 1_000).or_else(|| self.0.get(last)).copied()
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(half), Some(most), Some(all)) = (self.at(500), self.at(990), self.at(1_000)) else {
            return f.write_str("none");
        };
        write!(f, "p50 {}, p99 {}, max {} ms", millis(half), millis(most), millis(all))
    }
}

/// A time in milliseconds.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1_000.0)
}
