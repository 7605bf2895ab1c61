//! Whatever a response's header holds, it is read without a panic and without a wait that nobody could mean.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use outgate::Feedback;
use outgate::feedback::{Dialect, TimeUnit};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const NAMES: [&str; 24] = [
    "age",
    "date",
    "retry-after",
    "retry-after-ms",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-limit-minute",
    "x-ratelimit-used",
    "x-ratelimit-scope",
    "x-rate-limit-type",
    "x-app-rate-limit",
    "x-app-rate-limit-count",
    "x-app-usage",
    "x-amzn-ratelimit-limit",
    "x-ms-ratelimit-remaining-resource",
    "x-hubspot-ratelimit-interval-milliseconds",
    "x-shopify-shop-api-call-limit",
    "sforce-limit-info",
    "zendesk-ratelimit-index",
];

const WORDS: [&str; 16] = [
    "x",
    "rate",
    "limit",
    "ratelimit",
    "quota",
    "remaining",
    "reset",
    "used",
    "after",
    "ms",
    "5h",
    "minute",
    "tokens",
    "fill",
    "policy",
    "info",
];

const FRAGMENTS: [&str; 40] = [
    "0",
    "1",
    "-1",
    "007",
    "64.57",
    "0.0000000001",
    "1700000000",
    "1700000000123",
    "9223372036854775807",
    "18446744073709551615",
    "340282366920938463463374607431768211456",
    "99999999999999999999999999999999999",
    "e9",
    ", ",
    ",",
    ";",
    "; ",
    "=",
    ":",
    "/",
    "\"",
    "\\",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    " ",
    ";w=",
    ";r=",
    "\"a\";q=",
    "ms",
    "h",
    "GMT",
    "Fri, 29 Sep 2023 16:26:57 ",
    "9999-12-31T23:59:60",
    "-23:59",
    "\"call_count\":",
    "total=",
];

fn name() -> impl Strategy<Value = HeaderName> {
    let composed = vec(select(&WORDS[..]), 1..6).prop_map(|words| words.join("-"));
    let name = prop_oneof![4 => select(&NAMES[..]).prop_map(str::to_owned), 2 => composed, 1 => "[a-z0-9_-]{1,24}"];
    name.prop_filter_map("a name", |name| name.parse().ok())
}

fn value() -> impl Strategy<Value = HeaderValue> {
    let composed = vec(select(&FRAGMENTS[..]), 0..8).prop_map(|parts| parts.concat().into_bytes());
    let value = prop_oneof![2 => composed, 1 => vec(any::<u8>(), 0..48)];
    value.prop_map(|mut bytes| {
        bytes.retain(|byte| *byte >= b' ' && *byte != 0x7f);
        HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""))
    })
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    vec((name(), value()), 0..12).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        headers
    })
}

fn dialect() -> impl Strategy<Value = Dialect> {
    select(vec![
        Dialect::GENERAL,
        Dialect::AIRTABLE,
        Dialect::ANTHROPIC,
        Dialect::DISCORD,
        Dialect::RIOT,
        Dialect::STRIPE,
        Dialect::GENERAL.reset_in(TimeUnit::Seconds).retry_after_in(TimeUnit::EpochSeconds),
        Dialect::GENERAL.reset_in(TimeUnit::EpochMillis).retry_after_in(TimeUnit::Millis).penalty(Duration::MAX),
    ])
}

fn time() -> impl Strategy<Value = SystemTime> {
    let after = any::<u32>().prop_map(|seconds| UNIX_EPOCH + Duration::from_secs(u64::from(seconds)));
    let before = any::<u32>().prop_map(|nanos| UNIX_EPOCH - Duration::from_nanos(u64::from(nanos)));
    prop_oneof![after, before]
}

fn status() -> impl Strategy<Value = StatusCode> {
    let usual = select(vec![200, 202, 304, 400, 403, 404, 420, 429, 430, 500, 503, 529]);
    prop_oneof![usual, 100_u16..1_000].prop_map(|status| StatusCode::from_u16(status).unwrap_or_default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_header_makes_the_reader_panic_or_wait_too_long(
        dialect in dialect(), status in status(), headers in headers(), received_at in time(),
    ) {
        let feedback = Feedback::read_as(&dialect, status, &headers, received_at);
        // A duration cannot be negative.
        let wait = feedback.wait();
        prop_assert!(wait.is_none_or(|wait| wait <= Feedback::LONGEST_WAIT));
        prop_assert_eq!(wait, feedback.told_wait().map(|told| told.min(Feedback::LONGEST_WAIT)));
        prop_assert_eq!(feedback.over_cap(), feedback.told_wait() > wait);
        prop_assert!(feedback.margin() <= Duration::from_secs(1));
        prop_assert!(!feedback.is_limited() || feedback.refusal().is_some());
        prop_assert!(feedback.refusal().is_none() || !status.is_success());
        prop_assert_eq!(&feedback, &Feedback::read_as(&dialect, status, &headers, received_at));
    }

    #[test]
    fn what_is_read_of_quotas_makes_sense(status in status(), headers in headers(), received_at in time()) {
        let feedback = Feedback::read(status, &headers, received_at);
        prop_assert!(feedback.quotas().len() <= 64);
        prop_assert_eq!(feedback.main().is_some(), !feedback.quotas().is_empty());
        for quota in feedback.quotas() {
            prop_assert!(quota.window().is_none_or(|window| !window.is_zero()));
            prop_assert!(quota.utilization().is_none_or(|share| share.is_finite() && share >= 0.0));
            prop_assert!(quota.refill().is_none_or(|refill| refill.units() > 0 && refill.per_second().is_finite()));
        }
        for name in feedback.invalid() {
            prop_assert!(headers.contains_key(name) && !feedback.malformed().contains(name));
        }
    }

    #[test]
    fn a_plain_request_to_wait_is_obeyed_whatever_else_is_said(
        seconds in 0_u64..10_000_000, headers in headers(), received_at in time(),
    ) {
        let mut headers = headers;
        for finer in ["retry-after-ms", "x-retry-after-ms", "x-ms-retry-after-ms"] {
            headers.remove(finer);
        }
        headers.insert("retry-after", HeaderValue::from(seconds));
        let feedback = Feedback::read(StatusCode::TOO_MANY_REQUESTS, &headers, received_at);
        let told = feedback.told_wait().unwrap_or_default();
        // A reset may tell the same wait by fractions of a second.
        prop_assert_eq!(told.as_nanos().div_ceil(1_000_000_000), u128::from(seconds));
    }
}
