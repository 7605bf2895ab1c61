//! For how long one response pauses an upstream, by its status and its `Retry-After`.
//!
//! `cargo test --test middleware pausing -- --nocapture` shows the table.

use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use hyper::body::Bytes;
use outgate::testing::StrictUpstream;
use outgate::{Backoff, Limit, MemoryStore, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
use tokio::time;

use crate::plain;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
const MONTH: u64 = 31 * DAY;

/// What a response asks for, in seconds.
const ASKS: [Option<u64>; 6] = [None, Some(1), Some(60), Some(HOUR), Some(DAY), Some(MONTH)];

/// Answers `/503/60` with that status and that `Retry-After`, and `/503` with none.
fn server() -> StrictUpstream {
    let answer = |request: &http::Request<()>| {
        let mut parts = request.uri().path().split('/').skip(1);
        let response = http::Response::builder().status(parts.next().unwrap());
        parts.fold(response, |response, told| response.header("retry-after", told)).body(Bytes::new()).unwrap()
    };
    StrictUpstream::builder().handler(answer).start().unwrap()
}

/// Stops the clock when a response has arrived: what follows of it happens at that moment.
struct StopTheClock;

#[async_trait]
impl Middleware for StopTheClock {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let response = next.run(request, extensions).await;
        time::pause();
        response
    }
}

/// For how long nobody sends after one such response, neither the process that got it nor another.
async fn paused(server: &StrictUpstream, status: u16, asks: Option<u64>) -> Duration {
    let store = MemoryStore::new();
    let [caller, other] = [(); 2].map(|()| {
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100));
        let up = up.backoff(Backoff::new().jitter(0.0));
        Throttle::builder().store(store.clone()).upstream(up).build().unwrap()
    });
    let client = ClientBuilder::new(plain()).with(caller.middleware()).with(StopTheClock).build();
    let asks = asks.map_or_else(String::new, |seconds| format!("/{seconds}"));
    let response = client.get(format!("{}/{status}{asks}", server.url())).send().await.unwrap();
    assert_eq!(response.status(), status);
    let pause = other.usage("up").await.unwrap().limits[0].next;
    for throttle in [&caller, &other] {
        let refusal = throttle.try_acquire("up").await.err();
        let told = refusal.map(|error| error.retry_after().unwrap()).unwrap_or_default();
        assert_eq!(told.as_micros(), pause.as_micros(), "{status}{asks}: the time of logs is whole microseconds");
    }
    time::resume();
    pause
}

fn row(first: &str, cells: [String; 6]) -> String {
    format!("\n{first:>12}{}", cells.map(|cell| format!("{cell:>11}")).concat())
}

#[tokio::test]
async fn one_response_pauses_its_upstream_for_as_long_as_it_asks_and_no_longer_than_it_is_believed() {
    // Where a refusal tells no time, nobody sends for the first wait of the backoff, a second.
    let expected = [
        (400, [0, 0, 0, 0, 0, 0]),
        (403, [0, 1, 60, HOUR, HOUR, HOUR]),
        (420, [1, 1, 60, HOUR, HOUR, HOUR]),
        (429, [1, 1, 60, HOUR, HOUR, HOUR]),
        (430, [1, 1, 60, HOUR, DAY, DAY]),
        (500, [0, 1, 60, 60, 60, 60]),
        (503, [0, 1, 60, 60, 60, 60]),
    ];
    let asks = ASKS.map(|asks| asks.map_or_else(|| "none".to_owned(), |seconds| format!("{seconds} s")));
    let (server, mut table, mut measured) = (server(), row("Retry-After", asks), expected);
    for (status, pauses) in &mut measured {
        for (pause, asks) in pauses.iter_mut().zip(ASKS) {
            let measured = paused(&server, *status, asks).await;
            assert_eq!(measured.subsec_nanos(), 0, "{status} {asks:?}: {measured:?}");
            *pause = measured.as_secs();
        }
        table += &row(&status.to_string(), pauses.map(|pause| format!("{pause} s")));
    }
    println!("{table}");
    assert_eq!(measured, expected);
}
