//! One expectation of the corpus against what was read. All comparisons are exact.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outgate::Feedback;
use outgate::feedback::{Quota, Reach, Refusal, Unit};
use serde_json::Value;

use super::entry::Entry;

pub(crate) enum Verdict {
    Met,
    /// Status and headers cannot say it, for this reason.
    Unsupported(&'static str),
    /// What was read instead.
    Missed(String),
}

/// Whether `feedback` says what `entry` expects under `key`.
pub(crate) fn check(key: &str, expected: &Value, entry: &Entry, feedback: &Feedback) -> Verdict {
    let main = feedback.main();
    match key {
        "wait_seconds" => wait(expected, entry, feedback),
        "over_cap" => is(over_cap(feedback) == expected.as_bool(), (feedback.wait(), feedback.told_wait())),
        "limited" => is(Some(feedback.is_limited()) == expected.as_bool(), feedback.refusal()),
        "ban" => is(Some(feedback.refusal() == Some(Refusal::Ban)) == expected.as_bool(), feedback.refusal()),
        "near_limit" => is(Some(feedback.near_limit()) == expected.as_bool(), feedback.near_limit()),
        "cost" => count(expected, feedback.cost()),
        "scope" => scope(expected, feedback),
        "invalid" => is(names(feedback.invalid()) == strings(expected), feedback.invalid()),
        "invalid_strict" => is(names(feedback.malformed()) == strings(expected), feedback.malformed()),
        "binding" => binding(expected, feedback),
        "policies" => policies(expected, entry, feedback),
        "policies_remaining" => policies_remaining(expected, feedback),
        "new_window" => new_window(expected, feedback),
        "reset_epoch" => is(seconds_of(main).map(Value::from).as_ref() == Some(expected), seconds_of(main)),
        "reset_rfc3339" => rfc3339(expected, main),
        "reset_after_raw" => reset_after_raw(expected, entry, main),
        _ => of_quota(key, expected, feedback),
    }
}

fn of_quota(key: &str, expected: &Value, feedback: &Feedback) -> Verdict {
    if let Some(fields) = expected.as_object() {
        let name = key.replace('_', "-");
        let named = feedback.quotas().iter().find(|quota| quota.name() == Some(name.as_str()));
        let verdicts = fields.iter().map(|(key, expected)| field(key, expected, named));
        return verdicts.fold(Verdict::Met, |all, one| if let Verdict::Met = all { one } else { all });
    }
    field(key, expected, feedback.main())
}

/// A field of one quota.
fn field(key: &str, expected: &Value, quota: Option<&Quota>) -> Verdict {
    match key {
        "limit" => count(expected, quota.and_then(Quota::limit)),
        "remaining" => count(expected, quota.and_then(Quota::remaining)),
        "used" => count(expected, quota.and_then(Quota::used)),
        "window_seconds" => time(expected, quota.and_then(Quota::window)),
        "reset_after_seconds" => time(expected, quota.and_then(Quota::reset_after)),
        "utilization" => float(expected, quota.and_then(Quota::utilization)),
        "unit" => is(quota.map(|quota| unit(quota.unit())) == expected.as_str(), quota.map(Quota::unit)),
        "restore_rate" | "rate_per_second" => float(expected, rate(quota)),
        "refill" => refill(expected, quota),
        _ => Verdict::Unsupported("nothing is known about this key"),
    }
}

fn is(met: bool, actual: impl Debug) -> Verdict {
    if met { Verdict::Met } else { Verdict::Missed(format!("{actual:?}")) }
}

/// No wait is expected where there is none to be used: nothing was told, or too much to wait for.
fn wait(expected: &Value, entry: &Entry, feedback: &Feedback) -> Verdict {
    let over_cap = entry.expected("over_cap") == Some(&Value::Bool(true));
    if over_cap {
        let told = expected.is_null() || exact(expected) == feedback.told_wait().map(|told| told.as_nanos());
        return is(told && feedback.over_cap(), feedback.told_wait());
    }
    time(expected, feedback.wait())
}

/// Over the cap means that the cap is given.
fn over_cap(feedback: &Feedback) -> Option<bool> {
    let capped = feedback.wait() == Some(Feedback::LONGEST_WAIT);
    if feedback.over_cap() && !capped { None } else { Some(feedback.over_cap()) }
}

fn time(expected: &Value, actual: Option<Duration>) -> Verdict {
    is(exact(expected) == actual.map(|actual| actual.as_nanos()) && readable(expected), actual)
}

fn count(expected: &Value, actual: Option<u64>) -> Verdict {
    is(exact(expected) == actual.map(|actual| u128::from(actual) * 1_000_000_000) && readable(expected), actual)
}

fn float(expected: &Value, actual: Option<f64>) -> Verdict {
    is(expected.as_f64().map(f64::to_bits) == actual.map(f64::to_bits), actual)
}

/// Billionths of a number; `None` for null.
fn exact(expected: &Value) -> Option<u128> {
    nanos(&expected.as_number()?.to_string())
}

fn readable(expected: &Value) -> bool {
    expected.is_null() || exact(expected).is_some()
}

/// Billionths of a decimal number.
pub(crate) fn nanos(text: &str) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = format!("{fraction:0<9}");
    if fraction.len() > 9 {
        return None;
    }
    Some(whole.parse::<u128>().ok()? * 1_000_000_000 + fraction.parse::<u128>().ok()?)
}

