//! Processes that share a quota: equal shares, nobody starves.

use std::time::Duration;

use outgate::store::StoreErrorKind;
use outgate::testing::oracle::{assert_never_more_than, assert_never_more_units_than, jain};
use outgate::testing::{FailingStore, StoreFault};
use outgate::{Limit, MemoryStore, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Counting, endless, micros_since};

/// Calls of `processes` with endless demand, one list for each.
async fn demand(store: &Counting, limit: Limit, processes: usize, callers: usize, seconds: u64) -> Vec<Vec<i64>> {
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..processes)
        .map(|_| {
            let throttle = store.limited(limit.clone());
            tokio::spawn(async move { endless(&throttle, callers, begin, end).await })
        })
        .collect();
    let mut starts = Vec::new();
    for task in tasks {
        starts.push(task.await.unwrap());
    }
    starts
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls are small")]
fn fairness(starts: &[Vec<i64>]) -> f64 {
    jain(&starts.iter().map(|starts| starts.len() as f64).collect::<Vec<_>>())
}

#[tokio::test(start_paused = true)]
async fn eight_processes_with_endless_demand_get_equal_shares_of_the_whole_quota() {
    fastrand::seed(3);
    let store = Counting::default();
    let starts = demand(&store, Limit::per_second(100), 8, 32, 20).await;
    let all = starts.concat();
    assert_never_more_than(100, 1_050_000, &all);
    assert!(fairness(&starts) >= 0.95, "{}", fairness(&starts));
    assert!(all.len() >= 1_905, "{} of 20 s · 100 / 1.05 s", all.len());
    assert!(store.calls() < all.len() as u64 / 2, "{} store calls for {}", store.calls(), all.len());
}

