//! What users of those upstreams write whose verdict stands in the body, in one place.

use std::time::Duration;

use outgate::Feedback;
use outgate::feedback::{Quota, Refill, Refusal, Unit};
use serde_json::Value;

use super::check::nanos;

/// Words in the bodies of single upstreams, and what they mean.
const WORDS: [(&str, &str, Refusal); 14] = [
    ("AWS", "Throttling", Refusal::Quota),
    ("AWS", "RequestLimitExceeded", Refusal::Quota),
    ("AWS", "SlowDown", Refusal::Quota),
    ("Amazon", "QuotaExceeded", Refusal::Quota),
    ("Anthropic", "overloaded_error", Refusal::Overload),
    ("Discord", "<html", Refusal::Ban),
    ("GitHub", "RATE_LIMITED", Refusal::Quota),
    ("GitHub", "secondary rate limit", Refusal::Quota),
    ("Google", "ateLimitExceeded", Refusal::Quota),
    ("Google", "RESOURCE_EXHAUSTED", Refusal::Quota),
    ("Linear", "RATELIMITED", Refusal::Quota),
    ("OpenAI", "insufficient_quota", Refusal::Spend),
    ("Salesforce", "REQUEST_LIMIT_EXCEEDED", Refusal::Quota),
    ("Stripe", "lock_timeout", Refusal::Lock),
];

/// Meta's codes of throttling.
const META: [u64; 5] = [4, 17, 32, 341, 613];

/// What was read of the headers, completed by the body.
pub(crate) fn told_by(upstream: &str, body: &Value, read: Feedback) -> Feedback {
    if upstream.starts_with("Shopify GraphQL") {
        return shopify(body, read);
    }
    let text = body.to_string();
    let word = WORDS.iter().find(|(name, word, _)| upstream.starts_with(name) && text.contains(word));
    let mut told = match word {
        Some((_, _, refusal)) => read.with_refusal(*refusal),
        None if upstream.starts_with("Meta") && is_meta(body) => read.with_refusal(Refusal::Quota),
        None => read,
    };
    if told.wait().is_none() && upstream.starts_with("Google") {
        told = google(body).into_iter().fold(told, Feedback::with_wait);
    }
    told
}

fn is_meta(body: &Value) -> bool {
    let code = body["error"]["code"].as_u64();
    code.is_some_and(|code| META.contains(&code) || (80_000..80_015).contains(&code))
}

/// `google.rpc.RetryInfo`.
fn google(body: &Value) -> Option<Duration> {
    let details = body["error"]["details"].as_array()?;
    let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
    duration(nanos(delay.strip_suffix('s')?)?)
}

/// The query waits until the bucket holds what it asked for.
fn shopify(body: &Value, read: Feedback) -> Feedback {
    let cost = &body["extensions"]["cost"];
    let number = |value: &Value| {
        let nanos = nanos(&value.as_number()?.to_string()).filter(|nanos| nanos % 1_000_000_000 == 0)?;
        u64::try_from(nanos / 1_000_000_000).ok()
    };
    let bucket = &cost["throttleStatus"];
    let numbers = [
        &cost["requestedQueryCost"],
        &bucket["currentlyAvailable"],
        &bucket["maximumAvailable"],
        &bucket["restoreRate"],
    ];
    let [Some(cost), Some(available), Some(limit), Some(rate)] = numbers.map(number) else { return read };
    let refill = Refill::new(rate.try_into().unwrap(), Duration::from_secs(1));
    let quota = Quota::new().counting(Unit::Points).with_limit(limit).with_remaining(available).with_refill(refill);
    let told = read.with_quota(quota).with_cost(cost);
    if cost <= available {
        return told;
    }
    let wait = u128::from(cost - available) * 1_000_000_000 / u128::from(rate);
    duration(wait).into_iter().fold(told.with_refusal(Refusal::Quota), Feedback::with_wait)
}

fn duration(nanos: u128) -> Option<Duration> {
    Some(Duration::from_nanos(nanos.try_into().ok()?))
}
