//! Who wants to call what, and when.

use std::time::Duration;

use fastrand::Rng;

use crate::args::Args;

/// One process in so many is greedy.
pub(crate) const GREEDY_EVERY: u32 = 10;

/// Calls as they come: at random times, for few scopes very often and for many rarely, some processes wanting more than others.
pub(crate) struct Demand {
    random: Rng,
    per_second: f64,
    scopes: Weights,
    processes: Weights,
}

/// Numbers from zero, each as likely as its weight says.
struct Weights(Vec<f64>);

impl Demand {
    pub(crate) fn new(args: &Args) -> Self {
        let appetite = |process: u32| if is_greedy(process) { args.greedy } else { 1.0 };
        Self {
            random: Rng::with_seed(args.seed),
            per_second: args.demand,
            scopes: Weights::new((0..args.scopes).map(|scope| f64::from(scope / args.alike + 1).powf(-args.zipf))),
            processes: Weights::new((0..args.processes).map(appetite)),
        }
    }

    /// How long until the next call.
    pub(crate) fn pause(&mut self) -> Duration {
        // An exponential distribution: what comes is independent of what came.
        Duration::from_secs_f64(-(1.0 - self.random.f64()).ln() / self.per_second)
    }

    /// The process that wants to call next, and the scope.
    pub(crate) fn next(&mut self) -> (usize, usize) {
        (self.processes.pick(&mut self.random), self.scopes.pick(&mut self.random))
    }
}

pub(crate) const fn is_greedy(process: u32) -> bool {
    process.is_multiple_of(GREEDY_EVERY)
}

impl Weights {
    fn new(weights: impl Iterator<Item = f64>) -> Self {
        let running_sum = |sum: &mut f64, weight: f64| {
            *sum += weight;
            Some(*sum)
        };
        Self(weights.scan(0.0, running_sum).collect())
    }

    fn pick(&self, random: &mut Rng) -> usize {
        let at = random.f64() * self.0.last().copied().unwrap_or_default();
        self.0.partition_point(|&sum| sum <= at).min(self.0.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_picked_as_often_as_its_weight_says() {
        let (weights, mut random) = (Weights::new([4.0, 0.0, 1.0].into_iter()), Rng::with_seed(1));
        let mut picked = [0_u32; 3];
        for _ in 0..10_000 {
            picked[weights.pick(&mut random)] += 1;
        }
        assert!(picked[0].abs_diff(8_000) < 200 && picked[1] == 0, "{picked:?}");
    }
}
