//! A process that remembers what it was granted, and makes no call: it asks now and then whether the store has lost that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::ledger::{Body, Message};
use outgate::store::{Applying, StoreError, StoreErrorKind};
use outgate::{Limit, MemoryStore, Scope, Store, Throttle, Upstream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Counting, Way};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// 100 calls in an hour of each scope.
fn of_each(up: Upstream) -> Upstream {
    up.limit(Limit::per_hour(100).each(Scope::header("x-m")))
}

/// 100 calls in an hour of all scopes.
fn of_all(up: Upstream) -> Upstream {
    up.limit(Limit::per_hour(100)).limit(Limit::per_second(10).each(Scope::header("x-m")))
}

/// One call in each of these scopes.
async fn call(throttle: &Throttle, scopes: impl Iterator<Item = u32>) {
    for scope in scopes {
        drop(throttle.acquire("up").scope(scope.to_string()).await.unwrap());
    }
}

/// How many of so many calls that come at once go in each of these scopes.
async fn left(throttle: &Throttle, scopes: impl Iterator<Item = u32>, calls: usize) -> Vec<usize> {
    let mut left = Vec::new();
    for scope in scopes {
        let mut tasks = JoinSet::new();
        for _ in 0..calls {
            let throttle = throttle.clone();
            tasks
                .spawn(async move { throttle.acquire("up").scope(scope.to_string()).max_wait(secs(60)).await.is_ok() });
        }
        left.push(tasks.join_all().await.into_iter().filter(|gone| *gone).count());
    }
    left
}

/// Who asked, and when.
type Asked = Vec<(Arc<str>, Instant)>;

/// A store that says who asked when, and answers nobody of some scopes.
#[derive(Clone, Debug, Default)]
struct Witness {
    store: MemoryStore,
    asked: Arc<Mutex<Asked>>,
    refused: Arc<Mutex<Vec<Arc<str>>>>,
    /// Tells when one asks that is looked for.
    looked_for: Arc<Mutex<Option<Arc<str>>>>,
    found: Arc<Notify>,
}

impl Witness {
    fn process(&self) -> Throttle {
        Throttle::builder().store(self.clone()).upstream(of_each(Upstream::new("up"))).build().unwrap()
    }

    /// Who asked last.
    fn last(&self) -> Arc<str> {
        Arc::clone(&self.asked.lock().unwrap().last().unwrap().0)
    }

    /// When it asked.
    fn asked(&self, who: &Arc<str>) -> Vec<Instant> {
        self.asked.lock().unwrap().iter().filter(|(of, _)| of == who).map(|(_, at)| *at).collect()
    }
}

