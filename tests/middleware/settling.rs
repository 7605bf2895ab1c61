//! Costs that are known when a call is over: from the head of its response, or from its body.

use std::time::Duration;

use http::StatusCode;
use outgate::testing::{Shape, StrictUpstream};
use outgate::{ConfigError, Limit, Passage, Throttle, Upstream};

use crate::client;
use crate::telling::Written;

fn strict() -> StrictUpstream {
    StrictUpstream::builder().limit(2, Duration::from_secs(60), Shape::SlidingLog).start().unwrap()
}

fn throttle(upstream: impl FnOnce(Upstream) -> Upstream) -> Result<Throttle, ConfigError> {
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_hour(100));
    Throttle::builder().upstream(upstream(up)).build()
}

/// Units that count, once the store has been told.
async fn used(throttle: &Throttle, expected: u32) {
    for _ in 0..200 {
        if throttle.usage("up").await.unwrap().limits[0].used == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let used = throttle.usage("up").await.unwrap().limits[0].used;
    assert_eq!(used, expected);
}

#[tokio::test]
async fn a_response_is_settled_when_its_body_was_read_by_another_task() {
    let (upstream, throttle) = (strict(), throttle(|up| up).unwrap());
    let response = client(&throttle).get(upstream.url()).with_extension(outgate::Call::new().cost(20)).send();
    let response = response.await.unwrap();
    let passage = response.extensions().get::<Passage>().unwrap().clone();
    used(&throttle, 20).await;
    tokio::spawn(async move {
        response.bytes().await.unwrap();
        passage.settle("calls", 5);
    });
    used(&throttle, 5).await;
}

#[tokio::test]
async fn the_head_of_a_response_says_what_its_call_cost() {
    let (upstream, throttle) = (
        strict(),
        throttle(|up| {
            up.settle_by("calls", |status, headers| match status {
                StatusCode::OK => headers.get("x-cost").map_or(Some(7), |_| None),
                StatusCode::TOO_MANY_REQUESTS => Some(0),
                _ => None,
            })
        })
        .unwrap(),
    );
    let mut counts = 0;
    for status in [200, 200, 429] {
        let response = client(&throttle).get(upstream.url()).send().await.unwrap();
        assert_eq!(response.status(), status);
        counts += if status == 200 { 7 } else { 0 };
        used(&throttle, counts).await;
        // What the body says corrects it.
        response.extensions().get::<Passage>().unwrap().settle("calls", if status == 200 { 8 } else { 0 });
        counts += u32::from(status == 200);
        used(&throttle, counts).await;
    }
}

#[tokio::test]
async fn no_cost_that_a_response_tells_fills_a_bucket_for_longer_than_a_pause_may_last() {
    for (max_pause, longest) in [(None, 3_600), (Some(Duration::from_secs(60)), 60)] {
        let upstream = strict();
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::bucket(10, 10, Duration::from_secs(1)));
        let up = up.settle_by("calls", |_, _| Some(4_294_967_295));
        let up = max_pause.map_or(up.clone(), |max_pause| up.max_pause(max_pause));
        let throttle = Throttle::builder().upstream(up).build().unwrap();
        client(&throttle).get(upstream.url()).send().await.unwrap();
        let next = async || throttle.usage("up").await.unwrap().limits[0].next.as_secs();
        while next().await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!((longest - 10..=longest + 10).contains(&next().await), "{} s", next().await);
    }
}

