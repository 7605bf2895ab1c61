//! Limits are replaced, and the store loses data: what was granted by the old ones is remembered all the same.

use std::future::IntoFuture as _;
use std::time::Duration;

use outgate::store::StoreErrorKind;
use outgate::testing::oracle::assert_never_more_than;
use outgate::testing::{FailingStore, StoreFault};
use outgate::{Limit, Permit, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Counting, micros_since};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The same limit, and calls wait for so long at most.
fn upstream(limit: &Limit, max_wait: u64) -> Upstream {
    Upstream::new("up").limit(limit.clone()).max_wait(secs(max_wait))
}

async fn call(throttle: &Throttle) -> Option<Permit> {
    timeout(secs(60), throttle.acquire("up").into_future()).await.ok().and_then(Result::ok)
}

#[tokio::test(start_paused = true)]
async fn a_short_window_is_not_overrun_when_all_is_lost_after_limits_were_replaced() {
    let limit = Limit::new(20, secs(5));
    for updates in 0..3 {
        let (store, begin, mut starts) = (Counting::default(), Instant::now(), Vec::new());
        let throttle = store.process(|_| upstream(&limit, 30));
        for calls in 0..40 {
            if calls == 20 {
                (0..updates).for_each(|more| throttle.update(upstream(&limit, 31 + more)).unwrap());
                store.lose_data();
            }
            drop(call(&throttle).await.unwrap());
            starts.push(micros_since(begin));
        }
        assert_never_more_than(20, 5_000_000, &starts);
        assert!(starts[39] < 12_000_000, "{updates}: {starts:?}");
    }
}

/// How many calls an hour are granted of 100, of which 60 were when limits were replaced and the store lost all.
async fn granted(calls_between: u32, by_another: bool) -> u32 {
    let limit = Limit::per_hour(100);
    let store = Counting::default();
    let (throttle, other) = (store.process(|_| upstream(&limit, 30)), store.process(|_| upstream(&limit, 30)));
    drop(call(&other).await);
    let mut granted = 1;
    for _ in 0..59 {
        granted += u32::from(call(&throttle).await.is_some());
    }
    throttle.update(upstream(&limit, 90)).unwrap();
    other.update(upstream(&limit, 90)).unwrap();
    for _ in 0..calls_between {
        granted += u32::from(call(&throttle).await.is_some());
    }
    sleep(secs(20)).await;
    store.lose_data();
    sleep(secs(1)).await;
    for _ in 0..100 {
        let answer = call(if by_another { &other } else { &throttle }).await;
        granted += u32::from(answer.is_some());
        if answer.is_none() {
            break;
        }
    }
    granted
}

#[tokio::test(start_paused = true)]
async fn what_counts_for_long_is_said_again_after_limits_were_replaced() {
    for (calls_between, by_another) in [(0, false), (1, false), (0, true), (1, true)] {
        assert_eq!(granted(calls_between, by_another).await, 100, "{calls_between}, {by_another}");
    }
}

/// Else the next ask would take it for lost, and nobody would send for a while.
#[tokio::test(start_paused = true)]
async fn what_is_handed_back_after_limits_were_replaced_is_not_missed() {
    for limit in [Limit::new(20, secs(5)), Limit::per_hour(100)] {
        let store = Counting::default();
        let throttle = store.process(|_| upstream(&limit, 30));
        let mut permits = Vec::new();
        for _ in 0..10 {
            permits.extend(call(&throttle).await);
            sleep(Duration::from_millis(10)).await;
        }
        for more in 1..4 {
            throttle.update(upstream(&limit, 30 + more)).unwrap();
        }
        permits.into_iter().for_each(Permit::hand_back);
        sleep(Duration::from_millis(100)).await;
        let permit = call(&throttle).await.unwrap();
        assert!(permit.waited() < Duration::from_millis(300), "{limit}: {:?}", permit.waited());
        let free = throttle.usage("up").await.unwrap().limits[0].free;
        assert_eq!(free, limit.quota() - 1, "{limit}");
    }
}

