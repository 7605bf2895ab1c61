//! Even pacing against upstreams that approximate a sliding window by two counts.

use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::{Judge, Shape};

use crate::cluster::{Cluster, Place, Plan, micros};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, demand_no_panic, undisturbed};
use crate::{Outcome, alone, ms, table};

const LIMIT: Limit = Limit::per_second(100);
const RUN: Duration = Duration::from_secs(21);

/// One cluster for each phase of the upstream's windows.
fn run(insists: bool, phases: &[i64]) -> Result<Vec<crate::outcome::Outcome>, Box<dyn std::error::Error>> {
    let cluster = |&phase: &i64| {
        let name = format!("two counts, phase {} ms{}", phase / 1_000, if insists { "" } else { ", not insisting" });
        let shape = Shape::SlidingWindowCounter { phase };
        let (limits, delay, place) = (vec![LIMIT], ms(0)..ms(20), Place::Redis);
        let (manner, demands) = (Manner { burst: 1, ..Manner::default() }, vec![Demand::Endless { tasks: 8 }; 4]);
        Cluster::start(Plan { name, limits, insists, shape, delay, place, demands, manner })
    };
    let mut clusters = phases.iter().map(cluster).collect::<Result<Vec<_>, _>>()?;
    thread::sleep(ms(200));
    clusters.iter_mut().try_for_each(Cluster::begin)?;
    let ended = clusters.into_iter().map(|cluster| {
        cluster.run_until(RUN);
        cluster.finish()
    });
    let outcomes = ended.collect::<Result<Vec<_>, _>>()?;
    table::print(&outcomes.iter().collect::<Vec<_>>(), RUN);
    Ok(outcomes)
}

#[test]
fn an_evenly_paced_limit_earns_no_429_from_an_approximating_counter() -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || {
        for outcome in run(true, &[0, 250_000, 500_000, 750_000])? {
            // A refusal or two may be the machine's doing; slots in the wrong hands earn more.
            assert!(outcome.refused() <= 2, "{} refused", outcome.refused());
            demand_no_panic(|| {
                outcome.assert_nobody_was_refused();
                outcome.assert_quota_was_used(RUN);
            })?;
        }
        Ok(())
    })
}

#[test]
fn an_evenly_paced_limit_would_earn_none_whatever_the_counters_phase() -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, refused_by_no_phase)
}

fn refused_by_no_phase() -> Outcome {
    for outcome in run(false, &[0])? {
        let stamps = outcome.stamps();
        // A refusal would pause everybody, so that no two phases saw the same calls: here each judges all of them.
        let refused = |phase| {
            let mut judge =
                Judge::new().limit(LIMIT.quota().into(), micros(LIMIT.window()), Shape::SlidingWindowCounter { phase });
            stamps.iter().filter(|&&at| !judge.admit(at, 1).admitted).count()
        };
        let refusals: Vec<_> = (0..1_000_000).step_by(2_000).map(refused).collect();
        let (sum, worst) = (refusals.iter().sum::<usize>(), refusals.iter().max().copied().unwrap_or(0));
        println!("{} phases of {} calls: {sum} refusals, {worst} at the worst", refusals.len(), stamps.len());
        demand(worst == 0, || format!("{worst} refusals at the worst phase"))?;
        demand_no_panic(|| outcome.assert_quota_was_used(RUN))?;
    }
    Ok(())
}
