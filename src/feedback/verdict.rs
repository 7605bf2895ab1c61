//! Whether a response is a refusal, and which.

use std::time::Duration;

use http::StatusCode;

use super::dialect::Dialect;
use super::quota::Quota;
use super::reach::Reach;
use super::refusal::Refusal;
use super::signs::Signs;

/// Why the call was refused; `None` if it was not, or not by anything that limits calls.
pub(super) fn refusal(status: StatusCode, signs: &Signs, quotas: &[Quota], dialect: &Dialect) -> Option<Refusal> {
    match status.as_u16() {
        _ if signs.grpc.is_refused() => Some(Refusal::Quota),
        _ if is_error(status) && signs.names_throttling() => Some(Refusal::Quota),
        429 => Some(of_429(signs, quotas, dialect)),
        420 | 509 => Some(Refusal::Quota),
        430 => Some(Refusal::Ban),
        418 if signs.ask_to_wait() => Some(Refusal::Ban),
        423 => Some(Refusal::Lock),
        400 | 403 if is_spent(status, quotas) => Some(Refusal::Quota),
        503 if is_spent(status, quotas) && !asks_for_more_than_a_reset(signs, quotas) => Some(Refusal::Quota),
        // Nobody asks to wait where a permission is missing: this is a limit of abuse.
        403 if signs.ask_to_wait() => Some(Refusal::Quota),
        477 | 503 | 529 => Some(Refusal::Overload),
        500..=599 if signs.told_wait().is_some() => Some(Refusal::Overload),
        _ => None,
    }
}

/// How sure it is that a call was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Nothing is left of a quota, and nobody asks to wait: it may have failed for another reason, and taken the last unit.
    Inferred,
    /// As sure as the response says so: it may have been executed.
    #[default]
    Told,
    /// The response says that it was not executed.
    NotExecuted,
}

/// How sure a refusal is, and whether the call was not executed, by the status, or as throttling is named as the cause of an error.
///
/// A spent quota or a wish to wait beside any other error says nothing of the kind: the call may have spent the last unit.
pub(super) fn certainty(status: StatusCode, signs: &Signs, quotas: &[Quota]) -> Certainty {
    match status.as_u16() {
        420 | 429 => Certainty::NotExecuted,
        _ if is_error(status) && signs.names_throttling() => Certainty::NotExecuted,
        400 | 403 | 503 if !signs.grpc.is_refused() && !signs.ask_to_wait() && is_spent(status, quotas) => {
            Certainty::Inferred
        }
        _ => Certainty::Told,
    }
}

/// Whether nothing is left of a quota that every call spends. Where more is used than there is, calls are served beyond it: then a request that
/// is wrong fails for that.
fn is_spent(status: StatusCode, quotas: &[Quota]) -> bool {
    let may_be_wrong = status == StatusCode::BAD_REQUEST;
    let is_spent = |quota: &&Quota| quota.has_nothing_left() && !(may_be_wrong && quota.is_overrun());
    quotas.iter().filter(is_spent).any(counts_calls)
}

/// Whether it asks to wait for longer than until a quota is there again that is spent: then it is busy, and took the last unit besides.
fn asks_for_more_than_a_reset(signs: &Signs, quotas: &[Quota]) -> bool {
    let spent = quotas.iter().filter(|quota| quota.has_nothing_left() && counts_calls(quota));
    signs.told_wait() > spent.filter_map(Quota::reset_within).max().or(Some(Duration::ZERO))
}

/// Whether a response of this status can be a refusal at all.
pub(super) fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Whether no call is served once it is spent; a limit of zero is none.
fn counts_calls(quota: &Quota) -> bool {
    quota.unit().is_spent_by_every_call() && quota.limit() != Some(0)
}

fn of_429(signs: &Signs, quotas: &[Quota], dialect: &Dialect) -> Refusal {
    let unexplained = !signs.explained && !quotas.iter().any(Quota::is_spent);
    let refusal = match signs.named_cause() {
        Some(cause) => cause,
        None if unexplained && signs.should_retry == Some(false) => Refusal::Spend,
        None if unexplained => dialect.unexplained,
        None => Refusal::Quota,
    };
    // Nobody asks to wait for what waiting does not cure.
    if refusal == Refusal::Spend && signs.told_wait().is_some() { Refusal::Quota } else { refusal }
}

