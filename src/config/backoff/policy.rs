//! Policies of the crate `backoff`.

use std::time::Duration;

use ::backoff::backoff::Backoff as Policy;

use super::{Backoff, STEPS};

/// The waits of a policy of the crate `backoff`: as many as there are, up to 32, drawn here and now.
///
/// When the policy would give up, after its `max_elapsed_time` for one, nothing ends here: the last of its waits stands for
/// all after it. It must give one that is longer than zero. What is said of [`min`](Backoff::min) and [`max`](Backoff::max)
/// afterwards bounds its waits, and [`jitter`](Backoff::jitter) adds to them; [`factor`](Backoff::factor) does not change them.
///
/// ```
/// use backoff::ExponentialBackoffBuilder;
/// use outgate::{Limit, Upstream};
/// use std::time::Duration;
///
/// let policy = ExponentialBackoffBuilder::new().with_max_interval(Duration::from_secs(600)).build();
/// let upstream = Upstream::new("stripe").limit(Limit::per_second(100)).backoff(policy);
/// # assert!(outgate::Throttle::builder().upstream(upstream).build().is_ok());
/// ```
impl<P: Policy> From<P> for Backoff {
    fn from(mut policy: P) -> Self {
        policy.reset();
        let waits = (0..STEPS).map_while(|_| policy.next_backoff());
        // To go on at once is no backing off.
        let waits: Vec<_> = waits.filter(|wait| !wait.is_zero()).collect();
        let min = waits.iter().min().copied().unwrap_or(Duration::ZERO);
        let max = waits.iter().max().copied().unwrap_or(Duration::ZERO);
        Self { min, max, factor: 1.0, jitter: 0.0, told: Some(waits.into()) }
    }
}

#[cfg(test)]
mod tests {
    use ::backoff::backoff::{Constant, Stop, Zero};
    use ::backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Gives these waits, then nothing.
    struct Told(&'static [u64]);

    impl Policy for Told {
        fn next_backoff(&mut self) -> Option<Duration> {
            let (next, rest) = self.0.split_first()?;
            self.0 = rest;
            Some(Duration::from_secs(*next))
        }
    }

    fn told(seconds: &'static [u64]) -> Backoff {
        Told(seconds).into()
    }

    fn seconds(backoff: &Backoff, random: f64) -> Vec<f64> {
        backoff.waits(random).iter().map(Duration::as_secs_f64).collect()
    }

    fn exponential() -> ExponentialBackoff {
        let mut policy = ExponentialBackoffBuilder::new();
        policy.with_initial_interval(SECOND).with_multiplier(3.0).with_max_interval(20 * SECOND);
        policy.with_randomization_factor(0.0).with_max_elapsed_time(None).build()
    }

    #[test]
    fn an_exponential_policy_keeps_its_waits() {
        let backoff = Backoff::from(exponential());
        assert_eq!(seconds(&backoff, 0.9)[..6], [1.0, 3.0, 9.0, 20.0, 20.0, 20.0]);
        assert_eq!((backoff.waits(0.0).len(), backoff.longest(), backoff.fault()), (STEPS, 20 * SECOND, None));
    }

    #[test]
    fn it_begins_anew_when_it_has_been_used() {
        let mut used = exponential();
        assert_eq!([(); 3].map(|()| used.next_backoff()), [1, 3, 9].map(|seconds| Some(seconds * SECOND)));
        assert_eq!(Backoff::from(used), exponential().into());
    }

    #[test]
    fn its_randomness_is_kept() {
        let policy = || ExponentialBackoff { randomization_factor: 0.5, ..exponential() };
        let firsts: Vec<_> = (0..1_000).map(|_| seconds(&policy().into(), 0.0)[0]).collect();
        assert!(firsts.iter().all(|first| (0.5..=1.5).contains(first)));
        assert!(firsts.iter().any(|first| *first < 0.8) && firsts.iter().any(|first| *first > 1.2));
        let wild = ExponentialBackoff { randomization_factor: 4.0, ..exponential() };
        assert_eq!(Backoff::from(wild).fault(), None, "waits below zero are none");
    }

    #[test]
    fn its_end_is_not_ours() {
        let impatient = ExponentialBackoff { max_elapsed_time: Some(5 * SECOND), ..exponential() };
        assert_eq!(seconds(&impatient.into(), 0.0), [1.0, 3.0]);
        assert_eq!(seconds(&told(&[7]), 0.0), [7.0]);
    }

    #[test]
    fn any_policy_will_do_that_waits() {
        assert_eq!(seconds(&Constant::new(SECOND).into(), 0.5), [1.0; STEPS]);
        assert_eq!(seconds(&told(&[5, 2, 0, 60]), 0.0), [5.0, 2.0, 60.0]);
        let boxed: Box<dyn Policy> = Box::new(exponential());
        assert_eq!(Backoff::from(boxed), exponential().into());
        let month = Constant::new(32 * 86_400 * SECOND);
        assert!([Zero {}.into(), Stop {}.into(), Backoff::from(month)].iter().all(|backoff| backoff.fault().is_some()));
    }

    #[test]
    fn it_may_be_bounded_and_made_less_regular() {
        let backoff = told(&[1, 5, 50]).min(2 * SECOND).max(20 * SECOND);
        assert_eq!(seconds(&backoff, 0.5), [2.0, 5.0, 20.0]);
        assert_eq!(seconds(&backoff.jitter(1.0), 0.5), [3.0, 7.5, 30.0]);
    }
}
