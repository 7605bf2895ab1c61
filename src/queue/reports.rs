//! What the quotas that responses report mean for our limits.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderName;

use crate::config::charges::{CALLS, Charges};
use crate::config::limit::Limit;
use crate::feedback::{Feedback, Quota, Refusal, Unit};
use crate::ledger::QuotaReport;

/// What is left of a limit, by what a response says, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    limit: usize,
    units: u64,
    reset: Duration,
}

/// What a response reports of each log: nothing where it was refused for anything but a quota of ours.
pub(crate) fn reports(limits: &[Limit], charges: &Charges, feedback: &Feedback) -> BTreeMap<usize, Vec<QuotaReport>> {
    let (mut by_log, places): (BTreeMap<_, Vec<_>>, Vec<_>) = (BTreeMap::new(), charges.limits().collect());
    for Left { limit, units, reset } in left(limits, feedback) {
        let (log, term, quantum) = places[limit];
        let (term, left) = (charges.logs()[log].terms[term], u32::try_from(units / u64::from(quantum)));
        let report = QuotaReport::new(term, limits[limit].window(), left.unwrap_or(u32::MAX), reset);
        by_log.entry(log).or_default().push(report);
    }
    by_log
}

fn left(limits: &[Limit], feedback: &Feedback) -> Vec<Left> {
    if !matches!(feedback.refusal(), None | Some(Refusal::Quota)) {
        return Vec::new();
    }
    let of_quota = |quota: &Quota| {
        let units = if quota.is_spent() { 0 } else { quota.remaining()? };
        let limit = limit_of(limits, quota)?;
        let span = Duration::from_micros(limits[limit].window_term().span.unsigned_abs());
        let reset = quota.reset_within().unwrap_or(span);
        // What comes back only much later is a longer limit's, which we do not know.
        let ours = quota.window().is_some() || reset <= 2 * span + Duration::from_secs(1);
        ours.then_some(Left { limit, units, reset })
    };
    feedback.quotas().iter().filter_map(of_quota).collect()
}

/// The header that told how much is left of one of the limits.
pub(crate) fn told_by<'a>(limits: &[Limit], feedback: &'a Feedback) -> Option<&'a HeaderName> {
    feedback.quotas().iter().filter(|quota| limit_of(limits, quota).is_some()).find_map(Quota::header)
}

/// The limit that a quota seems to speak of, by its place.
fn limit_of(limits: &[Limit], quota: &Quota) -> Option<usize> {
    let unit = unit_of(quota).filter(|_| quota.limit() != Some(0))?;
    let mut of_unit = limits.iter().enumerate().filter(|(_, limit)| limit.unit() == unit);
    if let Some(window) = quota.window() {
        return of_unit.find(|(_, limit)| limit.window() == window).map(|(at, _)| at);
    }
    if let (Some((only, _)), None) = (of_unit.clone().next(), of_unit.clone().nth(1)) {
        return Some(only);
    }
    // One that was lowered is still the least that is no less.
    let told = quota.limit()?;
    let least = of_unit.filter(|(_, limit)| u64::from(limit.quota()) >= told).min_by_key(|(_, limit)| limit.quota());
    least.map(|(at, _)| at)
}

/// What a limit calls the unit that a quota counts.
fn unit_of(quota: &Quota) -> Option<&'static str> {
    match quota.unit() {
        Unit::Calls => Some(CALLS),
        Unit::Tokens => Some("tokens"),
        Unit::Points => Some("points"),
        Unit::Bytes => Some("bytes"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Limits, what a response said, and what it says is left: quota, units left, seconds until the reset.
    type Case<'a> = (&'a [Limit], Quota, &'a [(u32, u64, u64)]);

    #[test]
    fn a_report_belongs_to_the_limit_that_it_seems_to_speak_of() {
        let one = [Limit::per_minute(100)];
        let two = [Limit::per_second(20), Limit::per_hour(1_000)];
        let of = || Quota::new().with_remaining(7);
        let units = [Limit::per_minute(100), Limit::per_minute(9_000).of("tokens")];
        let cases: [Case<'_>; 15] = [
            (&one, of(), &[(100, 7, 61)]),
            (&one, of().with_limit(50), &[(100, 7, 61)]),
            (&one, of().with_limit(500), &[(100, 7, 61)]),
            (&one, of().with_reset_after(secs(9)), &[(100, 7, 10)]),
            (&one, of().with_reset_after(secs(3_000)), &[]),
            (&one, of().with_window(secs(3_600)), &[]),
            (&one, of().counting(Unit::Points), &[]),
            (&one, of().with_limit(0), &[]),
            (&one, Quota::new().with_limit(100), &[]),
            (&units, of().counting(Unit::Tokens), &[(9_000, 7, 61)]),
            (&units, of(), &[(100, 7, 61)]),
            (&two, of(), &[]),
            (&two, of().with_limit(20), &[(20, 7, 1)]),
            (&two, of().with_limit(500), &[(1_000, 7, 3_601)]),
            (&two, of().with_limit(10).with_window(secs(3_600)), &[(1_000, 7, 3_601)]),
        ];
        for (limits, quota, expected) in cases {
            let told = left(limits, &Feedback::default().with_quota(quota.clone()));
            let told: Vec<_> =
                told.iter().map(|left| (limits[left.limit].quota(), left.units, left.reset.as_secs())).collect();
            assert_eq!(told, expected, "{quota:?}");
        }
    }

    #[test]
    fn a_refusal_that_is_not_for_our_quota_reports_nothing_of_it() {
        let reported = |feedback: Feedback| {
            let feedback = feedback.with_quota(Quota::new().with_limit(10).with_remaining(1));
            left(&[Limit::per_minute(100)], &feedback).len()
        };
        let refused = |refusal| reported(Feedback::default().with_refusal(refusal));
        assert_eq!([reported(Feedback::default()), refused(Refusal::Quota)], [1, 1]);
        assert_eq!(
            [Refusal::Shared, Refusal::Service, Refusal::Lock, Refusal::Spend, Refusal::Ban].map(refused),
            [0; 5]
        );
    }
}
