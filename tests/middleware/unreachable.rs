//! An upstream that nobody can connect to: callers wait, and one goes to see.
//!
//! `cargo test --test middleware unreachable -- --nocapture` shows the counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use hyper::body::Bytes;
use outgate::ledger::Message;
use outgate::store::Applying;
use outgate::testing::{Fault, FaultyUpstream, StrictUpstream};
use outgate::{Call, Error, Limit, MemoryStore, Store, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::plain;

const CALLERS: usize = 64;

/// A memory store a millisecond away, which counts its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counting {
    inner: MemoryStore,
    calls: Arc<AtomicU64>,
}

impl Store for Counting {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Applying::pending(async move {
            sleep(Duration::from_millis(1)).await;
            self.inner.apply(message).await
        })
    }
}

/// Answers where the upstream is up; else the call goes on to a port on which nobody listens, which takes no time.
#[derive(Clone, Debug, Default)]
struct Switch {
    is_up: Arc<AtomicBool>,
    /// How long a call that goes on takes before.
    delay: Duration,
    sent: Arc<AtomicU64>,
}

#[async_trait]
impl Middleware for Switch {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            sleep(self.delay).await;
        }
        if self.is_up.load(Ordering::Relaxed) {
            return Ok(Response::from(http::Response::new("")));
        }
        next.run(request, extensions).await
    }
}

/// A client of an upstream on which nobody listens.
struct Scene {
    store: Counting,
    switch: Switch,
    upstream: FaultyUpstream,
    throttle: Throttle,
    client: ClientWithMiddleware,
}

