//! What the quotas that responses report mean for our limits.

use std::time::Duration;

use http::HeaderName;

use crate::config::limit::Limit;
use crate::feedback::{Feedback, Quota, Refusal, Unit};
use crate::ledger::QuotaReport;

/// What a response reports of our limits: none where it was refused for anything but a quota of ours.
pub(crate) fn reports(limits: &[Limit], feedback: &Feedback) -> Vec<QuotaReport> {
    if !matches!(feedback.refusal(), None | Some(Refusal::Quota)) {
        return Vec::new();
    }
    let report = |quota: &Quota| {
        let remaining = if quota.is_spent() { 0 } else { quota.remaining()? };
        let limit = limit_of(limits, quota)?;
        let term = limit.window_term();
        let span = Duration::from_micros(term.span.unsigned_abs());
        let reset = quota.reset_within().unwrap_or(span);
        // What comes back only much later is a longer limit's, which we do not know.
        let ours = quota.window().is_some() || reset <= 2 * span + Duration::from_secs(1);
        ours.then(|| QuotaReport::new(term, limit.window(), u32::try_from(remaining).unwrap_or(u32::MAX), reset))
    };
    feedback.quotas().iter().filter(|quota| is_of_calls(quota)).filter_map(report).collect()
}

fn is_of_calls(quota: &Quota) -> bool {
    quota.unit() == Unit::Calls && quota.limit() != Some(0)
}

/// The header that told how many calls are left.
pub(crate) fn told_by(feedback: &Feedback) -> Option<&HeaderName> {
    feedback.quotas().iter().filter(|quota| is_of_calls(quota)).find_map(Quota::header)
}

/// The limit that a quota seems to speak of.
fn limit_of<'a>(limits: &'a [Limit], quota: &Quota) -> Option<&'a Limit> {
    if let Some(window) = quota.window() {
        return limits.iter().find(|limit| limit.window() == window);
    }
    if let [only] = limits {
        return Some(only);
    }
    // One that was lowered is still the least that is no less.
    let told = quota.limit()?;
    limits.iter().filter(|limit| u64::from(limit.quota()) >= told).min_by_key(|limit| limit.quota())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Limits, what a response said, and the reports: quota, units left, seconds until the reset.
    type Case<'a> = (&'a [Limit], Quota, &'a [(u32, u32, u64)]);

    #[test]
    fn a_report_belongs_to_the_limit_that_it_seems_to_speak_of() {
        let one = [Limit::per_minute(100)];
        let two = [Limit::per_second(20), Limit::per_hour(1_000)];
        let left = || Quota::new().with_remaining(7);
        let cases: [Case<'_>; 13] = [
            (&one, left(), &[(100, 7, 61)]),
            (&one, left().with_limit(50), &[(100, 7, 61)]),
            (&one, left().with_limit(500), &[(100, 7, 61)]),
            (&one, left().with_reset_after(secs(9)), &[(100, 7, 10)]),
            (&one, left().with_reset_after(secs(3_000)), &[]),
            (&one, left().with_window(secs(3_600)), &[]),
            (&one, left().counting(Unit::Points), &[]),
            (&one, left().with_limit(0), &[]),
            (&one, Quota::new().with_limit(100), &[]),
            (&two, left(), &[]),
            (&two, left().with_limit(20), &[(20, 7, 1)]),
            (&two, left().with_limit(500), &[(1_000, 7, 3_601)]),
            (&two, left().with_limit(10).with_window(secs(3_600)), &[(1_000, 7, 3_601)]),
        ];
        for (limits, quota, expected) in cases {
            let told = reports(limits, &Feedback::default().with_quota(quota.clone()));
            let told: Vec<_> =
                told.iter().map(|report| (report.term.quota, report.remaining, report.reset.as_secs())).collect();
            assert_eq!(told, expected, "{quota:?}");
        }
    }

    #[test]
    fn a_refusal_that_is_not_for_our_quota_reports_nothing_of_it() {
        let reported = |feedback: Feedback| {
            let feedback = feedback.with_quota(Quota::new().with_limit(10).with_remaining(1));
            reports(&[Limit::per_minute(100)], &feedback).len()
        };
        let refused = |refusal| reported(Feedback::default().with_refusal(refusal));
        assert_eq!([reported(Feedback::default()), refused(Refusal::Quota)], [1, 1]);
        assert_eq!(
            [Refusal::Shared, Refusal::Service, Refusal::Lock, Refusal::Spend, Refusal::Ban].map(refused),
            [0; 5]
        );
    }
}
