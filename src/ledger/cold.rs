//! Cold calls: they probably open a connection first, and arrive later than others.
//!
//! `lua/log.lua` says the same in Redis.

use std::sync::Arc;

use super::rule::Entries;
use super::{Log, Stamp, Term};

/// Calls whose starts lie closer together than this part of a span are entered as one, so that there are few steps.
const STEPS: i64 = 16;

/// Calls that probably opened a connection, as their process tells the store once they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cold {
    /// When the first of them started.
    pub first: Stamp,
    /// When the last of them started.
    pub last: Stamp,
    /// Units of each log of the ask that tells it, of all calls together.
    pub charges: Arc<[u32]>,
}

impl Cold {
    /// Calls that started within this time, and took so many units of each log.
    #[must_use]
    pub fn new(first: Stamp, last: Stamp, charges: impl Into<Arc<[u32]>>) -> Self {
        Self { first, last, charges: charges.into() }
    }
}

impl Log {
    /// Whether a cold call counts longer in it.
    pub(crate) fn minds_cold(&self) -> bool {
        self.terms.iter().any(|term| term.cold > 0)
    }
}

/// Units of one term that cold calls took which started close together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    log: Arc<str>,
    /// The term's.
    span: i64,
    first: Stamp,
    last: Stamp,
    units: u32,
    /// When they count no more.
    lapse: Stamp,
}

/// The cold calls of a scope. Their units stand in the logs as all others do, and count from here once a log counts them no more.
#[derive(Clone, Debug, Default)]
pub(super) struct ColdCalls(Vec<Step>);

impl ColdCalls {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    /// What of it still counts.
    pub(super) fn at(&self, now: Stamp) -> Self {
        Self(self.0.iter().filter(|step| step.lapse > now).cloned().collect())
    }

    /// What of it is of other logs than these.
    pub(super) fn but_for(mut self, units: &[Arc<str>]) -> Self {
        self.0.retain(|step| !units.contains(&step.log));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing of it counts any more.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.0.iter().all(|step| step.lapse <= now)
    }

    /// Enters units of a log that cold calls took.
    pub(super) fn enter(&mut self, now: Stamp, log: &Log, cold: &Cold, units: u32) {
        let last = cold.last.min(now);
        let first = cold.first.min(last);
        let counts = |term: &Term| term.cold > 0 && units > 0 && term.slides();
        for Term { quota, span, cold, .. } in log.terms.iter().copied().filter(counts) {
            let lapse = last.plus(span + cold);
            let is_near = |step: &Step| (step.first.as_micros() - first.as_micros()).abs() <= span / STEPS;
            let is_same = |step: &Step| *step.log == *log.unit && step.span == span;
            let near = self.0.iter_mut().find(|step| is_same(step) && step.lapse > now && is_near(step));
            if let Some(step) = near {
                (step.first, step.last) = (step.first.min(first), step.last.max(last));
                (step.units, step.lapse) = (step.units.saturating_add(units).min(quota), step.lapse.max(lapse));
            } else {
                let (log, units) = (Arc::clone(&log.unit), units.min(quota));
                self.0.push(Step { log, span, first, last, units, lapse });
            }
        }
    }

    /// Whether any of a log still count.
    pub(super) fn concern(&self, log: &str, now: Stamp) -> bool {
        self.0.iter().any(|step| *step.log == *log && step.lapse > now)
    }

    /// Units of a term that the log counts no more at `start`, and which count nevertheless.
    pub(super) fn units(&self, log: &str, term: &Term, start: Stamp) -> u64 {
        self.of(log, term, start).map(|step| u64::from(step.units)).sum()
    }

    /// The earliest start, not before `start`, for `units` of a log beside what cold calls still take of it; `lowered` makes of a
    /// term what a rate leaves of it.
    #[inline]
    pub(super) fn earliest(
        &self,
        mut start: Stamp,
        log: &Log,
        lowered: impl Fn(Term) -> Term,
        units: u64,
        entries: &impl Entries,
    ) -> Stamp {
        if !self.is_empty() {
            for term in log.terms.iter().filter(|term| term.slides()) {
                start = self.beside(&log.unit, term, &lowered(*term), start, units, |n| entries.nth_newest(n));
            }
        }
        start
    }

