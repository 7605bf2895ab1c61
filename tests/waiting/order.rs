//! First come, first served, and no more store calls than that takes.

use std::collections::VecDeque;
use std::future::IntoFuture as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use outgate::testing::oracle::assert_never_more_than;
use outgate::{Limit, Throttle, Upstream};
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep, sleep_until, timeout};

use crate::support::{Counting, endless, micros_since};

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_are_served_in_their_order() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(1_000));
    let served = Arc::new(Mutex::new(Vec::new()));
    let begin = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..10_000 {
        let (throttle, served) = (throttle.clone(), Arc::clone(&served));
        tasks.spawn(async move {
            let permit = throttle.acquire("up").await.unwrap();
            served.lock().unwrap().push((caller, micros_since(begin)));
            drop(permit);
        });
    }
    tasks.join_all().await;
    let served = served.lock().unwrap();
    assert!(served.iter().map(|(caller, _)| *caller).eq(0..10_000));
    let starts: Vec<i64> = served.iter().map(|(_, at)| *at).collect();
    assert_never_more_than(1_000, 1_050_000, &starts);
    assert_eq!(starts[9_999] / 1_000, 9 * 1_050 + 2, "the whole quota is used");
    assert!(store.calls() <= 80, "{} store calls", store.calls());
}

#[tokio::test(start_paused = true)]
async fn who_comes_too_late_for_its_slot_goes_before_those_behind_it() {
    // A slot every millisecond.
    let throttle = Counting::default().limited(Limit::per_second(1_000).burst(1));
    drop(throttle.acquire("up").await.unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    let mut calls: Vec<_> = (0..100).map(|_| Box::pin(throttle.acquire("up").into_future())).collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut cx).is_pending());
    }
    sleep(Duration::from_millis(20)).await;
    // Nobody is polled for so long, not even who has been served: only time goes on.
    assert!(pin!(advance(Duration::from_millis(50))).poll(&mut cx).is_pending());
    let mut waiting = VecDeque::from(calls);
    for turn in 0..300 {
        let is_served = waiting.iter_mut().map(|call| call.as_mut().poll(&mut cx).is_ready()).collect::<Vec<_>>();
        let served = is_served.iter().take_while(|is_served| **is_served).count();
        assert!(!is_served[served..].contains(&true), "of those who wait: {is_served:?}");
        waiting.drain(..served);
        // Who has been served is polled before time goes on.
        if turn % 3 == 2 { sleep(Duration::from_millis(1)).await } else { yield_now().await }
    }
    assert!(waiting.is_empty(), "{} wait", waiting.len());
}

#[tokio::test(start_paused = true)]
async fn a_free_slot_costs_one_store_call_and_no_other_wait() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(100));
    let permit = throttle.acquire("up").await.unwrap();
    assert_eq!(permit.waited(), Duration::from_millis(1), "the store's answer");
    assert_eq!(store.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn callers_that_gather_while_a_call_is_under_way_go_in_the_next() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(1_000));
    let begin = Instant::now();
    let calls = (0..500).map(|_| async { throttle.acquire("up").await.unwrap() });
    let permits = futures_of(calls).await;
    assert_eq!((permits.len(), store.calls(), begin.elapsed()), (500, 2, Duration::from_millis(2)));
}

async fn futures_of<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, done) in all.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            match future.as_mut().poll(context) {
                std::task::Poll::Ready(value) => *done = Some(value),
                std::task::Poll::Pending => pending = true,
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Store calls of 3,500 s in which nobody is served.
async fn calls_while_fifty_wait(store: &Counting, throttle: &Throttle) -> u64 {
    let before = store.calls();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let throttle = throttle.clone();
            tokio::spawn(async move { throttle.acquire("up").await })
        })
        .collect();
    sleep(Duration::from_secs(3_500)).await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    store.calls() - before
}

#[tokio::test(start_paused = true)]
async fn a_line_that_waits_does_not_poll() {
    let store = Counting::default();
    let [throttle, other] = [(); 2].map(|()| store.limited(Limit::per_hour(1)));
    drop(other.acquire("up").await.unwrap());
    // Else it asked whether that is lost.
    drop(other);
    let calls = calls_while_fifty_wait(&store, &throttle).await;
    assert!(calls <= 3_500 / 30 + 2, "{calls} store calls in 3,500 s");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_remembers_what_counts_for_long_asks_every_five_seconds_whether_it_is_lost() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_hour(1));
    drop(throttle.acquire("up").await.unwrap());
    let calls = calls_while_fifty_wait(&store, &throttle).await;
    assert!(calls <= 3_500 / 5 + 2, "{calls} store calls in 3,500 s");
}

