//! The whole quota and not one 429, however the upstream counts and however long calls are on their way.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::Shape;

use crate::cluster::{Cluster, Place, Plan};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand_no_panic, undisturbed};
use crate::{Outcome, alone, ms, table};

const RUN: Duration = Duration::from_secs(10);

const SHAPES: [(&str, Shape); 4] = [
    ("sliding log", Shape::SlidingLog),
    ("aligned windows", Shape::FixedWindow { phase: 0 }),
    ("windows from the first call", Shape::FixedWindowFromFirstCall),
    ("token bucket", Shape::TokenBucket),
];

#[test]
fn four_processes_use_the_quota_of_every_upstream_without_one_429() -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || against_every_shape(Place::Redis, &[Demand::Endless { tasks: 32 }; 4]))
}

#[test]
fn one_process_with_its_log_in_memory_uses_the_quota_of_every_upstream_without_one_429() -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || against_every_shape(Place::Memory, &[Demand::Endless { tasks: 128 }]))
}

fn against_every_shape(place: Place, demands: &[Demand]) -> Outcome {
    let limit = Limit::per_second(100);
    let networks = [(limit.clone(), ms(0)..ms(20)), (limit.clone().guard(ms(250)), ms(10)..ms(200))];
    let plans = networks.iter().flat_map(|(limit, delay)| plans(place, demands, limit, delay));
    // Everybody is up before anybody calls: it takes more of the processors than all the calls.
    let mut clusters = plans.map(Cluster::start).collect::<Result<Vec<_>, _>>()?;
    thread::sleep(ms(200));
    // With endless demand the quota goes out at once whenever a span is over: each cluster in its own part of the span.
    let pause = (limit.window() + limit.guard_or_default()) / 8;
    for cluster in &mut clusters {
        cluster.begin()?;
        thread::sleep(pause);
    }
    let mut outcomes = Vec::new();
    for cluster in clusters {
        cluster.run_until(RUN);
        outcomes.push(cluster.finish()?);
    }
    table::print(&outcomes.iter().collect::<Vec<_>>(), RUN);
    demand_no_panic(|| {
        for outcome in &outcomes {
            outcome.assert_nobody_was_refused();
            outcome.assert_quota_was_used(RUN);
        }
    })
}

fn plans(place: Place, demands: &[Demand], limit: &Limit, delay: &Range<Duration>) -> impl Iterator<Item = Plan> {
    SHAPES
        .map(|(words, shape)| {
            let name = format!("{place:?}, {} to {} ms, {words}", delay.start.as_millis(), delay.end.as_millis());
            Plan {
                name,
                limits: vec![limit.clone()],
                insists: true,
                shape,
                delay: delay.clone(),
                place,
                demands: demands.to_vec(),
                manner: Manner::default(),
            }
        })
        .into_iter()
}
