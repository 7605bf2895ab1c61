//! Calls that the upstream refused, made again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use outgate::testing::{Shape, StrictUpstream};
use outgate::{Backoff, Call, Error, Limit, Throttle, Upstream};
use reqwest::{Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tokio::time::Instant;

use crate::unreachable::Counting;
use crate::{client, plain};

/// Allows one call a second, and answers a call with its key.
fn strict() -> StrictUpstream {
    let echo = |request: &http::Request<()>| {
        let key = request.headers().get("idempotency-key").map_or(&b""[..], |key| key.as_bytes());
        http::Response::new(hyper::body::Bytes::copy_from_slice(key))
    };
    StrictUpstream::builder().limit(1, Duration::from_secs(1), Shape::SlidingLog).handler(echo).start().unwrap()
}

/// Believes in 100 calls a second.
fn trusting(retries: u32, more: impl FnOnce(Upstream) -> Upstream) -> ClientWithMiddleware {
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).retry_refused(retries);
    client(&Throttle::builder().upstream(more(up)).build().unwrap())
}

#[tokio::test]
async fn a_refused_call_is_made_again_as_it_was_once_the_pause_is_over() {
    let (upstream, client) = (strict(), trusting(2, |up| up));
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
    let post = client.post(upstream.url()).header("idempotency-key", "k1").body("pay");
    let response = post.send().await.unwrap();
    assert_eq!((response.status().as_u16(), &*response.text().await.unwrap()), (200, "k1"));
    let arrivals = upstream.arrivals();
    let seen: Vec<_> = arrivals.iter().map(|arrival| (arrival.method.clone(), arrival.admitted)).collect();
    assert_eq!(seen, [(Method::GET, true), (Method::POST, false), (Method::POST, true)]);
    assert!(arrivals[2].at - arrivals[1].at >= 1_000_000, "it waited until the pause was over");
}

#[tokio::test]
async fn beside_a_retry_middleware_each_makes_again_what_is_its_own() {
    let failed = AtomicBool::new(false);
    let fail_once = move |_: &http::Request<()>| {
        let status = if failed.swap(true, Ordering::Relaxed) { 200 } else { 500 };
        http::Response::builder().status(status).body(hyper::body::Bytes::new()).unwrap()
    };
    let strict = StrictUpstream::builder().limit(1, Duration::from_secs(1), Shape::SlidingLog);
    let upstream = strict.handler(fail_once).start().unwrap();
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).retry_refused(1);
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    let bounds = (Duration::from_millis(1), Duration::from_millis(2));
    let once = ExponentialBackoff::builder().retry_bounds(bounds.0, bounds.1).build_with_max_retries(1);
    let retry = RetryTransientMiddleware::new_with_policy(once);
    let client = ClientBuilder::new(plain()).with(retry).with(throttle.middleware()).build();
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
    let arrivals = upstream.arrivals();
    // The 500 was made again outside, its 429 inside.
    assert_eq!(arrivals.iter().map(|arrival| arrival.admitted).collect::<Vec<_>>(), [true, false, true]);
    assert!(arrivals[2].at - arrivals[1].at >= 1_000_000, "it waited until the pause was over");
}

#[tokio::test]
async fn without_being_asked_to_no_call_is_made_again() {
    let (upstream, client) = (strict(), trusting(0, |up| up));
    for status in [200, 429] {
        assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), status);
    }
    assert_eq!(upstream.arrivals().len(), 2);
}

#[tokio::test]
async fn a_body_that_cannot_be_cloned_is_not_sent_again() {
    let (upstream, client) = (strict(), trusting(2, |up| up));
    client.get(upstream.url()).send().await.unwrap();
    let once = reqwest::Body::wrap(http_body_util::Full::new(hyper::body::Bytes::from_static(b"once")));
    let response = client.post(upstream.url()).body(once).send().await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.arrivals().len()), (429, 2));
}

#[tokio::test]
async fn a_call_made_again_waits_no_longer_than_the_first_would_have() {
    let (upstream, client) = (strict(), trusting(2, |up| up.max_wait(Duration::from_millis(500))));
    client.get(upstream.url()).send().await.unwrap();
    let error = client.get(upstream.url()).send().await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::Throttled { .. })), "{error:?}");
    assert_eq!(upstream.arrivals().len(), 2);
}

