//! How processes get on with each other: limits together, equal shares, and the death of one.

use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::{Shape, oracle};

use crate::cluster::{Cluster, Place, Plan, micros};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand_no_panic, undisturbed};
use crate::{Outcome, alone, ms, table};

const HORIZON: Duration = ms(250);
/// For tests of shares. The bursts of eight processes meet on few cores, which spreads their calls beyond the default guard
/// less a network of 20 ms: what that guard is good for is shown with four, in `shapes`.
const SHARED: Limit = Limit::per_second(100).guard(ms(250));
const GREEDY: Demand = Demand::Endless { tasks: 32 };

/// A cluster that has begun to call, of processes with one log in Redis.
fn begun(name: &str, limits: &[Limit], demands: Vec<Demand>) -> Result<Cluster, Box<dyn std::error::Error>> {
    let (name, limits, delay) = (name.to_owned(), limits.to_vec(), ms(0)..ms(20));
    let (shape, place, manner) = (Shape::SlidingLog, Place::Redis, Manner::default());
    let plan = Plan { name, limits, insists: true, shape, delay, place, demands, manner };
    let mut cluster = Cluster::start(plan)?;
    thread::sleep(ms(200));
    cluster.begin()?;
    Ok(cluster)
}

#[test]
fn two_limits_together_are_both_used_and_both_kept() -> Outcome {
    const RUN: Duration = ms(12_300);
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || {
        let limits = [Limit::per_second(20), Limit::new(100, Duration::from_secs(10))];
        let cluster = begun("20/s and 100/10 s", &limits, vec![GREEDY; 4])?;
        cluster.run_until(RUN);
        let outcome = cluster.finish()?;
        table::print(&[&outcome], RUN);
        demand_no_panic(|| {
            outcome.assert_nobody_was_refused();
            outcome.assert_quota_was_used(RUN);
        })
    })
}

#[test]
fn eight_processes_with_endless_demand_get_equal_shares() -> Outcome {
    const RUN: Duration = Duration::from_secs(20);
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || {
        let cluster = begun("8 greedy processes", &[SHARED], vec![GREEDY; 8])?;
        cluster.run_until(RUN);
        let outcome = cluster.finish()?;
        table::print(&[&outcome], RUN);
        let shares = outcome.shares(RUN);
        let jain = oracle::jain(&shares);
        println!("calls of each process: {shares:?}, Jain's index {jain:.4}");
        demand_no_panic(|| {
            outcome.assert_nobody_was_refused();
            outcome.assert_quota_was_used(RUN);
            assert!(jain >= 0.95, "Jain's index is {jain}: {shares:?}");
        })
    })
}

#[test]
fn a_process_that_asks_for_little_gets_it_beside_seven_greedy_ones() -> Outcome {
    const RUN: Duration = ms(8_300);
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || {
        let limit = SHARED;
        let mut demands = vec![GREEDY; 7];
        demands.push(Demand::Paced { every: ms(500), max_wait: Duration::from_secs(2) });
        let cluster = begun("7 greedy processes, one modest", std::slice::from_ref(&limit), demands)?;
        cluster.run_until(RUN);
        let outcome = cluster.finish()?;
        table::print(&[&outcome], RUN);
        let modest = outcome.results.last().ok_or("no results")?;
        println!("the modest process: {} calls, the longest wait {:?}", modest.answered, modest.longest_wait);
        let bound = limit.window() + limit.guard_or_default() + HORIZON + ms(50);
        demand_no_panic(|| {
            outcome.assert_nobody_was_refused();
            outcome.assert_quota_was_used(RUN);
            // Its call of second 0, 0.5, … 6.5 at least: later ones may still wait.
            assert!(modest.answered >= 14, "{modest:?}");
            assert!(modest.longest_wait <= bound, "longer than {bound:?}: {modest:?}");
        })
    })
}

#[test]
fn when_a_process_is_killed_the_others_use_the_whole_quota_after_two_spans_and_a_horizon() -> Outcome {
    const RUN: Duration = ms(10_000);
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || {
        let limit = Limit::per_second(100);
        let span = limit.window() + limit.guard_or_default();
        // Enough tasks for three processes to use it all.
        let mut cluster = begun("one of 4 processes killed", &[limit], vec![Demand::Endless { tasks: 40 }; 4])?;
        // 30 ms before the quota goes out for the fourth time: the process holds booked slots, which it will never use.
        cluster.run_until(ms(3 * 1_050 - 30));
        let killed = cluster.kill_one()?;
        let end = cluster.run_until(RUN);
        let outcome = cluster.finish()?;
        table::print(&[&outcome], RUN);
        let lost = outcome.between(killed, killed + micros(span / 2)).count();
        println!("calls in the half span after the death: {lost}");
        // One span more: the others open connections for what they send now, and such calls count somewhat longer.
        let spans = outcome.spans(killed + micros(2 * span + HORIZON), micros(span), end);
        println!("calls in each span, from two spans and a horizon after the death: {spans:?}");
        demand_no_panic(|| {
            outcome.assert_nobody_was_refused();
            // A call that is a few milliseconds late may arrive in the span after its own.
            assert!(spans.len() >= 3 && spans.iter().all(|&calls| calls >= 95), "{spans:?}");
            assert!(spans.iter().sum::<usize>() >= 98 * spans.len(), "{spans:?}");
        })
    })
}