impl Scene {
    fn new(delay: Duration) -> Self {
        let (store, switch) = (Counting::default(), Switch { delay, ..Switch::default() });
        let upstream = Fault::RefuseConnection.start().unwrap();
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100_000));
        let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
        let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(switch.clone()).build();
        Self { store, switch, upstream, throttle, client }
    }

    async fn call(&self, call: Call) -> Result<Response> {
        self.client.get(self.upstream.url()).with_extension(call).send().await
    }

    /// Calls that fail until callers wait.
    async fn fall(&self) {
        for _ in 0..3 {
            let begin = Instant::now();
            assert!(self.call(Call::new()).await.unwrap_err().is_connect());
            assert!(begin.elapsed() <= self.switch.delay + Duration::from_millis(20), "told at once");
        }
    }

    fn sent(&self) -> u64 {
        self.switch.sent.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_retry_cost_the_store_next_to_nothing_while_the_upstream_is_down() {
    let scene = Arc::new(Scene::new(Duration::ZERO));
    let end = Instant::now() + Duration::from_secs(2);
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let scene = Arc::clone(&scene);
        callers.spawn(timeout_at(end, async move {
            loop {
                assert!(scene.call(Call::new()).await.unwrap_err().is_connect());
            }
        }));
    }
    callers.join_all().await;
    let calls = scene.store.calls.load(Ordering::Relaxed);
    println!("{CALLERS} callers that retry for 2 s: {calls} store calls, {} connects", scene.sent());
    assert!(calls < 40, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn all_go_on_as_soon_as_one_has_connected() {
    let scene = Arc::new(Scene::new(Duration::ZERO));
    scene.fall().await;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let scene = Arc::clone(&scene);
        callers.spawn(async move {
            loop {
                if scene.call(Call::new()).await.is_ok() {
                    return Instant::now();
                }
            }
        });
    }
    sleep(Duration::from_secs(5)).await;
    scene.switch.is_up.store(true, Ordering::Relaxed);
    let up = Instant::now();
    let gone = callers.join_all().await;
    let (first, last) = (*gone.iter().min().unwrap(), *gone.iter().max().unwrap());
    assert!(first - up <= Duration::from_millis(1_510), "within the longest interval");
    assert!(last - first <= Duration::from_millis(20), "{:?}", last - first);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_no_longer_than_it_says() {
    let scene = Scene::new(Duration::ZERO);
    scene.fall().await;
    // Those that go and see, so that the intervals are long.
    for _ in 0..6 {
        assert!(scene.call(Call::new()).await.unwrap_err().is_connect());
    }
    for wait in [Duration::ZERO, Duration::from_millis(300)] {
        let (begin, sent) = (Instant::now(), scene.sent());
        let error = scene.call(Call::new().max_wait(wait)).await.unwrap_err();
        assert!(begin.elapsed().saturating_sub(wait) <= Duration::from_millis(2), "{:?}", begin.elapsed());
        match Error::find(&error) {
            Some(Error::Unreachable { upstream, retry_after, .. }) => {
                assert_eq!(&**upstream, "up");
                assert!(
                    *retry_after > Duration::ZERO && *retry_after < Duration::from_millis(1_500),
                    "{retry_after:?}"
                );
            }
            other => panic!("{other:?} in {error:?}"),
        }
        assert_eq!(scene.sent(), sent, "it sent nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_deadline_goes_and_sees_after_five_seconds_at_the_latest() {
    let scene = Arc::new(Scene::new(Duration::ZERO));
    scene.fall().await;
    let begin = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let scene = Arc::clone(&scene);
        callers.spawn(async move { scene.call(Call::new()).await.unwrap_err().is_connect() });
    }
    assert_eq!(callers.join_all().await, [true; CALLERS], "reqwest's own error");
    assert!(begin.elapsed() < Duration::from_millis(5_010), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn whoever_goes_to_see_and_gives_up_leaves_it_to_the_next() {
    let scene = Scene::new(Duration::from_millis(400));
    scene.fall().await;
    for _ in 0..4 {
        assert!(scene.call(Call::new()).await.unwrap_err().is_connect());
    }
    sleep(Duration::from_secs(2)).await;
    // The next interval is a second or more.
    let cancelled = timeout(Duration::from_millis(100), scene.call(Call::new()));
    let next = async {
        sleep(Duration::from_millis(50)).await;
        let begin = Instant::now();
        assert!(scene.call(Call::new()).await.unwrap_err().is_connect());
        begin.elapsed()
    };
    let (cancelled, took) = tokio::join!(cancelled, next);
    assert!(cancelled.is_err());
    assert!(took < Duration::from_millis(470), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn hosts_do_not_affect_each_other() {
    let (scene, other) = (Scene::new(Duration::ZERO), Fault::RefuseConnection.start().unwrap());
    scene.fall().await;
    let call = scene.client.get(other.url()).with_extension(Call::new().max_wait(Duration::ZERO));
    assert!(call.send().await.unwrap_err().is_connect(), "another port is another host");
    let error = scene.call(Call::new().max_wait(Duration::ZERO)).await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::Unreachable { .. })), "{error:?}");
}

#[tokio::test]
async fn redirects_to_a_host_that_is_down_shut_nobody_out_of_one_that_answers() {
    let down = Fault::RefuseConnection.start().unwrap();
    let location = down.url();
    let upstream = StrictUpstream::builder().handler(move |request: &http::Request<()>| {
        let response = http::Response::builder();
        let response = match request.uri().path() {
            "/away" => response.status(302).header("location", &location),
            _ => response,
        };
        response.body(Bytes::new()).unwrap()
    });
    let upstream = upstream.start().unwrap();
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100_000)).max_wait(Duration::ZERO);
    let client = crate::client(&Throttle::builder().upstream(up).build().unwrap());
    for _ in 0..3 {
        let away = client.get(format!("{}/away", upstream.url())).send().await;
        assert!(away.unwrap_err().is_connect());
    }
    // So far nobody can tell; whoever goes to see finds out.
    sleep(Duration::from_millis(80)).await;
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
    for _ in 0..4 {
        let away = client.get(format!("{}/away", upstream.url())).send().await;
        assert!(away.unwrap_err().is_connect());
    }
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
}

/// Fetches a token from here before it lets a call go on that needs one, by a client of its own.
struct Token(String);

#[async_trait]
impl Middleware for Token {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        if request.url().path() == "/private" {
            plain().get(&self.0).send().await?;
        }
        next.run(request, extensions).await
    }
}

#[tokio::test]
async fn a_host_whose_tokens_come_from_one_that_is_down_is_not_taken_for_down() {
    let down = Fault::RefuseConnection.start().unwrap();
    let upstream = StrictUpstream::builder().start().unwrap();
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_hour(100)).max_wait(Duration::ZERO);
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(Token(down.url())).build();
    for _ in 0..3 {
        let private = client.get(format!("{}/private", upstream.url())).send().await;
        assert!(private.unwrap_err().is_connect());
    }
    // Nobody knows whether they were sent: a middleware may ask for a token again after an answer.
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 3);
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_taken_for_unsent_when_another_to_its_host_was() {
    let down = Fault::RefuseConnection.start().unwrap();
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_hour(100)).max_wait(Duration::ZERO);
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    let token = format!("{}/token", down.url());
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(Token(token)).build();
    // Nothing listens there: what was not sent costs no slot, and of the other nobody knows.
    for (path, used) in [("open", 0), ("private", 1)] {
        assert!(client.get(format!("{}/{path}", down.url())).send().await.unwrap_err().is_connect());
        sleep(Duration::from_millis(80)).await;
        assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, used, "{path}");
    }
}

