//! The rate of a scope: a factor on its quotas, by the evidence of what was served and what was refused.
//!
//! `lua/rate.lua` says the same in Redis.

use super::evidence::length;
use super::pause::{FAR, float, whole};
use super::{Evidence, SlidingLog, Stamp, Term, micros};

/// Factors are millionths.
pub(super) const FULL: i64 = 1_000_000;
/// A lowered rate stays for so many windows; where they are long, for ten minutes or for one window.
const WINDOWS: i64 = 20;
const LONG: i64 = 600_000_000;
/// A refusal that brings no other news lowers the rate by a part of it.
const PART: i64 = 16;
/// No evidence lowers it further.
const LEAST: i64 = FULL / 64;
/// The rate rises in so many steps.
const STEPS: i64 = 1_000;
/// After several refusals at once calls come slower for so many windows, so that another refusal finds few of them under way.
const SLOW_WINDOWS: i64 = 3;

/// A refusal, as the store takes it in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal<'a> {
    /// When the last refused call started.
    pub(super) started: Stamp,
    /// It belongs to the same incident as the one before.
    pub(super) is_same: bool,
    pub(super) evidence: &'a Evidence,
}

/// What refusals say that an upstream allows of a scope's quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Millionths of the quotas: all of them where the refusals are not believed yet.
    factor: i64,
    /// Of the terms with this span, or a shorter one.
    span: i64,
    /// The end of the pause: from then on the rate stays for `hold` microseconds, and then rises.
    since: Stamp,
    hold: i64,
    /// The factor before the incident, its refused calls and units, and the last start of one.
    before: i64,
    calls: i64,
    units: i64,
    latest: Stamp,
    /// What was served before refusals that were not believed; and before this incident.
    doubted: i64,
    served: i64,
    /// When it was told first.
    began: Stamp,
}

/// The window that refusals are taken to be about.
#[derive(Clone, Copy, Debug)]
struct Meant {
    /// What counted in it, and what of it was served, in millionths of the quota.
    full: i64,
    served: i64,
    span: i64,
    window: i64,
    /// It refused nobody before.
    had_room: bool,
}

impl Meant {
    const fn is_likelier_than(self, other: Self) -> bool {
        if self.had_room == other.had_room { self.full > other.full } else { other.had_room }
    }
}

impl Rate {
    /// The factor on the quotas now.
    pub(super) fn factor(&self, now: Stamp) -> i64 {
        let risen = now.as_micros() - self.since.as_micros() - self.hold;
        let step = if risen > 0 { (risen / (self.rise() / STEPS).max(1)).min(STEPS) } else { 0 };
        // Slowly first.
        self.factor + (FULL - self.factor) * step * step / (STEPS * STEPS)
    }

    /// For how long it rises.
    const fn rise(&self) -> i64 {
        self.hold / 4 * 3
    }

    /// What it leaves of the quotas until it rises.
    pub(super) const fn lowered_to(&self) -> i64 {
        self.factor
    }

    /// The longest span of the terms that it is for.
    pub(super) const fn span(&self) -> i64 {
        self.span
    }

    /// The same from the end of a pause on.
    pub(super) const fn since(self, until: Stamp) -> Self {
        Self { since: until, ..self }
    }

    /// When nothing of it matters any more.
    pub(super) const fn lapse(&self) -> Stamp {
        self.since.plus(self.hold + self.rise())
    }

    /// When it was told first.
    pub(super) const fn began(&self) -> Stamp {
        self.began
    }

    /// The factor on a term's quota now.
    pub(super) fn factor_of(&self, term: Term, now: Stamp) -> i64 {
        // Of the same window with another guard, too, or another capacity.
        let longest = self.span.saturating_add(self.span / 2);
        if term.span <= longest { self.factor(now) } else { FULL }
    }

