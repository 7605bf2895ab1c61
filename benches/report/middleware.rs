//! What the middleware adds to a request.

use std::time::Instant;

use async_trait::async_trait;
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap, HeaderValue};
use outgate::testing::StrictUpstream;
use outgate::{Limit, Scope, Upstream};
use reqwest::{Method, Request, Response, Url};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};

use crate::page::{Page, Target};
use crate::spread::{Spread, Versus};
use crate::throttles::{AMPLE, UP, throttle};
use crate::turns::{Result, cell, expect, in_turns, nanos_each, runtime};

const ROUNDS: usize = 7;
/// Calls of one round without a network.
const CALLS: usize = 50_000;
/// Calls over the loopback interface of one round, of each of the two clients.
const LOOPBACK_CALLS: usize = 3_000;

const ALONE: &str = "What is left of a request without a network: a client whose innermost middleware answers at once, with and \
    without ours before it. Microseconds for each request.";
const LOOPBACK: &str = "A GET over the loopback interface, from reqwest to a hyper server on a thread of its own, with our middleware \
    and without it, one after the other. Microseconds, each the median of a round.";

/// How a request looks, and what answers it.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Told by its host; the answer has the headers of any answer.
    Plain,
    /// One log for each bearer token.
    Token,
    /// The same; the answer tells of the quota.
    TokenAndQuota,
    /// It belongs to no upstream.
    Foreign,
}

impl Shape {
    const ALL: [(Self, &str); 4] = [
        (Self::Plain, "by host"),
        (Self::Token, "by host, scope by bearer token"),
        (Self::TokenAndQuota, "the same, and the answer has headers about the quota"),
        (Self::Foreign, "of no upstream: passes through"),
    ];

    fn upstream(self, host: &str) -> Upstream {
        let upstream = Upstream::new(UP).limit(Limit::per_second(AMPLE));
        match self {
            Self::Plain => upstream.host(host),
            Self::Token | Self::TokenAndQuota => upstream.host(host).scope_by(Scope::bearer_token()),
            Self::Foreign => upstream.host("elsewhere.example"),
        }
    }

    fn answer(self) -> HeaderMap {
        let quota = [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4987"),
            ("x-ratelimit-reset", "1700003600"),
            ("x-ratelimit-used", "13"),
            ("x-ratelimit-resource", "core"),
        ];
        let any = [
            ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
            ("content-type", "application/json; charset=utf-8"),
            ("cache-control", "private, max-age=60, s-maxage=60"),
            ("etag", "\"7638417db6d59f3c431d3e1f261cc637155684cd\""),
            ("server", "example"),
            ("x-request-id", "C0DE:1A2B:3C4D5E:6F7081:6553F100"),
        ];
        let told: &[_] = if matches!(self, Self::TokenAndQuota) { &quota } else { &[] };
        let line = |&(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
        any.iter().chain(told).map(line).collect()
    }
}

/// A client that answers its requests itself, with our middleware or without.
pub(crate) struct Canned {
    client: ClientWithMiddleware,
    url: Url,
    token: HeaderValue,
}

impl Canned {
    pub(crate) fn new(shape: Shape, ours: bool, client: reqwest::Client) -> Result<Self> {
        let mut builder = ClientBuilder::new(client);
        if ours {
            builder = builder.with(throttle(shape.upstream("api.example.com"))?.middleware());
        }
        let client = builder.with(AtOnce(shape.answer())).build();
        let token = HeaderValue::from_static("Bearer ghp_16C7e42F292c6912E7710c838347Ae178B4a");
        Ok(Self { client, url: "https://api.example.com/v1/things?page=2".parse()?, token })
    }