impl Store for Witness {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            if matches!(message.body, Body::Ask(_)) && !message.id.stream.is_empty() {
                self.asked.lock().unwrap().push((Arc::clone(&message.id.stream), Instant::now()));
                if self.looked_for.lock().unwrap().take_if(|stream| *stream == message.id.stream).is_some() {
                    self.found.notify_one();
                }
            }
            sleep(Duration::from_millis(20)).await;
            if self.refused.lock().unwrap().contains(&message.id.stream) {
                return Err(StoreError::new(StoreErrorKind::Unreachable, "the answer was lost"));
            }
            self.store.apply(message).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn those_that_the_store_alone_refuses_keep_no_other_from_hearing_of_a_loss() {
    for refused in [1, 5] {
        let store = Witness::default();
        let [one, other] = [(); 2].map(|()| store.process());
        for scope in 0..refused {
            call(&one, scope..=scope).await;
            store.refused.lock().unwrap().push(store.last());
        }
        let first = store.refused.lock().unwrap()[0].clone();
        let refuses = std::mem::take(&mut *store.refused.lock().unwrap());
        call(&one, refused..refused + 20).await;
        *store.refused.lock().unwrap() = refuses;
        sleep(secs(300)).await;
        store.store.lose_logs(Some(secs(1)));
        let before = store.asked(&first).len();
        sleep(secs(60)).await;
        let tries = store.asked(&first).len() - before;
        assert!((1..=120).contains(&tries), "{tries} tries in 60 s");
        let left = left(&other, refused..refused + 20, 100).await;
        assert_eq!(left, [99; 20], "one of 100 was granted in each of these scopes");
    }
}

#[tokio::test(start_paused = true)]
async fn one_in_which_callers_come_just_then_keeps_no_other_from_asking() {
    let store = Witness::default();
    let up = Upstream::new("up").limit(Limit::per_hour(1_000_000).each(Scope::header("x-m")));
    let one = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    call(&one, 3..4).await;
    let idle = store.last();
    call(&one, (0..10).filter(|scope| *scope != 3)).await;
    let last = store.last();
    sleep(secs(30)).await;
    *store.looked_for.lock().unwrap() = Some(last);
    store.found.notified().await;
    let begin = Instant::now();
    while begin.elapsed() < secs(60) {
        call(&one, 9..10).await;
    }
    let asked: Vec<_> = store.asked(&idle).into_iter().filter(|at| *at + secs(10) > begin).collect();
    assert!(asked.len() > 6, "{} times in 60 s", asked.len());
    for pair in asked.windows(2) {
        assert!(pair[1] - pair[0] < secs(8), "{:?}", pair[1] - pair[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_scopes_the_one_that_was_granted_something_last_asks_within_five_seconds() {
    let store = Witness::default();
    let one = store.process();
    call(&one, 0..200).await;
    sleep(secs(60)).await;
    // By turns it would wait for 200 others, at five a second.
    call(&one, 7..8).await;
    let (last, begin) = (store.last(), Instant::now());
    sleep(secs(60)).await;
    let asked: Vec<_> = store.asked(&last).into_iter().filter(|at| *at + secs(1) > begin).collect();
    for pair in asked.windows(2) {
        assert!(pair[1] - pair[0] < Duration::from_millis(5_500), "{:?}", pair[1] - pair[0]);
    }
    assert!(asked.len() > 10, "{} times in 60 s", asked.len());
}

/// A process that was granted calls of an hour in some scopes, one in each.
async fn of_scopes(store: &Counting, scopes: u32) -> Throttle {
    let throttle = store.process(of_all);
    call(&throttle, 0..scopes).await;
    throttle
}

#[tokio::test(start_paused = true)]
async fn a_process_that_makes_no_call_asks_once_in_five_seconds_as_long_as_anything_counts() {
    let store = Counting::default();
    let throttle = of_scopes(&store, 60).await;
    let asks = async |of: Duration| {
        let before = store.asks();
        sleep(of).await;
        store.asks() - before
    };
    let within_minutes = asks(secs(600)).await;
    assert!((110..=125).contains(&within_minutes), "{within_minutes} asks in 600 s");
    sleep(secs(3_100)).await;
    assert_eq!(asks(secs(600)).await, 0, "nothing counts any more");
    drop(throttle.acquire("up").scope("0").await.unwrap());
    let again = asks(secs(60)).await;
    assert!((11..=13).contains(&again), "{again} asks in 60 s");
    throttle.close().await;
    assert_eq!(asks(secs(60)).await, 0, "it is closed");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_nobody_uses_is_not_given_twice_when_it_is_evicted() {
    for scopes in [1, 20, 60] {
        let store = Counting::default();
        let [one, other] = [(); 2].map(|()| store.process(of_each));
        for scope in 0..scopes {
            call(&one, [scope; 80].into_iter()).await;
        }
        // One process goes on in another scope alone.
        let (before, mut calls) = (store.asks(), 0);
        for second in 0..40 {
            if second == 20 {
                store.lose_unused_logs(secs(15));
            }
            call(&one, 1_000..1_001).await;
            calls += 1;
            sleep(secs(1)).await;
        }
        let asks = store.asks() - before - calls;
        // Each every 5 s, five a second at most; and all of them in a few rounds after the loss.
        assert!(asks <= u64::from(scopes.min(25) * 8 + scopes * 3), "{asks} asks of {scopes} scopes in 40 s");
        let left = left(&other, 0..scopes, 100).await;
        assert!(left.iter().all(|left| *left == 20), "{left:?}: 80 were granted in this hour");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_begins_after_a_loss_hides_it_from_none_that_makes_no_call() {
    for idle in [30, 600] {
        let store = Counting::default();
        let one = of_scopes(&store, 60).await;
        sleep(secs(idle)).await;
        store.lose_data();
        // It remembers nothing, and calls before anybody has asked.
        let other = of_scopes(&store, 1).await;
        sleep(secs(6)).await;
        let mut further = 0;
        for scope in 1_000..1_050 {
            let call = other.acquire("up").scope(scope.to_string()).max_wait(secs(60));
            further += u32::from(call.await.is_ok());
        }
        // It cannot be told whether messages were lost with the log: what was granted since is entered twice.
        assert_eq!(further, 38, "idle for {idle} s: 61 were granted in this hour");
        drop(one);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_polled_no_more_keeps_no_process_from_hearing_of_a_loss() {
    let store = Counting::default();
    let one = of_scopes(&store, 60).await;
    let mut parked = std::pin::pin!(one.acquire("up").scope("59").into_future());
    std::future::poll_fn(|cx| {
        assert!(parked.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    sleep(secs(30)).await;
    let other = of_scopes(&store, 1).await;
    store.lose_data();
    let mut further = 0;
    for scope in [0].into_iter().chain(1_000..1_050) {
        let call = other.acquire("up").scope(scope.to_string()).max_wait(secs(60));
        further += u32::from(call.await.is_ok());
    }
    assert!((38..=39).contains(&further), "{further}: 61 or 62 were granted in this hour");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_makes_no_call_asks_little_of_a_store_that_does_not_answer_and_closes_at_once() {
    for (delay, is_of_each) in [(0, false), (0, true), (4, false), (4, true)] {
        let lost = Arc::new(AtomicBool::new(false));
        let is_lost = Arc::clone(&lost);
        let store = Counting::answering(move |_| {
            let lost = is_lost.load(Ordering::Relaxed);
            Way { lost, delay: if lost { secs(delay) } else { Duration::ZERO } }
        });
        let throttle = if is_of_each { store.process(of_each) } else { store.process(of_all) };
        call(&throttle, 0..60).await;
        lost.store(true, Ordering::Relaxed);
        let before = store.asks();
        sleep(secs(60)).await;
        let asks = store.asks() - before;
        println!("{delay} s, {is_of_each}: {asks} asks in 60 s");
        assert!(asks <= 120, "{delay} s, {is_of_each}: {asks} asks in 60 s");
        let begin = Instant::now();
        throttle.close().await;
        assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_scopes_in_which_nobody_calls_five_a_second_are_asked_for_and_all_in_turn() {
    let store = Counting::default();
    let throttle = store.process(of_each);
    call(&throttle, 0..200).await;
    sleep(secs(10)).await;
    let before = store.asks();
    sleep(secs(100)).await;
    let asks = store.asks() - before;
    assert!((450..=500).contains(&asks), "{asks} asks in 100 s");
    // In 40 s each has its turn, and so tells of its own log.
    store.lose_unused_logs(secs(1));
    sleep(secs(60)).await;
    let left = left(&store.process(of_each), 0..200, 100).await;
    assert_eq!(left, [99; 200], "one of 100 was granted in each scope");
}
