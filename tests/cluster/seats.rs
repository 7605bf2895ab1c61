//! Calls in flight, limited for real processes, some of which die with calls in flight.

use std::time::Duration;

use outgate::testing::{Arrival, Shape};

use crate::cluster::{Cluster, Place, Plan, micros};
use crate::outcome::ratio;
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, undisturbed};
use crate::{Outcome, alone, ms};

const SEATS: u32 = 25;
const LEASE: Duration = Duration::from_secs(10);
/// How long a call takes on average.
const CALL: Duration = ms(200);

/// The most calls in flight at once, and how many were on average in `from..to`, of those that `which` picks.
fn in_flight(arrivals: &[Arrival], from: i64, to: i64, which: impl Fn(&Arrival) -> bool) -> (i64, f64) {
    let mut changes: Vec<(i64, i64)> = Vec::new();
    let mut used = 0;
    for arrival in arrivals.iter().filter(|arrival| which(arrival)) {
        let left = arrival.left.unwrap_or(i64::MAX);
        changes.extend([(arrival.at, 1), (left, -1)]);
        used += (left.min(to) - arrival.at.max(from)).max(0);
    }
    // Who leaves makes room for who comes in the same microsecond.
    changes.sort_unstable();
    let most = changes.iter().scan(0, |now, (_, change)| {
        *now += change;
        Some(*now)
    });
    let [used, time] = [used, to - from].map(|micros| Duration::from_micros(micros.unsigned_abs()).as_secs_f64());
    (most.max().unwrap_or(0), used / time)
}

#[test]
fn eight_processes_share_the_seats_and_three_of_them_are_killed() -> Outcome {
    let _alone = alone();
    undisturbed(Quiet { late: ms(25), times: 3 }, || {
        let manner = Manner { seats: SEATS, lease: LEASE, call: CALL, ..Manner::default() };
        let plan = Plan {
            name: "25 seats, 3 of 8 processes killed".to_owned(),
            limits: Vec::new(),
            insists: true,
            shape: Shape::SlidingLog,
            delay: ms(0)..ms(0),
            place: Place::Redis,
            demands: vec![Demand::Endless { tasks: 50 }; 8],
            manner,
        };
        let mut cluster = Cluster::start(plan)?;
        cluster.begin()?;
        let settled = cluster.run_until(ms(2_000));
        let all_alive = cluster.run_until(ms(7_000));
        let mut deaths = Vec::new();
        for number in [7, 6, 5] {
            deaths.push((format!("worker-{number}"), cluster.kill_one()?));
        }
        let killed = cluster.run_until(ms(0));
        let end = cluster.run_until(ms(7_000) + LEASE + ms(6_000));
        let outcome = cluster.finish()?;

        // Callers that are ended leave their seats at once, while the upstream still answers: no call after that counts.
        let arrivals: Vec<_> = outcome.between(0, end).cloned().collect();
        let death = |of: &Arrival| deaths.iter().find(|(name, _)| of.caller.as_ref() == Some(name)).map(|(_, at)| *at);
        let everybody = |_: &Arrival| true;
        let (most, together) = in_flight(&arrivals, settled, all_alive, everybody);
        // What the dead had in flight when they died is theirs until the lease ends, and so is what arrived from them since.
        let is_unanswered = |of: &Arrival, at: i64| of.left.is_none_or(|left| left > at);
        let is_held = |of: &Arrival| of.at <= killed && death(of).is_some_and(|died| is_unanswered(of, died));
        let held = arrivals.iter().filter(|of| is_held(of)).count();
        // A seat that no call had when the last was killed may be a dead process's, too: its call was on the way.
        let has_seat = |of: &&Arrival| is_held(of) || of.at <= killed && is_unanswered(of, killed);
        let coming = (SEATS as usize).saturating_sub(arrivals.iter().filter(has_seat).count());
        let free = (SEATS as usize).saturating_sub(held + coming);
        let (_, meanwhile) =
            in_flight(&arrivals, killed + 500_000, killed + micros(LEASE) / 2, |of| death(of).is_none());
        let (_, afterwards) = in_flight(&arrivals, killed + micros(LEASE) + 1_000_000, end, everybody);
        let shares = outcome.shares_between(settled, all_alive);
        let calls = outcome.store_calls_per_call().unwrap_or_default();
        let seats = f64::from(SEATS);
        println!(
            "{}: at most {most} in flight; {together:.2} of {seats} seats used, {meanwhile:.2} of {free} while the dead hold {held} and \
             {coming} more may be theirs, {afterwards:.2} after their lease; {} calls, {calls:.3} store calls per call; calls of each {shares:?}",
            outcome.plan.name,
            arrivals.len(),
        );
        assert!(most <= i64::from(SEATS), "{most} calls in flight");
        assert!(arrivals.iter().all(|arrival| arrival.admitted), "calls refused by the upstream");
        demand(together >= 0.95 * seats, || format!("{together:.2} of {seats} seats used"))?;
        demand(meanwhile >= 0.95 * ratio(free, 1), || format!("{meanwhile:.2} of {free} seats used"))?;
        demand(afterwards >= 0.95 * seats, || format!("{afterwards:.2} of {seats} seats used after the lease"))
    })
}
