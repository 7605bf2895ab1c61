//! How many may wait, and where.

use std::future::{Future as _, IntoFuture as _};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use outgate::{Error, Limit, MemoryStore, Permit, Throttle, Upstream};
use tokio::task::yield_now;

use crate::support::Counting;

fn hourly(up: Upstream) -> Upstream {
    up.limit(Limit::per_hour(1)).max_waiting(2)
}

fn is_refused(outcome: &Result<Permit, Error>) -> bool {
    matches!(outcome, Err(Error::TooManyWaiting { upstream, max_waiting: 2, .. }) if **upstream == *"up")
}

#[tokio::test(start_paused = true)]
async fn one_more_than_may_wait_is_refused_at_once_whatever_its_scope() {
    let throttle = Counting::default().process(hourly);
    drop(throttle.acquire("up").await.unwrap());
    drop(throttle.acquire("up").scope("a").await.unwrap());
    let waiting: Vec<_> = ["", "a"]
        .map(|scope| {
            let acquire = throttle.acquire("up");
            let acquire = if scope.is_empty() { acquire } else { acquire.scope(scope) };
            tokio::spawn(acquire.into_future())
        })
        .into();
    yield_now().await;
    let begin = tokio::time::Instant::now();
    for scope in ["a", "b"] {
        assert!(is_refused(&throttle.acquire("up").scope(scope).await));
    }
    assert!(is_refused(&throttle.try_acquire("up").await));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    // Whoever gives up makes room, and so does whoever is served.
    waiting[0].abort();
    yield_now().await;
    drop(throttle.acquire("up").scope("b").await.unwrap());
    for task in waiting.into_iter().skip(1) {
        drop(task.await.unwrap().unwrap());
    }
    assert!(begin.elapsed() >= Duration::from_secs(3_600));
}

#[test]
fn nobody_can_be_forbidden_to_wait() {
    let up = Upstream::new("up").limit(Limit::per_second(1)).max_waiting(0);
    let error = Throttle::builder().upstream(up).build().unwrap_err();
    assert_eq!((error.upstream(), error.field()), ("up", "max_waiting"));
}

#[test]
fn a_throttle_can_be_closed_outside_of_a_runtime() {
    let up = Upstream::new("up").limit(Limit::per_hour(1));
    let throttle = Throttle::builder().store(MemoryStore::new()).upstream(up).build().unwrap();
    let mut close = std::pin::pin!(throttle.close());
    assert!(close.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn outside_of_a_runtime_a_call_that_has_to_wait_is_an_error_and_one_that_has_not_is_served() {
    let up = Upstream::new("up").limit(Limit::per_hour(1));
    let throttle = Throttle::builder().store(MemoryStore::new()).upstream(up).build().unwrap();
    let poll = || Pin::new(&mut throttle.acquire("up").into_future()).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(permit)) = poll() else { panic!("a slot is free") };
    drop(permit);
    for _ in 0..2 {
        assert!(matches!(poll(), Poll::Ready(Err(Error::OutsideRuntime))));
    }
}