/// A burst of 60 of 100 an hour, of which calls are handed back after updates while the store cannot be reached: how many go after it has lost all.
async fn handed_back(updates: u64, back: usize, lost: Duration) -> usize {
    let limit = Limit::per_hour(100);
    let store = Counting::default();
    let failing = FailingStore::new(store.clone());
    let throttle = Throttle::builder().store(failing.clone()).upstream(upstream(&limit, 30)).build().unwrap();
    let calls = (0..60).map(|_| throttle.acquire("up").into_future());
    let mut permits = calls.collect::<JoinSet<_>>().join_all().await;
    failing.fail(StoreFault::Error(StoreErrorKind::Unreachable));
    for permit in permits.drain(..back) {
        permit.unwrap().hand_back();
    }
    for more in 0..updates {
        throttle.update(upstream(&limit, 31 + more)).unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    sleep(lost).await;
    store.lose_data();
    failing.heal();
    sleep(secs(5)).await;
    let mut granted = 60 - back;
    while granted < 200 && call(&throttle).await.is_some() {
        granted += 1;
    }
    granted
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_back_is_forgotten_once_however_often_that_is_sent_and_limits_are_replaced() {
    for (updates, back, lost) in [(1, 5, secs(20)), (2, 5, secs(1)), (3, 20, secs(20))] {
        assert_eq!(handed_back(updates, back, lost).await, 100, "{updates}, {back}, {lost:?}");
    }
}

/// Those who wait by the new limits look after what the old ones hand back, and those tell them of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_may_be_replaced_again_and_again_while_others_call() {
    let (store, limit) = (Counting::default(), Limit::new(200, Duration::from_millis(100)));
    let throttle = store.process(|_| upstream(&limit, 30));
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let throttle = throttle.clone();
        callers.spawn(async move {
            loop {
                drop(throttle.acquire("up").await.unwrap());
            }
        });
    }
    for more in 0..200 {
        throttle.update(upstream(&limit, 31 + more % 2)).unwrap();
        sleep(Duration::from_millis(3)).await;
    }
    callers.shutdown().await;
    assert!(call(&throttle).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_a_shorter_window_has_forgotten_is_not_missed_by_a_longer_one() {
    let (second, hour) = (Limit::per_second(10), Limit::per_hour(1_000));
    for (idle, between) in [(60, 0), (0, 60), (2, 58)] {
        let store = Counting::default();
        let throttle = store.process(|_| upstream(&second, 30));
        drop(call(&throttle).await.unwrap());
        sleep(secs(idle)).await;
        throttle.update(upstream(&second, 30).limit(hour.clone())).unwrap();
        sleep(secs(between)).await;
        // As Redis does with a list that has expired.
        store.lose_unused_logs(secs(12));
        let begin = Instant::now();
        drop(call(&throttle).await.unwrap());
        assert!(begin.elapsed() < secs(1), "idle for {idle} s, then {between} s: {:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn nor_is_what_several_queues_with_shorter_windows_have_forgotten() {
    let store = Counting::default();
    let second = |unit| Limit::per_second(10).of(unit);
    let throttle = store.process(|_| upstream(&second("reads"), 30).limit(second("writes")));
    let call_of = async |reads, writes| {
        let call = throttle.acquire("up").cost_of("reads", reads).cost_of("writes", writes);
        drop(timeout(secs(60), call.into_future()).await.unwrap().unwrap());
    };
    call_of(1, 0).await;
    call_of(0, 1).await;
    sleep(secs(60)).await;
    throttle.update(upstream(&second("reads"), 30).limit(Limit::per_hour(1_000).of("reads"))).unwrap();
    store.lose_unused_logs(secs(12));
    let begin = Instant::now();
    drop(timeout(secs(60), throttle.acquire("up").cost_of("reads", 1).into_future()).await.unwrap().unwrap());
    assert!(begin.elapsed() < secs(1), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_a_longer_window_holds_is_missed_whatever_a_shorter_one_had_before_it() {
    let (second, hour) = (Limit::per_second(10), Limit::per_hour(20));
    let store = Counting::default();
    let throttle = store.process(|_| upstream(&second, 30));
    drop(call(&throttle).await.unwrap());
    throttle.update(upstream(&second, 30).limit(hour.clone())).unwrap();
    sleep(secs(60)).await;
    for _ in 0..20 {
        drop(call(&throttle).await.unwrap());
    }
    sleep(secs(60)).await;
    throttle.update(upstream(&second, 20).limit(hour)).unwrap();
    store.lose_data();
    let begin = Instant::now();
    assert!(call(&throttle).await.is_none(), "after {:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nor_is_it_forgotten_for_what_a_call_of_before_owes_later() {
    let (second, hour) = (Limit::per_second(10), Limit::per_hour(30));
    let store = Counting::default();
    let throttle = store.process(|_| upstream(&second, 30));
    let before = call(&throttle).await.unwrap();
    throttle.update(upstream(&second, 30).limit(hour)).unwrap();
    for _ in 0..29 {
        drop(call(&throttle).await.unwrap());
    }
    before.settle("calls", 2);
    sleep(secs(120)).await;
    store.lose_data();
    assert!(call(&throttle).await.is_none(), "the hour is used up");
}
