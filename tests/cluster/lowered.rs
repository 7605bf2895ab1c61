//! An upstream that lowers its limit and tells nobody.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::{Arrival, Shape, oracle};

use crate::cluster::{Cluster, Place, Plan};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand_no_panic, undisturbed};
use crate::{Outcome, alone, ms, table};

const QUOTA: u32 = 40;
const LIMIT: Limit = Limit::per_second(QUOTA).guard(ms(250));
const SECOND: i64 = 1_000_000;
/// A quarter of the guard: half of it is for slots that are used late.
const QUIET: Quiet = Quiet { late: ms(60), times: 0 };
/// A process learns of a hold at the latest when it asks next: what it asked for until the store knew starts within a horizon.
const HORIZON: i64 = 250_000;
/// What passes until the store knows of a refusal, 50 ms by which a slot may be used late, and 10 ms for the call's way.
const ON_ITS_WAY: i64 = 100_000;

/// Four processes of which each calls one time after another, until 22 s after the upstream halved its limit for 10 s; with
/// when it did, and when it took that back.
fn halved(name: &str, learns: bool) -> Result<(crate::outcome::Outcome, i64, i64), Box<dyn std::error::Error>> {
    let manner = Manner { burst: 2, learns, recovery: Duration::from_secs(1), ..Manner::default() };
    let demands = vec![Demand::Endless { tasks: 1 }; 4];
    let (name, limits, delay) = (name.to_owned(), vec![LIMIT], ms(0)..ms(10));
    let shape = Shape::SlidingLog;
    let plan = Plan { name, limits, insists: true, shape, delay, place: Place::Redis, demands, manner };
    let mut cluster = Cluster::start(plan)?;
    thread::sleep(ms(200));
    cluster.begin()?;
    cluster.run_until(ms(4_000));
    let lowered = cluster.set_quota(u64::from(QUOTA / 2));
    cluster.run_until(ms(14_000));
    let restored = cluster.set_quota(u64::from(QUOTA));
    cluster.run_until(ms(22_000));
    let outcome = cluster.finish()?;
    table::print(&[&outcome], ms(22_000));
    Ok((outcome, lowered, restored))
}

/// Refusals of one hold together: it lasts a second, as the upstream tells whole ones.
fn incidents(outcome: &crate::outcome::Outcome) -> Vec<Vec<&Arrival>> {
    let mut incidents: Vec<Vec<&Arrival>> = Vec::new();
    for refused in outcome.arrivals.iter().filter(|arrival| !arrival.admitted) {
        match incidents.last_mut() {
            Some(incident) if refused.at < incident[0].at + SECOND => incident.push(refused),
            _ => incidents.push(vec![refused]),
        }
    }
    incidents
}

/// Each process was refused once in an incident at most, and nobody sent during the hold.
#[track_caller]
fn assert_all_hold(outcome: &crate::outcome::Outcome, incidents: &[Vec<&Arrival>]) {
    for incident in incidents {
        let mut of_each = BTreeMap::new();
        for refused in incident {
            *of_each.entry(&refused.caller).or_insert(0) += 1;
        }
        println!("an incident at {} ms: {of_each:?}", incident[0].at / 1_000);
        assert!(of_each.values().all(|&refusals| refusals == 1), "{of_each:?}");
        let (known, over) = (incident[0].at + HORIZON + ON_ITS_WAY, incident[0].at + SECOND);
        let sent: Vec<_> = outcome.between(known, over).map(|arrival| arrival.at - incident[0].at).collect();
        assert_eq!(sent, [0_i64; 0], "sent during the hold, by microseconds after the refusal");
    }
}

#[test]
fn a_limit_lowered_for_a_while_is_followed_by_those_who_learn() -> Outcome {
    let _alone = alone();
    undisturbed(QUIET, || {
        let (outcome, lowered, restored) = halved("40/s, for 10 s 20/s, learning", true)?;
        demand_no_panic(|| assert_it_is_followed(&outcome, lowered, restored))
    })
}

#[track_caller]
fn assert_it_is_followed(outcome: &crate::outcome::Outcome, lowered: i64, restored: i64) {
    let incidents = incidents(outcome);
    assert_all_hold(outcome, &incidents);
    assert_eq!(incidents.len(), 1, "the lower limit is known after the first");
    // From two seconds after the hold, when calls have recovered.
    let followed: Vec<_> = outcome.between(lowered + 4 * SECOND, restored).map(|arrival| arrival.at).collect();
    println!("calls of 6 s at the lower limit: {}", followed.len());
    // Of forty units twenty are missing, and a sixteenth of those is set aside for others to come; a fifth of the time is guard.
    let (sent, most) = (followed.len(), 6.0 * 18.0 / 1.25);
    assert!(f64::from(u32::try_from(sent).unwrap_or(u32::MAX)) >= 0.9 * most, "{sent} of {most}");
    oracle::assert_never_more_than(u64::from(QUOTA / 2), SECOND, &followed);
    let after = outcome.between(restored + 2 * SECOND, restored + 7 * SECOND).count();
    println!("calls of 5 s after it was raised again: {after}");
    let (sent, most) = (after, 5.0 * f64::from(QUOTA) / 1.25);
    assert!(f64::from(u32::try_from(sent).unwrap_or(u32::MAX)) >= 0.9 * most, "{sent} of {most}");
    assert_eq!(outcome.results.iter().map(|results| results.failed + results.refused).sum::<u64>(), 0);
}

#[test]
fn without_learning_every_incident_silences_all_and_costs_each_one_refusal_at_most() -> Outcome {
    let _alone = alone();
    undisturbed(QUIET, || {
        let (outcome, lowered, restored) = halved("40/s, for 10 s 20/s", false)?;
        let incidents = incidents(&outcome);
        assert!(!incidents.is_empty(), "the limit was lowered");
        demand_no_panic(|| {
            assert_all_hold(&outcome, &incidents);
            assert!(incidents.iter().all(|incident| incident[0].at >= lowered && incident[0].at < restored + SECOND));
        })
    })
}
