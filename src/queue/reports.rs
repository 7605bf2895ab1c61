//! What the quotas that responses report mean for our limits.

use std::cmp::Reverse;
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

/// Why nothing is learned from what a response says of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Useless {
    Unit,
    Part,
    Window,
    Larger,
    Unclear,
    Nothing,
    Unsaid,
    Late,
    Shorter,
    Calendar,
}

impl Useless {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Unit => "no limit counts its unit",
            Self::Part => {
                "it has the name of a part of the calls, and is one of several of its host, or allows less than half of what the limit does"
            }
            Self::Window => "no limit of its unit has its window",
            Self::Larger => "it allows more than any of several limits that it may speak of",
            Self::Unclear => "several limits may be meant, and it does not say how much it allows",
            Self::Nothing => "it allows nothing at all, which is not believed",
            Self::Unsaid => "it does not say how much is left",
            Self::Late => "it says no window, and resets so late that it is a longer one than that of the limit",
            Self::Shorter => {
                "it says no window, allows less than half of what the limit does, and tells no late reset: it may be of a shorter window"
            }
            Self::Calendar => "its limit resets by the calendar",
        }
    }
}

/// What a response reports of each log: nothing where it was refused for anything but a quota of ours. `useless` is told of each quota
/// from which nothing is learned.
pub(crate) fn reports(
    limits: &[Limit],
    charges: &Charges,
    feedback: &Feedback,
    useless: impl FnMut(&Quota, Useless),
) -> BTreeMap<usize, Vec<QuotaReport>> {
    let (mut by_log, places): (BTreeMap<_, Vec<_>>, Vec<_>) = (BTreeMap::new(), charges.limits().collect());
    for Left { limit, units, reset } in left(limits, feedback, useless) {
        let (log, term, quantum) = places[limit];
        let (term, left) = (charges.logs()[log].terms[term], u32::try_from(units / u64::from(quantum)));
        let report = QuotaReport::new(term, limits[limit].window(), left.unwrap_or(u32::MAX), reset);
        enter(by_log.entry(log).or_default(), report);
    }
    by_log
}

/// Of several reports of one term the strictest counts.
fn enter(reports: &mut Vec<QuotaReport>, report: QuotaReport) {
    let strictness = |report: &QuotaReport| (Reverse(report.remaining), report.reset);
    match reports.iter_mut().find(|known| known.term.span == report.term.span) {
        Some(known) if strictness(&report) > strictness(known) => *known = report,
        Some(_) => {}
        None => reports.push(report),
    }
}

fn left(limits: &[Limit], feedback: &Feedback, mut useless: impl FnMut(&Quota, Useless)) -> Vec<Left> {
    if !matches!(feedback.refusal(), None | Some(Refusal::Quota)) {
        return Vec::new();
    }
    let of_quota = |quota: &Quota| {
        let left = left_of(limits, quota);
        match left {
            Err(why) => useless(quota, why),
            // It explains a refusal all the same.
            Ok(Left { limit, .. }) if limits[limit].resets_or_none().is_some() => useless(quota, Useless::Calendar),
            Ok(_) => {}
        }
        left.ok()
    };
    feedback.quotas().iter().filter_map(of_quota).collect()
}

fn left_of(limits: &[Limit], quota: &Quota) -> Result<Left, Useless> {
    let limit = limit_of(limits, quota)?;
    let units = if quota.is_spent() { 0 } else { quota.remaining().ok_or(Useless::Unsaid)? };
    if quota.may_be_of_shorter_window(limits[limit].quota().into(), limits[limit].window()) {
        return Err(Useless::Shorter);
    }
    let span = Duration::from_micros(limits[limit].window_term().span.unsigned_abs());
    let reset = quota.reset_within().unwrap_or(span);
    // What comes back only much later is a longer limit's, which we do not know.
    let ours = quota.window().is_some() || reset <= 2 * span + Duration::from_secs(1);
    if ours { Ok(Left { limit, units, reset }) } else { Err(Useless::Late) }
}

/// The header that told how much is left of one of the limits.
pub(crate) fn told_by<'a>(limits: &[Limit], feedback: &'a Feedback) -> Option<&'a HeaderName> {
    feedback.quotas().iter().filter(|quota| limit_of(limits, quota).is_ok()).find_map(Quota::header)
}

