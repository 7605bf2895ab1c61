//! How long to wait.

use std::time::Duration;

use http::StatusCode;

use super::dialect::Dialect;
use super::quota::Quota;
use super::refill::Refill;
use super::refusal::Refusal;
use super::signs::Signs;
use super::unit::Unit;

/// The longest window that stands in for a reset that nobody told: to wait for a whole day would mostly be too long.
const LONGEST_STAND_IN: Duration = Duration::from_secs(60);

/// A wait as it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wait {
    pub(super) told: Duration,
    /// How much later than told it may end.
    pub(super) margin: Duration,
    /// Nobody told it: a window, or the time in which a unit comes back, stands in for it.
    pub(super) stands_in: bool,
}

impl Wait {
    pub(super) const fn exactly(told: Duration) -> Self {
        Self { told, margin: Duration::ZERO, stands_in: false }
    }

    const fn standing_in(told: Duration) -> Self {
        Self { stands_in: true, ..Self::exactly(told) }
    }
}

/// How long to wait: what was asked for outright, else until the quotas that are spent reset.
pub(super) fn wait(
    status: StatusCode,
    refusal: Option<Refusal>,
    signs: &Signs,
    quotas: &[Quota],
    dialect: &Dialect,
) -> Option<Wait> {
    let told = signs.told_wait().filter(|_| refusal.is_some() || is_plain_success(status));
    match refusal {
        Some(Refusal::Spend) => None,
        // To wait for nothing says nothing where a spent quota tells its reset.
        Some(Refusal::Quota) if told == Some(Duration::ZERO) => {
            let timed = quotas.iter().filter(|quota| quota.unit != Unit::Seats);
            of_spent(timed, Quota::until_reset).or(told.map(Wait::exactly))
        }
        _ if told.is_some() => told.map(|told| Wait::exactly(finer(told, signs, quotas))),
        Some(Refusal::Quota) => of_refused(quotas).or(dialect.penalty.map(Wait::exactly)),
        Some(_) => None,
        None => of_spent(quotas.iter().filter(|quota| quota.unit == Unit::Calls), Quota::until_reset),
    }
}

/// An answer whose `Retry-After` speaks of the quota, and not of when a job is done or a page has moved.
fn is_plain_success(status: StatusCode) -> bool {
    status.is_success() && status != StatusCode::CREATED && status != StatusCode::ACCEPTED
}

/// The same wait as told by the reset of a spent quota, where that rounds up to it: `Retry-After` has whole seconds.
fn finer(told: Duration, signs: &Signs, quotas: &[Quota]) -> Duration {
    let resets = quotas.iter().filter(|quota| quota.is_spent()).filter_map(|quota| quota.reset);
    // Two clocks would differ by more than such a fraction.
    let lengths = resets.filter(|reset| reset.is_length()).map(|reset| reset.after);
    let rounds_up =
        |after: &Duration| after.subsec_nanos() > 0 && after.as_secs().checked_add(1) == Some(told.as_secs());
    let finer = lengths.filter(|_| told.subsec_nanos() == 0).find(rounds_up);
    if signs.retry_after_millis.is_some() { told } else { finer.unwrap_or(told) }
}

/// Until all quotas that are spent can be used again, or else those of which nobody said how much is left.
fn of_refused(quotas: &[Quota]) -> Option<Wait> {
    // A place among calls in flight is free when one of them ends, which no reset tells.
    let timed = || quotas.iter().filter(|quota| quota.unit != Unit::Seats);
    if timed().any(Quota::is_spent) {
        return of_spent(timed(), Quota::until_usable);
    }
    timed().filter(|quota| quota.is_unknown()).filter_map(Quota::until_usable).max()
}

fn of_spent<'a>(quotas: impl Iterator<Item = &'a Quota>, until: impl Fn(&Quota) -> Option<Wait>) -> Option<Wait> {
    quotas.filter(|quota| quota.is_spent()).filter_map(until).max()
}

impl Quota {
    fn until_reset(&self) -> Option<Wait> {
        self.reset.map(|reset| Wait { margin: reset.margin(), ..Wait::exactly(reset.after) })
    }

