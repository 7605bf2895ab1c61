//! Upstreams that insist on their limits, seen by a real HTTP client.

use std::{
    error::Error,
    io::Write as _,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use outgate::testing::{Shape, StrictUpstream, oracle};
use reqwest::{Client, StatusCode};
use tokio::task::JoinSet;

type Outcome = Result<(), Box<dyn Error>>;

/// Longer than any test here takes, so that no window ends in the middle of one.
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than it takes to see that a call has come.
const SOON: Duration = Duration::from_millis(60);

fn client() -> reqwest::Result<Client> {
    Client::builder().no_proxy().build()
}

async fn statuses_of_a_burst(client: &Client, url: &str, calls: usize) -> Result<Vec<StatusCode>, Box<dyn Error>> {
    let mut burst = JoinSet::new();
    for _ in 0..calls {
        burst.spawn(client.get(url).send());
    }
    let mut statuses = Vec::new();
    while let Some(response) = burst.join_next().await {
        statuses.push(response??.status());
    }
    Ok(statuses)
}

#[tokio::test]
async fn a_burst_of_60_against_a_quota_of_50_gets_50_admitted_and_10_refused() -> Outcome {
    let upstream = StrictUpstream::builder().limit(50, MINUTE, Shape::SlidingLog).start()?;
    let statuses = statuses_of_a_burst(&client()?, &upstream.url(), 60).await?;
    let refused = statuses.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count();
    let admitted = statuses.iter().filter(|status| **status == StatusCode::OK).count();
    assert_eq!((admitted, refused), (50, 10));
    assert_eq!((upstream.admitted(), upstream.refused()), (50, 10));
    let stamps = upstream.stamps();
    assert!(stamps.is_sorted());
    assert_eq!(oracle::worst_window(&stamps, 60_000_000).count, 60);
    Ok(())
}

#[tokio::test]
async fn a_refusal_tells_whole_seconds_rounded_up() -> Outcome {
    let upstream = StrictUpstream::builder().limit(1, MINUTE, Shape::SlidingLog).start()?;
    let client = client()?;
    let admitted = client.get(upstream.url()).send().await?;
    assert!(!admitted.headers().contains_key("retry-after"));
    assert_eq!(admitted.text().await?, "ok");
    let refused = client.get(upstream.url()).send().await?;
    assert_eq!(refused.headers()["retry-after"], "60");
    Ok(())
}

#[tokio::test]
async fn a_call_that_can_never_be_admitted_gets_no_retry_after() -> Outcome {
    let upstream = StrictUpstream::builder()
        .limit(5, MINUTE, Shape::TokenBucket)
        .cost_by(|request| if request.uri().path() == "/large" { 6 } else { 1 })
        .start()?;
    let refused = client()?.get(format!("{}/large", upstream.url())).send().await?;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.headers().contains_key("retry-after"));
    assert_eq!(upstream.arrivals()[0].cost, 6);
    Ok(())
}

