//! How long one response silences an upstream, whatever it asks for.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use outgate::{Backoff, Error, Feedback, Limit, MemoryStore, Throttle, Upstream};
use tokio::time::advance;

use crate::support::Counting;

const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;
const MONTH: u64 = 31 * DAY;

type Lines<'a> = &'a [(&'static str, &'a str)];

fn response(status: u16, lines: Lines<'_>) -> Feedback {
    let line =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    let headers: HeaderMap = lines.iter().map(line).collect();
    Feedback::read(StatusCode::from_u16(status).unwrap(), &headers, std::time::SystemTime::now())
}

fn throttle(more: impl FnOnce(Upstream) -> Upstream) -> Throttle {
    let up = Upstream::new("up").limit(Limit::per_second(100)).backoff(Backoff::new().jitter(0.0));
    let up = up.recovery(Duration::ZERO);
    Throttle::builder().store(MemoryStore::new()).upstream(more(up)).build().unwrap()
}

/// For how many seconds everybody is silent.
async fn silent(throttle: &Throttle) -> u64 {
    match throttle.try_acquire("up").await {
        Ok(permit) => {
            permit.hand_back();
            0
        }
        Err(error) => error.retry_after().unwrap().as_secs(),
    }
}

async fn after(throttle: &Throttle, response: &Feedback) -> u64 {
    throttle.report("up", response).await.unwrap();
    silent(throttle).await
}

