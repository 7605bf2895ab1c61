//! Buckets, and calls of many costs: not one 429, and what comes is used.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::{Shape, oracle};

use crate::cluster::{Cluster, Place, Plan, micros};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, undisturbed};
use crate::{Outcome, alone, ms};

const SECOND: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(12);
/// Units in a second, of every limit here.
const QUOTA: u32 = 100;
/// The largest cost, where calls differ.
const LARGEST: u32 = 50;

/// A limit, how the upstream counts it, and the largest cost.
struct Case {
    words: &'static str,
    limit: Limit,
    shape: Shape,
    largest: u32,
}

impl Case {
    /// The units that can start in a run. Of a bucket: what is in it at first, less what flows in within the guard, and what flows in. Of a
    /// window: the quota, and again as often as the window and its guard go by.
    fn most(&self) -> f64 {
        let (quota, guard) = (f64::from(QUOTA), self.limit.guard_or_default());
        match self.shape {
            Shape::TokenBucket => f64::from(self.limit.quota()) + quota * RUN.saturating_sub(guard).as_secs_f64(),
            _ => quota + quota * RUN.as_secs_f64() / (SECOND + guard).as_secs_f64(),
        }
    }

    /// The part of that which is used at least. Of a window, calls of many costs leave some units that none of those who wait fits
    /// into, and a run ends in the middle of one.
    const fn least(&self) -> f64 {
        match (self.shape, self.largest) {
            (Shape::TokenBucket, 0) => 0.95,
            (Shape::TokenBucket, _) => 0.9,
            _ => 0.8,
        }
    }
}

fn cases(guard: Duration) -> Vec<Case> {
    let (bucket, window) = (Limit::bucket(QUOTA, QUOTA, SECOND).guard(guard), Limit::per_second(QUOTA).guard(guard));
    let case = |words, limit: &Limit, shape, largest| Case { words, limit: limit.clone(), shape, largest };
    vec![
        case("a bucket", &bucket, Shape::TokenBucket, 0),
        case("a small bucket", &Limit::bucket(QUOTA / 2, QUOTA, SECOND).guard(guard), Shape::TokenBucket, 0),
        case("a bucket, costs of 1 to 50", &bucket, Shape::TokenBucket, LARGEST),
        case("a sliding log, costs of 1 to 50", &window, Shape::SlidingLog, LARGEST),
        case("aligned windows, costs of 1 to 50", &window, Shape::FixedWindow { phase: 0 }, LARGEST),
        case("windows from the first call, costs of 1 to 50", &window, Shape::FixedWindowFromFirstCall, LARGEST),
    ]
}

fn against(guard: Duration, delay: Range<Duration>) -> Outcome {
    let cases = cases(guard);
    let start = |case: &Case| {
        let (limits, demands) = (vec![case.limit.clone()], vec![Demand::Endless { tasks: 16 }; 4]);
        let manner = Manner { largest: case.largest, ..Manner::default() };
        let (name, shape, delay) = (case.words.to_owned(), case.shape, delay.clone());
        Cluster::start(Plan { name, limits, insists: true, shape, delay, place: Place::Redis, demands, manner })
    };
    let mut clusters = cases.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    thread::sleep(ms(200));
    for cluster in &mut clusters {
        cluster.begin()?;
        // Each in its own part of the window, as calls that start together take the processors together.
        thread::sleep(SECOND / 6);
    }
    let mut missed = Vec::new();
    for (cluster, case) in clusters.into_iter().zip(&cases) {
        cluster.run_until(RUN);
        let outcome = cluster.finish()?;
        let first = outcome.arrivals.first().map_or(0, |arrival| arrival.at);
        let units: Vec<_> = outcome.between(first, first + micros(RUN)).map(|call| (call.at, call.cost)).collect();
        let sum = units.iter().map(|(_, cost)| u32::try_from(*cost)).sum::<Result<u32, _>>()?;
        let (share, refused) = (f64::from(sum) / case.most(), outcome.refused());
        let worst = oracle::worst_window_of_units(&units, micros(SECOND)).count;
        let failed: u64 = outcome.results.iter().map(|results| results.refused + results.failed).sum();
        println!(
            "{:?}, {}: {} calls, {sum} units, share {share:.3}, {refused} 429s, {failed} failed, worst second {worst}",
            delay,
            case.words,
            units.len()
        );
        if refused > 0 || failed > 0 || share < case.least() {
            missed.push(format!("{}: share {share:.3}, {refused} 429s, {failed} failed", case.words));
        }
    }
    demand(missed.is_empty(), || missed.join("; "))
}

#[test]
fn four_processes_use_buckets_and_any_cost_without_one_429_near_by() -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || against(ms(50), ms(0)..ms(20)))
}

#[test]
fn four_processes_use_buckets_and_any_cost_without_one_429_far_away() -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || against(ms(250), ms(10)..ms(200)))
}