    /// Until the reset, else until one unit has come back, else for a whole window.
    fn until_usable(&self) -> Option<Wait> {
        let refill = || self.refill.and_then(Refill::one_unit);
        let window = || self.window.filter(|window| *window <= LONGEST_STAND_IN);
        self.until_reset().or_else(|| refill().or_else(window).map(Wait::standing_in))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Feedback;
    use super::super::sample::{Lines, read};
    use super::*;

    fn millis(status: u16, lines: Lines) -> Option<u128> {
        read(Dialect::GENERAL, status, lines).wait().map(|wait| wait.as_millis())
    }

    #[test]
    fn what_is_asked_for_outright_beats_every_reset() {
        let cases: [(Lines, Option<u128>); 14] = [
            (&[("retry-after", "20")], Some(20_000)),
            (&[("retry-after", "20"), ("retry-after-ms", "19500")], Some(19_500)),
            (&[("retry-after", "20"), ("retry-after-ms", "-1")], Some(20_000)),
            (&[("retry-after", "20"), ("retry-after-ms", "0")], Some(20_000)),
            (&[("x-ms-retry-after-ms", "10")], Some(10)),
            (&[("retry-after", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "300")], Some(60_000)),
            (&[("retry-after", "-1"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "300")], Some(300_000)),
            // To wait for nothing asks for nothing.
            (&[("retry-after", "0"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "300")], Some(300_000)),
            (&[("retry-after", "0"), ("x-ratelimit-remaining", "0")], Some(0)),
            (&[("retry-after", "0"), ("x-ratelimit-remaining-minute", "0")], Some(0)),
            (
                &[("retry-after", "0"), ("x-ratelimit-remaining-concurrent", "0"), ("ratelimit-policy", "100;w=60")],
                Some(0),
            ),
            (&[("retry-after", "0"), ("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "300")], Some(0)),
            (
                &[("retry-after", "65"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "64.57")],
                Some(64_570),
            ),
            (
                &[("retry-after", "90"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "64.57")],
                Some(90_000),
            ),
        ];
        for (lines, expected) in cases {
            assert_eq!(millis(429, lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_request_to_wait_counts_on_refusals_and_plain_successes_only() {
        const ASKS: Lines = &[("retry-after", "5")];
        for status in [200, 204, 403, 420, 429, 430, 477, 500, 503, 529] {
            assert_eq!(millis(status, ASKS), Some(5_000), "{status}");
        }
        for status in [201, 202, 301, 303, 304, 400, 404, 413, 414] {
            assert_eq!(millis(status, ASKS), None, "{status}");
        }
    }

    #[test]
    fn the_last_of_the_spent_quotas_ends_the_wait() {
        let cases: [(u16, Lines, Option<u128>); 7] = [
            (429, &[("ratelimit", r#""a";r=0;t=5, "b";r=0;t=9, "c";r=1;t=99"#)], Some(9_000)),
            (200, &[("ratelimit", r#""a";r=0;t=5, "b";r=1;t=99"#)], Some(5_000)),
            (404, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7")], Some(7_000)),
            (200, &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "7")], None),
            (200, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], None),
            (429, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], Some(360_000)),
            (429, &[("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "7")], None),
        ];
        for (status, lines, expected) in cases {
            assert_eq!(millis(status, lines), expected, "{status} {lines:?}");
        }
    }

    #[test]
    fn a_refusal_that_tells_no_reset_waits_for_a_unit_or_a_short_window() {
        let cases: [(u16, Lines, Option<u128>); 7] = [
            (429, &[("x-ratelimit-reset", "5")], Some(5_000)),
            (429, &[("x-hubspot-ratelimit-interval-milliseconds", "10000")], Some(10_000)),
            (429, &[("x-ratelimit-remaining-minute", "0")], Some(60_000)),
            (200, &[("x-ratelimit-remaining-minute", "0")], None),
            (429, &[("x-ratelimit-remaining-day", "0")], None),
            (429, &[("x-amzn-ratelimit-limit", "0.0167")], Some(59_900)),
            (429, &[], None),
        ];
        for (status, lines, expected) in cases {
            assert_eq!(millis(status, lines), expected, "{status} {lines:?}");
        }
    }

    #[test]
    fn numbers_mean_nothing_where_no_quota_refused() {
        const SPENT: Lines =
            &[("x-app-rate-limit", "20:1"), ("x-app-rate-limit-count", "20:1"), ("x-rate-limit-type", "service")];
        assert_eq!(millis(429, SPENT), None);
    }

    #[test]
    fn a_penalty_holds_where_nothing_is_told() {
        let wait = |lines| read(Dialect::AIRTABLE, 429, lines).wait().map(|wait| wait.as_secs());
        assert_eq!((wait(&[]), wait(&[("retry-after", "5")])), (Some(30), Some(5)));
        assert_eq!(read(Dialect::AIRTABLE, 200, &[]).wait(), None);
    }

    #[test]
    fn no_wait_is_longer_than_the_longest() {
        let cases: [(Lines, bool); 5] = [
            (&[("retry-after", "1000000")], false),
            (&[("retry-after", "2678400")], false),
            (&[("retry-after", "2678401")], true),
            (&[("retry-after", "9223372036854775807")], true),
            (&[("retry-after", "Wed, 01 Jan 2138 00:00:00 GMT")], true),
        ];
        for (lines, over_cap) in cases {
            let feedback = read(Dialect::GENERAL, 429, lines);
            assert_eq!(feedback.over_cap(), over_cap, "{lines:?}");
            assert_eq!(
                feedback.wait() == Some(Feedback::LONGEST_WAIT),
                over_cap || lines[0].1 == "2678400",
                "{lines:?}"
            );
            assert!(feedback.told_wait() >= feedback.wait(), "{lines:?}");
        }
    }

    #[test]
    fn only_whole_seconds_of_a_reset_have_a_margin() {
        let margin = |lines| read(Dialect::GENERAL, 429, lines).margin();
        assert_eq!(margin(&[("x-ratelimit-reset", "5")]), Duration::from_secs(1));
        assert_eq!(margin(&[("x-ratelimit-reset", "5.5")]), Duration::ZERO);
        assert_eq!(margin(&[("retry-after", "5")]), Duration::ZERO);
    }
}