/// Whether the spent quota of a part of the calls explains a refusal: that says nothing of the limits.
pub(crate) fn is_for_part(limits: &[Limit], feedback: &Feedback) -> bool {
    feedback.quotas().iter().any(|quota| quota.is_spent() && limit_of(limits, quota) == Err(Useless::Part))
}

/// The limit that a quota seems to speak of, by its place.
fn limit_of(limits: &[Limit], quota: &Quota) -> Result<usize, Useless> {
    if quota.limit() == Some(0) {
        return Err(Useless::Nothing);
    }
    let unit = unit_of(quota).ok_or(Useless::Unit)?;
    let of_unit = limits.iter().enumerate().filter(|(_, limit)| limit.unit() == unit);
    of_unit.clone().next().ok_or(Useless::Unit)?;
    let of_window = of_unit.clone().filter(|(_, limit)| quota.window().is_none_or(|window| limit.window() == window));
    let limit = limit_whatever_its_name(of_window, quota);
    // What is left of a part of the calls says nothing of the rest.
    let is_of_part = |limit: &Limit| quota.is_of_part(limit.quota().into());
    let is_part =
        limit.map_or_else(|_| of_unit.clone().all(|(_, limit)| is_of_part(limit)), |at| is_of_part(&limits[at]));
    if is_part { Err(Useless::Part) } else { limit }
}