fn names(headers: &[http::HeaderName]) -> Vec<String> {
    let mut names: Vec<String> = headers.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

fn strings(expected: &Value) -> Vec<String> {
    let strings = expected.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut strings: Vec<String> = strings.map(str::to_ascii_lowercase).collect();
    strings.sort();
    strings
}

/// The upstreams' words for whose calls are refused.
fn scope(expected: &Value, feedback: &Feedback) -> Verdict {
    let (refusal, reach) = (feedback.refusal(), feedback.reach());
    let met = match expected.as_str() {
        // Discord: the caller's own quota of one route.
        Some("user" | "method" | "endpoint") => (refusal, reach) == (Some(Refusal::Quota), Some(Reach::Route)),
        Some("application" | "account" | "global") => (refusal, reach) == (Some(Refusal::Quota), Some(Reach::Token)),
        Some("shared") => (refusal, reach) == (Some(Refusal::Shared), Some(Reach::Route)),
        Some("service" | "underlying service") => refusal == Some(Refusal::Service),
        _ => return Verdict::Unsupported("no such scope is known"),
    };
    is(met, (refusal, reach))
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Calls => "requests",
        Unit::Tokens => "tokens",
        Unit::Points => "points",
        Unit::Bytes => "content-bytes",
        Unit::Seats => "concurrent-requests",
        _ => "other",
    }
}

/// `zendesk-ratelimit-incremental-exports (9 left)`: the header's name ends in the quota's.
fn binding(expected: &Value, feedback: &Feedback) -> Verdict {
    let binding = feedback.binding();
    let ending = binding.and_then(|quota| Some(format!("-{} ({} left)", quota.name()?, quota.remaining()?)));
    let met = ending.zip(expected.as_str()).is_some_and(|(ending, expected)| expected.ends_with(&ending));
    is(met, binding)
}

/// A policy is `[name, limit, window]`, or without the name where none is expected; their order has no meaning.
///
/// Where an entry speaks of the main quota by `limit` and `used`, its `policies` are the others.
fn policies(expected: &Value, entry: &Entry, feedback: &Feedback) -> Verdict {
    let expected: Vec<&Vec<Value>> = expected.as_array().into_iter().flatten().filter_map(Value::as_array).collect();
    let main = feedback.main().filter(|_| entry.expected("limit").is_some() && entry.expected("used").is_some());
    let mut actual: Vec<&Quota> = feedback.policies().filter(|quota| main != Some(quota)).collect();
    let read = format!("{actual:?}");
    let all = expected.iter().all(|policy| {
        let found = actual.iter().position(|quota| is_policy(policy, quota));
        found.map(|found| actual.remove(found)).is_some()
    });
    is(all && actual.is_empty() && !expected.is_empty(), read)
}

fn is_policy(expected: &[Value], quota: &Quota) -> bool {
    let numbers = |limit: &Value, window: &Value| {
        let window_met = matches!(time(window, quota.window()), Verdict::Met);
        window_met && matches!(count(limit, quota.limit()), Verdict::Met)
    };
    match expected {
        [limit, window] => numbers(limit, window),
        [name, limit, window] => name.as_str() == quota.name() && numbers(limit, window),
        _ => false,
    }
}

fn policies_remaining(expected: &Value, feedback: &Feedback) -> Verdict {
    let left = feedback.quotas().iter().filter_map(|quota| Some((quota.name()?.to_owned(), quota.remaining()?)));
    let mut actual: Vec<(String, u64)> = left.collect();
    let pair = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_u64()?));
    let mut expected: Vec<(String, u64)> = expected.as_array().into_iter().flatten().filter_map(pair).collect();
    actual.sort();
    expected.sort();
    is(actual == expected, actual)
}

/// The windows that this call opened: those in which it is the first.
fn new_window(expected: &Value, feedback: &Feedback) -> Verdict {
    let opened = feedback.quotas().iter().filter(|quota| quota.used() == Some(1)).filter_map(Quota::window);
    let mut actual: Vec<u64> = opened.map(|window| window.as_secs()).collect();
    actual.sort_unstable();
    is(Value::from(actual.clone()) == *expected, actual)
}

fn seconds_of(quota: Option<&Quota>) -> Option<u64> {
    let since = quota?.reset_at()?.duration_since(UNIX_EPOCH).ok()?;
    (since.subsec_nanos() == 0).then_some(since.as_secs())
}

fn rfc3339(expected: &Value, quota: Option<&Quota>) -> Verdict {
    let at = quota.and_then(Quota::reset_at);
    let met = at.zip(expected.as_str()).is_some_and(|(at, expected)| written_as(at, expected));
    is(met, at)
}

/// Whether `expected` is how RFC 3339 writes the instant, with as many digits as are expected.
fn written_as(at: SystemTime, expected: &str) -> bool {
    let http = httpdate::fmt_http_date(at);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == &http[8..11]).unwrap() + 1;
    let nanos = at.duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let fraction = match expected.len() {
        20 if nanos == 0 => String::new(),
        length => format!(".{nanos:09}").chars().take(length.saturating_sub(20)).collect(),
    };
    expected == format!("{}-{month:02}-{}T{}{fraction}Z", &http[12..16], &http[5..7], &http[17..25])
}

/// The way to the reset in seconds, negative where it has passed.
fn reset_after_raw(expected: &Value, entry: &Entry, quota: Option<&Quota>) -> Verdict {
    let seconds = |time: SystemTime| i64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let raw = quota.and_then(Quota::reset_at).map(|at| seconds(at) - seconds(entry.now()));
    is(raw.map(Value::from).as_ref() == Some(expected), raw)
}

fn rate(quota: Option<&Quota>) -> Option<f64> {
    quota.and_then(Quota::refill).map(outgate::feedback::Refill::per_second)
}

fn refill(expected: &Value, quota: Option<&Quota>) -> Verdict {
    let refill = quota.and_then(Quota::refill);
    let actual = refill.map(|refill| Value::from(vec![u64::from(refill.units()), refill.every().as_secs()]));
    is(actual.as_ref() == Some(expected) && refill.is_some_and(|refill| refill.every().subsec_nanos() == 0), refill)
}
