//! The smallest parts of a decision, one by one.
//!
//! `cargo bench --bench micro`

#![allow(clippy::expect_used, reason = "what is not granted is no measurement")]

use std::future::{Future, IntoFuture as _};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use divan::{Bencher, black_box};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use outgate::ledger::{Ask, Log, Message, MessageId, Run, ScopeId, SlidingLog, Stamp, Term};
use outgate::{Feedback, Limit, MemoryStore, Store, Throttle, Upstream};
use reqwest::{Client, Method, Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next};

fn main() {
    divan::main();
}

/// The rule, on a log whose quota is used up.
#[divan::bench(args = [100, 5_000, 1_000_000])]
fn earliest(bencher: Bencher<'_, '_>, quota: u32) {
    let mut log = SlidingLog::new();
    for start in 0..i64::from(quota) {
        log.append(Stamp::from_micros(start), 1, 60_000_000);
    }
    let (now, terms) = (Stamp::from_micros(i64::from(quota)), [Term::new(quota, 60_000_000)]);
    bencher.bench_local(|| black_box(&log).earliest(black_box(now), black_box(&terms), 1));
}

/// The same with several limits.
#[divan::bench(args = [1, 2, 3, 4])]
fn earliest_of_terms(bencher: Bencher<'_, '_>, terms: usize) {
    let mut log = SlidingLog::new();
    for start in 0..5_000 {
        log.append(Stamp::from_micros(start), 1, 60_000_000);
    }
    let all = [Term::new(5_000, 60_000_000), Term::new(4_000, 6_000_000), Term::new(100, 600_000), Term::new(9, 6_000)];
    let (now, terms) = (Stamp::from_micros(5_000), all.get(..terms).unwrap_or(&all));
    bencher.bench_local(|| black_box(&log).earliest(black_box(now), black_box(terms), 1));
}

/// A message for one caller, on a store in memory: in one scope after another.
#[divan::bench(args = [1, 100_000], sample_size = 100_000, sample_count = 20)]
fn book(bencher: Bencher<'_, '_>, scopes: usize) {
    apply(bencher, scopes, &MessageId::new(1, "", 0));
}

/// The same for a caller that does not wait: it need not be remembered.
#[divan::bench(args = [1, 100_000], sample_size = 100_000, sample_count = 20)]
fn now_or_never(bencher: Bencher<'_, '_>, scopes: usize) {
    apply(bencher, scopes, &MessageId::nobodys());
}

fn apply(bencher: Bencher<'_, '_>, scopes: usize, id: &MessageId) {
    let (store, mut random) = (MemoryStore::new(), fastrand::Rng::with_seed(1));
    let log = Log::new("calls", [Term::new(1_000_000, 100_000)]);
    let ask = |scope: u128| Ask::new([log.clone().of(Some(ScopeId::from_bits(scope)))], vec![Run::new(1, [1])]);
    let mut messages: Vec<Message> =
        (0..scopes).map(|_| Message::new("up", id.clone(), ask(random.u128(..)))).collect();
    let (mut number, mut next) = (0, 0);
    bencher.bench_local(|| {
        (number, next) = (number + 1, (next + 1) % scopes);
        let message = &mut messages[next];
        message.id.number = number;
        at_once(store.apply(message)).expect("memory never fails")
    });
}

/// What a future has at hand.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => ready,
        Poll::Pending => unreachable!("a store in memory never waits"),
    }
}

/// A permit for now, in memory.
#[divan::bench(args = ["", "merchant-000042"], sample_size = 1_000)]
fn try_acquire(bencher: Bencher<'_, '_>, scope: &str) {
    let upstream = Upstream::new("up").limit(Limit::new(1_000_000, Duration::from_millis(100)));
    let throttle = Throttle::builder().upstream(upstream).build().expect("an upstream in order");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    bencher.bench_local(|| {
        let acquire = throttle.try_acquire("up");
        let acquire = if scope.is_empty() { acquire } else { acquire.scope(scope) };
        runtime.block_on(async { acquire.await.map(drop) }).expect("a free slot");
    });
}

/// A caller that would wait for half a minute, behind so many who wait for hours: it is refused at once.
#[divan::bench(args = [1_000, 60_000], sample_size = 100)]
fn join(bencher: Bencher<'_, '_>, waiting: usize) {
    let upstream = Upstream::new("up").limit(Limit::per_hour(1));
    let throttle = Throttle::builder().upstream(upstream).build().expect("an upstream in order");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut callers: Vec<_> = (0..=waiting).map(|_| throttle.acquire("up").into_future()).collect();
    runtime.block_on(async {
        for caller in &mut callers {
            let _ = Pin::new(caller).poll(&mut Context::from_waker(Waker::noop()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    });
    let soon = Duration::from_secs(30);
    bencher.bench_local(|| {
        let refused = runtime.block_on(async { throttle.acquire("up").max_wait(soon).await });
        assert!(refused.is_err_and(|error| error.retry_after() > Some(soon)));
    });
}

/// A request through the middleware, of the last of so many upstreams: each with a host of its own, or a path on one host.
#[divan::bench(args = [(1, "host"), (1_000, "host"), (1, "path"), (1_000, "path")], sample_size = 100)]
fn route(bencher: Bencher<'_, '_>, (last, by): (usize, &str)) {
    let upstreams = (1..=last).map(|nth| {
        let upstream = Upstream::new(format!("up{nth}")).limit(Limit::new(1_000_000, Duration::from_millis(100)));
        if by == "host" {
            upstream.host(format!("api{nth}.example.com"))
        } else {
            upstream.path(format!("/v1/api{nth}"))
        }
    });
    let url = format!("https://api{last}.example.com/v1/api{last}/things?page=1");
    let throttle = Throttle::builder().upstreams(upstreams).build().expect("upstreams in order");
    let client = ClientBuilder::new(Client::new()).with(throttle.middleware()).with(Answer).build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let request = Request::new(Method::GET, url.parse().expect("a URL"));
    bencher.bench_local(|| {
        let request = request.try_clone().expect("no body");
        runtime.block_on(client.execute(request)).expect("a free slot")
    });
}

/// Answers in place of an upstream.
struct Answer;

#[async_trait]
impl Middleware for Answer {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        Ok(http::Response::new("").into())
    }
}

/// A response whose headers say nothing about a quota, and one with the headers of GitHub.
#[divan::bench(args = [false, true], sample_size = 1_000)]
fn read_headers(bencher: Bencher<'_, '_>, told: bool) {
    let any = [
        ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
        ("content-type", "application/json; charset=utf-8"),
        ("cache-control", "private, max-age=60, s-maxage=60"),
        ("etag", "\"7638417db6d59f3c431d3e1f261cc637155684cd\""),
        ("server", "github.com"),
        ("x-github-request-id", "C0DE:1A2B:3C4D5E:6F7081:6553F100"),
    ];
    let quota = [
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "4987"),
        ("x-ratelimit-reset", "1700003600"),
        ("x-ratelimit-used", "13"),
        ("x-ratelimit-resource", "core"),
    ];
    let lines = any.iter().chain(if told { &quota[..] } else { &[] });
    let line = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let headers: HeaderMap = lines.map(line).collect();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    bencher.bench_local(|| Feedback::read(StatusCode::OK, black_box(&headers), now));
}
