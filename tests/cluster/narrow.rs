//! Windows of 100 ms with the guard that a limit has by default.

use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::Shape;

use crate::cluster::{Cluster, Place, Plan};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, undisturbed};
use crate::{Outcome, alone, ms, table};

const NARROW: Limit = Limit::new(10, ms(100));
const WIDE: Limit = Limit::new(300, Duration::from_secs(10));
const FOUR: [Demand; 4] = [Demand::Endless { tasks: 8 }; 4];
const ONE: [Demand; 1] = [Demand::Endless { tasks: 32 }];

/// Whoever the machine wakes later than half of the guard loses his slot.
const QUIET: Quiet = Quiet { late: ms(5), times: 2 };

/// Runs until the last of the parts, in each of which the narrow limit alone decides how much is sent.
fn use_windows_of_100_ms(
    name: &str,
    place: Place,
    demands: &[Demand],
    limits: &[Limit],
    parts: &[(Duration, Duration)],
) -> Outcome {
    let _alone = alone();
    let run = parts.iter().map(|&(_, to)| to).max().unwrap_or_default();
    undisturbed(QUIET, || {
        let (name, limits, demands) = (name.to_owned(), limits.to_vec(), demands.to_vec());
        // A refusal would pause everybody for a second, and hide how often one was due.
        let (insists, shape, delay, manner) = (false, Shape::SlidingLog, ms(0)..ms(0), Manner::default());
        let mut cluster = Cluster::start(Plan { name, limits, insists, shape, delay, place, demands, manner })?;
        thread::sleep(ms(200));
        cluster.begin()?;
        cluster.run_until(run);
        let outcome = cluster.finish()?;
        table::print(&[&outcome], run);
        let shares: Vec<_> = parts.iter().map(|&(from, to)| outcome.share(&NARROW, from, to)).collect();
        let overfull: Vec<_> = outcome.plan.limits.iter().map(|limit| outcome.overfull(limit)).collect();
        println!("share of the quota {shares:.3?}; overfull windows {overfull:?} of {}", outcome.arrivals.len());
        let (first, last) = (outcome.stamps().first().copied(), outcome.stamps().last().copied());
        let gap = outcome.longest_gap(first.unwrap_or_default(), last.unwrap_or_default());
        println!("nothing arrived for {gap:?} at most");
        let is_used = shares.iter().all(|&share| share >= 0.95);
        demand(is_used, || format!("less than 0.95 of the quota was used: {shares:.3?}"))?;
        demand(overfull.iter().all(|&windows| windows == 0), || {
            format!("more than the quota left in windows: {overfull:?}")
        })
    })
}

#[test]
fn four_processes_keep_and_use_windows_of_100_ms() -> Outcome {
    use_windows_of_100_ms("10/100 ms", Place::Redis, &FOUR, &[NARROW], &[(ms(500), ms(10_500))])
}

#[test]
fn one_process_with_its_log_in_memory_keeps_and_uses_windows_of_100_ms() -> Outcome {
    use_windows_of_100_ms("10/100 ms, in memory", Place::Memory, &ONE, &[NARROW], &[(ms(500), ms(10_500))])
}

/// 300 calls take 3.3 s, and after 10.5 s the next come as fast.
const BESIDE_WIDE: [(Duration, Duration); 2] = [(ms(200), ms(2_900)), (ms(10_700), ms(13_400))];

#[test]
fn four_processes_keep_and_use_windows_of_100_ms_beside_a_wider_limit() -> Outcome {
    use_windows_of_100_ms("10/100 ms and 300/10 s", Place::Redis, &FOUR, &[NARROW, WIDE], &BESIDE_WIDE)
}

#[test]
fn one_process_with_its_log_in_memory_keeps_and_uses_windows_of_100_ms_beside_a_wider_limit() -> Outcome {
    use_windows_of_100_ms("10/100 ms and 300/10 s, in memory", Place::Memory, &ONE, &[NARROW, WIDE], &BESIDE_WIDE)
}