#[tokio::test]
async fn retries_are_kept_to_a_share_of_the_calls() {
    let never = StrictUpstream::builder().limit(1, Duration::from_secs(3_600), Shape::SlidingLog);
    let refusing = never.cost_by(|_| 2).start().unwrap();
    let client = trusting(100, |up| {
        up.backoff(Backoff::new().min(Duration::from_millis(1)).max(Duration::from_millis(2))).recovery(Duration::ZERO)
    });
    let response = client.get(refusing.url()).send().await.unwrap();
    assert_eq!(response.status(), 429);
    // The first call, the ten retries that a process begins with, and the one that those eleven calls have paid for.
    assert_eq!(refusing.arrivals().len(), 12);
}

/// Refuses each call after a while, for 5 s; for so long.
struct Refusing {
    after: Duration,
    until: Option<Instant>,
}

impl Refusing {
    const fn after(after: Duration) -> Self {
        Self { after, until: None }
    }
}

#[async_trait::async_trait]
impl Middleware for Refusing {
    async fn handle(
        &self,
        request: Request,
        _: &mut http::Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        tokio::time::sleep(self.after).await;
        let status = if self.until.is_none_or(|until| Instant::now() < until) { 429 } else { 200 };
        let response = http::Response::builder().url(request.url().clone()).status(status).header("retry-after", "5");
        Ok(response.body("").unwrap().into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_refused_after_its_longest_wait_is_told_when_it_could_have_gone() {
    for others in [0, 3] {
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).retry_refused(1);
        let throttle = Throttle::builder().store(Counting::default()).upstream(up).build().unwrap();
        let refusing = Refusing::after(Duration::from_millis(600));
        let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(refusing).build();
        for _ in 0..others {
            tokio::spawn(client.get("http://127.0.0.1/").send());
        }
        let call = client.get("http://127.0.0.1/").with_extension(Call::new().max_wait(Duration::from_millis(500)));
        let error = call.send().await.unwrap_err();
        match Error::find(&error) {
            Some(Error::Throttled { retry_after, .. }) => assert!(*retry_after > Duration::from_secs(4), "{error:?}"),
            _ => panic!("{error:?}, beside {others}"),
        }
    }
}

/// Each pause is longer than they would wait: nothing is sent again, and none of the retries that a process has is used up.
#[tokio::test(start_paused = true)]
async fn retries_that_are_not_sent_are_left_to_others() {
    let up = Upstream::new("up")
        .host("127.0.0.1")
        .limit(Limit::per_second(100))
        .retry_refused(1)
        .max_pause(Duration::from_secs(6));
    let throttle = Throttle::builder().store(Counting::default()).upstream(up).build().unwrap();
    let refusing = Refusing::after(Duration::from_millis(100));
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(refusing).build();
    let call = || client.get("http://127.0.0.1/").with_extension(Call::new().max_wait(Duration::from_secs(1))).send();
    for _ in 0..10 {
        let calls: Vec<_> = (0..3).map(|_| tokio::spawn(call())).collect();
        for call in calls {
            let error = call.await.unwrap().unwrap_err();
            assert!(matches!(Error::find(&error), Some(Error::Throttled { .. })), "{error:?}");
        }
        throttle.release("up").await.unwrap();
    }
}

/// Who gives up while its call is to be sent again has used up none either.
#[tokio::test(start_paused = true)]
async fn retries_of_callers_that_give_up_are_left_to_others() {
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).retry_refused(1);
    let throttle = Throttle::builder().store(Counting::default()).upstream(up).build().unwrap();
    let refusing = Refusing { after: Duration::ZERO, until: Some(Instant::now() + Duration::from_secs(60)) };
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(refusing).build();
    let call = || client.get("http://127.0.0.1/").send();
    for _ in 0..20 {
        assert!(tokio::time::timeout(Duration::from_millis(500), call()).await.is_err(), "it waits for the pause");
        throttle.release("up").await.unwrap();
    }
    let sent_again = tokio::spawn(call());
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(sent_again.await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_call_refused_after_its_longest_wait_beside_one_that_waits_for_the_limit_is_told_the_end_of_the_pause() {
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(1)).retry_refused(1);
    let throttle = Throttle::builder().store(Counting::default()).upstream(up).build().unwrap();
    let refusing = Refusing::after(Duration::from_millis(600));
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(refusing).build();
    let call = client.get("http://127.0.0.1/").with_extension(Call::new().max_wait(Duration::from_millis(500)));
    let call = tokio::spawn(call.send());
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::spawn(async move { throttle.acquire("up").await.map(drop) });
    let error = call.await.unwrap().unwrap_err();
    match Error::find(&error) {
        Some(Error::Throttled { retry_after, .. }) => assert!(*retry_after > Duration::from_secs(4), "{error:?}"),
        _ => panic!("{error:?}"),
    }
}
