//! Leases of seats: what becomes of them when a process dies, is closed, or loses its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outgate::ledger::Message;
use outgate::store::{Applying, StoreError, StoreErrorKind};
use outgate::{Limit, Store, Throttle, Upstream};
use tokio::time::{Instant, sleep, timeout};

use crate::support::Counting;

const SECOND: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A store that a process loses at some time.
#[derive(Clone, Debug)]
struct Losing(Counting, Arc<AtomicBool>);

impl Store for Losing {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        if self.1.load(Ordering::Relaxed) {
            return Applying::pending(async { Err(StoreError::new(StoreErrorKind::Unreachable, "lost")) });
        }
        self.0.apply(message)
    }
}

fn losing(store: &Counting, limit: Limit) -> (Throttle, Arc<AtomicBool>) {
    let lost = Arc::new(AtomicBool::new(false));
    let upstream = Upstream::new("up").limit(limit);
    let store = Losing(store.clone(), Arc::clone(&lost));
    (Throttle::builder().store(store).upstream(upstream).build().unwrap(), lost)
}

#[tokio::test(start_paused = true)]
async fn the_seats_of_a_process_that_is_gone_are_free_when_its_lease_ends() {
    for (limit, lease) in [(Limit::in_flight(3), 60), (Limit::in_flight(3).lease(10 * SECOND), 10)] {
        let store = Counting::default();
        let (throttle, lost) = losing(&store, limit.clone());
        let begin = Instant::now();
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(throttle.acquire("up").await.unwrap());
        }
        // Whatever time passes, they are renewed.
        sleep(SECOND * lease * 3).await;
        let other = store.limited(limit);
        assert!(other.acquire("up").max_wait(ms(500)).await.is_err());
        lost.store(true, Ordering::Relaxed);
        let cut = Instant::now();
        let permit = other.acquire("up").await.unwrap();
        let waited = cut.elapsed();
        assert!(waited <= SECOND * lease + ms(310) && waited > SECOND * lease * 3 / 5, "{waited:?}");
        for _ in 0..2 {
            permits.push(other.acquire("up").await.unwrap());
        }
        assert!(begin.elapsed() < SECOND * lease * 5);
        drop(permit);
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_lost_its_store_uses_no_seat_again_when_its_lease_may_have_ended() {
    let store = Counting::default();
    let (throttle, lost) = losing(&store, Limit::in_flight(2));
    let [one, other] = [throttle.acquire("up").await.unwrap(), throttle.acquire("up").await.unwrap()];
    lost.store(true, Ordering::Relaxed);
    sleep(30 * SECOND).await;
    let waiting = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.acquire("up").max_wait(100 * SECOND).await.map(drop) }
    });
    sleep(ms(10)).await;
    drop(one);
    timeout(SECOND, waiting).await.expect("the lease lasts").unwrap().unwrap();
    sleep(31 * SECOND).await;
    let waiting = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.acquire("up").max_wait(100 * SECOND).await.map(drop) }
    });
    sleep(ms(10)).await;
    drop(other);
    sleep(20 * SECOND).await;
    assert!(!waiting.is_finished(), "the seat may be somebody else's");
    lost.store(false, Ordering::Relaxed);
    timeout(3 * SECOND, waiting).await.expect("the store is back").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn seats_in_use_are_known_again_after_the_store_has_lost_its_data() {
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(2));
    let _permits = [throttle.acquire("up").await.unwrap(), throttle.acquire("up").await.unwrap()];
    store.lose_data();
    sleep(21 * SECOND).await;
    let other = store.limited(Limit::in_flight(2));
    assert!(other.acquire("up").max_wait(SECOND).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_throttle_that_is_closed_frees_its_seats_but_for_those_of_calls() {
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(3));
    let permit = throttle.acquire("up").await.unwrap();
    drop(throttle.acquire("up").await.unwrap());
    let begin = Instant::now();
    throttle.close().await;
    assert!(begin.elapsed() < ms(10), "{:?}", begin.elapsed());
    let other = store.limited(Limit::in_flight(3));
    let two = [other.try_acquire("up").await.unwrap(), other.try_acquire("up").await.unwrap()];
    sleep(200 * SECOND).await;
    assert!(other.try_acquire("up").await.is_err(), "the call in flight keeps its seat");
    drop(permit);
    sleep(SECOND).await;
    assert!(other.try_acquire("up").await.is_ok());
    drop(two);
}
