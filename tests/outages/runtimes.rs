//! A throttle outlives the runtime that it was first used in.

use std::future::IntoFuture as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use outgate::testing::Mode;
use outgate::{Error, Feedback, Limit, RedisStore};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::scene::{AT_ONCE, Outcome, PATIENCE, Scene, plenty, timed};

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn busy_runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

#[test]
fn a_throttle_works_in_one_runtime_after_another() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    for round in 1..=5 {
        let runtime = runtime()?;
        let (outcome, took) = runtime.block_on(timed(throttle.acquire("up")));
        drop(outcome?);
        assert!(took <= AT_ONCE, "{took:?}");
        runtime.block_on(async { throttle.acquire("up").await })?.hand_back();
        drop(runtime);
        assert!(scene.log()?.len() >= round);
    }
    Ok(())
}

/// What a future says when it is polled once, outside of any runtime.
fn polled<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn outside_of_a_runtime_everything_that_has_to_wait_is_an_error() -> Outcome {
    let scene = Scene::new()?;
    assert!(matches!(polled(RedisStore::connect("redis://127.0.0.1:1")), Poll::Ready(Err(_))));
    let (throttle, runtime) = (scene.throttle(plenty())?, busy_runtime()?);
    for _ in ["before a connection is made", "after it was"] {
        assert!(matches!(polled(throttle.acquire("up").into_future()), Poll::Ready(Err(Error::OutsideRuntime))));
        assert!(matches!(polled(throttle.usage("up")), Poll::Ready(Err(Error::StoreUnavailable { .. }))));
        let pause = Feedback::refused(Duration::from_millis(1));
        assert!(matches!(polled(throttle.report("up", &pause)), Poll::Ready(Err(Error::StoreUnavailable { .. }))));
        runtime.block_on(async { throttle.acquire("up").await })?.hand_back();
    }
    assert!(polled(throttle.close()).is_ready());
    Ok(())
}

#[test]
fn a_permit_may_be_handed_back_where_there_is_no_runtime() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    runtime()?.block_on(async { throttle.acquire("up").await })?.hand_back();
    assert_eq!(scene.log()?.len(), 1);
    runtime()?.block_on(async {
        drop(throttle.acquire("up").await?);
        scene.log_holds(1).await
    })
}

#[test]
fn callers_keep_waiting_when_the_runtime_that_drove_their_line_is_dropped() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(Limit::new(10, Duration::from_millis(900)).guard(Duration::from_millis(100)))?;
    let (first, second) = (busy_runtime()?, busy_runtime()?);
    for _ in 0..15 {
        let throttle = throttle.clone();
        first.spawn(async move { throttle.acquire("up").await });
    }
    std::thread::sleep(Duration::from_millis(200));
    let callers: Vec<_> = (0..10)
        .map(|_| {
            let throttle = throttle.clone();
            second.spawn(async move { throttle.acquire("up").await })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    drop(first);
    second.block_on(async {
        for caller in callers {
            drop(timeout(PATIENCE, caller).await???);
        }
        Outcome::Ok(())
    })
}

#[test]
fn callers_are_served_when_the_runtime_that_was_asking_for_them_is_dropped() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    let (first, second) = (busy_runtime()?, busy_runtime()?);
    drop(first.block_on(async { throttle.acquire("up").await })?);
    scene.proxy.set(Mode::Blackhole);
    let asking = throttle.clone();
    first.spawn(async move { asking.acquire("up").await });
    std::thread::sleep(Duration::from_millis(100));
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let throttle = throttle.clone();
            second.spawn(async move { throttle.acquire("up").await })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    drop(first);
    scene.proxy.set(Mode::Pass);
    second.block_on(async {
        for caller in callers {
            drop(timeout(PATIENCE, caller).await???);
        }
        Outcome::Ok(())
    })
}

#[test]
fn a_call_that_connects_where_nothing_is_polled_any_more_keeps_nobody_from_the_store() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    scene.proxy.set(Mode::Blackhole);
    let (first, second) = (runtime()?, runtime()?);
    let connects = throttle.clone();
    first.block_on(async {
        tokio::spawn(async move { connects.acquire("up").await });
        sleep(Duration::from_millis(100)).await;
    });
    scene.proxy.set(Mode::Pass);
    let begin = Instant::now();
    while let Err(error) = second.block_on(async { throttle.acquire("up").await }) {
        assert!(begin.elapsed() < 4 * PATIENCE, "{error}");
    }
    drop(first);
    Ok(())
}
