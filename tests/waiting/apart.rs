//! Calls that take of different units: who takes nothing of a unit waits for nobody who does.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fastrand::Rng;
use outgate::testing::oracle::assert_never_more_units_than;
use outgate::{Acquire, Limit, Throttle, Upstream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::support::{Counting, micros_since};

const SECOND: Duration = Duration::from_secs(1);

/// A call that takes neither, one of tokens, and one of exports; then the store has lost its data.
#[tokio::test(start_paused = true)]
async fn what_was_granted_to_calls_of_one_unit_is_said_again_though_others_came_since() {
    let store = Counting::default();
    let new = |up: Upstream| {
        let [tokens, exports] = ["tokens", "exports"].map(|unit| Limit::per_hour(100).of(unit));
        up.limit(Limit::per_hour(1_000)).limit(tokens).limit(exports)
    };
    let [one, other] = [(); 2].map(|()| store.process(new));
    for (tokens, exports) in [(0, 0), (80, 0), (0, 1)] {
        drop(ask(&one, tokens, exports).await.unwrap());
        sleep(SECOND).await;
    }
    store.lose_data();
    for throttle in [&other, &one] {
        drop(timeout(60 * SECOND, ask(throttle, 0, 0).into_future()).await.unwrap().unwrap());
    }
    sleep(30 * SECOND).await;
    assert!(timeout(600 * SECOND, ask(&one, 80, 0).into_future()).await.is_err(), "160 of 100 tokens in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_free_for_calls_of_every_kind_at_once() {
    let store = Counting::default();
    let throttle = store.process(|up| limits(up).limit(Limit::in_flight(1)));
    for call in 0..20 {
        drop(throttle.try_acquire("up").cost_of("tokens", call % 2 * 10).cost_of("exports", 0).await.unwrap());
        sleep(SECOND / 50).await;
    }
}

/// 500 calls and 200,000 tokens a minute, and 5 exports an hour.
fn limits(up: Upstream) -> Upstream {
    up.limit(Limit::per_minute(500))
        .limit(Limit::per_minute(200_000).of("tokens"))
        .limit(Limit::per_hour(5).of("exports"))
}

fn ask(throttle: &Throttle, tokens: u32, exports: u32) -> Acquire {
    throttle.acquire("up").cost_of("tokens", tokens).cost_of("exports", exports)
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_of_a_scarce_unit_waits_for_nobody_who_does() {
    let store = Counting::default();
    let throttle = store.process(limits);
    drop(ask(&throttle, 150_000, 5).await.unwrap());
    let waiting = [(0, 1), (60_000, 0), (60_000, 1)].map(|(tokens, exports)| {
        let asked = ask(&throttle, tokens, exports);
        tokio::spawn(async move { asked.await.map(drop) })
    });
    sleep(SECOND).await;
    let before = store.calls();
    for _ in 0..100 {
        // Others wait for what this one's process may take as well: it takes turns with them.
        let permit = timeout(SECOND, ask(&throttle, 0, 0).into_future()).await.expect("there is room").unwrap();
        assert!(permit.waited() < SECOND / 2, "{:?}", permit.waited());
    }
    let calls = store.calls() - before;
    assert!(calls <= 110, "{calls} store calls");
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    assert_eq!(throttle.usage("up").await.unwrap().waiting, 3);
    let snapshot = throttle.snapshot();
    assert_eq!(snapshot.upstreams[0].queues.iter().map(|queue| queue.callers).sum::<usize>(), 3);
    sleep(60 * SECOND).await;
    assert!(waiting[1].is_finished(), "the tokens are back");
    sleep(3_600 * SECOND).await;
    assert!(waiting.iter().all(JoinHandle::is_finished));
}

#[tokio::test(start_paused = true)]
async fn whatever_calls_take_no_limit_is_exceeded_and_the_scarcest_is_used_up() {
    let (store, begin) = (Counting::default(), Instant::now());
    let end = begin + 1_200 * SECOND;
    let mut tasks = JoinSet::new();
    for process in 0..3 {
        let throttle = store.process(limits);
        for caller in 0..16 {
            let (throttle, mut rng) = (throttle.clone(), Rng::with_seed(100 * process + caller));
            tasks.spawn(async move {
                let mut went = Vec::new();
                loop {
                    let tokens = if rng.bool() { 0 } else { rng.u32(1..4_000) };
                    let exports = u32::from(caller == 0 && rng.u8(..) == 0);
                    let Ok(permit) = timeout_at(end, ask(&throttle, tokens, exports).into_future()).await else {
                        return went;
                    };
                    drop(permit.unwrap());
                    went.push((micros_since(begin), tokens, exports));
                }
            });
        }
    }
    let went = tasks.join_all().await.concat();
    let of = |units: fn(&(i64, u32, u32)) -> u32| -> Vec<_> {
        went.iter().map(|call| (call.0, u64::from(units(call)))).filter(|(_, units)| *units > 0).collect()
    };
    assert_never_more_units_than(500, 60_500_000, &of(|_| 1));
    assert_never_more_units_than(200_000, 60_500_000, &of(|call| call.1));
    assert_never_more_units_than(5, 3_601_000_000, &of(|call| call.2));
    let used: u64 = of(|call| call.1).iter().map(|(_, tokens)| tokens).sum();
    // A minute takes the guard longer.
    let (all, share) = (200_000 * 1_200 * 10 / 605, used * 100);
    assert!(share >= 98 * all, "{used} of {all} tokens");
    let calls = u64::try_from(went.len()).unwrap();
    assert!(store.calls() <= calls, "{} store calls for {calls}", store.calls());
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_in_flight_than_may_be_whatever_they_take() {
    let store = Counting::default();
    let throttle = store.process(|up| limits(up).limit(Limit::in_flight(3)));
    let (in_flight, begin) = (Arc::new(AtomicI32::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for caller in 0..60 {
        let (throttle, in_flight) = (throttle.clone(), Arc::clone(&in_flight));
        tasks.spawn(async move {
            let permit = ask(&throttle, 100 * (caller % 3), u32::from(caller % 20 == 1)).await.unwrap();
            assert!(in_flight.fetch_add(1, SeqCst) < 3);
            sleep(SECOND).await;
            in_flight.fetch_sub(1, SeqCst);
            drop(permit);
        });
    }
    tasks.join_all().await;
    assert!(begin.elapsed() < 21 * SECOND, "{:?}", begin.elapsed());
    assert!(store.calls() < 240, "{} store calls for 60", store.calls());
}