    /// The same under one term.
    fn beside(
        &self,
        log: &str,
        term: &Term,
        lowered: &Term,
        mut start: Stamp,
        units: u64,
        nth_newest: impl Fn(usize) -> Option<Stamp>,
    ) -> Stamp {
        loop {
            let Some(ends) = self.of(log, term, start).map(|step| step.lapse).min() else { return start };
            let left = u64::from(lowered.quota).saturating_sub(self.units(log, term, start));
            let ready = match (left + 1).saturating_sub(units) {
                0 => ends,
                n => {
                    let entry = usize::try_from(n).ok().and_then(&nth_newest);
                    entry.map_or(start, |entry| entry.plus(lowered.span))
                }
            };
            if ready <= start {
                return start;
            }
            start = ready.min(ends);
        }
    }

    /// What counts beside the log at `start`.
    fn of<'a>(&'a self, log: &'a str, term: &'a Term, start: Stamp) -> impl Iterator<Item = &'a Step> {
        let counts = move |step: &Step| step.first.plus(step.span) <= start && start < step.lapse;
        self.0.iter().filter(move |step| *step.log == *log && step.span == term.span && counts(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// Calls of 10 units a second, of which `units` were cold and started at 0, beside a log that has `entries` since.
    fn start(cold: &[(i64, i64, u32)], entries: &[i64], floor: i64, units: u64) -> i64 {
        let log = Log::new("calls", [Term::new(10, SECOND).cold(250_000)]);
        let mut calls = ColdCalls::none();
        for &(first, last, units) in cold {
            calls.enter(at(last), &log, &Cold::new(at(first), at(last), []), units);
        }
        let nth = |n: usize| entries.len().checked_sub(n).map(|at| Stamp::from_micros(entries[at]));
        calls.beside("calls", &log.terms[0], &log.terms[0], at(floor), units, nth).as_micros()
    }

    #[test]
    fn cold_units_are_missing_from_the_quota_once_the_log_counts_them_no_more() {
        let (s, later) = (SECOND, SECOND + 250_000);
        assert_eq!(start(&[(0, 0, 10)], &[], s - 1, 10), s - 1, "until then they stand in the log");
        assert_eq!(start(&[(0, 0, 10)], &[], s, 1), later);
        assert_eq!([5, 6].map(|units| start(&[(0, 0, 5)], &[], s, units)), [s, later], "what they leave is free");
        assert_eq!(start(&[(0, 0, 9)], &[100, s - 5], s, 1), later, "the newest entry leaves after they do");
        assert_eq!(start(&[(0, 0, 9)], &[100], s + 50, 1), s + 100, "it leaves before they do");
        assert_eq!(start(&[(0, 0, 10), (100_000, 100_000, 4)], &[], s, 7), later + 100_000, "one step after the other");
        assert_eq!(start(&[(0, 50_000, 10)], &[], s, 1), later + 50_000, "until the last of them");
        assert_eq!(start(&[(0, 0, 10)], &[], later, 10), later, "they count no more");
    }

    #[test]
    fn calls_close_together_are_one_step_and_there_are_few() {
        let (log, mut calls) = (Log::new("calls", [Term::new(50, SECOND).cold(250_000)]), ColdCalls::none());
        let enter = |calls: &mut ColdCalls, log: &Log, now: i64, units| {
            calls.enter(at(now), log, &Cold::new(at(now), at(now), []), units);
        };
        for call in 0..1_000 {
            enter(&mut calls, &log, call * 1_000, 1);
        }
        assert!(calls.0.len() <= 17 && calls.0.iter().all(|step| step.units <= 63), "{calls:?}");
        enter(&mut calls, &log, SECOND, 999);
        assert_eq!(calls.0.iter().map(|step| step.units).max(), Some(50), "no more than the quota");
        let (at_once, hourly) = (calls.0.len(), Log::new("calls", [Term::new(9, 3_600 * SECOND)]));
        enter(&mut calls, &hourly, SECOND, 9);
        assert_eq!(calls.0.len(), at_once, "where they count no longer");
        assert!(!calls.is_spent(at(2 * SECOND)) && calls.is_spent(at(2 * SECOND + 250_000)));
    }
}
