//! Responses of 401 and 403 in a row: the scope's calls are refused here, until one shows that they are over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::testing::{Shape, StrictUpstream};
use outgate::{Backoff, Error, Limit, Scope, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Next};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance};

use crate::telling::Written;
use crate::{client, plain, used};

/// What the upstream answers.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Status(u16),
    /// An answer that a cache gives for the upstream.
    Cached(u16),
    /// A 403 that says when to come back.
    Throttled,
    Never,
    /// The call does not leave this machine.
    Unsent,
}

/// An upstream within this process, so that time can be paused: it answers as it is told to, and counts.
#[derive(Clone)]
pub(crate) struct Canned(Arc<Mutex<(Answer, u32)>>);

impl Canned {
    pub(crate) fn new(answer: Answer) -> Self {
        Self(Arc::new(Mutex::new((answer, 0))))
    }

    pub(crate) fn answers(&self, answer: Answer) {
        self.0.lock().unwrap().0 = answer;
    }

    pub(crate) fn calls(&self) -> u32 {
        self.0.lock().unwrap().1
    }

    /// Returns once another call has come.
    async fn one_more_call(&self) {
        let calls = self.calls();
        for _ in 0..1_000 {
            if self.calls() > calls {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("no call came");
    }

    /// The same with responses that take half a second.
    fn slowly_behind(&self, throttle: &Throttle) -> ClientWithMiddleware {
        ClientBuilder::new(plain()).with(throttle.middleware()).with(Slow).with(self.clone()).build()
    }

    pub(crate) fn behind(&self, throttle: &Throttle) -> ClientWithMiddleware {
        ClientBuilder::new(plain()).with(throttle.middleware()).with(self.clone()).build()
    }
}

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Canned {
    async fn handle(
        &self,
        request: Request,
        _: &mut http::Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let answer = {
            let mut told = self.0.lock().unwrap();
            told.1 += 1;
            told.0
        };
        let response = http::Response::builder();
        let response = match answer {
            Answer::Status(status) => response.status(status),
            Answer::Cached(status) => response.status(status).header("age", "120"),
            Answer::Throttled => response.status(403).header("retry-after", "1"),
            Answer::Never => std::future::pending().await,
            Answer::Unsent => return Err(plain().execute(request).await.unwrap_err().into()),
        };
        Ok(response.body("").unwrap().into())
    }
}

/// On the way back from the upstream.
struct Slow;

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Slow {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let response = next.run(request, extensions).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        response
    }
}

/// Breaks after three in a row, for 1 s, 2 s, 4 s and so on.
pub(crate) fn breaking(more: impl FnOnce(Upstream) -> Upstream) -> Throttle {
    let up = Upstream::new("loopback").host("127.0.0.1").limit(Limit::per_hour(1_000));
    let up = up.break_after_unauthorized(3).backoff(Backoff::new().jitter(0.0)).recovery(Duration::ZERO);
    Throttle::builder().upstream(more(up)).build().unwrap()
}

/// The status, or in how long the next call is let through.
pub(crate) async fn call(client: &ClientWithMiddleware) -> Result<u16, Duration> {
    call_as(client, "http://127.0.0.1/", "s3cret").await
}

async fn call_as(client: &ClientWithMiddleware, url: &str, token: &str) -> Result<u16, Duration> {
    match client.get(url).bearer_auth(token).send().await {
        Ok(response) => Ok(response.status().as_u16()),
        Err(error) => match Error::find(&error) {
            Some(Error::Unauthorized { upstream, retry_after, .. }) if &**upstream == "loopback" => Err(*retry_after),
            _ => panic!("{error:?}"),
        },
    }
}

/// A call in a task of its own, which has come to the upstream.
async fn call_that_has_come(canned: &Canned, client: &ClientWithMiddleware) -> JoinHandle<Result<u16, Duration>> {
    let task = tokio::spawn({
        let client = client.clone();
        async move { call(&client).await }
    });
    canned.one_more_call().await;
    task
}

/// Three calls are refused, and the first pause is over.
async fn opened_a_second_ago(client: &ClientWithMiddleware) {
    for _ in 0..3 {
        assert_eq!(call(client).await, Ok(401));
    }
    advance(seconds(1)).await;
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn each_token_has_a_breaker_of_its_own_and_an_open_one_costs_no_slot() {
    let judge = |request: &http::Request<()>| {
        let status = if request.headers()["authorization"] == "Bearer good" { 200 } else { 401 };
        http::Response::builder().status(status).body(hyper::body::Bytes::new()).unwrap()
    };
    let upstream =
        StrictUpstream::builder().limit(1_000, seconds(1), Shape::SlidingLog).handler(judge).start().unwrap();
    let throttle = breaking(|up| up.scope_by(Scope::bearer_token()).backoff(Backoff::new().min(seconds(60))));
    let client = client(&throttle);
    let url = upstream.url();
    for _ in 0..3 {
        assert_eq!(call_as(&client, &url, "bad").await, Ok(401));
    }
    for _ in 0..5 {
        assert!(call_as(&client, &url, "bad").await.unwrap_err() > seconds(50));
        assert_eq!(call_as(&client, &url, "good").await, Ok(200));
    }
    assert_eq!(upstream.arrivals().len(), 3 + 5);
    let used = |token| throttle.usage_in("loopback", token);
    assert_eq!([used("bad").await, used("good").await].map(|usage| usage.unwrap().limits[0].used), [3, 5]);
}

#[tokio::test(start_paused = true)]
async fn fewer_in_a_row_do_not_open_it() {
    let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up));
    let client = canned.behind(&throttle);
    for status in [401, 403, 200, 401, 403, 404, 403, 403, 302, 401, 401] {
        canned.answers(Answer::Status(status));
        assert_eq!(call(&client).await, Ok(status));
    }
    assert_eq!((call(&client).await, call(&client).await), (Ok(401), Err(seconds(1))));
}

