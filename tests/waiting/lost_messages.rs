//! Messages whose answer nobody waits for any more, as their runtime is gone or polls nothing: each acts once, and none says anything of the store.

use std::future::{IntoFuture as _, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use outgate::ledger::{Body, Message};
use outgate::store::{Applying, WithoutStore};
use outgate::{Limit, MemoryStore, Scope, Store, Throttle, Upstream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::standing_still::{Late, elsewhere, elsewhere_and_gone};
use crate::support::{Counting, Way};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_on_its_way_there_is_sent_again() {
    for is_gone in [false, true] {
        let throttle = Late::default().process();
        let first = throttle.clone();
        let runtime = elsewhere(async move || {
            drop(tokio::spawn(async move { first.acquire("up").await.map(drop) }));
            yield_now().await;
        });
        let waits = throttle.clone();
        let waits = tokio::spawn(async move { waits.acquire("up").await.map(drop) });
        sleep(Duration::from_millis(100)).await;
        let runtime = if is_gone {
            std::thread::spawn(move || drop(runtime)).join().unwrap();
            None
        } else {
            Some(runtime)
        };
        let begin = Instant::now();
        waits.await.unwrap().unwrap();
        assert!(begin.elapsed() < secs(1), "{:?}", begin.elapsed());
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }
}

#[test]
fn nor_is_the_store_taken_for_lost_by_that_message() {
    let ways = [WithoutStore::Refuse, WithoutStore::SendUnthrottled].map(|policy| [(policy, false), (policy, true)]);
    let after = |way| (0..15).map(|n| 100 * n).chain([5_000, 40_000, 400_000]).map(move |after| (way, after));
    for ((policy, is_gone), after) in ways.into_iter().flatten().flat_map(after) {
        let throttle = Late::default().process_of(Limit::per_minute(5), policy);
        let first = throttle.clone();
        // Each time the clocks of both begin anew.
        let here = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let runtime = elsewhere_and_gone(is_gone, async move || {
            drop(tokio::spawn(async move { first.acquire("up").await.map(drop) }));
            yield_now().await;
        });
        here.block_on(async {
            sleep(Duration::from_millis(after)).await;
            let permit = throttle.acquire("up").await;
            let asked = permit.as_ref().is_ok_and(|permit| !permit.went_without_store());
            assert!(asked, "{policy:?}, gone {is_gone}, after {after} ms: {permit:?}");
        });
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Nor is it where nothing is asked at all, as all seats are used.
#[tokio::test(start_paused = true)]
async fn nor_is_it_by_one_that_is_forgotten() {
    for policy in [WithoutStore::Wait, WithoutStore::Refuse, WithoutStore::SendUnthrottled] {
        let store = Counting::answering(|_| Way { delay: Duration::from_millis(50), ..Way::default() });
        let each = Limit::per_hour(100).each(Scope::header("x-m"));
        let limited = |up: Upstream| up.limit(each.clone()).limit(Limit::in_flight(1)).without_store(policy);
        let throttle = store.process(limited);
        let first = throttle.clone();
        let runtime = elsewhere_and_gone(true, async move || {
            first.acquire("up").scope("0").await.unwrap().hand_back();
            sleep(Duration::from_millis(10)).await;
        });
        assert!(runtime.is_none());
        let _held = throttle.acquire("up").scope("1").await.unwrap();
        sleep(secs(40)).await;
        let waits = timeout(secs(60), throttle.acquire("up").scope("0").into_future()).await;
        assert!(waits.is_err(), "{policy:?}: {waits:?}");
    }
}

/// A store whose first message hangs for ever, and is polled so often.
#[derive(Clone, Debug, Default)]
struct Hanging {
    store: MemoryStore,
    came: Arc<AtomicU64>,
    polls: Arc<AtomicU64>,
}

impl Store for Hanging {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            if matches!(message.body, Body::Ask(_)) && self.came.fetch_add(1, Ordering::SeqCst) == 0 {
                return poll_fn(|_| {
                    self.polls.fetch_add(1, Ordering::SeqCst);
                    Poll::Pending
                })
                .await;
            }
            sleep(Duration::from_millis(1)).await;
            self.store.apply(message).await
        })
    }
}

/// A store that connects late would send it only then.
#[tokio::test(start_paused = true)]
async fn a_message_that_another_driver_has_sent_since_is_not_polled_there_any_more() {
    let store = Hanging::default();
    let up = Upstream::new("up").limit(Limit::per_minute(5));
    let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    let first = throttle.clone();
    let runtime = elsewhere(async move || {
        // The second has a task drive on.
        for _ in 0..2 {
            let call = first.acquire("up").into_future();
            drop(tokio::spawn(async move { call.await.map(drop) }));
            yield_now().await;
        }
        for _ in 0..5 {
            yield_now().await;
        }
    });
    drop(throttle.acquire("up").await.unwrap());
    let polls = store.polls.load(Ordering::SeqCst);
    assert!(polls > 0);
    let goes_on = std::thread::spawn(move || {
        runtime.block_on(async {
            for _ in 0..10 {
                yield_now().await;
            }
        });
        runtime
    });
    let runtime = goes_on.join().unwrap();
    assert_eq!(store.polls.load(Ordering::SeqCst), polls);
    runtime.shutdown_background();
}

/// What goes back in a message is another's once it is sent again: the store has forgotten by then that it acted.
#[tokio::test(start_paused = true)]
async fn what_a_message_gave_back_there_is_given_back_once_however_late_that_is_known() {
    for (is_gone, after) in [(false, 10), (true, 10), (false, 80), (true, 80)] {
        let store = Counting::answering(|_| Way { delay: Duration::from_millis(50), ..Way::default() });
        let throttle = store.limited(Limit::per_hour(5));
        let first = throttle.clone();
        let runtime = elsewhere_and_gone(is_gone, async move || {
            // The last four are booked together.
            let calls: Vec<_> = (0..5).map(|_| tokio::spawn(first.acquire("up").into_future())).collect();
            for (nth, call) in calls.into_iter().enumerate() {
                let permit = call.await.unwrap().unwrap();
                if nth == 4 {
                    permit.hand_back();
                }
            }
            sleep(Duration::from_millis(10)).await;
        });
        sleep(secs(after)).await;
        let mut further = 0;
        for _ in 0..3 {
            further += u32::from(throttle.try_acquire("up").await.is_ok());
        }
        assert_eq!(further, 1, "gone {is_gone}, after {after} s");
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_a_task_there_took_over_and_never_looks_at_is_sent_again() {
    let throttle = Late::default().process();
    let permit = throttle.acquire("up").await.unwrap();
    // By then nobody else can use its slot.
    sleep(secs(2)).await;
    let waits = throttle.clone();
    let waits = tokio::spawn(async move { waits.acquire("up").await.map(drop) });
    yield_now().await;
    let runtime = elsewhere(async move || permit.hand_back());
    timeout(secs(60), waits).await.expect("it is told").unwrap().unwrap();
    timeout(secs(1), throttle.acquire("up").into_future()).await.unwrap().map(drop).unwrap();
    runtime.shutdown_background();
}
