//! A throttle over a store that counts, and calls that are all refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http::{Extensions, HeaderName};
use outgate::ledger::{Body, Message};
use outgate::store::Applying;
use outgate::{Limit, Scope, Store, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How many calls are refused.
pub(crate) const REFUSALS: u32 = 1_000;
const APART: Duration = Duration::from_micros(100);

/// Which scopes a storm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The same.
    One,
    /// Each another.
    Each,
    /// Each another, and the refusals are of the whole upstream.
    All,
}

/// Counts the messages to a store by what they say, those that answer late as well.
#[derive(Debug)]
pub(crate) struct Counting<S> {
    inner: S,
    latency: Duration,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) pauses: AtomicU64,
    pub(crate) asks: AtomicU64,
}

impl<S> Counting<S> {
    pub(crate) fn new(inner: S, latency: Duration) -> (Self, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        (Self { inner, latency, counts: Arc::clone(&counts) }, counts)
    }
}

impl<S: Store> Store for Counting<S> {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let count = if matches!(message.body, Body::Pause { .. }) { &self.counts.pauses } else { &self.counts.asks };
        count.fetch_add(1, Ordering::Relaxed);
        Applying::pending(async move {
            if !self.latency.is_zero() {
                sleep(self.latency).await;
            }
            self.inner.apply(message).await
        })
    }
}

/// A throttle of an upstream with merchants, and of another.
pub(crate) fn throttle(store: impl Store) -> Throttle {
    let limit = || Limit::per_second(5_000);
    let up = Upstream::new("up")
        .host("up.example")
        .scope_by(Scope::header(HeaderName::from_static("x-merchant")))
        .limit(limit());
    let other = Upstream::new("other").limit(limit());
    Throttle::builder().store(store).upstreams([up, other]).build().unwrap()
}

/// Refuses every call once all of them have been sent, or serves it: by and by, within a tenth of a second.
struct Answering {
    sent: Barrier,
    refuses: bool,
}

#[async_trait]
impl Middleware for Answering {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        let late: u32 = request.url().path().trim_start_matches('/').parse().unwrap();
        self.sent.wait().await;
        sleep(APART * late).await;
        if !self.refuses {
            return Ok(Response::from(http::Response::new("")));
        }
        let refusal = http::Response::builder().status(429).header("retry-after", "5");
        let of_all = request.url().query().is_some();
        let refusal = if of_all { refusal.header("ratelimit-reason", "jira-quota-global-based") } else { refusal };
        Ok(Response::from(refusal.body("").unwrap()))
    }
}

/// Makes calls that are all refused, or all served, and waits for their answers.
pub(crate) async fn storm(throttle: &Throttle, about: About, refuses: bool) {
    let answering = Answering { sent: Barrier::new(REFUSALS as usize), refuses };
    let client: ClientWithMiddleware =
        ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(answering).build();
    let mut calls = JoinSet::new();
    for call in 0..REFUSALS {
        let scope = if about == About::One { "one".to_owned() } else { format!("{about:?} {call}") };
        let of_all = if about == About::All { "?all" } else { "" };
        let call = client.get(format!("http://up.example/{call}{of_all}")).header("x-merchant", scope);
        calls.spawn(async move { call.send().await.unwrap().status() });
    }
    assert!(calls.join_all().await.iter().all(|status| (*status == 429) == refuses));
}
