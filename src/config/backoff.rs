//! How long to back off when nobody says.

#[cfg(feature = "backoff")]
mod policy;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};

use crate::feedback::Feedback;

/// Waits told apart: after so many refusals in a row they grow no longer.
const STEPS: usize = 32;

/// How long to back off: longer with each refusal in a row, and a little different for each process.
///
/// The next in a row is a refusal of a call that started within a minute after the wait, or within twice as long as that, the longest wait at most;
/// or while calls [came slower](crate::Upstream::recovery). After what bars us, as a ban, it is any within the longest wait. Others come now and
/// then, and calls were served between them; so they were where a 429 that tells nothing more is of a call that started as long after the wait as
/// that had lasted, and after a whole quota of the shortest limit, ten units at least, which the seconds before show.
///
/// # Default
///
/// * min: 1 s, after the first refusal
/// * max: 5 min
/// * factor: 2
/// * jitter: 0.5, up to half as long again
///
/// ```
/// use outgate::Backoff;
/// use std::time::Duration;
///
/// let patient = Backoff::new().min(Duration::from_secs(60)).max(Duration::from_secs(3_600)).factor(3.0).jitter(0.2);
/// # let _ = patient;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    factor: f32,
    jitter: f64,
    /// The waits that a policy told, in place of those that grow by the factor.
    told: Option<Arc<[Duration]>>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { min: Duration::from_secs(1), max: Duration::from_secs(300), factor: 2.0, jitter: 0.5, told: None }
    }
}

impl Backoff {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The wait after the first refusal.
    #[must_use]
    pub const fn min(mut self, min: Duration) -> Self {
        self.min = min;
        self
    }

    /// The longest wait, jitter aside: at most 31 days.
    #[must_use]
    pub const fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// How many times longer each wait is than the one before: at least 1.
    #[must_use]
    pub const fn factor(mut self, factor: f32) -> Self {
        self.factor = factor;
        self
    }

    /// The share of a wait that is added at random, at most: 0 to 1.
    #[must_use]
    pub const fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// The longest wait, jitter aside.
    pub(crate) const fn longest(&self) -> Duration {
        self.max
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.min.is_zero() || self.min > self.max || self.max > Feedback::LONGEST_WAIT {
            Some("min must be longer than zero and at most max, and max at most 31 days")
        } else if !(1.0..=1_000.0).contains(&self.factor) {
            Some("factor must be between 1 and 1,000")
        } else if !(0.0..=1.0).contains(&self.jitter) {
            Some("jitter must be between 0 and 1")
        } else {
            None
        }
    }

    /// The waits after one refusal, two in a row, and so on; the last stands for all after it. `random` is in [0, 1).
    pub(crate) fn waits(&self, random: f64) -> Vec<Duration> {
        let vary = |wait: Duration| wait.mul_f64(1.0 + self.jitter * random);
        if let Some(told) = &self.told {
            return told.iter().map(|wait| vary((*wait).max(self.min).min(self.max))).collect();
        }
        let waits = ExponentialBuilder::new()
            .with_min_delay(self.min)
            .with_max_delay(self.max)
            .with_factor(self.factor)
            .with_max_times(STEPS)
            .build();
        waits.map(vary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_longer_up_to_the_longest() {
        let backoff = Backoff::new().max(Duration::from_secs(9));
        let seconds = |random| backoff.waits(random).iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        assert_eq!(seconds(0.0)[..6], [1.0, 2.0, 4.0, 8.0, 9.0, 9.0]);
        assert_eq!(seconds(0.5)[..3], [1.25, 2.5, 5.0]);
        assert_eq!(seconds(0.0).len(), STEPS);
    }

    #[test]
    fn an_impossible_backoff_is_found() {
        assert_eq!(Backoff::new().fault(), None);
        let wrong = [
            Backoff::new().min(Duration::ZERO),
            Backoff::new().min(Duration::MAX),
            Backoff::new().max(Duration::MAX),
            Backoff::new().factor(0.5),
            Backoff::new().factor(f32::NAN),
            Backoff::new().jitter(-0.1),
            Backoff::new().jitter(f64::NAN),
        ];
        assert!(wrong.iter().all(|backoff| backoff.fault().is_some()));
    }
}
