//! Leases of seats: what becomes of them when a process dies, is closed, or loses its store.

use std::future::{IntoFuture as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use outgate::ledger::Message;
use outgate::store::{Applying, StoreError, StoreErrorKind};
use outgate::{Limit, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};

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
async fn a_seat_that_was_left_for_a_caller_is_not_used_when_its_lease_may_have_ended_meanwhile() {
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(1));
    let permit = throttle.acquire("up").await.unwrap();
    let mut waits = pin!(throttle.acquire("up").into_future());
    assert!(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
    sleep(ms(10)).await;
    drop(permit);
    // The machine stands still just now.
    let mut passes = pin!(advance(61 * SECOND));
    let goes = poll_fn(|cx| {
        assert!(passes.as_mut().poll(cx).is_pending());
        Poll::Ready(waits.as_mut().poll(cx).is_ready())
    });
    assert!(!goes.await, "the seat may be somebody else's");
    passes.await;
    drop(timeout(SECOND, waits).await.expect("it asks again").unwrap());
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

/// Calls in flight of all processes.
#[derive(Clone, Debug, Default)]
struct InFlight(Arc<Mutex<Vec<(Instant, u32)>>>);

impl InFlight {
    /// One more, or one less.
    fn step(&self, step: i32) {
        let mut all = self.0.lock().unwrap();
        let last = all.last().map_or(0, |(_, calls)| *calls);
        all.push((Instant::now(), last.checked_add_signed(step).unwrap()));
    }

    /// The most at once between two instants.
    fn most(&self, from: Instant, to: Instant) -> u32 {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, calls)| *calls).max().unwrap()
    }
}

/// Calls one after another, of up to 6 s each, until it is late.
async fn calls(throttle: Throttle, in_flight: InFlight, end: Instant) -> u32 {
    let mut served = 0;
    while Instant::now() < end {
        let Ok(permit) = throttle.acquire("up").max_wait(30 * SECOND).await else { continue };
        in_flight.step(1);
        sleep(ms(fastrand::u64(..6_000))).await;
        in_flight.step(-1);
        served += 1;
        drop(permit);
    }
    served
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_than_seats_are_in_flight_around_a_loss_of_all_data_and_calls_go_on() {
    fastrand::seed(43);
    let mut fewest = u32::MAX;
    for _ in 0..20 {
        let (store, in_flight, begin, mut all) =
            (Counting::default(), InFlight::default(), Instant::now(), JoinSet::new());
        let at = |secs: u64| begin + Duration::from_secs(secs);
        for _ in 0..3 {
            let throttle = store.limited(Limit::in_flight(6));
            for _ in 0..4 {
                all.spawn(calls(throttle.clone(), in_flight.clone(), at(120)));
            }
        }
        sleep(30 * SECOND + ms(fastrand::u64(..10_000))).await;
        let lost = Instant::now();
        store.lose_data();
        sleep(40 * SECOND).await;
        store.lose_data();
        all.join_all().await;
        assert_eq!(in_flight.most(begin, at(200)), 6, "and no seat is lost");
        // A roll call may take 21 s, from when the loss is seen.
        let meanwhile = in_flight.most(lost + 15 * SECOND, lost + 20 * SECOND);
        fewest = fewest.min(meanwhile);
        assert_eq!(in_flight.most(lost + 23 * SECOND, lost + 35 * SECOND), 6);
    }
    println!("{fewest} of 6 seats in use 15 to 20 s after a loss, at the least");
    assert!(fewest >= 3, "{fewest}");
}

#[tokio::test(start_paused = true)]
async fn who_waited_within_a_minute_and_holds_no_seat_knows_of_a_loss() {
    let store = Counting::default();
    let [one, other] = [(); 2].map(|()| store.limited(Limit::in_flight(2)));
    let permits = [one.acquire("up").await.unwrap(), one.acquire("up").await.unwrap()];
    sleep(SECOND).await;
    assert!(other.acquire("up").max_wait(ms(500)).await.is_err());
    sleep(50 * SECOND).await;
    // The first has renewed its lease 9 s ago or so.
    store.lose_data();
    assert!(other.acquire("up").max_wait(SECOND).await.is_err());
    sleep(19 * SECOND).await;
    drop(permits);
    let begin = Instant::now();
    let permit = other.acquire("up").await.unwrap();
    assert!(begin.elapsed() < 3 * SECOND, "{:?}", begin.elapsed());
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_nobody_remembers_costs_no_wait() {
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(2));
    drop(throttle.acquire("up").await.unwrap());
    // For longer than the store must remember it.
    sleep(70 * SECOND).await;
    store.lose_data();
    assert!(throttle.try_acquire("up").await.is_ok());
    assert!(store.limited(Limit::in_flight(2)).try_acquire("up").await.is_ok());
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