    /// Whether a window refused nobody before, as more were served since then than it had room for, by far: `sent` units count in it by
    /// `latest`, of which `units` were refused. Of the window that was `meant` then it is known what was served.
    fn had_room(
        &self,
        is_meant: bool,
        log: &SlidingLog,
        (latest, window): (Stamp, i64),
        quota: i64,
        (sent, units): (i64, i64),
    ) -> bool {
        if self.latest <= latest.plus(-window) {
            return false;
        }
        let newer = |stamp: Stamp| i64::try_from(log.used_since(stamp.plus(1))).unwrap_or(i64::MAX / FULL);
        let (served, since) = (sent - units, newer(self.since.plus(-1)) - newer(latest) - units);
        let lapsed = if is_meant {
            since.max(0) + self.units + (self.served * quota + FULL - 1) / FULL - served
        } else {
            newer(self.latest.plus(-window)) - newer(latest.plus(-window))
        };
        // An upstream may let calls in evenly, as a bucket does.
        let passed = float(latest.as_micros() - self.latest.as_micros());
        let evenly = whole((float(served) * passed / float(window)).floor()) + 1;
        let lapsed = lapsed.max(0);
        since > lapsed + lapsed / 8 + quota / 64 + evenly
    }

    /// The rate after a refusal told at `now`, and for how long calls come slower after the pause. `None` where it says nothing.
    ///
    /// One call alone that was refused is not believed, unless it happens again while the rate would last; and where the window is longer
    /// than ten minutes nothing may show that it had room between.
    pub(super) fn after(
        before: Option<Self>,
        now: Stamp,
        refusal: Refusal<'_>,
        entries: Option<&SlidingLog>,
    ) -> Option<(Self, i64)> {
        let Refusal { started, is_same, evidence } = refusal;
        let active = before.filter(|rate| rate.lapse() > now);
        // A call that was under way before the pause was over saw the same, however late it is answered.
        let incident = active.filter(|of| is_same || started < of.since);
        let latest = incident.map_or(started, |of| of.latest.max(started));
        let calls = incident.map_or(0, |of| of.calls) + i64::from(evidence.calls);
        let units = incident.map_or(0, |of| of.units) + i64::from(evidence.units);

        // A call that started after the pause, be it to look whether that still holds.
        let is_another = active.is_some_and(|of| started >= of.since);
        // Of the windows of up to ten minutes, and of longer ones that may have refused those before, too, the fullest is probably meant.
        let mut meant: Option<Meant> = None;
        for &(term, window) in &evidence.windows {
            let (whole, window, quota) = (length(term, window), micros(window), i64::from(term.quota.max(1)));
            let sent = entries.map_or(0, |entries| entries.used_between(latest, latest, window));
            let sent = i64::try_from(sent).unwrap_or(i64::MAX / FULL);
            let had_room = active.filter(|_| whole > LONG).is_some_and(|of| {
                let is_meant = of.span == term.span;
                let had = |log| of.had_room(is_meant, log, (latest, window), quota, (sent, units));
                (is_another || !is_meant) && ((incident.is_some() && !is_meant) || entries.is_some_and(had))
            });
            let next = Meant {
                full: sent * FULL / quota,
                served: (sent - units) * FULL / quota,
                span: term.span,
                window: whole,
                had_room,
            };
            // A log that holds the refused calls no more says nothing of what was served.
            if sent >= units && meant.is_none_or(|before| next.is_likelier_than(before)) {
                meant = Some(next);
            }
        }
        let Meant { served, span, window, had_room, .. } = meant?;

        let begun = incident.is_none();
        let current = active.map_or(FULL, |rate| rate.factor(now));
        let before_it = if begun { current } else { incident.map_or(FULL, |of| of.before) };
        let is_again = |of: Self| is_another && of.span == span && !had_room;
        let may_doubt = |of: Self| if window > LONG { is_again(of) } else { begun };
        let doubted = match active {
            Some(of) if of.factor == FULL && may_doubt(of) => of.doubted.max(of.served),
            Some(of) if !begun => of.doubted,
            _ => 0,
        };
        let is_lowered = incident.is_some_and(|of| of.factor < FULL);
        let is_confirmed = !had_room && (before_it < FULL || doubted > 0) || is_lowered;
        let is_believed = is_confirmed || calls > 1;
        let told = served.max(doubted);
        let told = if told < before_it { told } else { before_it - before_it / PART };
        if !is_believed && before_it < FULL {
            return None;
        }
        let factor = if is_believed { told.max(before_it / 2).max(LEAST) } else { FULL };
        let hold = window.saturating_mul(WINDOWS).min(LONG.max(window));
        let rate = Self {
            factor,
            span,
            since: now,
            hold,
            before: before_it,
            calls,
            units,
            latest,
            doubted,
            served: served.max(1),
            began: incident.map_or(now, |of| of.began),
        };
        let recovery = if calls > 1 { window.saturating_mul(SLOW_WINDOWS).min(LONG) } else { 0 };
        Some((rate, recovery))
    }
}

