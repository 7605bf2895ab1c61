//! Refusals: at once, and each with its own time.

use std::future::IntoFuture as _;
use std::time::Duration;

use outgate::{Error, Limit, MemoryStore, Throttle, Upstream};
use tokio::time::{Instant, sleep};

use crate::support::Counting;

fn retry_after(outcome: Result<outgate::Permit, Error>) -> Duration {
    match outcome {
        Err(Error::Throttled { retry_after, .. }) => retry_after,
        other => panic!("not throttled: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_slot_is_too_late_is_refused_at_once_with_its_time() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(1));
    drop(throttle.acquire("up").await.unwrap());
    let before = Instant::now();
    let told = retry_after(throttle.acquire("up").max_wait(Duration::from_millis(500)).await);
    assert_eq!((before.elapsed(), told), (Duration::from_millis(1), Duration::from_micros(1_048_500)));
    let permit = throttle.acquire("up").max_wait(Duration::from_millis(1_100)).await.unwrap();
    assert_eq!(permit.waited(), Duration::from_millis(1_049));
}

#[tokio::test(start_paused = true)]
async fn a_refused_caller_leaves_nothing_behind() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(1));
    drop(throttle.acquire("up").await.unwrap());
    for _ in 0..10 {
        retry_after(throttle.try_acquire("up").await);
    }
    sleep(Duration::from_millis(1_050)).await;
    drop(throttle.try_acquire("up").await.unwrap());
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 1);
}

#[tokio::test(start_paused = true)]
async fn behind_others_each_is_told_its_own_time() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(10, Duration::from_secs(10)).guard(Duration::ZERO));
    for _ in 0..10 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let throttle = throttle.clone();
            tokio::spawn(async move { throttle.acquire("up").await })
        })
        .collect();
    sleep(Duration::from_millis(10)).await;
    let calls = store.calls();
    // Nobody behind twenty callers can go before two more windows have passed.
    let told = retry_after(throttle.acquire("up").max_wait(Duration::from_secs(15)).await);
    assert!(told > Duration::from_secs(29) && told < Duration::from_secs(31), "{told:?}");
    assert_eq!(store.calls(), calls, "the queue knows that without asking");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Behind so many calls of so many tokens that wait: what one is told that can wait for so long, and how long one takes that waits.
async fn told_behind(calls: u32, tokens: u32, patience: Duration, limits: &[Limit]) -> (Option<Duration>, Duration) {
    let throttle = Counting::default().process(|up| limits.iter().cloned().fold(up, Upstream::limit));
    let call = || throttle.acquire("up").cost_of("tokens", tokens);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..calls {
        let call = call();
        waiting.spawn(async move { call.await.map(drop).unwrap() });
    }
    sleep(Duration::from_millis(100)).await;
    let begin = Instant::now();
    let at_once = tokio::time::timeout(Duration::from_millis(1), call().max_wait(patience).into_future());
    let told = at_once.await.ok().map(retry_after);
    drop(call().await.unwrap());
    (told, begin.elapsed())
}