    /// Makes so many calls, one after the other.
    pub(crate) async fn call(&self, times: usize) -> Result {
        let mut answered = 0;
        for _ in 0..times {
            let mut request = Request::new(Method::GET, self.url.clone());
            request.headers_mut().insert(AUTHORIZATION, self.token.clone());
            answered += usize::from(self.client.execute(request).await?.status().is_success());
        }
        expect(answered, times, "answered")
    }
}

/// Answers without a network.
struct AtOnce(HeaderMap);

#[async_trait]
impl Middleware for AtOnce {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        let mut response = http::Response::new("");
        response.headers_mut().clone_from(&self.0);
        Ok(Response::from(response))
    }
}

/// The cost alone, and what it is of a loopback call.
pub(crate) fn run(page: &mut Page) -> Result {
    page.section("The middleware");
    page.text(ALONE);
    let mut rows = Vec::new();
    for (shape, name) in Shape::ALL {
        let rounds = alone(shape)?;
        let Versus { ours, theirs, .. } = Versus::of(&rounds);
        let own = Spread::of(rounds.iter().map(|(ours, theirs)| ours - theirs).collect());
        rows.push(vec![name.to_owned(), cell(ours, 2), cell(theirs, 2), cell(own, 2)]);
        if matches!(shape, Shape::Plain | Shape::TokenAndQuota) {
            page.target(&format!("the middleware alone, {name}"), own, " µs", Target::AtMost(2.0));
        }
    }
    page.table(&["request", "with", "without", "the middleware's own"], &rows);

    page.text(LOOPBACK);
    let rounds = loopback()?;
    let Versus { ours, theirs, .. } = Versus::of(&rounds);
    let percent = Spread::of(rounds.iter().map(|(ours, theirs)| (ours / theirs - 1.0) * 100.0).collect());
    page.target("what the middleware adds to a loopback call", percent, " %", Target::AtMost(2.0));
    page.table(&["with", "without", "more, %"], &[vec![cell(ours, 2), cell(theirs, 2), cell(percent, 2)]]);
    Ok(())
}

/// Microseconds with and without, round by round.
fn alone(shape: Shape) -> Result<Vec<(f64, f64)>> {
    let (runtime, client) = (runtime()?, reqwest::Client::new());
    let round = |ours| {
        let canned = Canned::new(shape, ours, client.clone())?;
        let begin = Instant::now();
        runtime.block_on(canned.call(CALLS))?;
        Ok(nanos_each(begin.elapsed(), CALLS) / 1e3)
    };
    in_turns(ROUNDS, || round(true), || round(false))
}

/// The same over the loopback interface.
fn loopback() -> Result<Vec<(f64, f64)>> {
    let server = StrictUpstream::builder().start()?;
    let (runtime, plain) = (runtime()?, reqwest::Client::new());
    let url: Url = format!("{}/v1/things?page=2", server.url()).parse()?;
    let without = ClientBuilder::new(plain.clone()).build();
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        server.reset();
        let throttle = throttle(Shape::Plain.upstream("127.0.0.1"))?;
        let with = ClientBuilder::new(plain.clone()).with(throttle.middleware()).build();
        let pair = runtime.block_on(async {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for call in 0..LOOPBACK_CALLS {
                // Neither is always the one that comes behind the other.
                let first_ours = call % 2 == 0;
                for is_ours in [first_ours, !first_ours] {
                    let (client, calls) = if is_ours { (&with, &mut ours) } else { (&without, &mut theirs) };
                    calls.push(get(client, &url).await?);
                }
            }
            Result::Ok((Spread::of(ours).median, Spread::of(theirs).median))
        })?;
        rounds.extend((round > 0).then_some(pair));
    }
    Ok(rounds)
}

/// Microseconds until the whole answer is there.
async fn get(client: &ClientWithMiddleware, url: &Url) -> Result<f64> {
    let begin = Instant::now();
    let response = client.execute(Request::new(Method::GET, url.clone())).await?;
    expect(response.bytes().await?.len(), 2, "bytes of the answer")?;
    Ok(nanos_each(begin.elapsed(), 1) / 1e3)
}