/// The same, of the limits of its unit and window.
fn limit_whatever_its_name<'a>(
    of_window: impl Iterator<Item = (usize, &'a Limit)> + Clone,
    quota: &Quota,
) -> Result<usize, Useless> {
    let (first, _) = of_window.clone().next().ok_or(Useless::Window)?;
    let all_share = |limit: &Limit| limit.own_scope().is_none();
    let same = of_window.clone().filter(|(_, limit)| quota.allows(limit.quota().into()));
    if let Some((same, _)) = same.min_by_key(|(_, limit)| all_share(limit)) {
        return Ok(same);
    }
    if of_window.clone().nth(1).is_none() {
        return Ok(first);
    }
    // One that was lowered is still the least that is no less: of one merchant rather than of all.
    let told = quota.limit().ok_or(Useless::Unclear)?;
    let least = of_window
        .filter(|(_, limit)| u64::from(limit.quota()) >= told)
        .min_by_key(|(_, limit)| (limit.quota(), all_share(limit)));
    least.map(|(at, _)| at).ok_or(Useless::Larger)
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
    use crate::config::reset::Reset;
    use crate::config::scope::Scope;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Limits, what a response said, and what it says is left: quota, units left, seconds until the reset; or why nothing is learned.
    type Case<'a> = (&'a [Limit], Quota, Result<(u32, u64, u64), Useless>);

    #[test]
    fn a_report_belongs_to_the_limit_that_it_seems_to_speak_of() {
        let one = [Limit::per_minute(100)];
        let second = [Limit::per_second(20)];
        let two = [Limit::per_second(20), Limit::per_hour(1_000)];
        let merchants = [Limit::per_second(100), Limit::per_second(10)];
        let of = || Quota::new().with_remaining(7);
        let units = [Limit::per_minute(100), Limit::per_minute(9_000).of("tokens")];
        let part = || of().named("search").with_reset_after(secs(9));
        let spent = || Quota::new().with_remaining(0);
        let cases: [Case<'_>; 47] = [
            (&one, of(), Ok((100, 7, 61))),
            (&one, of().with_limit(50), Ok((100, 7, 61))),
            (&one, of().with_limit(49), Err(Useless::Shorter)),
            (&one, of().with_limit(49).with_reset_after(secs(30)), Err(Useless::Shorter)),
            (&one, of().with_limit(49).with_reset_after(secs(31)), Ok((100, 7, 32))),
            (&one, of().with_limit(50).with_reset_after(secs(9)), Ok((100, 7, 10))),
            (&one, of().with_limit(49).with_window(secs(60)), Ok((100, 7, 61))),
            (&one, spent().with_limit(49), Err(Useless::Shorter)),
            (&one, Quota::new().with_limit(2).with_remaining(90), Ok((100, 90, 61))),
            (&units, of().counting(Unit::Tokens).with_limit(1_500), Err(Useless::Shorter)),
            (&two, of().with_limit(21).with_reset_after(secs(60)), Err(Useless::Shorter)),
            (&second, of().with_limit(9), Ok((20, 7, 1))),
            (&one, of().with_limit(500), Ok((100, 7, 61))),
            (&one, of().with_reset_after(secs(9)), Ok((100, 7, 10))),
            (&one, of().with_reset_after(secs(3_000)), Err(Useless::Late)),
            (&one, of().with_window(secs(3_600)), Err(Useless::Window)),
            (&one, of().counting(Unit::Points), Err(Useless::Unit)),
            (&one, of().with_limit(0), Err(Useless::Nothing)),
            (&one, Quota::new().with_limit(100), Err(Useless::Unsaid)),
            (&units, of().counting(Unit::Tokens), Ok((9_000, 7, 61))),
            (&units, of(), Ok((100, 7, 61))),
            (&two, of(), Err(Useless::Unclear)),
            (&two, of().with_limit(20), Ok((20, 7, 1))),
            (&two, of().with_limit(500), Ok((1_000, 7, 3_601))),
            (&two, of().with_limit(10).with_window(secs(3_600)), Ok((1_000, 7, 3_601))),
            (&two, of().with_limit(2_000), Err(Useless::Larger)),
            (&one, part(), Ok((100, 7, 10))),
            (&one, part().with_limit(49), Err(Useless::Part)),
            (&one, part().with_limit(50), Ok((100, 7, 10))),
            (&one, part().with_limit(500), Ok((100, 7, 10))),
            (&one, part().with_limit(30).with_window(secs(60)), Err(Useless::Part)),
            (&one, part().with_limit(50).with_window(secs(60)), Ok((100, 7, 10))),
            (&one, part().with_limit(30).with_window(secs(1)), Err(Useless::Part)),
            (&one, part().with_limit(50).with_window(secs(1)), Err(Useless::Window)),
            (&one, part().with_limit(30).counting(Unit::Points), Err(Useless::Unit)),
            (&one, part().with_limit(100), Ok((100, 7, 10))),
            (&two, part(), Err(Useless::Unclear)),
            (&two, part().with_limit(30), Err(Useless::Part)),
            (&two, part().with_limit(500), Ok((1_000, 7, 10))),
            (&two, part().with_limit(20).with_window(secs(1)), Ok((20, 7, 10))),
            (&one, part().named("default").with_limit(50), Ok((100, 7, 10))),
            (&one, part().named("5-in-1min").with_limit(5).with_window(secs(60)), Ok((100, 7, 10))),
            (&[Limit::per_second(9), Limit::per_second(5)], of().with_limit(5).with_window(secs(1)), Ok((5, 7, 1))),
            (&merchants, of().named("default").with_limit(8).with_window(secs(1)), Ok((10, 7, 1))),
            (&merchants, of().with_limit(90).with_window(secs(1)), Ok((100, 7, 1))),
            (&merchants, of().with_limit(101).with_window(secs(1)), Err(Useless::Larger)),
            (&merchants, of().with_window(secs(1)), Err(Useless::Unclear)),
        ];
        for (limits, quota, expected) in cases {
            let mut why = Vec::new();
            let told = left(limits, &Feedback::default().with_quota(quota.clone()), |_, useless| why.push(useless));
            let told = told.iter().map(|left| Ok((limits[left.limit].quota(), left.units, left.reset.as_secs())));
            let told: Vec<_> = told.chain(why.into_iter().map(Err)).collect();
            assert_eq!(told, [expected], "{quota:?}");
        }
    }

    #[test]
    fn of_equal_quotas_a_report_is_of_the_one_that_fewest_share() {
        let each = || Limit::per_second(10).each(Scope::header("x-merchant"));
        for told in [10, 8] {
            let quota = Quota::new().with_remaining(7).with_limit(told).with_window(secs(1));
            assert_eq!(limit_of(&[Limit::per_second(10), each()], &quota), Ok(1), "{told}");
            assert_eq!(limit_of(&[each(), Limit::per_second(10)], &quota), Ok(0), "{told}");
        }
    }

    #[test]
    fn a_small_part_whose_name_or_owner_says_so_is_no_quota_of_ours() {
        type Lines = &'static [(&'static str, &'static str)];
        let minutes = [Limit::per_minute(700)];
        let cases: [(&[Limit], Lines, &[u64]); 11] = [
            (&minutes, &[("x-rate-limit", "700"), ("x-rate-limit-remaining", "9")], &[9]),
            (&minutes, &[("x-ratelimit-remaining", "9"), ("x-ratelimit-resource", "graphql")], &[]),
            (&minutes, &[("x-ratelimit-remaining", "9"), ("x-ratelimit-resource", "core")], &[9]),
            (
                &minutes,
                &[
                    ("x-rate-limit", "400"),
                    ("x-rate-limit-remaining", "5"),
                    ("zendesk-ratelimit-tickets-index", "total=20000; remaining=19999; resets=42"),
                    ("zendesk-ratelimit-incremental-exports", "total=10; remaining=0; resets=2"),
                ],
                &[5, 19_999],
            ),
            (
                &minutes,
                &[("ratelimit", r#""default";r=50;t=30"#), ("ratelimit-policy", r#""burst";q=100;w=60"#)],
                &[50],
            ),
            (
                &minutes,
                &[("ratelimit", r#""pages";r=0;t=30"#), ("ratelimit-policy", r#""fixed window";q=100;w=60"#)],
                &[],
            ),
            (
                &[Limit::new(100, secs(10))],
                &[
                    ("x-app-rate-limit", "90:10"),
                    ("x-app-rate-limit-count", "80:10"),
                    ("x-method-rate-limit", "40:10"),
                    ("x-method-rate-limit-count", "40:10"),
                ],
                &[10],
            ),
            (
                &[Limit::per_hour(7_200)],
                &[
                    ("ratelimit-limit", "120"),
                    ("ratelimit-remaining", "7000"),
                    ("ratelimit-observed", "200"),
                    ("ratelimit-name", "throttle_authenticated_api"),
                ],
                &[7_000],
            ),
            (
                &[Limit::per_hour(7_200)],
                &[
                    ("ratelimit-limit", "120"),
                    ("ratelimit-remaining", "0"),
                    ("ratelimit-observed", "7305"),
                    ("ratelimit-name", "throttle_authenticated_api"),
                ],
                &[0],
            ),
            (
                &[Limit::new(1_000, secs(300))],
                &[("ratelimit", r#""api";r=3;t=200"#), ("ratelimit-policy", r#""fixed window";"api";q=500;w=300"#)],
                &[3],
            ),
            (&[Limit::per_hour(1_200)], &[("x-ms-ratelimit-remaining-subscription-writes", "2")], &[2]),
        ];
        for (limits, lines, expected) in cases {
            let line = |&(name, value)| (HeaderName::from_static(name), http::HeaderValue::from_static(value));
            let headers = lines.iter().map(line).collect();
            let feedback = Feedback::read(http::StatusCode::OK, &headers, std::time::SystemTime::now());
            let left = left(limits, &feedback, |_, why| assert_eq!(why, Useless::Part, "{lines:?}"));
            assert_eq!(left.iter().map(|left| left.units).collect::<Vec<_>>(), expected, "{lines:?}");
        }
    }

    #[test]
    fn of_several_reports_of_one_term_the_strictest_counts() {
        let term = |span| crate::ledger::Term::new(100, span);
        let report = |span, left, reset| QuotaReport::new(term(span), secs(60), left, secs(reset));
        let all =
            [report(1, 9, 5), report(2, 3, 1), report(1, 4, 5), report(1, 4, 7), report(1, 4, 6), report(1, 99, 9)];
        let mut reports = Vec::new();
        for report in all {
            enter(&mut reports, report);
        }
        assert_eq!(reports, [report(1, 4, 7), report(2, 3, 1)]);
    }

    #[test]
    fn of_a_calendar_window_a_report_is_taken_and_teaches_nothing() {
        let days = [Limit::per_day(100).resets(Reset::daily("UTC"))];
        let (feedback, mut why) = (Feedback::default().with_quota(Quota::new().with_remaining(7)), Vec::new());
        assert_eq!(left(&days, &feedback, |_, useless| why.push(useless)).len(), 1);
        assert_eq!(why, [Useless::Calendar]);
    }

    #[test]
    fn a_refusal_that_is_not_for_our_quota_reports_nothing_of_it() {
        let reported = |feedback: Feedback| {
            let feedback = feedback.with_quota(Quota::new().with_limit(100).with_remaining(1));
            left(&[Limit::per_minute(100)], &feedback, |_, useless| panic!("{useless:?}")).len()
        };
        let refused = |refusal| reported(Feedback::default().with_refusal(refusal));
        assert_eq!([reported(Feedback::default()), refused(Refusal::Quota)], [1, 1]);
        assert_eq!(
            [Refusal::Shared, Refusal::Service, Refusal::Lock, Refusal::Spend, Refusal::Ban].map(refused),
            [0; 5]
        );
    }
}