#[tokio::test(start_paused = true)]
async fn two_limits_hold_together_and_both_are_used_up() {
    let store = Counting::default();
    let limits = [Limit::per_second(20), Limit::new(100, Duration::from_secs(10))];
    let throttle = store.process(|up| limits.into_iter().fold(up, Upstream::limit));
    let begin = Instant::now();
    let starts = endless(&throttle, 64, begin, begin + Duration::from_secs(60)).await;
    assert_never_more_than(20, 1_050_000, &starts);
    assert_never_more_than(100, 10_500_000, &starts);
    // Five bursts of twenty, then silence: six times in sixty seconds.
    assert_eq!(starts.len(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_never_larger_than_allowed() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(100).burst(20));
    let begin = Instant::now();
    let starts = endless(&throttle, 64, begin, begin + Duration::from_secs(10)).await;
    assert_never_more_than(20, 200_000, &starts);
    assert_never_more_than(100, 1_050_000, &starts);
    assert!(starts.len() >= 952, "{}", starts.len());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_the_process_slept_through_is_asked_for_again() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(1, Duration::from_millis(200)));
    let begin = Instant::now();
    drop(throttle.acquire("up").await.unwrap());
    let waiter = {
        let throttle = throttle.clone();
        tokio::spawn(async move {
            let permit = throttle.acquire("up").await.unwrap();
            (permit.waited(), micros_since(begin))
        })
    };
    sleep(Duration::from_millis(50)).await;
    // The laptop's lid is closed for a minute: the slot booked for 211 ms has long passed.
    advance(Duration::from_secs(60)).await;
    let (permit_waited, at) = waiter.await.unwrap();
    assert!(permit_waited >= Duration::from_secs(60));
    assert!(at >= 60_000_000);
    assert_eq!(store.hand_backs(), 1, "the stale slot went back to the log");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_only_its_caller_slept_through_is_asked_for_again_at_once() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(1, Duration::from_secs(10)));
    let begin = Instant::now();
    drop(throttle.acquire("up").await.unwrap());
    let mut sleeper = throttle.acquire("up").into_future();
    assert!(timeout(Duration::from_millis(5), &mut sleeper).await.is_err());
    let behind = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.acquire("up").await }
    });
    // The slot at 10.5 s is the sleeper's. Its queue has been told by then that the next one starts at 21 s.
    sleep_until(begin + Duration::from_secs(11)).await;
    drop(sleeper.await.unwrap());
    assert!(micros_since(begin) <= 11_005_000, "the slot that was handed back is free: {}", micros_since(begin));
    behind.abort();
}

#[tokio::test(start_paused = true)]
async fn whoever_slept_through_its_slot_keeps_its_place_before_those_who_came_later_and_is_not_too_late_for_them() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(1, Duration::from_secs(10)));
    let begin = Instant::now();
    drop(throttle.acquire("up").await.unwrap());
    let mut sleeper = throttle.acquire("up").max_wait(Duration::from_secs(12)).into_future();
    assert!(timeout(Duration::from_millis(5), &mut sleeper).await.is_err());
    let behind: Vec<_> = (0..5).map(|_| tokio::spawn(throttle.acquire("up").into_future())).collect();
    sleep_until(begin + Duration::from_secs(11)).await;
    drop(sleeper.await.expect("the slot that it hands back is free, and is its own"));
    assert!(micros_since(begin) <= 11_005_000, "{}", micros_since(begin));
    behind.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn upstreams_and_scopes_do_not_wait_for_each_other() {
    let throttle = Throttle::builder()
        .upstream(Upstream::new("a").limit(Limit::per_hour(1)))
        .upstream(Upstream::new("b").limit(Limit::per_hour(1)))
        .build()
        .unwrap();
    let begin = Instant::now();
    for (upstream, scope) in [("a", None), ("b", None), ("a", Some("token 1")), ("a", Some("token 2"))] {
        let acquire = throttle.acquire(upstream);
        let permit = match scope {
            Some(scope) => acquire.scope(scope).await,
            None => acquire.await,
        };
        drop(permit.unwrap());
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(throttle.try_acquire("a").scope("token 1").await.is_err());
}
