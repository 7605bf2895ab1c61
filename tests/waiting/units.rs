//! Limits of what: calls, tokens, points, each with its own cost.

use std::time::Duration;

use fastrand::Rng;
use outgate::testing::oracle::assert_never_more_units_than;
use outgate::{Error, Limit, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::support::{Counting, micros_since};

const TOKENS: u32 = 200_000;
/// A window, and half of its guard, by which a call may be late.
const SPAN: i64 = 60_500_000;

fn model(up: Upstream) -> Upstream {
    up.limit(Limit::per_minute(500)).limit(Limit::per_minute(TOKENS).of("tokens"))
}

/// When a call went, and its tokens.
async fn endless(throttle: Throttle, mut rng: Rng, cost: fn(&mut Rng) -> u32, begin: Instant) -> Vec<(i64, u64)> {
    let (mut calls, end) = (Vec::new(), begin + Duration::from_secs(600));
    loop {
        let tokens = cost(&mut rng);
        let call = throttle.acquire("up").cost_of("tokens", tokens);
        let Ok(permit) = timeout_at(end, async { call.await }).await else { return calls };
        drop(permit.unwrap());
        calls.push((micros_since(begin), u64::from(tokens)));
    }
}

async fn saturated(cost: fn(&mut Rng) -> u32) -> (Vec<(i64, u64)>, f64) {
    let (store, begin) = (Counting::default(), Instant::now());
    let mut tasks = JoinSet::new();
    for process in 0..4 {
        let throttle = store.process(model);
        for caller in 0..16 {
            tasks.spawn(endless(throttle.clone(), Rng::with_seed(100 * process + caller), cost, begin));
        }
    }
    let calls = tasks.join_all().await.concat();
    assert_never_more_units_than(TOKENS.into(), SPAN, &calls);
    let each_one: Vec<_> = calls.iter().map(|&(at, _)| (at, 1)).collect();
    assert_never_more_units_than(500, SPAN, &each_one);
    let used: u64 = calls.iter().filter(|(at, _)| *at >= 61_000_000).map(|(_, tokens)| tokens).sum();
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = used as f64 / (f64::from(TOKENS) * (600.0 - 61.0) / 61.0);
    (calls, share)
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_of_the_only_unit_is_told_what_to_do() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(100).of("tokens")));
    let error = throttle.acquire("up").cost_of("tokens", 0).await.unwrap_err();
    assert!(matches!(error, Error::CostExceedsQuota { cost: 0, .. }), "{error:?}");
    assert!(error.to_string().contains("limit calls as well"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn calls_keep_to_requests_and_tokens_and_use_the_scarcer_up() {
    let (_, share) = saturated(|rng| rng.u32(100..4_000)).await;
    assert!(share >= 0.95, "{share}");
    let (calls, _) = saturated(|rng| rng.u32(0..100)).await;
    assert!(calls.len() >= 4_500, "where calls are scarcer, tokens do not count: {}", calls.len());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_million_units_lose_no_hundredth_to_large_entries() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(100_000_000).of("tokens")));
    let begin = Instant::now();
    let mut went = 0;
    while begin.elapsed() < Duration::from_secs(1) {
        let call = throttle.acquire("up").cost_of("tokens", 1_000_001).max_wait(Duration::ZERO);
        if call.await.map(drop).is_err() {
            break;
        }
        went += 1;
    }
    assert_eq!(went, 99, "each takes a hundredth of the quota and one token");
    let usage = throttle.usage("up").await.unwrap();
    let [tokens] = usage.limits.as_slice() else { panic!("{usage:?}") };
    // Rounded up to entries of 8,192 units.
    assert_eq!((tokens.used, tokens.limit.unit()), (99 * 123 * 8_192, "tokens"));
}

#[tokio::test(start_paused = true)]
async fn a_unit_may_cost_nothing_and_one_of_which_nothing_is_said_costs_one() {
    let throttle = Counting::default().process(model);
    drop(throttle.acquire("up").cost_of("tokens", 0).await.unwrap());
    drop(throttle.acquire("up").cost(3).await.unwrap());
    let used = async || {
        let usage = throttle.usage("up").await.unwrap();
        usage.limits.iter().map(|limit| limit.used).collect::<Vec<_>>()
    };
    // An entry stands for 16 tokens.
    assert_eq!(used().await, [4, 16]);
    drop(throttle.acquire("up").cost(0).cost_of("tokens", 160).await.unwrap());
    assert_eq!(used().await, [4, 176]);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_go_says_which_limit_stands_against_it() {
    let throttle = Counting::default().process(|up| model(up).limit(Limit::per_second(300).burst(20)));
    let error = async |calls: u32, tokens: u32| {
        let call = throttle.acquire("up").cost(calls).cost_of("tokens", tokens);
        match call.await.map(drop) {
            Err(Error::CostExceedsQuota { unit, cost, most, limit, .. }) => {
                (unit.to_string(), cost, most, limit.quota())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(error(1, 200_001).await, ("tokens".to_owned(), 200_001, 200_000, 200_000));
    assert_eq!(error(21, 1).await, ("calls".to_owned(), 21, 20, 300));
    assert_eq!(error(0, 0).await.1, 0, "a call takes something");
    let unknown = async { throttle.acquire("up").cost_of("token", 5).await.map(drop) };
    assert!(matches!(unknown.await, Err(Error::UnknownUnit { unit, .. }) if &*unit == "token"));
    let tokens = Throttle::builder().upstream(Upstream::new("model").limit(Limit::per_minute(90).of("tokens")));
    let tokens = tokens.build().unwrap();
    let meant_tokens = tokens.acquire("model").cost(40).await;
    assert!(
        matches!(meant_tokens, Err(Error::UnknownUnit { unit, known, .. }) if &*unit == "calls" && known.len() == 1)
    );
    drop(tokens.acquire("model").cost(1).cost_of("tokens", 40).await.unwrap());
    let seats_of = |up: Upstream| Throttle::builder().upstream(up).build().unwrap();
    let of_tokens = Limit::per_minute(90).of("tokens");
    let each = Limit::in_flight(5).each(outgate::Scope::header("x-merchant"));
    let seats = seats_of(Upstream::new("seats").limit(each).limit(of_tokens));
    let error = seats.acquire("seats").cost(40).await.map(drop).unwrap_err();
    assert_eq!(error.to_string(), "seats: no limit counts \"calls\", only tokens");
    let seats = seats_of(Upstream::new("seats").limit(Limit::in_flight(5)));
    let error = seats.acquire("seats").cost_of("tokens", 5).await.map(drop).unwrap_err();
    assert_eq!(error.to_string(), "seats: no limit counts \"tokens\", only calls in flight");
    assert_eq!(tokens.usage("model").await.unwrap().limits[0].used, 40);
    let unknown = async { throttle.acquire("up").scope_of("x-merchant", "m").await.map(drop) };
    assert!(matches!(unknown.await, Err(Error::UnknownScope { scope, .. }) if &*scope == "x-merchant"));
}