#[tokio::test]
async fn nor_does_it_show_that_a_host_is_up() {
    let (down, upstream) = (Fault::RefuseConnection.start().unwrap(), Fault::RefuseConnection.start().unwrap());
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100_000)).max_wait(Duration::ZERO);
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(Token(down.url())).build();
    for _ in 0..3 {
        assert!(client.get(upstream.url()).send().await.unwrap_err().is_connect());
    }
    sleep(Duration::from_millis(80)).await;
    let goes_to_see = client.get(format!("{}/private", upstream.url())).send().await;
    assert!(goes_to_see.unwrap_err().is_connect());
    // It is left to the next one to see.
    assert!(client.get(upstream.url()).send().await.unwrap_err().is_connect());
    let error = client.get(upstream.url()).send().await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::Unreachable { .. })), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_callers_than_may_wait_do_so_for_a_host_and_what_can_never_go_does_not() {
    let upstream = Fault::RefuseConnection.start().unwrap();
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).max_waiting(4);
    let throttle = Throttle::builder().upstream(up.max_wait(Duration::from_secs(60))).build().unwrap();
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).build();
    let call = |call: Call| client.get(upstream.url()).with_extension(call).send();
    for _ in 0..3 {
        assert!(call(Call::new()).await.unwrap_err().is_connect());
    }
    let mut waiting = JoinSet::new();
    (0..9).for_each(|_| drop(waiting.spawn(call(Call::new()))));
    let never = call(Call::new().cost(101)).await.unwrap_err();
    assert!(matches!(Error::find(&never), Some(Error::CostExceedsQuota { .. })), "{never}");
    let mut refused = 0;
    while let Ok(Some(outcome)) = timeout(Duration::from_millis(1), waiting.join_next()).await {
        let error = outcome.unwrap().unwrap_err();
        assert!(matches!(Error::find(&error), Some(Error::TooManyWaiting { max_waiting: 4, .. })), "{error}");
        refused += 1;
    }
    assert_eq!((refused, throttle.snapshot().upstreams[0].callers), (5, 4));
    waiting.abort_all();
    while waiting.join_next().await.is_some() {}
    let error = call(Call::new().max_wait(Duration::ZERO)).await.unwrap_err().to_string();
    let host = upstream.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    assert!(error.contains(&format!("up: {host} cannot be connected to")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_connect_shuts_out_no_other() {
    let scene = Scene::new(Duration::ZERO);
    scene.fall().await;
    let hurried = || Call::new().max_wait(Duration::ZERO);
    let error = scene.call(hurried()).await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::Unreachable { .. })), "{error:?}");
    // As where the first goes by a proxy that is down.
    let reaches = Switch { is_up: Arc::new(true.into()), ..Switch::default() };
    let other = ClientBuilder::new(plain()).with(scene.throttle.middleware()).with(reaches).build();
    for _ in 0..2 {
        let served = other.get(scene.upstream.url()).with_extension(hurried()).send().await;
        assert_eq!(served.unwrap().status(), 200);
    }
    let error = scene.call(hurried()).await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::Unreachable { .. })), "nor does it show the way: {error:?}");
}

/// Asks for a token by a request that cannot be built.
struct BadToken;

#[async_trait]
impl Middleware for BadToken {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        if request.url().path() == "/private" {
            plain().get("http://127.0.0.1/").header("token", "two\nlines").send().await?;
        }
        next.run(request, extensions).await
    }
}

#[tokio::test(start_paused = true)]
async fn nor_does_a_request_that_another_could_not_build_show_that_a_host_is_up() {
    let upstream = Fault::RefuseConnection.start().unwrap();
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100_000)).max_wait(Duration::ZERO);
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    let client = ClientBuilder::new(plain()).with(throttle.middleware()).with(BadToken).build();
    for _ in 0..3 {
        assert!(client.get(upstream.url()).send().await.unwrap_err().is_connect());
    }
    sleep(Duration::from_millis(80)).await;
    let goes_to_see = client.get(format!("{}/private", upstream.url())).send().await;
    assert!(goes_to_see.unwrap_err().is_builder());
    // It is left to the next one to see.
    assert!(client.get(upstream.url()).send().await.unwrap_err().is_connect());
    let error = client.get(upstream.url()).send().await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::Unreachable { .. })), "{error:?}");
}