#[tokio::test(start_paused = true)]
async fn the_last_slots_of_a_window_of_seconds_are_not_asked_for_one_by_one() {
    let (mut calls, mut asks, mut least) = (0, 0, 1.0_f64);
    for seed in 0..10 {
        fastrand::seed(seed);
        let store = Counting::default();
        let starts = demand(&store, Limit::new(50, Duration::from_secs(5)), 4, 8, 22).await;
        (calls, asks) = (calls + starts.concat().len(), asks + store.asks());
        least = least.min(fairness(&starts));
    }
    println!("{asks} asks for {calls} calls, fairness {least:.3}");
    assert!(asks * 100 <= calls as u64 * 28, "{asks} asks for {calls} calls");
    assert!(least >= 0.95, "{least}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_shorter_than_the_horizon_is_used_up_all_the_same() {
    fastrand::seed(4);
    let store = Counting::default();
    let starts = demand(&store, Limit::new(10, Duration::from_millis(100)), 4, 32, 20).await.concat();
    assert_never_more_than(10, 110_000, &starts);
    assert!(starts.len() >= 1_782, "{} of 20 s · 10 / 110 ms", starts.len());
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_refills_within_the_horizon_does_not_lower_the_rate() {
    for burst in [50, 20, 5] {
        fastrand::seed(8);
        let store = Counting::default();
        let starts = demand(&store, Limit::per_second(200).burst(burst), 4, 50, 20).await.concat();
        assert_never_more_than(200, 1_050_000, &starts);
        assert_never_more_than(burst.into(), i64::from(burst) * 5_000, &starts);
        assert!(starts.len() >= 3_750, "burst {burst}: {} of 20 s · 200 / 1.05 s", starts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_asks_for_little_is_not_refused_by_greedy_ones() {
    fastrand::seed(5);
    let store = Counting::default();
    let limit = Limit::per_second(100);
    let modest = store.limited(limit.clone());
    let greedy = {
        let store = store.clone();
        tokio::spawn(async move { demand(&store, limit, 7, 64, 20).await })
    };
    sleep(Duration::from_secs(2)).await;
    for _ in 0..30 {
        let permit = modest.acquire("up").max_wait(Duration::from_millis(1_300)).await;
        drop(permit.expect("within a window and a horizon"));
        sleep(Duration::from_millis(500)).await;
    }
    greedy.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_cost_neither_starves_behind_small_ones_nor_holds_them_up_for_ever() {
    fastrand::seed(6);
    let store = Counting::default();
    let limit = Limit::per_second(100);
    let begin = Instant::now();
    let large = store.limited(limit.clone());
    let small = {
        let store = store.clone();
        tokio::spawn(async move { demand(&store, limit, 4, 32, 30).await })
    };
    sleep(Duration::from_secs(3)).await;
    let mut entries = Vec::new();
    for _ in 0..5 {
        let permit = timeout(Duration::from_secs(4), async { large.acquire("up").cost(80).await }).await;
        drop(permit.expect("it does not starve").unwrap());
        entries.push((micros_since(begin), 80));
        sleep(Duration::from_secs(1)).await;
    }
    let small = small.await.unwrap().concat();
    let after = small.iter().filter(|&&at| at > entries[4].0).count();
    entries.extend(small.iter().map(|&at| (at, 1)));
    assert_never_more_units_than(100, 1_050_000, &entries);
    assert!(after > 500, "the small ones go on: {after}");
}

#[tokio::test(start_paused = true)]
async fn a_large_caller_that_gives_up_or_dies_holds_nobody_up_for_longer_than_its_entry_lives() {
    let store = Counting::default();
    let limit = Limit::per_minute(100);
    let begin = Instant::now();
    let small: Throttle = store.limited(limit.clone());
    for _ in 0..60 {
        drop(small.acquire("up").await.unwrap());
    }
    let dying = store.limited(limit);
    let claim = tokio::spawn(async move { dying.acquire("up").cost(90).await.map(drop) });
    // Put off once, it claims the next slot of its size when it asks again.
    sleep(Duration::from_secs(35)).await;
    claim.abort();
    sleep(Duration::from_millis(10)).await;
    drop(small.acquire("up").await.unwrap());
    assert!(begin.elapsed() < Duration::from_secs(36), "{:?}", begin.elapsed());
}

/// Of `processes` that call without end two go on, while the store hears nothing more of the others from a moment on, as of those that were
/// killed: how many calls those two make in each of the seconds that follow.
async fn left_alone(limit: &Limit, processes: usize, seconds: u64) -> Vec<usize> {
    let (store, begin) = (MemoryStore::new(), Instant::now());
    let (killed, end) = (begin + Duration::from_secs(20), begin + Duration::from_secs(20 + seconds));
    let (mut starts, mut others) = (JoinSet::new(), Vec::new());
    for process in 0..processes {
        let store = FailingStore::new(store.clone());
        let upstream = Upstream::new("up").limit(limit.clone());
        let throttle = Throttle::builder().store(store.clone()).upstream(upstream).build().unwrap();
        if process < 2 {
            starts.spawn(async move { endless(&throttle, 8, begin, end).await });
        } else {
            others.push((store, tokio::spawn(async move { endless(&throttle, 8, begin, end).await })));
        }
    }
    sleep(killed - begin).await;
    for (store, process) in &others {
        store.fail(StoreFault::Error(StoreErrorKind::Unreachable));
        process.abort();
    }
    let starts = starts.join_all().await.concat();
    let count = |second: i64| starts.iter().filter(|&&start| start / 1_000_000 == 20 + second).count();
    (0..i64::try_from(seconds).unwrap()).map(count).collect()
}

#[tokio::test(start_paused = true)]
async fn those_who_are_left_have_the_whole_rate_soon_after_others_were_killed() {
    fastrand::seed(5);
    let bursts = [Limit::per_minute(600).burst(10), Limit::new(100, Duration::from_secs(10)).burst(5)];
    for limit in bursts.into_iter().chain([Limit::per_minute(600).spread()]) {
        let of_second = left_alone(&limit, 8, 15).await;
        let soon: usize = of_second[6..].iter().sum();
        assert!(soon >= 80, "{limit}: {soon} of 85 to 90, {of_second:?}");
    }
}
