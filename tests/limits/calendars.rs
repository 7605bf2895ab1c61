//! Calendar windows, judged by an upstream whose days are those of a time zone.

#![cfg_attr(not(feature = "jiff"), allow(dead_code, unused_imports, reason = "most takes a time zone"))]

use std::time::Duration;

use fastrand::Rng;
use outgate::ledger::Stamp;
use outgate::{Error, Limit, MemoryStore, Reset, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::micros_since;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const QUOTA: u32 = 300;
/// The guard of a day, and by how much the upstream's clock may be wrong.
const GUARD: i64 = 43_200_000;
const SKEW: i64 = 20 * SECOND;

fn throttle(store: &MemoryStore, limit: Limit) -> Throttle {
    Throttle::builder().store(store.clone()).upstream(Upstream::new("up").limit(limit)).build().unwrap()
}

/// When calls arrive of four processes that want more than the quota, in microseconds since 1970, in the order of their starts.
async fn endless(limit: Limit, epoch: i64, hours: u64) -> Vec<i64> {
    fastrand::seed(3);
    let (store, begin) = (MemoryStore::beginning_at(Stamp::from_micros(epoch)), Instant::now());
    let (end, mut tasks) = (begin + Duration::from_secs(3_600 * hours), JoinSet::new());
    for caller in 0..4 {
        let (throttle, mut rng) = (throttle(&store, limit.clone()), Rng::with_seed(caller));
        tasks.spawn(async move {
            let mut starts = Vec::new();
            while let Ok(permit) = timeout_at(end, async { throttle.acquire("up").await }).await {
                drop(permit.unwrap());
                starts.push(epoch + micros_since(begin));
                sleep(Duration::from_secs(rng.u64(0..600))).await;
            }
            starts
        });
    }
    let mut starts = tasks.join_all().await.concat();
    starts.sort_unstable();
    starts
}

/// How many of these calls come in each window, by a clock that is wrong by so much, each a while after its start.
fn by_window(starts: &[i64], boundaries: &[i64], skew: i64) -> Vec<usize> {
    let mut delays = Rng::with_seed(5);
    let mut counts = vec![0; boundaries.len() + 1];
    for start in starts {
        let shown = start + delays.i64(0..SKEW) + skew;
        counts[boundaries.iter().filter(|boundary| **boundary <= shown).count()] += 1;
    }
    counts
}

/// Demands that no window holds more than the quota by any clock, and that each that is whole is used.
fn demand_all_and_no_more(starts: &[i64], boundaries: &[i64]) {
    for skew in [-SKEW, 0, SKEW] {
        let counts = by_window(starts, boundaries, skew);
        assert!(counts.iter().all(|&count| count <= QUOTA as usize), "{skew}: {counts:?}");
        assert!(counts[1..].iter().all(|&count| count == QUOTA as usize), "{skew}: {counts:?}");
    }
}

/// Demands it of three days of so many hours, of which the first begins at `first`, in seconds since 1970.
async fn demand_all_of_days(first: i64, lengths: [i64; 3]) {
    let limit = Limit::per_day(QUOTA).resets(Reset::daily("America/Los_Angeles"));
    let mut midnights = vec![first * SECOND];
    midnights.extend(lengths.iter().scan(first * SECOND, |at, hours| {
        *at += hours * HOUR;
        Some(*at)
    }));
    let starts = endless(limit, first * SECOND - 5 * HOUR, 5 + 72 + 5).await;
    demand_all_and_no_more(&starts, &midnights);
    let quiet = |start: &&i64| midnights.iter().any(|midnight| (midnight - GUARD..*midnight).contains(*start));
    assert_eq!(starts.iter().filter(quiet).count(), 0, "nothing starts just before midnight");
}

#[cfg(feature = "jiff")]
#[tokio::test(start_paused = true)]
async fn a_day_of_25_hours_is_used_up_and_no_more() {
    // The clocks go from 2 to 1 on November 1st of 2026.
    demand_all_of_days(1_793_430_000, [24, 25, 24]).await;
}

#[cfg(feature = "jiff")]
#[tokio::test(start_paused = true)]
async fn a_day_of_23_hours_is_used_up_and_no_more() {
    // And from 2 to 3 on March 8th.
    demand_all_of_days(1_772_870_400, [24, 23, 24]).await;
}

#[cfg(feature = "jiff")]
#[tokio::test(start_paused = true)]
async fn where_midnight_happens_twice_it_does_not_matter_which_one_is_meant() {
    let limit = Limit::per_day(QUOTA).resets(Reset::daily("America/Havana"));
    let twice = [1_793_505_600, 1_793_509_200].map(|at| at * SECOND);
    let starts = endless(limit, twice[0] - 30 * HOUR, 60).await;
    for midnight in twice {
        let midnights = [twice[0] - 24 * HOUR, midnight, twice[1] + 24 * HOUR];
        demand_all_and_no_more(&starts, &midnights);
    }
    assert!(!starts.iter().any(|start| (twice[0] - GUARD..twice[1]).contains(start)), "it is quiet between them");
}

#[tokio::test(start_paused = true)]
async fn once_an_hour_is_used_up_calls_are_told_to_wait_for_the_next() {
    let epoch = 1_795_170_000 * SECOND;
    let (store, begin) = (MemoryStore::beginning_at(Stamp::from_micros(epoch)), Instant::now());
    let throttle = throttle(&store, Limit::per_hour(5).resets(Reset::hourly()));
    for _ in 0..5 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let usage = throttle.usage("up").await.unwrap().limits[0].clone();
    assert_eq!((usage.used, usage.free), (5, 0));
    let refused = throttle.acquire("up").max_wait(Duration::from_secs(1)).await.unwrap_err();
    let Error::Throttled { retry_after, .. } = refused else { panic!("{refused}") };
    let left = HOUR - (epoch + micros_since(begin)) % HOUR + 1_800_000;
    assert!(retry_after.as_micros().abs_diff(left.unsigned_abs().into()) < 10_000, "{retry_after:?} of {left} µs");
    assert_eq!(usage.next.as_millis().abs_diff(retry_after.as_millis()), 0);
    sleep(retry_after).await;
    let usage = throttle.usage("up").await.unwrap().limits[0].clone();
    assert_eq!((usage.used, usage.free, usage.next), (0, 5, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_window_is_used_whatever_else_resets_at_another_time() {
    let morning = Reset::daily("UTC").at(7, 0);
    let own = Limit::per_day(3 * QUOTA / 4).resets(Reset::daily("UTC"));
    let limits = [own, Limit::per_day(QUOTA).resets(morning)];
    // Ten in the evening, and until midnight behind the next.
    let epoch = 1_795_212_000 * SECOND;
    let midnight = epoch + 2 * HOUR;
    let (store, begin) = (MemoryStore::beginning_at(Stamp::from_micros(epoch)), Instant::now());
    let up = limits.into_iter().fold(Upstream::new("up"), Upstream::limit);
    let throttle = Throttle::builder().store(store).upstream(up).build().unwrap();
    let mut starts = Vec::new();
    let end = begin + Duration::from_secs(26 * 3_600);
    while let Ok(permit) = timeout_at(end, async { throttle.acquire("up").await }).await {
        drop(permit.unwrap());
        starts.push(epoch + micros_since(begin));
    }
    let counts = by_window(&starts, &[midnight, midnight + 7 * HOUR, midnight + 24 * HOUR], 0);
    let [quota, rest] = [3 * QUOTA as usize / 4, QUOTA as usize / 4];
    assert_eq!(counts, [quota, rest, quota - rest, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_is_corrected_is_known_no_more() {
    let epoch = 1_795_212_000 * SECOND;
    let store = MemoryStore::beginning_at(Stamp::from_micros(epoch));
    let resets = |reset| Upstream::new("up").limit(Limit::per_day(QUOTA).resets(reset));
    let wrong = resets(Reset::daily("UTC"));
    let throttle = Throttle::builder().store(store).upstream(wrong).build().unwrap();
    drop(throttle.acquire("up").await.unwrap());
    throttle.update(resets(Reset::daily("UTC").at(7, 0))).unwrap();
    sleep(Duration::from_secs(5 * 3_600)).await;
    let refused = throttle.acquire("up").max_wait(Duration::ZERO).await.err();
    assert!(refused.is_none(), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn those_who_name_other_resets_obey_each_others() {
    let epoch = 1_795_212_000 * SECOND;
    let store = MemoryStore::beginning_at(Stamp::from_micros(epoch));
    let [morning, midnight] =
        [7, 0].map(|hour| throttle(&store, Limit::per_day(10).resets(Reset::daily("UTC").at(hour, 0))));
    for _ in 0..10 {
        drop(morning.acquire("up").await.unwrap());
    }
    let waits = tokio::spawn(async move { morning.acquire("up").await.map(drop) });
    // Until a quarter to five: one of these says that it is another day.
    sleep(Duration::from_secs(3 * 3_600)).await;
    let mut further = 0;
    for _ in 0..225 {
        further += u32::from(midnight.acquire("up").max_wait(Duration::ZERO).await.is_ok());
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(further, 1);
    waits.abort();
}