/// A term with a factor on its quota. What a quota cannot be lowered by, since units are whole, makes the span longer.
///
/// The arithmetic is that of Lua, operation by operation, whose numbers are floats.
pub(super) fn lowered(term: Term, factor: i64) -> Term {
    if factor >= FULL {
        return term;
    }
    if let Some(bucket) = term.as_bucket() {
        return Term::bucket(bucket.lowered(float(FULL) / float(factor.max(1)))).cold(term.cold);
    }
    let scaled = i64::from(term.quota) * factor.max(1);
    let units = (scaled + FULL - 1) / FULL;
    let longer = (float(term.span) * (float(units * FULL - scaled) / float(scaled))).ceil();
    Term {
        quota: u32::try_from(units).unwrap_or(term.quota),
        span: term.span.saturating_add(whole(longer.min(FAR))),
        ..term
    }
}

#[cfg(test)]
mod cost;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::Log;

    const SECOND: i64 = 1_000_000;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// Forty calls in any second, with a guard of 50 ms.
    fn evidence(calls: u32) -> Evidence {
        let term = Term::new(40, SECOND + 50_000);
        Evidence { calls, ..Evidence::new(Log::new("calls", [term]), calls, vec![(term, Duration::from_secs(1))]) }
    }

    fn sent(count: u32, start: i64) -> SlidingLog {
        let mut log = SlidingLog::new();
        log.append(at(start), count, 2 * SECOND);
        log
    }

    fn after(before: Option<Rate>, now: i64, is_same: bool, calls: u32, log: &SlidingLog) -> (Rate, i64) {
        let (started, evidence) = (at(now - 1_000), evidence(calls));
        let refusal = Refusal { started, is_same, evidence: &evidence };
        let (rate, recovery) = Rate::after(before, at(now), refusal, Some(log)).unwrap();
        (rate.since(at(now + SECOND)), recovery)
    }

    #[test]
    fn as_many_as_were_served_in_the_window_before_are_allowed() {
        let log = sent(40, 10 * SECOND);
        let (first, recovery) = after(None, 10 * SECOND + 20_000, false, 1, &log);
        assert_eq!((first.factor, recovery), (FULL, 0), "one alone is not believed");
        let (all, recovery) = after(Some(first), 10 * SECOND + 30_000, true, 14, &log);
        assert_eq!((all.factor, recovery), (625_000, 3 * SECOND), "25 of 40 were served");
        assert_eq!(all.began, first.began);
    }

    #[test]
    fn a_refusal_alone_is_believed_when_it_happens_again() {
        let (first, _) = after(None, SECOND, false, 1, &sent(31, SECOND / 2));
        assert_eq!(first.factor, FULL);
        let (again, recovery) = after(Some(first), 5 * SECOND, false, 1, &sent(21, 9 * SECOND / 2));
        assert_eq!((again.factor, recovery), (750_000, 0), "30 were served before the first, so that many are allowed");
        let later = first.lapse().as_micros();
        let (late, _) = after(Some(first), later, false, 1, &sent(21, later - SECOND / 2));
        assert_eq!(late.factor, FULL, "long after it, it is alone again");
    }

    #[test]
    fn it_is_for_the_same_window_with_another_guard_and_for_shorter_ones() {
        let (rate, _) = after(None, SECOND, false, 20, &sent(40, SECOND / 2));
        let of = |span: i64| rate.factor_of(Term::new(40, span), at(2 * SECOND));
        assert_eq!([100_000, 1_050_000, 1_100_000, 1_575_000].map(of), [500_000; 4]);
        assert_eq!([1_575_001, 10 * SECOND].map(of), [FULL; 2]);
    }

    #[test]
    fn few_calls_are_no_evidence_that_few_are_allowed() {
        let (few, _) = after(None, SECOND, false, 3, &sent(4, SECOND / 2));
        assert_eq!(few.factor, FULL / 2, "halved at most");
        let (fewer, _) = after(Some(few), 5 * SECOND, false, 3, &sent(4, 9 * SECOND / 2));
        assert_eq!(fewer.factor, FULL / 4);
    }

    #[test]
    fn a_log_that_holds_the_refused_calls_no_more_is_no_evidence() {
        let evidence = evidence(3);
        let refusal = Refusal { started: at(0), is_same: false, evidence: &evidence };
        assert_eq!(Rate::after(None, at(0), refusal, Some(&sent(2, 0))), None);
        assert_eq!(Rate::after(None, at(0), refusal, None), None);
    }

    #[test]
    fn what_brings_no_news_lowers_it_a_little() {
        let (lowered, _) = after(None, SECOND, false, 2, &sent(80, SECOND / 2));
        assert_eq!(lowered.factor, FULL - FULL / PART);
    }

    #[test]
    fn it_stays_for_twenty_windows_and_rises_slowly_first() {
        let (rate, _) = after(None, SECOND, false, 20, &sent(40, SECOND / 2));
        let at_window = |windows: i64| rate.factor(at(2 * SECOND + windows * SECOND)) / 1_000;
        assert_eq!([0, 20, 22, 25, 30, 34, 35, 99].map(at_window), [500, 500, 508, 555, 721, 935, 1_000, 1_000]);
        assert_eq!(rate.lapse(), at(37 * SECOND));
    }

    #[test]
    fn of_long_windows_it_stays_for_one() {
        let hold = |window: u64| {
            let (term, log) = (Term::new(2, 1), Log::new("calls", []));
            let evidence = Evidence { calls: 2, ..Evidence::new(log, 2, vec![(term, Duration::from_secs(window))]) };
            let refusal = Refusal { started: at(0), is_same: false, evidence: &evidence };
            Rate::after(None, at(0), refusal, Some(&sent(2, 0))).unwrap().0.hold / SECOND
        };
        assert_eq!([1, 30, 60, 3_600, 86_400].map(hold), [20, 600, 600, 3_600, 86_400]);
    }

    #[test]
    fn a_lowered_term_allows_the_same_burst_less_often_where_units_are_whole() {
        let cases = [
            ((40, 1_050), 625_000, (25, 1_050)),
            ((1, 1_000), 500_000, (1, 2_000)),
            ((10, 100), 625_000, (7, 112)),
            ((3, 100), 1_000, (1, 33_334)),
            ((100, 9), FULL, (100, 9)),
        ];
        for ((quota, span), factor, expected) in cases {
            let term = lowered(Term::new(quota, span), factor);
            assert_eq!((term.quota, term.span), expected, "{quota} per {span}, {factor}");
        }
    }

    /// What `lua/README.md` says of a log that is kept for as long as its longest span was.
    #[test]
    fn a_longer_span_keeps_few_more_entries_than_the_quota() {
        for quota in [1_i64, 2, 3, 7, 10, 63, 64, 65, 100, 999, 1_000, 5_000, 1_000_000] {
            for factor in [1_000, LEAST, 100_000, 333_333, 500_000, 999_999] {
                let span = 1_000_000_000;
                let longer = lowered(Term::new(u32::try_from(quota).unwrap(), span), factor).span;
                let kept = i128::from(longer) * i128::from(quota) / i128::from(span);
                assert!(kept <= i128::from(quota + FULL / factor + 1), "{quota} {factor}: {kept}");
            }
        }
    }
}