/// Whose calls the refusal is about, where the response says so.
pub(super) fn reach(status: StatusCode, signs: &Signs, refusal: Option<Refusal>) -> Option<Reach> {
    refusal?;
    // 420 is a limit of errors, or of connections, of which every route has its part.
    if status.as_u16() == 420 { Some(Reach::Upstream) } else { signs.reach }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Lines, read};
    use super::*;

    #[test]
    fn the_status_alone_may_be_a_refusal() {
        let cases = [
            (200, None),
            (304, None),
            (400, None),
            (401, None),
            (403, None),
            (404, None),
            (418, None),
            (500, None),
            (420, Some(Refusal::Quota)),
            (423, Some(Refusal::Lock)),
            (429, Some(Refusal::Quota)),
            (430, Some(Refusal::Ban)),
            (477, Some(Refusal::Overload)),
            (503, Some(Refusal::Overload)),
            (529, Some(Refusal::Overload)),
        ];
        for (status, refusal) in cases {
            assert_eq!(read(Dialect::GENERAL, status, &[]).refusal(), refusal, "{status}");
        }
    }

    #[test]
    fn headers_make_a_refusal_of_other_statuses() {
        const SPENT: (&str, &str) = ("x-ratelimit-remaining", "0");
        const ASKS: (&str, &str) = ("retry-after", "60");
        const NONE: (&str, &str) = ("x-ratelimit-limit", "0");
        const OVER: (&str, &str) = ("anthropic-ratelimit-unified-5h-utilization", "1.02");
        const FREE: (&str, &str) =
            ("x-business-use-case-usage", r#"{"1":[{"call_count":101,"estimated_time_to_regain_access":0}]}"#);
        const AT_ONCE: (&str, &str) = ("retry-after", "0");
        let cases: [(u16, Lines, Option<Refusal>); 41] = [
            (200, &[SPENT, ASKS], None),
            (404, &[SPENT, ASKS], None),
            (414, &[ASKS], None),
            (400, &[ASKS], None),
            (400, &[SPENT], Some(Refusal::Quota)),
            (403, &[SPENT], Some(Refusal::Quota)),
            (503, &[SPENT], Some(Refusal::Quota)),
            (403, &[("x-ratelimit-remaining", "7")], None),
            (403, &[NONE, SPENT], None),
            (403, &[("x-ratelimit-remaining-concurrent-requests", "0")], None),
            (400, &[("x-ratelimit-remaining-tokens", "0")], None),
            (503, &[("x-ratelimit-remaining-tokens", "0")], Some(Refusal::Overload)),
            (400, &[("x-ratelimit-complexity-remaining", "0")], Some(Refusal::Quota)),
            (429, &[NONE, SPENT], Some(Refusal::Quota)),
            (403, &[ASKS], Some(Refusal::Quota)),
            (403, &[("retry-after", "")], Some(Refusal::Quota)),
            (403, &[("retry-after", "soon")], Some(Refusal::Quota)),
            // Jira sends it with every answer while tokens are left.
            (403, &[AT_ONCE], None),
            (403, &[AT_ONCE, ("x-ratelimit-remaining", "69")], None),
            (403, &[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")], None),
            (403, &[AT_ONCE, SPENT], Some(Refusal::Quota)),
            (429, &[AT_ONCE], Some(Refusal::Quota)),
            (418, &[AT_ONCE], None),
            (403, &[("sforce-limit-info", "api-usage=5000/5000")], Some(Refusal::Quota)),
            // What is used beyond a quota may be served all the same.
            (400, &[("sforce-limit-info", "api-usage=5001/5000")], None),
            (403, &[("sforce-limit-info", "api-usage=5100/5000")], Some(Refusal::Quota)),
            (503, &[("sforce-limit-info", "api-usage=5001/5000")], Some(Refusal::Quota)),
            (429, &[("sforce-limit-info", "api-usage=5001/5000")], Some(Refusal::Quota)),
            (403, &[SPENT, ("x-ratelimit-limit", "60"), ("x-ratelimit-used", "61")], Some(Refusal::Quota)),
            (400, &[OVER, ("anthropic-ratelimit-unified-5h-reset", "10800")], None),
            (403, &[OVER], None),
            (503, &[OVER], Some(Refusal::Overload)),
            (429, &[OVER], Some(Refusal::Quota)),
            (400, &[FREE], None),
            (400, &[("x-app-usage", r#"{"call_count":100}"#)], Some(Refusal::Quota)),
            (400, &[("x-app-usage", r#"{"call_count":99}"#)], None),
            (418, &[ASKS], Some(Refusal::Ban)),
            (500, &[ASKS], Some(Refusal::Overload)),
            (500, &[("retry-after", "soon")], None),
            (400, &[("x-amzn-errortype", "ThrottlingException:http://aws/")], Some(Refusal::Quota)),
            (400, &[("x-amzn-errortype", "ValidationException")], None),
        ];
        for (status, lines, refusal) in cases {
            assert_eq!(read(Dialect::GENERAL, status, lines).refusal(), refusal, "{status} {lines:?}");
        }
    }

    #[test]
    fn only_a_429_a_420_or_a_named_throttling_says_that_the_call_was_not_executed() {
        const NAMED: Lines = &[("x-amzn-errortype", "ThrottlingException:http://aws/")];
        const AROUND: [Lines; 5] = [
            &[],
            &[("x-ratelimit-remaining", "0"), ("retry-after", "5")],
            &[("x-ratelimit-remaining", "0"), ("x-amzn-errortype", "InternalFailure")],
            &[("x-rate-limit-type", "application"), ("ratelimit-reason", "quota")],
            &[("x-should-retry", "true"), ("stripe-should-retry", "true")],
        ];
        for status in 100..1_000 {
            let says = |lines| read(Dialect::GENERAL, status, lines).not_executed();
            assert_eq!(says(NAMED), (400..600).contains(&status), "{status}");
            for lines in AROUND {
                assert_eq!(says(lines), matches!(status, 420 | 429), "{status} {lines:?}");
            }
        }
    }

    #[test]
    fn a_429_is_what_its_headers_say() {
        let cases: [(Lines, Refusal, Option<Reach>); 13] = [
            (&[("x-ratelimit-scope", "shared")], Refusal::Shared, Some(Reach::Route)),
            (&[("x-ratelimit-scope", "user")], Refusal::Quota, Some(Reach::Route)),
            (&[("x-ratelimit-global", "true")], Refusal::Quota, Some(Reach::Token)),
            (&[("x-ratelimit-scope", "global")], Refusal::Quota, Some(Reach::Token)),
            (&[("ratelimit-reason", "jira-quota-global-based")], Refusal::Quota, Some(Reach::Upstream)),
            (&[("x-rate-limit-type", "service")], Refusal::Service, Some(Reach::Route)),
            (&[("x-rate-limit-type", "application")], Refusal::Quota, Some(Reach::Token)),
            (&[("stripe-rate-limited-reason", "global-concurrency")], Refusal::Seats, Some(Reach::Token)),
            (&[("stripe-rate-limited-reason", "endpoint-rate")], Refusal::Quota, Some(Reach::Route)),
            (&[("x-kubernetes-pf-flowschema-uid", "8b2c"), ("retry-after", "1")], Refusal::Seats, None),
            (&[("content-type", "text/html"), ("server", "cloudflare"), ("cf-ray", "8a-FRA")], Refusal::Quota, None),
            (&[("x-should-retry", "false")], Refusal::Spend, None),
            (&[("x-should-retry", "false"), ("retry-after", "1")], Refusal::Quota, None),
        ];
        for (lines, refusal, reach) in cases {
            let feedback = read(Dialect::GENERAL, 429, lines);
            assert_eq!((feedback.refusal(), feedback.reach()), (Some(refusal), reach), "{lines:?}");
        }
    }

    #[test]
    fn a_429_without_a_reason_is_what_the_dialect_says() {
        const SPENT: (&str, &str) = ("x-ratelimit-remaining", "0");
        const PAGE: Lines = &[("content-type", "text/html"), ("server", "cloudflare"), ("cf-ray", "8a-FRA")];
        let cases: [(Dialect, Lines, Refusal); 13] = [
            (Dialect::DISCORD, PAGE, Refusal::Ban),
            (Dialect::ANTHROPIC, PAGE, Refusal::Spend),
            (Dialect::STRIPE, PAGE, Refusal::Lock),
            (Dialect::RIOT, PAGE, Refusal::Service),
            (Dialect::STRIPE, &[], Refusal::Lock),
            (Dialect::STRIPE, &[("stripe-should-retry", "false")], Refusal::Lock),
            (Dialect::STRIPE, &[("stripe-rate-limited-reason", "global-rate")], Refusal::Quota),
            (Dialect::RIOT, &[("x-app-rate-limit", "20:1"), ("x-app-rate-limit-count", "3:1")], Refusal::Service),
            (Dialect::RIOT, &[("x-rate-limit-type", "method")], Refusal::Quota),
            (Dialect::DISCORD, &[("retry-after", "600")], Refusal::Ban),
            (Dialect::DISCORD, &[SPENT], Refusal::Quota),
            (Dialect::ANTHROPIC, &[("anthropic-ratelimit-requests-remaining", "5")], Refusal::Spend),
            (Dialect::ANTHROPIC, &[("retry-after", "19")], Refusal::Quota),
        ];
        for (dialect, lines, refusal) in cases {
            assert_eq!(read(dialect, 429, lines).refusal(), Some(refusal), "{lines:?}");
        }
    }

    #[test]
    fn locks_and_spending_limits_are_no_throttling() {
        assert!(!read(Dialect::STRIPE, 429, &[]).is_limited());
        assert!(!read(Dialect::ANTHROPIC, 429, &[]).is_limited());
        assert!(read(Dialect::GENERAL, 429, &[]).is_limited() && !read(Dialect::GENERAL, 200, &[]).is_limited());
    }

    #[test]
    fn an_old_limit_of_errors_stops_every_route() {
        let feedback = read(Dialect::GENERAL, 420, &[("x-esi-error-limit-remain", "0")]);
        assert_eq!(feedback.reach(), Some(Reach::Upstream));
    }
}
