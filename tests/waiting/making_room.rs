//! Room that is made while callers rest: they look for it before their time.

use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::store::StoreErrorKind;
use outgate::testing::{FailingStore, StoreFault};
use outgate::{Limit, MemoryStore, Scope, Throttle, Upstream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::Counting;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A caller of a scope, and how long it waits.
fn waits(throttle: &Throttle, scope: &'static str, units: u32) -> JoinHandle<Duration> {
    let (throttle, begin) = (throttle.clone(), Instant::now());
    tokio::spawn(async move {
        drop(throttle.acquire("up").scope(scope).cost(units).await.unwrap());
        begin.elapsed()
    })
}

#[tokio::test(start_paused = true)]
async fn what_a_call_of_one_scope_gives_back_is_found_by_who_waits_in_another_of_its_process() {
    for is_settled in [true, false] {
        let of_each = Limit::per_minute(1_000).each(Scope::header("x-merchant"));
        let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(1_000)).limit(of_each));
        let permit = throttle.acquire("up").scope("a").cost(1_000).await.unwrap();
        let (waiting, others) = (waits(&throttle, "b", 10), waits(&throttle, "c", 10));
        sleep(4 * SECOND).await;
        if is_settled {
            permit.settle("calls", 5);
        } else {
            permit.hand_back();
        }
        for waited in [waiting, others] {
            let waited = waited.await.unwrap();
            assert!(waited >= 4 * SECOND && waited <= 5 * SECOND + SECOND / 2, "{is_settled}: {waited:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn room_that_is_made_just_before_somebody_begins_to_rest_is_found_as_soon() {
    let of_each = Limit::per_minute(1_000).each(Scope::header("x-merchant"));
    let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(1_000)).limit(of_each));
    let permit = throttle.acquire("up").scope("a").cost(1_000).await.unwrap();
    sleep(4 * SECOND).await;
    let begin = Instant::now();
    permit.hand_back();
    drop(throttle.acquire("up").scope("b").cost(10).await.unwrap());
    assert!(begin.elapsed() <= SECOND + SECOND / 2, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn many_who_rest_look_one_after_another_and_no_more_often_for_each_call_that_makes_room() {
    let of_each = Limit::per_minute(1_000).each(Scope::header("x-merchant"));
    let store = Counting::default();
    let throttle = store.process(|up| up.limit(Limit::per_minute(1_000)).limit(of_each));
    let permits = [500; 2].map(|units| throttle.acquire("up").scope("a").cost(units));
    let [first, second] = permits;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let waiting: Vec<_> = (0..300).map(|at| waits(&throttle, format!("m-{at}").leak(), 1_000)).collect();
    sleep(4 * SECOND).await;
    let before = store.asks();
    first.settle("calls", 499);
    for used in (0..40).rev() {
        second.settle("calls", 100 + used);
        sleep(SECOND / 4).await;
    }
    // Each looks within three seconds, and again after another has made room.
    let asks = store.asks() - before;
    assert!((300..=3_000).contains(&asks), "{asks} asks of 300 in 10 s");
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn who_rests_beside_a_call_that_makes_room_all_the_time_looks_each_second() {
    let of_each = Limit::per_minute(1_000).each(Scope::header("x-merchant"));
    let store = Counting::default();
    let throttle = store.process(|up| up.limit(Limit::per_minute(1_000)).limit(of_each));
    let permit = throttle.acquire("up").scope("a").cost(1_000).await.unwrap();
    let waiting = waits(&throttle, "b", 1_000);
    sleep(4 * SECOND).await;
    let before = store.asks();
    for used in (500..1_000).rev() {
        permit.settle("calls", used);
        sleep(SECOND / 50).await;
    }
    // Those of the settlements ask for nobody.
    let asks = store.asks() - before;
    assert!((8..=15).contains(&asks), "{asks} asks in 10 s");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn who_waits_by_a_rate_that_was_lowered_by_hand_goes_on_when_it_is_lowered_no_more() {
    let store = Counting::default();
    let [throttle, other] = [(); 2].map(|()| store.limited(Limit::per_minute(100)));
    throttle.slow_down("up", 0.01, HOUR).await.unwrap();
    drop(other.acquire("up").await.unwrap());
    let (waits, begin) = (throttle.clone(), Instant::now());
    let waiting = tokio::spawn(async move { waits.acquire("up").await.map(drop).map(|()| begin.elapsed()) });
    sleep(4 * SECOND).await;
    assert!(!waiting.is_finished());
    throttle.release("up").await.unwrap();
    let waited = waiting.await.unwrap().unwrap();
    assert!(waited <= 6 * SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_was_found_over_ends_for_others_however_long_the_store_cannot_be_told() {
    let (shared, up) = (MemoryStore::new(), || Upstream::new("up").limit(Limit::per_second(10)));
    let failing = FailingStore::new(shared.clone());
    let throttle = Throttle::builder().store(failing.clone()).upstream(up()).build().unwrap();
    let other = Throttle::builder().store(FailingStore::new(shared)).upstream(up()).build().unwrap();
    // The wait is cut to an hour, when one call looks.
    throttle.report("up", &Feedback::refused(6 * HOUR)).await.unwrap();
    sleep(3_590 * SECOND).await;
    let looks = throttle.acquire("up").await.unwrap();
    failing.fail(StoreFault::Error(StoreErrorKind::Unreachable));
    looks.served();
    sleep(120 * SECOND).await;
    failing.heal();
    let begin = Instant::now();
    drop(other.acquire("up").await.unwrap());
    assert!(begin.elapsed() <= 35 * SECOND, "{:?}", begin.elapsed());
}
