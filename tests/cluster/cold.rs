//! Connections that take their time to open: the first calls arrive later than all others.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::Shape;

use crate::cluster::{Cluster, Place, Plan};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, undisturbed};
use crate::{Outcome, alone, ms, table};

const OPENING: Range<Duration> = ms(60)..ms(120);
/// The first window and its guard, and ten more.
const FIRST: Duration = ms(1_050);
const RUN: Duration = ms(11 * 1_050);

/// Runs processes of so many tasks, the last of which joins the others some time after their first call. Nobody is refused.
fn hold(name: &str, limit: &Limit, place: Place, tasks: &[u32], joins: Option<Duration>) -> Outcome {
    let _alone = alone();
    undisturbed(Quiet::FOR_50_MS, || {
        let plan = Plan {
            name: name.to_owned(),
            limits: vec![limit.clone()],
            insists: true,
            shape: Shape::SlidingLog,
            delay: ms(0)..ms(10),
            place,
            demands: tasks.iter().map(|&tasks| Demand::Endless { tasks }).collect(),
            manner: Manner::default(),
        };
        let mut cluster = Cluster::start_far(plan, OPENING)?;
        thread::sleep(ms(200));
        let first = tasks.len() - usize::from(joins.is_some());
        cluster.begin_only(0..first)?;
        if let Some(joins) = joins {
            cluster.run_until(joins);
            cluster.begin_only(first..tasks.len())?;
        }
        cluster.run_until(RUN);
        let outcome = cluster.finish()?;
        table::print(&[&outcome], RUN);
        let (refused, share) = (outcome.refused(), outcome.share(limit, FIRST, RUN));
        println!("{name}: {refused} refused, share of the quota {share:.3} after the first window");
        demand(refused == 0, || format!("{refused} refused"))?;
        demand(share >= 0.9, || format!("{share:.3} of the quota was used"))
    })
}

#[test]
fn one_process_that_opens_a_hundred_connections_is_not_refused() -> Outcome {
    hold("one process, 100/s", &Limit::per_second(100), Place::Memory, &[512], None)
}

#[test]
fn one_process_that_opens_512_connections_is_not_refused() -> Outcome {
    hold("one process, 1,000/s", &Limit::per_second(1_000), Place::Memory, &[512], None)
}

#[test]
fn four_processes_that_open_their_connections_together_are_not_refused() -> Outcome {
    hold("four processes, 100/s", &Limit::per_second(100), Place::Redis, &[32; 4], None)
}

#[test]
fn a_process_that_opens_its_connections_beside_three_is_not_refused() -> Outcome {
    hold("one that joins three, 100/s", &Limit::per_second(100), Place::Redis, &[32; 4], Some(ms(3_300)))
}