#[tokio::test(start_paused = true)]
async fn a_403_that_is_a_refusal_for_a_limit_does_not_count() {
    let (canned, throttle) = (Canned::new(Answer::Throttled), breaking(|up| up));
    let client = canned.behind(&throttle);
    for _ in 0..9 {
        assert_eq!(call(&client).await, Ok(403));
    }
    canned.answers(Answer::Status(403));
    for _ in 0..3 {
        assert_eq!(call(&client).await, Ok(403));
    }
    assert!(call(&client).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn without_being_asked_to_nothing_breaks() {
    let up = Upstream::new("loopback").host("127.0.0.1").limit(Limit::per_hour(1_000));
    let (canned, throttle) = (Canned::new(Answer::Status(401)), Throttle::builder().upstream(up).build().unwrap());
    let client = canned.behind(&throttle);
    for _ in 0..100 {
        assert_eq!(call(&client).await, Ok(401));
    }
}

#[tokio::test(start_paused = true)]
async fn after_each_pause_one_call_sees_whether_it_is_over() {
    let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up));
    let client = canned.behind(&throttle);
    for _ in 0..3 {
        assert_eq!(call(&client).await, Ok(401));
    }
    for pause in [1, 2, 4] {
        assert_eq!((call(&client).await, used(&throttle).await), (Err(seconds(pause)), canned.calls()));
        advance(seconds(pause)).await;
        assert_eq!(call(&client).await, Ok(401));
    }
    assert_eq!((canned.calls(), call(&client).await), (6, Err(seconds(8))));
    advance(seconds(8)).await;
    canned.answers(Answer::Status(204));
    for _ in 0..10 {
        assert_eq!(call(&client).await, Ok(204));
    }
    canned.answers(Answer::Status(403));
    for _ in 0..3 {
        assert_eq!(call(&client).await, Ok(403));
    }
    assert_eq!(call(&client).await, Err(seconds(1)), "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_gets_no_response_leaves_its_place_to_the_next_caller() {
    let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up));
    let client = canned.behind(&throttle);
    opened_a_second_ago(&client).await;
    canned.answers(Answer::Never);
    for _ in 0..2 {
        let probe = call_that_has_come(&canned, &client).await;
        assert_eq!(call(&client).await, Err(seconds(2)), "one at a time");
        probe.abort();
        assert!(probe.await.unwrap_err().is_cancelled());
    }
    canned.answers(Answer::Unsent);
    for _ in 0..2 {
        assert!(client.get("ftp://127.0.0.1/").send().await.unwrap_err().is_builder());
    }
    assert_eq!(used(&throttle).await, 5, "a probe that was sent keeps its slot, like any call");
    canned.answers(Answer::Status(200));
    assert_eq!([call(&client).await, call(&client).await], [Ok(200), Ok(200)]);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_for_another_reason_is_followed_by_the_next_after_the_same_pause() {
    for status in [500, 503, 529, 423] {
        let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up));
        let client = canned.behind(&throttle);
        opened_a_second_ago(&client).await;
        canned.answers(Answer::Status(status));
        for calls in 4..7 {
            assert_eq!(call(&client).await, Ok(status));
            assert_eq!((call(&client).await, canned.calls()), (Err(seconds(1)), calls), "{status}");
            advance(seconds(1)).await;
        }
        canned.answers(Answer::Status(200));
        assert_eq!([call(&client).await, call(&client).await], [Ok(200), Ok(200)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_shuts_nobody_out_for_longer_than_one_that_fails() {
    let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up));
    let client = canned.behind(&throttle);
    opened_a_second_ago(&client).await;
    canned.answers(Answer::Never);
    let hangs = call_that_has_come(&canned, &client).await;
    canned.answers(Answer::Status(200));
    assert_eq!(call(&client).await, Err(seconds(2)));
    advance(seconds(2)).await;
    assert_eq!([call(&client).await, call(&client).await], [Ok(200), Ok(200)]);
    hangs.abort();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_in_line_when_it_opens_is_refused_there_and_costs_no_slot() {
    let canned = Canned::new(Answer::Status(401));
    let minute = Limit::new(3, seconds(60)).guard(seconds(1));
    let throttle = breaking(|up| up.limit(minute).backoff(Backoff::new().min(seconds(300))));
    let client = canned.slowly_behind(&throttle);
    let started = Instant::now();
    let calls: Vec<_> = (0..9)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { call(&client).await })
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(status) => assert_eq!(status, 401),
            Err(retry_after) => {
                refused += 1;
                assert!(retry_after > seconds(200), "{retry_after:?}");
            }
        }
    }
    assert_eq!((canned.calls(), refused), (3, 6));
    assert!(
        started.elapsed() >= seconds(61) && started.elapsed() < seconds(62),
        "they waited in the queue, none after another"
    );
    assert_eq!(used(&throttle).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_comes_late_closes_it_and_one_more_401_does_not_lengthen_it() {
    let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up));
    let quick = canned.behind(&throttle);
    let slow = canned.slowly_behind(&throttle);
    for (late, then) in [(401, Err(Duration::from_millis(500))), (200, Ok(401))] {
        canned.answers(Answer::Status(late));
        let slow = tokio::spawn({
            let slow = slow.clone();
            async move { call(&slow).await }
        });
        canned.one_more_call().await;
        canned.answers(Answer::Status(401));
        for _ in 0..3 {
            assert_eq!(call(&quick).await, Ok(401));
        }
        assert_eq!(call(&quick).await, Err(seconds(1)));
        assert_eq!(slow.await.unwrap(), Ok(late));
        assert_eq!(call(&quick).await, then, "{late}");
        advance(seconds(1)).await;
        canned.answers(Answer::Status(200));
        assert_eq!(call(&quick).await, Ok(200));
    }
}

