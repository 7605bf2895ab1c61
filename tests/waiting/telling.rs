//! Who tells the store of a pause where the runtime that heard of it is gone, or polls nothing any more.

use std::future::{IntoFuture as _, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::ledger::{Body, Message};
use outgate::store::{Applying, StoreError, StoreErrorKind};
use outgate::testing::{FailingStore, StoreFault};
use outgate::{Error, Limit, MemoryStore, Scope, Store, Throttle, Upstream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::standing_still::elsewhere;
use crate::support::Counting;

const DOWN: StoreFault = StoreFault::Error(StoreErrorKind::Unreachable);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn process(store: impl Store) -> Throttle {
    let up = Upstream::new("up").limit(Limit::per_second(100)).limit(Limit::per_second(50).each(Scope::header("x-m")));
    Throttle::builder().store(store).upstream(up).build().unwrap()
}

/// A process that hears of a pause of ten minutes while the store is down, in a runtime that is dropped after that or stands still; and another
/// process.
struct Scene {
    one: Throttle,
    other: Throttle,
    store: Counting,
    runtime: Option<Runtime>,
}

impl Scene {
    fn new(is_dropped: bool) -> Self {
        let store = Counting::default();
        let failing = FailingStore::new(store.clone());
        let (one, other) = (process(failing.clone()), process(store.clone()));
        failing.fail(DOWN);
        let first = one.clone();
        let runtime = elsewhere(async move || {
            assert!(first.report("up", &Feedback::refused(secs(600))).await.is_err());
        });
        failing.heal();
        if is_dropped {
            runtime.shutdown_background();
            return Self { one, other, store, runtime: None };
        }
        Self { one, other, store, runtime: Some(runtime) }
    }

    /// For how long the other process keeps to the pause.
    async fn left(&self) -> Duration {
        match self.other.try_acquire("up").await {
            Err(Error::Throttled { retry_after, .. }) => retry_after,
            _ => Duration::ZERO,
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_of_another_runtime_tells_of_it() {
    for is_dropped in [true, false] {
        let mut scene = Scene::new(is_dropped);
        let begin = Instant::now();
        scene.one.report("up", &Feedback::refused(secs(30))).await.unwrap();
        assert!(begin.elapsed() < secs(4), "{:?}", begin.elapsed());
        assert!(scene.left().await > secs(500));
        // What the second refusal says of the limits is told a second later.
        sleep(secs(2)).await;
        let told = scene.store.told();
        // Whoever was replaced is polled again.
        let runtime = scene.runtime.take();
        let runtime =
            std::thread::spawn(move || runtime.inspect(|runtime| runtime.block_on(async { sleep(secs(60)).await })));
        runtime.join().unwrap().into_iter().for_each(Runtime::shutdown_background);
        sleep(secs(10)).await;
        assert_eq!(scene.store.told(), told, "and has nothing to say");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_or_comes_tells_of_it() {
    for (is_dropped, waits) in [(true, true), (true, false), (false, true), (false, false)] {
        let scene = Scene::new(is_dropped);
        let mut calls = JoinSet::new();
        if waits {
            calls.spawn(scene.one.acquire("up").into_future());
        } else {
            sleep(secs(3)).await;
            assert!(scene.one.try_acquire("up").await.is_err());
        }
        sleep(secs(if waits { 10 } else { 1 })).await;
        let left = scene.left().await;
        assert!(left > secs(500), "dropped: {is_dropped}, waits: {waits}: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_by_hand_is_not_undone_by_a_pause_that_was_said_before_it() {
    for is_dropped in [true, false] {
        let scene = Scene::new(is_dropped);
        sleep(secs(60)).await;
        scene.other.release("up").await.unwrap();
        sleep(secs(30)).await;
        drop(timeout(secs(20), scene.one.acquire("up")).await.expect("it learns of the release").unwrap());
        assert_eq!(scene.left().await, Duration::ZERO, "dropped: {is_dropped}");
    }
}

/// Another runtime may be gone before the store answers: that is no news of the store.
#[tokio::test(start_paused = true)]
async fn a_report_does_not_fail_because_the_runtime_that_told_of_it_is_gone() {
    let (store, throttle) = Deaf::silent();
    let first = throttle.clone();
    let runtime = elsewhere(async move || {
        let refused = Feedback::refused(secs(600));
        assert!(timeout(Duration::from_millis(1), first.report("up", &refused)).await.is_err());
    });
    let second = throttle.clone();
    let report = tokio::spawn(async move { second.report("up", &Feedback::refused(secs(600))).await });
    sleep(Duration::from_millis(500)).await;
    store.is_deaf(false);
    runtime.shutdown_background();
    report.await.unwrap().expect("it is told from here");
}

#[test]
fn a_report_outside_of_a_runtime_waits_for_no_other() {
    let (store, throttle) = Deaf::silent();
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, refused) = (runtime(), Feedback::refused(secs(600)));
    first.block_on(async {
        assert!(timeout(Duration::from_millis(1), throttle.report("up", &refused)).await.is_err());
    });
    let report = pin!(throttle.report("up", &refused)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(report, Poll::Ready(Err(Error::StoreUnavailable { .. }))), "{report:?}");
    store.is_deaf(false);
    drop(first);
    runtime().block_on(async {
        throttle.report("up", &refused).await.unwrap();
        assert!(process(store).try_acquire("up").await.is_err());
    });
}

/// A store that can be told of no pause for a while: it says so, or is silent.
#[derive(Clone, Debug, Default)]
struct Deaf {
    store: MemoryStore,
    hears_none: Arc<AtomicBool>,
    is_silent: bool,
}

impl Deaf {
    /// One that is silent, and a process that has it.
    fn silent() -> (Self, Throttle) {
        let store = Self { is_silent: true, ..Self::default() };
        store.is_deaf(true);
        (store.clone(), process(store))
    }

    fn is_deaf(&self, is_deaf: bool) {
        self.hears_none.store(is_deaf, Ordering::Relaxed);
    }
}

impl Store for Deaf {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            if matches!(message.body, Body::Pause { .. }) && self.hears_none.load(Ordering::Relaxed) {
                if self.is_silent {
                    pending::<()>().await;
                }
                return Err(StoreError::new(StoreErrorKind::Refused, "out of memory"));
            }
            self.store.apply(message).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_are_polled_no_more_keep_nobody_from_telling_the_store() {
    let (store, throttle) = Deaf::silent();
    let first = throttle.clone();
    // As many as may tell at once, and some that wait for that.
    let runtime = elsewhere(async move || {
        let refused = Feedback::refused(secs(600));
        for scope in 0..40 {
            let report = first.report_in("up", scope.to_string(), &refused);
            assert!(timeout(Duration::from_millis(1), report).await.is_err());
        }
    });
    store.is_deaf(false);
    let begin = Instant::now();
    throttle.report_in("up", "another", &Feedback::refused(secs(600))).await.unwrap();
    assert!(begin.elapsed() < secs(5), "{:?}", begin.elapsed());
    sleep(secs(5)).await;
    let other = process(store);
    for scope in 0..40 {
        assert!(other.try_acquire("up").scope(scope.to_string()).await.is_err(), "scope {scope}");
    }
    runtime.shutdown_background();
}

/// Threads that wait for each other would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn runtimes_come_and_go_while_others_tell_and_nobody_waits_for_ever() {
    let store = Deaf::default();
    let throttle = process(store.clone());
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (throttle, store) = (throttle.clone(), store.clone());
        tasks.spawn(async move {
            for round in 0..10_u32 {
                store.is_deaf(round % 5 == task % 5);
                let scope = (round % 7).to_string();
                let job = throttle.clone();
                let here = scope.clone();
                let gone = std::thread::spawn(move || {
                    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(async {
                        _ = job.report_in("up", &here, &Feedback::refused(Duration::from_millis(20))).await;
                        _ = job.report("up", &Feedback::refused(Duration::from_millis(5))).await;
                        drop(job.try_acquire("up").scope(here).await);
                    });
                });
                drop(throttle.try_acquire("up").scope(&scope).await);
                _ = throttle.report_in("up", &scope, &Feedback::refused(Duration::from_millis(20))).await;
                tokio::task::spawn_blocking(|| gone.join().unwrap()).await.unwrap();
            }
        });
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    timeout(secs(60), all).await.expect("they end");
}