#[tokio::test]
async fn a_window_may_last_for_ever() -> Outcome {
    let (fixed, counter) = (Shape::FixedWindow { phase: 7 }, Shape::SlidingWindowCounter { phase: 7 });
    for shape in [Shape::SlidingLog, fixed, Shape::FixedWindowFromFirstCall, Shape::TokenBucket, counter] {
        let upstream = StrictUpstream::builder().limit(1, Duration::MAX, shape).telling_balance().start()?;
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let response = client.get(upstream.url()).send().await.map_err(|error| format!("{shape:?}: {error:?}"))?;
            assert_eq!(response.headers()["x-ratelimit-remaining"], "0", "{shape:?}");
            let reset: u64 = response.headers()["x-ratelimit-reset"].to_str()?.parse()?;
            assert!(reset > 1_000_000_000_000, "{shape:?}: {reset}");
            statuses.push(response.status().as_u16());
        }
        assert_eq!(statuses, [200, 429, 429], "{shape:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_arrival_says_who_called_what() -> Outcome {
    let upstream = StrictUpstream::builder().start()?;
    let client = client()?;
    client.get(format!("{}/a?b=c", upstream.url())).header("x-caller", "one").send().await?;
    client.post(upstream.url()).body("x".repeat(100_000)).send().await?;
    let arrivals = upstream.arrivals();
    let told: Vec<_> =
        arrivals.iter().map(|call| (call.caller.as_deref(), call.method.as_str(), call.path.as_str())).collect();
    assert_eq!(told, [(Some("one"), "GET", "/a?b=c"), (None, "POST", "/")]);
    assert!(arrivals[0].admitted && arrivals[0].at <= arrivals[1].at && arrivals[1].at <= upstream.now());
    Ok(())
}

#[tokio::test]
async fn the_handler_answers_admitted_calls_only() -> Outcome {
    let upstream = StrictUpstream::builder()
        .limit(1, MINUTE, Shape::FixedWindowFromFirstCall)
        .handler(|request| {
            let mut response = http::Response::new(request.uri().path().to_owned().into());
            *response.status_mut() = http::StatusCode::CREATED;
            response
        })
        .start()?;
    let client = client()?;
    let url = format!("{}/made", upstream.url());
    let admitted = client.get(&url).send().await?;
    assert_eq!((admitted.status(), admitted.text().await?.as_str()), (StatusCode::CREATED, "/made"));
    assert_eq!(client.get(&url).send().await?.status(), StatusCode::TOO_MANY_REQUESTS);
    Ok(())
}

#[test]
fn calls_are_judged_after_their_delay_even_if_the_callers_have_hung_up() -> Outcome {
    let delay = Duration::from_millis(40);
    let upstream = StrictUpstream::builder().arrival_delay(delay..delay).start()?;
    let sent = upstream.now();
    for request in ["GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\ncontent-length: 2\r\n"].repeat(20) {
        let body = if request.starts_with("POST") { "hi" } else { "" };
        let mut caller = TcpStream::connect(upstream.addr())?;
        caller.write_all(format!("{request}host: here\r\n\r\n{body}").as_bytes())?;
    }
    let patience = Instant::now() + MINUTE;
    while upstream.admitted() < 40 {
        assert!(Instant::now() < patience, "{} of 40 calls were judged", upstream.admitted());
        thread::sleep(Duration::from_millis(5));
    }
    assert!(upstream.stamps()[0] >= sent + 40_000);
    Ok(())
}

#[tokio::test]
async fn a_call_has_to_fit_all_limits_and_counts_in_none_that_refuses_it_with_others() -> Outcome {
    let tokens = |path: &str| path.rsplit('/').next().and_then(|tokens| tokens.parse().ok()).unwrap_or(0);
    let upstream = StrictUpstream::builder()
        .limit(5, MINUTE, Shape::SlidingLog)
        .limit_each(2, MINUTE, Shape::SlidingLog, |request| (request.uri().path()[..2].to_owned(), 1))
        .limit_each(100, 2 * MINUTE, Shape::SlidingLog, move |request| (String::new(), tokens(request.uri().path())))
        .start()?;
    let client = client()?;
    for (path, status, wait) in [
        ("/a/90", 200, None),
        ("/a/11", 429, Some("120")),
        ("/a/101", 429, None),
        ("/a/10", 200, None),
        ("/a/0", 429, Some("60")),
        ("/b/0", 200, None),
        ("/b/1", 429, Some("120")),
    ] {
        let response = client.get(format!("{}{path}", upstream.url())).send().await?;
        assert_eq!(response.status(), status, "{path}");
        let told = response.headers().get("retry-after").map(|wait| wait.to_str()).transpose()?;
        assert_eq!(told, wait, "{path}");
    }
    upstream.reset();
    assert_eq!(client.get(format!("{}/a/100", upstream.url())).send().await?.status(), StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn a_body_comes_line_by_line_and_its_call_is_in_flight_until_the_last() -> Outcome {
    let upstream = StrictUpstream::builder()
        .in_flight(1)
        .handler(|_| http::Response::new("one\ntwo\nthree".into()))
        .body_delay(3 * SOON..3 * SOON)
        .start()?;
    let client = client()?;
    let mut response = client.get(upstream.url()).send().await?;
    assert_eq!(client.get(upstream.url()).send().await?.status(), StatusCode::TOO_MANY_REQUESTS);
    let mut lines = Vec::new();
    while let Some(line) = response.chunk().await? {
        lines.push(line);
    }
    assert_eq!(lines, ["one\n", "two\n", "three"]);
    assert!(upstream.now() >= upstream.arrivals()[0].at + 180_000);
    // Who hangs up has left as well.
    drop(client.get(upstream.url()).send().await?);
    let patience = Instant::now() + MINUTE;
    while upstream.arrivals()[2].left.is_none() {
        assert!(Instant::now() < patience, "{:?}", upstream.arrivals());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn the_response_is_delayed_after_the_verdict() -> Outcome {
    let delay = Duration::from_millis(20);
    let upstream = StrictUpstream::builder().response_delay(delay..2 * delay).start()?;
    client()?.get(upstream.url()).send().await?;
    assert!(upstream.now() >= upstream.arrivals()[0].at + 20_000);
    Ok(())
}

#[tokio::test]
async fn what_was_admitted_counts_against_a_new_limit_until_reset() -> Outcome {
    let upstream = StrictUpstream::builder().limit(3, MINUTE, Shape::SlidingLog).start()?;
    let client = client()?;
    statuses_of_a_burst(&client, &upstream.url(), 3).await?;
    upstream.set_limit(4, MINUTE, Shape::SlidingLog);
    statuses_of_a_burst(&client, &upstream.url(), 3).await?;
    assert_eq!((upstream.admitted(), upstream.refused()), (4, 2));
    upstream.set_limit(2, MINUTE, Shape::SlidingLog);
    statuses_of_a_burst(&client, &upstream.url(), 1).await?;
    assert_eq!((upstream.admitted(), upstream.refused()), (4, 3));
    upstream.reset();
    statuses_of_a_burst(&client, &upstream.url(), 3).await?;
    assert_eq!((upstream.admitted(), upstream.refused()), (2, 1));
    Ok(())
}

#[test]
fn an_upstream_can_be_used_and_dropped_inside_any_runtime_and_is_gone_then() -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let upstream = StrictUpstream::builder().start()?;
        let addr = upstream.addr();
        client()?.get(upstream.url()).send().await?;
        drop(upstream);
        assert!(TcpStream::connect(addr).is_err());
        Ok(())
    })
}