#[tokio::test(start_paused = true)]
async fn callers_without_the_middleware_are_not_refused() {
    let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up));
    let client = canned.behind(&throttle);
    for _ in 0..3 {
        assert_eq!(call(&client).await, Ok(401));
    }
    drop(throttle.acquire("loopback").await.unwrap());
    assert_eq!(call(&client).await, Err(seconds(1)));
}

#[tokio::test(start_paused = true)]
async fn that_it_opens_and_that_it_closes_is_traced_once_each() {
    let (written, _guard) = Written::on_this_thread();
    let (canned, throttle) = (Canned::new(Answer::Status(401)), breaking(|up| up.scope_by(Scope::bearer_token())));
    let client = canned.behind(&throttle);
    for _ in 0..3 {
        let calls = (0..5).map(|_| {
            let client = client.clone();
            tokio::spawn(async move { call(&client).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert!(matches!(call.await.unwrap(), Ok(401) | Err(_)));
        }
        advance(seconds(4)).await;
    }
    canned.answers(Answer::Status(200));
    for _ in 0..5 {
        assert_eq!(call(&client).await, Ok(200));
    }
    let traces = written.text();
    let news: Vec<_> = traces.lines().filter(|line| line.contains("WARN") || line.contains("INFO")).collect();
    assert_eq!(news.len(), 2, "{traces}");
    assert!(news[0].contains(
        "WARN outgate::client::auth_breaker: unauthorized, the breaker opens upstream=\"loopback\" in_a_row=3"
    ));
    assert!(
        news[1]
            .contains("INFO outgate::client::auth_breaker: authorized again, the breaker closes upstream=\"loopback\"")
    );
    assert!(!traces.contains("s3cret"), "{traces}");
}
