//! Upstreams that are changed while requests go through the middleware.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use outgate::{Call, Error, Limit, MemoryStore, Passage, Scope, Throttle, Upstream};
use reqwest::{Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// Answers every request at once.
struct Answers;

#[async_trait]
impl Middleware for Answers {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        Ok(http::Response::new("").into())
    }
}

fn client(throttle: &Throttle) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(Answers).build()
}

fn throttle(upstream: Upstream) -> Throttle {
    Throttle::builder().upstream(upstream).build().unwrap()
}

fn up() -> Upstream {
    Upstream::new("up").host("up.example")
}

/// Which upstream a request went through, and how long it waited there.
type Passed = Result<Option<(String, Duration)>, reqwest_middleware::Error>;

fn get(client: &ClientWithMiddleware, url: &str, merchant: &str) -> JoinHandle<Passed> {
    let request = client.get(url).header("x-merchant", merchant);
    tokio::spawn(async move {
        let response = request.send().await?;
        Ok(response.extensions().get::<Passage>().map(|passage| (passage.upstream.to_string(), passage.waited)))
    })
}

#[tokio::test(start_paused = true)]
async fn every_clone_and_every_middleware_goes_by_the_limits_and_routes_of_now() {
    let throttle = throttle(up().limit(Limit::per_hour(1)));
    let (client, clone) = (client(&throttle), throttle.clone());
    let through = async |url: &str| get(&client, url, "m").await.unwrap().unwrap().map(|(upstream, _)| upstream);
    assert_eq!(through("http://up.example/").await.as_deref(), Some("up"));
    assert_eq!(through("http://other.example/").await, None);

    clone.update(Upstream::new("up").host("other.example").limit(Limit::per_hour(2))).unwrap();
    clone.add(Upstream::new("new").host("*.example").limit(Limit::per_hour(10))).unwrap();
    assert_eq!(through("http://up.example/").await.as_deref(), Some("new"));
    assert_eq!(through("http://other.example/").await.as_deref(), Some("up"), "whoever was there first comes first");
    assert!(throttle.try_acquire("up").await.is_err(), "two went in this hour");

    clone.remove("up").unwrap();
    assert_eq!(through("http://other.example/").await.as_deref(), Some("new"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_charged_where_the_new_limits_say() {
    let throttle = throttle(up().limit(Limit::per_hour(2)));
    let (client, begin) = (client(&throttle), Instant::now());
    for _ in 0..2 {
        get(&client, "http://up.example/", "a").await.unwrap().unwrap();
    }
    let waiting: Vec<_> = ["a", "a", "b", "b"].map(|merchant| get(&client, "http://up.example/", merchant)).into();
    sleep(SECOND).await;
    let each = Limit::new(1, 10 * SECOND).each(Scope::header("x-merchant"));
    throttle.update(up().limit(Limit::per_hour(20)).limit(each)).unwrap();
    let mut waited = Vec::new();
    for task in waiting {
        waited.push(task.await.unwrap().unwrap().unwrap().1.as_secs());
    }
    assert_eq!(waited, [1, 11, 1, 11], "one of each merchant at once, and one after its ten seconds and the guard");
    assert!(begin.elapsed() < 13 * SECOND);
    let whole = throttle.usage("up").await.unwrap();
    assert_eq!(whole.limits[0].used, 6, "those of before count on");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_stays_with_its_upstream_until_that_is_removed() {
    let throttle = throttle(up().limit(Limit::per_hour(1)));
    let client = client(&throttle);
    let url = "http://up.example/";
    get(&client, url, "a").await.unwrap().unwrap();
    let waits = get(&client, url, "a");
    sleep(SECOND).await;
    throttle.update(Upstream::new("up").host("other.example").limit(Limit::per_hour(2))).unwrap();
    let (upstream, waited) = waits.await.unwrap().unwrap().unwrap();
    assert_eq!((&*upstream, waited.as_secs()), ("up", 1));

    throttle.update(up().limit(Limit::per_hour(2))).unwrap();
    let waits = get(&client, url, "a");
    sleep(SECOND).await;
    throttle.add(Upstream::new("any").host("*.example").limit(Limit::per_hour(9))).unwrap();
    throttle.remove("up").unwrap();
    let error = waits.await.unwrap().unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::UnknownUpstream { .. })), "{error}");
    assert_eq!(get(&client, url, "a").await.unwrap().unwrap().unwrap().0, "any", "called again it goes elsewhere");
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_redis_everybody_is_served_however_often_limits_change_meanwhile() {
    let server = outgate::testing::RedisServer::start().unwrap();
    let limited = |calls| up().limit(Limit::per_minute(calls));
    let mut throttles = Vec::new();
    for _ in 0..2 {
        let store = outgate::RedisStore::connect(&server.url()).await.unwrap();
        throttles.push(Throttle::builder().store(store).upstream(limited(10)).build().unwrap());
    }
    let clients: Vec<_> = throttles.iter().map(client).collect();
    let mut tasks = Vec::new();
    for calls in (20..300).step_by(20) {
        for (throttle, client) in throttles.iter().zip(&clients) {
            tasks.extend((0..10).map(|_| get(client, "http://up.example/", "m")));
            throttle.update(limited(calls)).unwrap();
        }
        sleep(Duration::from_millis(5)).await;
    }
    let used = throttles[0].usage("up").await.unwrap().limits[0].used;
    assert!(used <= 280, "{used} of the last quota but one");
    let all = tokio::time::timeout(30 * SECOND, async {
        for throttle in &throttles {
            throttle.update(limited(300)).unwrap();
        }
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap().unwrap().0, "up");
        }
    });
    all.await.expect("280 calls have room at once");
    assert_eq!(throttles[1].usage("up").await.unwrap().limits[0].used, 280, "no slot was lost, or used twice");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_begins_to_be_observed_and_ends() {
    let throttle = throttle(up().limit(Limit::per_minute(1)));
    let client = client(&throttle);
    let url = "http://up.example/";
    get(&client, url, "a").await.unwrap().unwrap();
    let waits = get(&client, url, "a");
    sleep(SECOND).await;
    throttle.update(up().limit(Limit::per_minute(1)).observe()).unwrap();
    let (_, waited) = waits.await.unwrap().unwrap().unwrap();
    assert_eq!(waited.as_secs(), 1, "until then");
    let begin = Instant::now();
    get(&client, url, "a").await.unwrap().unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO, "nobody waits");
    let observed = throttle.usage("up").await.unwrap().observed.unwrap();
    assert_eq!((observed.calls, observed.undecided, observed.refused), (2, 2, 0));
    throttle.update(up().limit(Limit::per_minute(1)).observe().max_wait(SECOND)).unwrap();
    sleep(SECOND).await;
    let observed = throttle.usage("up").await.unwrap().observed.unwrap();
    assert_eq!((observed.calls, observed.undecided, observed.refused), (2, 0, 0), "nobody knows of those");
    throttle.update(up().limit(Limit::per_minute(1)).max_wait(SECOND)).unwrap();
    let error = get(&client, url, "a").await.unwrap().unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::Throttled { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_about_to_ask_when_its_upstream_began_to_be_observed_goes_at_once() {
    let store = MemoryStore::new();
    let limited = || up().limit(Limit::per_minute(1));
    let throttle = |up| Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    drop(throttle(limited()).acquire("up").await.unwrap());
    for max_wait in [None, Some(Duration::ZERO)] {
        let changed = Arc::new(OnceLock::<Throttle>::new());
        let of_call = Arc::clone(&changed);
        // What a call costs is the last that is looked for before it asks.
        let throttle = throttle(limited().cost_by(move |_| {
            of_call.get().unwrap().update(limited().observe()).unwrap();
            Call::new()
        }));
        changed.set(throttle.clone()).unwrap();
        let call = max_wait.map_or_else(Call::new, |max_wait| Call::new().max_wait(max_wait));
        let begin = Instant::now();
        client(&throttle).get("http://up.example/").with_extension(call).send().await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "{max_wait:?}");
        assert_eq!(throttle.usage("up").await.unwrap().observed.unwrap().calls, 1, "{max_wait:?}");
    }
}

/// Replaces an upstream at each request, which it refuses, and counts them.
struct Refuses(Throttle, Upstream, Arc<AtomicU32>);

#[async_trait]
impl Middleware for Refuses {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        self.2.fetch_add(1, Ordering::Relaxed);
        self.0.update(self.1.clone()).unwrap();
        let refused = http::Response::builder().url(request.url().clone()).status(429).header("retry-after", "1");
        Ok(refused.body("").unwrap().into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_made_again_more_often_than_its_upstream_says_by_now() {
    let limited = || up().limit(Limit::per_minute(100));
    for (new, times) in [
        (limited().retry_refused(5), 6),
        (limited().retry_refused(1), 2),
        (limited(), 1),
        (limited().retry_refused(3).observe(), 1),
    ] {
        let throttle = throttle(limited().retry_refused(3));
        let count = Arc::new(AtomicU32::new(0));
        let refuses = Refuses(throttle.clone(), new, Arc::clone(&count));
        let client = ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(refuses).build();
        assert_eq!(client.get("http://up.example/").send().await.unwrap().status(), 429);
        assert_eq!(count.load(Ordering::Relaxed), times);
    }
}