#[tokio::test(start_paused = true)]
async fn what_is_told_counts_the_units_of_every_log() {
    let limits = [Limit::per_minute(600), Limit::per_minute(60_000).of("tokens")];
    for (patience, is_refused) in [(0, true), (120, true), (290, true), (310, false)] {
        let (told, takes) = told_behind(200, 1_500, Duration::from_secs(patience), &limits).await;
        assert_eq!(told.is_some(), is_refused, "{patience} s, told {told:?}, and it took {takes:?}");
        assert!(told.is_none_or(|told| told.abs_diff(takes) < Duration::from_secs(3)), "{told:?}, {takes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_minute_that_is_nearly_full_counts_beside_a_second() {
    let tokens = Limit::per_day(100_000_000).of("tokens");
    let limits = [Limit::per_second(10), Limit::per_minute(100), tokens];
    for (calls, least) in [(100, 50), (70, 30), (30, 2)] {
        let (told, takes) = told_behind(calls, 1, Duration::from_millis(1_500), &limits).await;
        let told = told.expect("refused at once");
        assert!(told >= Duration::from_secs(least), "behind {calls}: told {told:?}, and it took {takes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_room_for_the_day_holds_nobody_up() {
    let tokens = |a_day| Limit::per_day(a_day).of("tokens");
    for of_the_day in [vec![Limit::per_day(10_000), tokens(100_000_000)], vec![tokens(1_000_000)]] {
        let limits = [vec![Limit::per_second(10)], of_the_day].concat();
        let (told, takes) = told_behind(20, 100, Duration::from_millis(500), &limits).await;
        let told = told.expect("refused at once");
        assert!(told.abs_diff(takes) < Duration::from_secs(1), "told {told:?}, and it took {takes:?}");
    }
    // Half of a day's tokens, five minutes of them.
    let limits = [Limit::per_second(10), Limit::per_minute(100_000).of("tokens"), tokens(1_000_000)];
    let (told, takes) = told_behind(10, 50_000, Duration::from_millis(500), &limits).await;
    let told = told.expect("refused at once");
    assert!(told.abs_diff(takes) < Duration::from_secs(10), "told {told:?}, and it took {takes:?}");
    let limits = [Limit::per_second(10), Limit::per_day(60), tokens(100_000_000)];
    let (told, takes) = told_behind(40, 1, Duration::from_millis(500), &limits).await;
    let told = told.expect("refused at once");
    assert!(told.abs_diff(takes) < Duration::from_secs(2), "told {told:?}, and it took {takes:?}");
}

#[tokio::test(start_paused = true)]
async fn callers_refused_together_are_told_different_times() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(2, Duration::from_millis(100)).guard(Duration::ZERO));
    let first = throttle.clone();
    // The first call is under way while the others gather.
    let first = tokio::spawn(async move { first.acquire("up").cost(2).await });
    tokio::task::yield_now().await;
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let throttle = throttle.clone();
            tokio::spawn(async move { throttle.acquire("up").max_wait(Duration::from_millis(20)).await })
        })
        .collect();
    let mut told = Vec::new();
    for task in tasks {
        told.push(retry_after(task.await.unwrap()).as_millis());
    }
    assert_eq!(told, [98, 98, 198, 198, 298, 298]);
    drop(first.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_tells_a_time_that_is_not_now() {
    fastrand::seed(31);
    // At hand, so that the time told is not lengthened by an answer's way.
    let store = MemoryStore::new();
    let process = || {
        let up = Upstream::new("up").limit(Limit::per_second(10));
        Throttle::builder().store(store.clone()).upstream(up).build().unwrap()
    };
    let (throttle, other) = (process(), process());
    for _ in 0..10 {
        drop(throttle.acquire("up").await.unwrap());
    }
    // While another process waits, a slot may be free and yet not for this one.
    let waiting = tokio::spawn(async move {
        for _ in 0..50 {
            drop(other.acquire("up").await.unwrap());
        }
    });
    sleep(Duration::from_millis(900)).await;
    let mut told = Vec::new();
    for _ in 0..500 {
        let pair = tokio::join!(async { throttle.try_acquire("up").await }, async { throttle.try_acquire("up").await });
        told.extend([pair.0, pair.1].into_iter().filter(Result::is_err).map(retry_after));
        sleep(Duration::from_millis(7)).await;
    }
    waiting.abort();
    assert!(told.iter().min() > Some(&Duration::ZERO), "{} refusals", told.len());
}

#[tokio::test(start_paused = true)]
async fn trying_takes_a_slot_now_or_says_how_long_until_one() {
    let throttle = Counting::default().limited(Limit::per_second(2));
    drop(throttle.try_acquire("up").await.unwrap());
    drop(throttle.try_acquire("up").await.unwrap());
    let told = retry_after(throttle.try_acquire("up").await);
    assert_eq!(told, Duration::from_micros(1_047_500));
    sleep(told).await;
    drop(throttle.try_acquire("up").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_granted_is_an_error_of_its_own() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_second(100).burst(20)));
    for cost in [0, 21, 10_001] {
        match throttle.acquire("up").cost(cost).await {
            Err(Error::CostExceedsQuota { cost: told, most, .. }) => assert_eq!((told, most), (cost, 20)),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(throttle.acquire("nobody").await, Err(Error::UnknownUpstream { .. })));
}

#[test]
fn a_wrong_configuration_is_an_error_that_names_upstream_and_field() {
    let up = || Upstream::new("up").limit(Limit::per_second(1));
    let cases = [
        (Throttle::builder().upstream(up()).upstream(up()).build(), "up", "name"),
        (Throttle::builder().upstream(Upstream::new("bare")).build(), "bare", "limit"),
        (Throttle::builder().upstream(up().limit(Limit::per_second(0))).build(), "up", "limit.quota"),
        (Throttle::builder().upstream(up().limit(Limit::per_second(5).burst(6))).build(), "up", "limit.burst"),
        (Throttle::builder().horizon(Duration::ZERO).build(), "", "horizon"),
        (Throttle::builder().weight(0).build(), "", "weight"),
        (Throttle::builder().weight(101).build(), "", "weight"),
    ];
    for (built, upstream, field) in cases {
        let error = built.unwrap_err();
        assert_eq!((error.upstream(), error.field()), (upstream, field));
    }
}
