//! An upstream that allows less than it is told to, and says so by refusals alone; and one that refuses a call for no reason.

use std::time::Duration;

use outgate::Limit;
use outgate::testing::Shape;

use crate::cluster::{Cluster, Place, Plan};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand_no_panic, undisturbed};
use crate::{Outcome, alone, ms};

const SECOND: i64 = 1_000_000;
/// A quarter of the guard.
const QUIET: Quiet = Quiet { late: ms(15), times: 0 };

fn plan(name: String, limit: Limit) -> Plan {
    let demands = vec![Demand::Endless { tasks: 16 }; 4];
    let (shape, delay, place) = (Shape::SlidingLog, ms(0)..ms(10), Place::Redis);
    Plan { name, limits: vec![limit], insists: true, shape, delay, place, demands, manner: Manner::default() }
}

/// Runs of a test: more by `OUTGATE_RUNS`.
fn runs() -> u32 {
    std::env::var("OUTGATE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

fn count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[test]
fn a_lower_limit_is_learned_from_refusals_alone() -> Outcome {
    let _alone = alone();
    for (told, allowed, least, seconds) in [(40, 25, 0.80, 52), (100, 90, 0.85, 30)] {
        for _ in 0..runs() {
            undisturbed(QUIET, || {
                let mut cluster =
                    Cluster::start(plan(format!("{told}/s, {allowed}/s allowed"), Limit::per_second(told)))?;
                cluster.set_quota(allowed);
                cluster.begin()?;
                cluster.run_until(Duration::from_secs(seconds));
                let outcome = cluster.finish()?;
                let first = outcome.arrivals.first().map_or(0, |arrival| arrival.at);
                let end = first + i64::try_from(seconds)? * SECOND;
                let served = outcome.between(first, end).filter(|arrival| arrival.admitted).count();
                let refused = |from, to| outcome.between(from, to).filter(|arrival| !arrival.admitted).count();
                let (wave, later) = (refused(first, first + SECOND), refused(first + SECOND, end));
                let share = count(served) / (count(usize::try_from(allowed * seconds)?));
                println!(
                    "told {told}/s, allowed {allowed}/s: {share:.3} of it, {wave} refused at first and {later} later"
                );
                demand_no_panic(|| {
                    assert!(later <= 4, "{later} refused after the first wave");
                    assert!(share >= least, "{share}");
                })
            })?;
        }
    }
    Ok(())
}

#[test]
fn a_stray_refusal_costs_little() -> Outcome {
    let _alone = alone();
    for (quota, window) in [(100, 1), (40, 2)] {
        for _ in 0..runs() {
            undisturbed(QUIET, || {
                let limit = Limit::new(quota, Duration::from_secs(window));
                let mut cluster = Cluster::start(plan(format!("{quota} per {window} s, a stray refusal"), limit))?;
                cluster.begin()?;
                let begin = cluster.run_until(ms(6_300));
                cluster.refuse_next();
                let end = cluster.run_until(ms(26_300));
                let outcome = cluster.finish()?;
                let served = outcome.between(begin, end).filter(|arrival| arrival.admitted).count();
                let refused = outcome.arrivals.iter().filter(|arrival| !arrival.admitted).count();
                let rate = f64::from(quota) / (1.05 * count(usize::try_from(window)?));
                let lost = count(usize::try_from(end - begin)?) / 1e6 - count(served) / rate;
                println!("{quota} per {window} s: a stray refusal costs {lost:.2} s of the quota, {refused} refused");
                demand_no_panic(|| {
                    assert_eq!(refused, 1);
                    assert!(lost <= 3.0, "{lost}");
                })
            })?;
        }
    }
    Ok(())
}
