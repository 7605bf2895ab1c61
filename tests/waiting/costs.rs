//! Calls of different costs: what a large one leaves is used, and it does not start later for it.

use std::time::Duration;

use fastrand::Rng;
use outgate::testing::oracle::assert_never_more_units_than;
use outgate::{Limit, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::support::{Counting, micros_since};

const QUOTA: u32 = 100;
/// A window and its guard.
const SPAN: i64 = 1_050_000;
const SECONDS: u64 = 300;
/// Runs that an average is of.
const SEEDS: u64 = 6;

/// A call: when it started, its cost, how long it waited.
type Call = (i64, u32, i64);

type Cost = fn(&mut Rng) -> u32;

fn any(rng: &mut Rng) -> u32 {
    rng.u32(1..=50)
}

fn mostly_one(rng: &mut Rng) -> u32 {
    if rng.u8(0..20) == 0 { 50 } else { 1 }
}

/// What calls are limited by: by calls alone, or by tokens, and by so many calls that they hardly matter.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Calls,
    Tokens,
}

impl Unit {
    fn limited(self, store: &Counting) -> Throttle {
        let limit = Limit::per_second(QUOTA);
        store.process(|up: Upstream| match self {
            Self::Calls => up.limit(limit),
            Self::Tokens => up.limit(Limit::per_second(1_000)).limit(limit.of("tokens")),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Tokens => "tokens",
        }
    }
}

async fn call(throttle: &Throttle, unit: Unit, begin: Instant, cost: u32) -> Call {
    let joined = micros_since(begin);
    drop(throttle.acquire("up").cost_of(unit.name(), cost).await.unwrap());
    (micros_since(begin), cost, micros_since(begin) - joined)
}

/// Callers of some processes that ask again as soon as they are served, each time for another cost.
async fn endless(unit: Unit, processes: u64, callers: u64, cost: Cost, seed: u64) -> Vec<Call> {
    fastrand::seed(processes + 100 * seed);
    let (store, begin) = (Counting::default(), Instant::now());
    let end = begin + Duration::from_secs(SECONDS);
    let mut tasks = JoinSet::new();
    for process in 0..processes {
        let throttle = unit.limited(&store);
        for caller in 0..callers {
            let (throttle, mut rng) = (throttle.clone(), Rng::with_seed(100 * process + caller));
            tasks.spawn(async move {
                let mut calls = Vec::new();
                while let Ok(call) = timeout_at(end, call(&throttle, unit, begin, cost(&mut rng))).await {
                    calls.push(call);
                }
                calls
            });
        }
    }
    tasks.join_all().await.concat()
}

/// Calls of four processes, which come by chance, `per_second` of all.
async fn by_chance(per_second: f64, cost: Cost) -> Vec<Call> {
    fastrand::seed(7);
    let (store, begin) = (Counting::default(), Instant::now());
    let mut tasks = JoinSet::new();
    for process in 0..4 {
        let throttle = Unit::Calls.limited(&store);
        let (mut rng, mut at) = (Rng::with_seed(process), Duration::ZERO);
        while at.as_secs() < SECONDS {
            at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() * 4.0 / per_second);
            let (throttle, at, cost) = (throttle.clone(), begin + at, cost(&mut rng));
            tasks.spawn(async move {
                sleep_until(at).await;
                call(&throttle, Unit::Calls, begin, cost).await
            });
        }
    }
    tasks.join_all().await
}

/// The thousandths of the quota that were used, but for the first ten windows.
fn used(calls: &[Call]) -> i64 {
    let entries: Vec<_> = calls.iter().map(|&(at, units, _)| (at, u64::from(units))).collect();
    // Timers fire up to a millisecond late.
    assert_never_more_units_than(QUOTA.into(), SPAN - 2_000, &entries);
    let units: i64 = calls.iter().filter(|(at, ..)| *at >= 10 * SPAN).map(|&(_, units, _)| i64::from(units)).sum();
    let windows = i64::try_from(SECONDS).unwrap() * 1_000_000 - 10 * SPAN;
    1_000 * units * SPAN / windows / i64::from(QUOTA)
}

/// The mean and the longest wait of the calls over 40 units, in milliseconds.
fn waits_of_large(calls: &[Call]) -> (i64, i64) {
    let waits: Vec<i64> = calls.iter().filter(|call| call.1 > 40).map(|call| call.2 / 1_000).collect();
    (waits.iter().sum::<i64>() / i64::try_from(waits.len()).unwrap(), waits.iter().copied().max().unwrap())
}

/// The thousandths of the quota that are used on average of some runs, which differ by some thousandths. No large call waits for longer
/// than so many ms, and all for no longer than so many on average.
async fn used_on_average(unit: Unit, processes: u64, callers: u64, cost: Cost, (mean, longest): (i64, i64)) -> i64 {
    let mut sum = 0;
    for seed in 0..SEEDS {
        let calls = endless(unit, processes, callers, cost, seed).await;
        let waits = waits_of_large(&calls);
        assert!(waits.0 < mean && waits.1 < longest, "large calls of {processes} waited for {waits:?} ms: {unit:?}");
        sum += used(&calls);
    }
    sum / i64::try_from(SEEDS).unwrap()
}

#[tokio::test(start_paused = true)]
async fn calls_of_any_cost_use_the_quota_up() {
    // Where nobody went before a large call that waits, these were 827 and 836.
    for (unit, processes, least) in
        [(Unit::Calls, 1, 970), (Unit::Calls, 4, 950), (Unit::Tokens, 1, 970), (Unit::Tokens, 4, 950)]
    {
        let used = used_on_average(unit, processes, 32 / processes, any, (12_000, 19_000)).await;
        assert!(used >= least, "{used} by {processes}: {unit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_large_calls_among_small_ones_leave_little_unused() {
    // Where nobody went before a large call that waits, these were 689 and 851. 950 is what is wanted of four.
    for (unit, processes, least) in
        [(Unit::Calls, 1, 890), (Unit::Calls, 4, 950), (Unit::Tokens, 1, 890), (Unit::Tokens, 4, 950)]
    {
        let used = used_on_average(unit, processes, 32, mostly_one, (8_000, 18_000)).await;
        assert!(used >= least, "{used} by {processes}: {unit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn large_calls_wait_less_where_small_ones_go_before_them() {
    // Where nobody did, it was 1,511 ms on average and up to 8,201.
    let (mean, longest) = waits_of_large(&by_chance(3.1, any).await);
    assert!(mean < 1_250 && longest < 8_000, "{mean}, up to {longest} ms");
}
