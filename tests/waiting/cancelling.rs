//! Callers that give up, wherever they are.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::ledger::{Body, Message};
use outgate::store::{Applying, Store};
use outgate::testing::oracle::assert_never_more_than;
use outgate::{Limit, MemoryStore, Permit, Throttle, Upstream};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Counting, endless, micros_since};

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_cancelled_at_random_cost_nobody_anything() {
    fastrand::seed(11);
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(100));
    let begin = Instant::now();
    let end = begin + Duration::from_secs(12);
    let cancelled: Vec<_> = (0..1_000)
        .map(|_| {
            let throttle = throttle.clone();
            let patience = Duration::from_micros(fastrand::u64(0..9_000_000));
            tokio::spawn(async move {
                let permit = timeout(patience, async { throttle.acquire("up").await }).await.ok()?;
                drop(permit.unwrap());
                Some(micros_since(begin))
            })
        })
        .collect();
    // Beside them callers that stay, so that every slot is wanted by somebody.
    let mut starts = endless(&throttle, 100, begin, end).await;
    for task in cancelled {
        starts.extend(timeout(Duration::from_secs(1), task).await.expect("nobody hangs").unwrap());
    }
    assert_never_more_than(100, 1_050_000, &starts);
    // 12 bursts in 12 s, and not one slot of them lost.
    assert_eq!(starts.len(), 1_200);
}

#[tokio::test(start_paused = true)]
async fn when_everybody_gives_up_the_log_is_empty_again() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(10, Duration::from_millis(200)));
    let blocked: Vec<_> = (0..30)
        .map(|_| {
            let throttle = throttle.clone();
            tokio::spawn(async move {
                let permit = throttle.acquire("up").await;
                std::future::pending::<()>().await;
                drop(permit);
            })
        })
        .collect();
    sleep(Duration::from_millis(10)).await;
    assert!(throttle.usage("up").await.unwrap().limits[0].used > 10, "ten sent, some booked");
    blocked.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(Duration::from_millis(10)).await;
    let usage = throttle.usage("up").await.unwrap();
    assert_eq!((usage.limits[0].used, usage.waiting), (10, 0), "what was given stays, what was booked went back");
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_be_cancelled_at_every_moment_of_its_wait() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(1, Duration::from_millis(100)).guard(Duration::from_millis(10)));
    for micros in (0..250_000).step_by(777) {
        let cancelled = timeout(Duration::from_micros(micros), async { throttle.acquire("up").await });
        let behind = throttle.acquire("up").max_wait(Duration::from_secs(1));
        let (_, behind) = tokio::join!(cancelled, async { behind.await });
        drop(behind.expect("the one behind is served"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_handed_back_goes_to_the_next_in_the_queue() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_hour(1));
    let permit = throttle.acquire("up").await.unwrap();
    let next = {
        let throttle = throttle.clone();
        tokio::spawn(async move { throttle.acquire("up").await.unwrap().waited() })
    };
    sleep(Duration::from_millis(10)).await;
    permit.hand_back();
    assert_eq!(next.await.unwrap(), Duration::from_millis(10), "at once, without a word to the store");
    assert_eq!(store.hand_backs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_handed_back_too_late_to_be_passed_on_serves_the_next_in_line_soon() {
    // A connection that fails only after a second; and a permit of another cost than the one that is wanted.
    for (quota, cost, after) in [(1, 1, 1_000), (10, 10, 1_000), (10, 10, 10)] {
        fastrand::seed(12);
        let throttle = Counting::default().limited(Limit::per_minute(quota));
        let permit = throttle.acquire("up").cost(cost).await.unwrap();
        let next = {
            let throttle = throttle.clone();
            tokio::spawn(async move { throttle.acquire("up").await.unwrap().waited() })
        };
        sleep(Duration::from_millis(after)).await;
        permit.hand_back();
        let waited = next.await.unwrap();
        let free = Duration::from_millis(after);
        assert!(waited <= free + Duration::from_millis(10), "free after {free:?}, used after {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_handed_back_for_nobody_goes_back_to_the_log() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_hour(1));
    throttle.acquire("up").await.unwrap().hand_back();
    sleep(Duration::from_millis(5)).await;
    assert_eq!((throttle.usage("up").await.unwrap().limits[0].used, store.hand_backs()), (0, 1));
    drop(throttle.try_acquire("up").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_dropped_counts_as_a_call() {
    let throttle = Counting::default().limited(Limit::per_hour(1));
    drop(throttle.acquire("up").await.unwrap());
    sleep(Duration::from_millis(5)).await;
    assert!(throttle.try_acquire("up").await.is_err());
}

/// Notes how many slots of how many starts each message hands back.
#[derive(Clone, Debug, Default)]
struct Returns(MemoryStore, Arc<Mutex<Vec<(usize, u32)>>>);

impl Store for Returns {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        if let Body::Ask(ask) = &message.body
            && !ask.back.is_empty()
        {
            let slots = ask.back.iter().map(|slots| slots.count).sum();
            self.1.lock().unwrap().push((ask.back.len(), slots));
        }
        Applying::pending(async move { self.0.apply(message).await })
    }
}

#[tokio::test(start_paused = true)]
async fn one_message_hands_back_slots_of_few_starts() {
    let store = Returns::default();
    let up = Upstream::new("up").limit(Limit::per_hour(1_000));
    let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    let mut permits = Vec::new();
    for _ in 0..100 {
        permits.push(throttle.acquire("up").await.unwrap());
        sleep(Duration::from_millis(1)).await;
    }
    permits.into_iter().for_each(Permit::hand_back);
    sleep(Duration::from_secs(1)).await;
    let returns = store.1.lock().unwrap().clone();
    assert_eq!(returns, [(32, 32), (32, 32), (32, 32), (4, 4)]);
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 0);
}
