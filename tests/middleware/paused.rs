//! A refusal that comes back through the middleware.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Bytes;
use outgate::testing::{Shape, StrictUpstream};
use outgate::{Cause, Error, Limit, MemoryStore, Passage, Throttle, Upstream};
use tokio::time;

use crate::client;

/// Two processes that believe in 100 calls a second at an upstream which allows one each second.
fn processes() -> [Throttle; 2] {
    let store = MemoryStore::new();
    [(); 2].map(|()| {
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100));
        Throttle::builder().store(store.clone()).upstream(up).build().unwrap()
    })
}

#[tokio::test]
async fn a_429_silences_every_process_for_as_long_as_it_says() {
    let upstream = StrictUpstream::builder().limit(1, Duration::from_secs(1), Shape::SlidingLog).start().unwrap();
    let [first, second] = processes();
    let statuses = [client(&first).get(upstream.url()).send().await, client(&first).get(upstream.url()).send().await];
    assert_eq!(statuses.map(|response| response.unwrap().status().as_u16()), [200, 429]);
    for throttle in [&first, &second] {
        match throttle.try_acquire("up").await {
            Err(Error::Throttled { retry_after, paused: Some(pause), .. }) => {
                let half = Duration::from_millis(500);
                assert!(retry_after > half && pause.left > half, "{pause:?}");
                assert_eq!((pause.cause, pause.status), (Cause::Refusal, Some(429)));
            }
            other => panic!("{other:?}"),
        }
    }
    let response = client(&second).get(upstream.url()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.extensions().get::<Passage>().unwrap().waited > Duration::from_millis(500));
    assert_eq!((upstream.admitted(), upstream.refused()), (2, 1));
}

/// Refuses the first call for an hour, and serves all others.
fn refuses_the_first() -> StrictUpstream {
    let calls = AtomicUsize::new(0);
    let answer = move |_: &http::Request<()>| {
        let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        let response = http::Response::builder().status(if is_first { 429 } else { 200 });
        let response = if is_first { response.header("retry-after", "3600") } else { response };
        response.body(Bytes::new()).unwrap()
    };
    StrictUpstream::builder().handler(answer).start().unwrap()
}

#[tokio::test]
async fn after_the_longest_pause_a_call_that_is_served_ends_it_for_every_process() {
    const LONGEST: Duration = Duration::from_secs(60);
    for learns in [false, true] {
        let (upstream, store) = (refuses_the_first(), MemoryStore::new());
        let [one, other] = [(); 2].map(|()| {
            let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).recovery(Duration::ZERO);
            let up = up.max_pause(LONGEST);
            let up = if learns { up.learn_from_responses() } else { up };
            Throttle::builder().store(store.clone()).upstream(up).build().unwrap()
        });
        let send = async || client(&one).get(upstream.url()).send().await.unwrap().status().as_u16();
        // What the store knows: of its end a process hears that was told of the pause when it looks next, within a second.
        let left = async || other.usage("up").await.unwrap().paused.map(|pause| pause.left);
        assert_eq!(send().await, 429);
        time::pause();
        time::advance(LONGEST).await;
        let looks = one.try_acquire("up").await.unwrap();
        time::resume();
        let silent = left().await.expect("one looks, and nobody else");
        assert!(silent <= LONGEST && LONGEST < silent + Duration::from_secs(1), "{silent:?}");
        // It was never sent: the next call looks.
        looks.hand_back();
        assert_eq!(send().await, 200);
        assert_eq!(left().await, None, "learns: {learns}");
        drop(other.try_acquire("up").await.unwrap());
    }
}

/// Tells every caller of a quota that is spent, with this status.
fn reports_a_spent_quota(status: u16) -> StrictUpstream {
    let answer = move |_: &http::Request<()>| {
        let response = http::Response::builder().status(status).header("x-ratelimit-limit", "20");
        let response = response.header("x-ratelimit-remaining", "0").header("x-ratelimit-reset", "3000");
        response.body(Bytes::new()).unwrap()
    };
    StrictUpstream::builder().handler(answer).start().unwrap()
}

#[tokio::test]
async fn who_is_not_known_is_told_of_a_quota_of_everybody_who_is_not() {
    for (status, is_ours) in [(200, true), (404, true), (401, false), (407, false)] {
        let upstream = reports_a_spent_quota(status);
        let limit = Limit::per_hour(100).each(outgate::Scope::bearer_token());
        let up = Upstream::new("up").host("127.0.0.1").limit(limit).learn_from_responses();
        let throttle = Throttle::builder().upstream(up).build().unwrap();
        let response = client(&throttle).get(upstream.url()).bearer_auth("s3cret").send().await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        let next = throttle.try_acquire("up").scope("s3cret").await;
        assert_eq!(next.is_err(), is_ours, "{status}: {next:?}");
    }
}
