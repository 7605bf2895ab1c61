//! Buckets, judged by an upstream that keeps one.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use outgate::testing::{Judge, Shape};
use outgate::{Error, Limit, Throttle};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::support::{Counting, micros_since};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long calls are on their way: no more than half of the guard.
const DELAYS: Range<i64> = 0..25_000;
const GUARD: Duration = Duration::from_millis(50);

/// Starts and costs of callers of some processes that ask again as soon as they are served.
async fn endless(limit: Limit, time: Duration, cost: fn(&mut Rng) -> u32) -> Vec<(i64, u32)> {
    fastrand::seed(4);
    let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
    for process in 0..4 {
        let throttle = store.limited(limit.clone());
        for caller in 0..8 {
            let (throttle, mut rng) = (throttle.clone(), Rng::with_seed(100 * process + caller));
            tasks.spawn(async move {
                let mut calls = Vec::new();
                loop {
                    let cost = cost(&mut rng);
                    let permit = async { throttle.acquire("up").cost(cost).await };
                    let Ok(permit) = timeout_at(begin + time, permit).await else { return calls };
                    drop(permit.unwrap());
                    calls.push((micros_since(begin), cost));
                }
            });
        }
    }
    tasks.join_all().await.concat()
}

/// How many of these calls a bucket refuses that is refilled by one unit in each `unit`, when they arrive.
fn refused(calls: &[(i64, u32)], capacity: u64, unit: Duration) -> usize {
    let mut delays = Rng::with_seed(9);
    let mut arrivals: Vec<_> = calls.iter().map(|&(start, cost)| (start + delays.i64(DELAYS), cost)).collect();
    arrivals.sort_unstable();
    let fills = i64::try_from(unit.as_micros() * u128::from(capacity)).unwrap();
    let mut judge = Judge::new().limit(capacity, fills, Shape::TokenBucket);
    arrivals.iter().filter(|&&(at, cost)| !judge.admit(at, cost.into()).admitted).count()
}

/// Ten-thousandths of what flows in that were used, but for what was there at first.
fn used(calls: &[(i64, u32)], first: u32, unit: Duration, time: Duration) -> u128 {
    let units: u128 = calls.iter().map(|&(_, cost)| u128::from(cost)).sum();
    10_000 * units.saturating_sub(u128::from(first)) * unit.as_micros() / time.as_micros()
}

#[tokio::test(start_paused = true)]
async fn a_bucket_refuses_no_call_in_an_hour_and_all_that_flows_in_is_used() {
    let unit = SECOND / 10;
    for (capacity, takes) in [(1, unit + GUARD), (20, unit), (100, unit)] {
        let limit = Limit::bucket(capacity, 100, 10 * SECOND).guard(GUARD);
        let calls = endless(limit, HOUR, |_| 1).await;
        assert_eq!(refused(&calls, capacity.into(), unit), 0, "capacity {capacity}");
        let used = used(&calls, capacity, takes, HOUR);
        assert!((9_900..=10_000).contains(&used), "capacity {capacity}: {used}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_any_cost_use_up_what_flows_into_a_bucket() {
    let calls = endless(Limit::bucket(100, 100, 10 * SECOND).guard(GUARD), HOUR, |rng| rng.u32(1..=50)).await;
    assert_eq!(refused(&calls, 100, SECOND / 10), 0);
    let used = used(&calls, 100, SECOND / 10, HOUR);
    assert!((9_500..=10_000).contains(&used), "{used}");
}

/// When so many calls at once start, in milliseconds.
async fn at_once(throttle: &Throttle, calls: usize) -> Vec<i64> {
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..calls {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            drop(throttle.acquire("up").await.unwrap());
            micros_since(begin) / 1_000
        });
    }
    let mut starts = tasks.join_all().await;
    starts.sort_unstable();
    starts
}

#[tokio::test(start_paused = true)]
async fn the_41st_call_of_forty_at_two_a_second_waits_for_half_a_second_and_the_guard() {
    let throttle = Counting::default().limited(Limit::bucket(40, 2, SECOND));
    let starts = at_once(&throttle, 42).await;
    assert!(starts[38] < 10, "{starts:?}");
    for (start, expected) in starts[39..].iter().zip([50, 550, 1_050]) {
        assert!((expected..expected + 10).contains(start), "{starts:?}");
    }
    let exact = Counting::default().limited(Limit::bucket(40, 2, SECOND).guard(Duration::ZERO));
    let starts = at_once(&exact, 41).await;
    assert!(starts[39] < 10 && (500..510).contains(&starts[40]), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_told_in_usage_and_in_how_long_to_wait() {
    let throttle = Counting::default().limited(Limit::bucket(40, 2, SECOND));
    at_once(&throttle, 39).await;
    let usage = throttle.usage("up").await.unwrap().limits[0].clone();
    assert_eq!((usage.used, usage.free), (39, 0));
    assert!(usage.next > Duration::from_millis(45) && usage.next <= GUARD, "{:?}", usage.next);
    let refused = throttle.acquire("up").cost(10).max_wait(SECOND).await.unwrap_err();
    let Error::Throttled { retry_after, .. } = refused else { panic!("{refused}") };
    assert!(retry_after > 4_540 * SECOND / 1_000 && retry_after <= 4_550 * SECOND / 1_000, "{retry_after:?}");
    tokio::time::sleep(10 * SECOND).await;
    let usage = throttle.usage("up").await.unwrap().limits[0].clone();
    assert_eq!((usage.used, usage.free, usage.next), (19, 20, Duration::ZERO));
    throttle.acquire("up").await.unwrap().hand_back();
    tokio::time::sleep(GUARD).await;
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 19, "what is handed back leaves room");
    let too_much = throttle.acquire("up").cost(40).await.unwrap_err();
    assert!(matches!(too_much, Error::CostExceedsQuota { .. }), "{too_much}");
}