#[tokio::test(start_paused = true)]
async fn no_response_silences_an_upstream_for_longer_than_it_is_believed() {
    let month = MONTH.to_string();
    let ask = [("retry-after", &*month)];
    let ever = [("retry-after", "9223372036854775807")];
    let spent = |reset: &'static str| [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)];
    let cases: [(u16, Lines<'_>, u64); 27] = [
        (429, &[("retry-after", "20")], 20),
        (429, &[("retry-after", "3600")], HOUR),
        (429, &ask, HOUR),
        (429, &ever, HOUR),
        (403, &ask, HOUR),
        (420, &ask, HOUR),
        (509, &ask, HOUR),
        (503, &[("retry-after", "20")], 20),
        (503, &ask, 60),
        (500, &ask, 60),
        (529, &ask, 60),
        // Of one resource, as an overload is of one page.
        (423, &ask, 60),
        (423, &[("retry-after", "20")], 20),
        (430, &ask, DAY),
        (430, &[("retry-after", "7200")], 2 * HOUR),
        (418, &ask, DAY),
        (429, &spent("7200"), 2 * HOUR + 1),
        (429, &spent("43200"), 12 * HOUR + 1),
        (429, &spent("864000"), DAY),
        (403, &spent("43200"), 12 * HOUR + 1),
        // A spent quota explains a wait until it is there again, and no longer one.
        (503, &[("retry-after", "7200"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7200")], 2 * HOUR),
        (503, &[("retry-after", "3600"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")], 60),
        (503, &[("retry-after", "3600"), ("x-ratelimit-remaining", "0")], 60),
        (503, &[("retry-after", "20"), ("x-ratelimit-remaining", "0")], 20),
        (429, &[("retry-after", &month), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7200")], 2 * HOUR + 1),
        (429, &[("retry-after", &month), ("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "7200")], HOUR),
        (429, &[("retry-after", &month), ("x-ratelimit-remaining-tokens", "0")], HOUR),
    ];
    for (status, lines, expected) in cases {
        assert_eq!(after(&throttle(|up| up), &response(status, lines)).await, expected, "{status} {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_longest_pause_a_call_goes_again() {
    let throttle = throttle(|up| up);
    let month = response(429, &[("retry-after", "2678400")]);
    for _ in 0..3 {
        assert_eq!(after(&throttle, &month).await, HOUR, "and what it is told then decides");
        advance(Duration::from_secs(HOUR)).await;
        assert_eq!(silent(&throttle).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn overloads_in_a_row_are_believed_for_twice_as_long_each_up_to_what_they_ask() {
    let throttle = throttle(|up| up);
    let overload = response(503, &[("retry-after", "900")]);
    for expected in [60, 120, 240, 480, 900, 900] {
        assert_eq!(after(&throttle, &overload).await, expected);
        advance(Duration::from_secs(expected)).await;
    }
    advance(Duration::from_secs(901)).await;
    assert_eq!(after(&throttle, &overload).await, 60, "the row has ended");
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_believed_for_a_minute_at_most_whatever_was_refused_before() {
    let (refused, lock) = (response(429, &[]), response(423, &[("retry-after", "3600")]));
    let throttle = throttle(|up| up);
    for expected in [1, 2, 4, 8, 16] {
        assert_eq!(after(&throttle, &refused).await, expected);
        advance(Duration::from_secs(expected)).await;
    }
    for _ in 0..2 {
        assert_eq!(after(&throttle, &lock).await, 60);
        advance(Duration::from_secs(60)).await;
    }
}

/// Where a response tells a window, or how fast units come back, but not when it serves again.
#[tokio::test(start_paused = true)]
async fn what_stands_in_for_a_wait_that_nobody_told_is_the_least_of_waits_that_grow() {
    let cases: [(Lines<'_>, &[u64]); 5] = [
        (&[], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        (&[("ratelimit-policy", "10;w=1, 1000;w=3600")], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        (&[("x-amzn-ratelimit-limit", "5.0")], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        (&[("x-hubspot-ratelimit-interval-milliseconds", "10000")], &[10, 10, 10, 10, 16, 32, 64, 128]),
        (&[("x-ratelimit-remaining-minute", "0")], &[60, 60, 60, 60, 60, 60, 64, 128, 256, 300, 300]),
    ];
    for (lines, expected) in cases {
        let (throttle, refused) = (throttle(|up| up), response(429, lines));
        for expected in expected {
            assert_eq!(after(&throttle, &refused).await, *expected, "{lines:?}");
            advance(Duration::from_secs(*expected)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_overload_is_believed_for_a_minute_whatever_was_refused_before() {
    let (refused, overload) = (response(429, &[]), response(503, &[("retry-after", "900")]));
    let throttle = throttle(|up| up);
    for expected in [1, 2, 4, 8, 16] {
        assert_eq!(after(&throttle, &refused).await, expected);
        advance(Duration::from_secs(expected)).await;
    }
    assert_eq!(after(&throttle, &overload).await, 60, "the first of its kind");
    advance(Duration::from_secs(60)).await;
    assert_eq!(after(&throttle, &overload).await, 120, "the next");
    advance(Duration::from_secs(120)).await;
    assert_eq!(after(&throttle, &refused).await, 32, "and what was refused before goes on");
    assert_eq!(after(&throttle, &overload).await, 120, "of the same incident");
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_own_longest_pause_bounds_every_pause() {
    let ten = |up: Upstream| up.max_pause(Duration::from_secs(10));
    let spent: Lines<'_> = &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "43200")];
    let month: Lines<'_> = &[("retry-after", "2678400")];
    for (status, lines) in [(429, month), (403, month), (503, month), (430, month), (429, spent)] {
        assert_eq!(after(&throttle(ten), &response(status, lines)).await, 10, "{status} {lines:?}");
    }
    let patient = throttle(|up| up.max_pause(Duration::from_secs(MONTH)));
    assert_eq!(after(&patient, &response(429, month)).await, MONTH);
    let backing_off = throttle(|up| ten(up).backoff(Backoff::new().min(Duration::from_secs(20)).jitter(0.0)));
    assert_eq!(after(&backing_off, &response(429, &[])).await, 10);
    assert_eq!(after(&throttle(ten), &response(429, &[("x-ratelimit-remaining-minute", "0")])).await, 10);
    // A unit comes back each three hours.
    let seldom = response(429, &[("x-amzn-ratelimit-limit", "0.0000925")]);
    assert_eq!(after(&throttle(|up| up), &seldom).await, HOUR);
}

#[test]
fn a_longest_pause_of_nothing_or_of_years_is_a_mistake() {
    for max_pause in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(MONTH + 1), Duration::MAX] {
        let up = Upstream::new("up").limit(Limit::per_second(1)).max_pause(max_pause);
        let error = Throttle::builder().upstream(up).build().unwrap_err();
        assert_eq!((error.upstream(), error.field()), ("up", "max_pause"), "{max_pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_begins_refuses_who_waits_and_cannot_wait_for_its_end() {
    let throttle = Counting::default().limited(Limit::per_minute(3));
    drop(throttle.acquire("up").cost(3).await.unwrap());
    let wait = |cost, most: u64| {
        let call = throttle.acquire("up").cost(cost).max_wait(Duration::from_secs(most));
        tokio::spawn(async move { call.await.map(drop) })
    };
    let (long, short) = (wait(3, 900), wait(1, 90));
    tokio::time::sleep(Duration::from_secs(1)).await;
    throttle.report("up", &Feedback::refused(Duration::from_secs(600))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(short.is_finished() && !long.is_finished());
    for short in [short, wait(1, 40)] {
        match short.await.unwrap() {
            Err(Error::Throttled { retry_after, paused: Some(_), .. }) => {
                assert!(retry_after > Duration::from_secs(590), "{retry_after:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    long.await.unwrap().unwrap();
}
