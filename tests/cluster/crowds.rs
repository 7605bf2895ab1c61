//! Many processes on one evenly paced limit: what a call costs the store, and who gets how much.

use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::{Shape, oracle};

use crate::cluster::{Cluster, Place, Plan};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, undisturbed};
use crate::{Outcome, alone, ms, table};

const LIMIT: Limit = Limit::per_second(100);
const RUN: Duration = Duration::from_secs(12);
/// Shares count from here: at first everybody asks at once.
const SETTLED: Duration = ms(2_100);

/// A crowd of processes, each with more callers than it gets slots.
fn crowd(processes: usize, store_calls: f64) -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || {
        let plan = Plan {
            name: format!("{processes} processes, one call at once"),
            limits: vec![LIMIT],
            insists: true,
            shape: Shape::SlidingLog,
            delay: ms(0)..ms(10),
            place: Place::Redis,
            demands: vec![Demand::Endless { tasks: 8 }; processes],
            manner: Manner { burst: 1, ..Manner::default() },
        };
        let mut cluster = Cluster::start(plan)?;
        thread::sleep(ms(200));
        cluster.begin()?;
        cluster.run_until(RUN);
        let outcome = cluster.finish()?;
        table::print(&[&outcome], RUN);
        let share = outcome.share(&LIMIT, SETTLED, RUN);
        let (calls, jain) = (outcome.store_calls_per_call().unwrap_or(0.0), oracle::jain(&outcome.shares(RUN)));
        println!("share of the quota {share:.3}, Jain's index {jain:.3}, store calls for each call {calls:.2}");
        demand(outcome.refused() == 0, || format!("{} refused", outcome.refused()))?;
        demand(share >= 0.99, || format!("{share:.3} of the quota was used"))?;
        demand(jain >= 0.95, || format!("Jain's index is {jain:.3}"))?;
        demand(calls <= store_calls, || format!("{calls:.2} store calls for each call"))
    })
}

#[test]
fn eight_processes_on_an_evenly_paced_limit() -> Outcome {
    crowd(8, 1.5)
}

#[test]
fn twenty_four_processes_on_an_evenly_paced_limit() -> Outcome {
    crowd(24, 1.8)
}