#[tokio::test]
async fn a_refusal_is_heard_though_what_reads_the_cost_of_its_call_panics() {
    let upstream = strict();
    let throttle = throttle(|up| {
        up.settle_by("calls", |status, _| {
            assert_eq!(status, StatusCode::OK, "a refusal tells no cost");
            None
        })
    })
    .unwrap();
    for status in [200, 200, 429] {
        let response = client(&throttle).get(upstream.url()).send().await.unwrap();
        assert_eq!(response.status(), status);
    }
    let pause = async || throttle.usage("up").await.unwrap().paused;
    for _ in 0..200 {
        if pause().await.is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(pause().await.is_some(), "nobody sends for a while");
}

#[tokio::test]
async fn a_unit_that_no_limit_counts_is_a_mistake_in_the_configuration() {
    let error = throttle(|up| up.settle_by("tokens", |_, _| None)).unwrap_err();
    assert_eq!((error.upstream(), error.field()), ("up", "settle_by"));
    assert!(error.to_string().contains("tokens"), "{error}");
    let in_flight = Upstream::new("up").limit(Limit::in_flight(5)).settle_by("calls", |_, _| None);
    let error = Throttle::builder().upstream(in_flight).build().unwrap_err();
    assert_eq!((error.upstream(), error.field()), ("up", "settle_by"), "calls are limited, but not counted");
}

#[tokio::test]
async fn a_unit_that_no_limit_counts_is_ignored_and_said_once() {
    let (written, _guard) = Written::on_this_thread();
    let (upstream, throttle) = (strict(), throttle(|up| up).unwrap());
    for scope in ["a", "b"] {
        let call = outgate::Call::new().cost(20).scope(scope);
        let response = client(&throttle).get(upstream.url()).with_extension(call).send().await.unwrap();
        let passage = response.extensions().get::<Passage>().unwrap();
        passage.settle("tokens", 5);
        passage.settle("s3cret token", 5);
        assert_eq!(throttle.usage_in("up", scope).await.unwrap().limits[0].used, 20);
    }
    let traces = written.text();
    let warnings: Vec<_> = traces.lines().filter(|line| line.contains("no limit counts")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("tokens") && warnings[0].contains("WARN"), "{traces}");
    assert!(!traces.contains("s3cret"), "{traces}");
}

#[tokio::test]
async fn what_is_observed_is_settled_as_well() {
    let upstream = StrictUpstream::builder().limit(99, Duration::from_secs(60), Shape::SlidingLog).start().unwrap();
    let throttle = throttle(|up| up.observe().limit(Limit::new(20, Duration::from_secs(1)))).unwrap();
    let call = |units| client(&throttle).get(upstream.url()).with_extension(outgate::Call::new().cost(units)).send();
    let here = call(20).await.unwrap();
    // Its shadow waits until the first counts no more.
    let coming = call(15).await.unwrap();
    coming.extensions().get::<Passage>().unwrap().settle("calls", 4);
    used(&throttle, 20).await;
    here.extensions().get::<Passage>().unwrap().settle("calls", 3);
    // Where the shadow comes, it is settled at once.
    used(&throttle, 7).await;
}

/// An upstream whose tokens are estimated.
fn estimating(up: Upstream) -> Upstream {
    up.limit(Limit::per_hour(1_000_000).of("tokens")).estimate("tokens", 1_000)
}

#[tokio::test]
async fn estimates_that_nobody_settles_are_said_once() {
    let (written, _guard) = Written::on_this_thread();
    for observes in [false, true] {
        let throttle = throttle(|up| {
            let up = estimating(up).limit(Limit::per_hour(1_000));
            if observes { up.observe() } else { up }
        });
        let throttle = throttle.unwrap();
        let warnings = || written.text().lines().filter(|line| line.contains("none was ever settled")).count();
        let before = warnings();
        for call in 0..220 {
            // Neither those that are handed back nor those that say their cost count.
            throttle.try_acquire("up").cost(0).await.unwrap().hand_back();
            drop(throttle.try_acquire("up").cost(0).cost_of("tokens", 1).await.unwrap());
            // Shadows that wait are not over yet.
            assert!(observes || warnings() - before == usize::from(call >= 100), "after {call} calls");
            drop(throttle.try_acquire("up").cost(0).await.unwrap());
        }
        let said = async {
            while warnings() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Shadows are over when their turn has come.
        tokio::time::timeout(Duration::from_secs(20), said).await.unwrap();
        assert_eq!(warnings() - before, 1, "observes: {observes}");
    }
    let traces = written.text();
    let warning = traces.lines().find(|line| line.contains("none was ever settled")).unwrap();
    assert!(warning.contains("WARN") && warning.contains("tokens") && warning.contains("settle_by"), "{warning}");
}

#[tokio::test]
async fn nobody_is_told_to_settle_who_settles_calls_that_failed() {
    let (written, _guard) = Written::on_this_thread();
    let throttle = throttle(|up| estimating(up).limit(Limit::per_hour(1_000))).unwrap();
    for _ in 0..220 {
        throttle.try_acquire("up").cost(0).await.unwrap().settle("tokens", 0);
    }
    assert!(!written.text().contains("none was ever settled"));
}

#[tokio::test]
async fn requests_are_estimated_by_the_kind_of_their_call() {
    let upstream = StrictUpstream::builder().limit(99, Duration::from_secs(60), Shape::SlidingLog).start().unwrap();
    let throttle = throttle(|up| estimating(up).settle_by("tokens", |_, _| Some(10))).unwrap();
    for _ in 0..40 {
        let call = outgate::Call::new().kind("short");
        client(&throttle).get(upstream.url()).with_extension(call).send().await.unwrap();
    }
    // An entry of so large a log stands for 64 tokens, and settlements are told within 250 ms.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let taken = async |kind| {
        let before = tokens(&throttle).await;
        drop(throttle.acquire("up").kind(kind).await.unwrap());
        tokens(&throttle).await - before
    };
    assert_eq!((taken("short").await, taken("long").await), (64, 1_024));
}

#[tokio::test]
async fn what_an_upstream_says_of_costs_wins_over_estimates() {
    let upstream = StrictUpstream::builder().limit(99, Duration::from_secs(60), Shape::SlidingLog).start().unwrap();
    let throttle = throttle(|up| estimating(up).cost_by(|_| outgate::Call::new().cost_of("tokens", 128))).unwrap();
    client(&throttle).get(upstream.url()).send().await.unwrap();
    assert_eq!(tokens(&throttle).await, 128);
}

async fn tokens(throttle: &Throttle) -> u32 {
    throttle.usage("up").await.unwrap().limits[1].used
}
