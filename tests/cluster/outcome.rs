//! What happened to a cluster, and what it had to be.

use std::time::Duration;

use outgate::Limit;
use outgate::ledger::{SlidingLog, Stamp, Term};
use outgate::testing::{Arrival, oracle};

use crate::cluster::{Plan, micros};
use crate::settings::Results;
use crate::travel;

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    pub(crate) arrivals: Vec<Arrival>,
    /// Of the workers that lived.
    pub(crate) results: Vec<Results>,
    pub(crate) store_calls: Option<usize>,
}

impl Outcome {
    /// Calls that arrived within so long after the first.
    pub(crate) fn sent(&self, within: Duration) -> usize {
        let first = self.arrivals.first().map_or(0, |arrival| arrival.at);
        self.between(first, first + micros(within)).count()
    }

    /// Calls that arrived in `from..to` on the upstream's clock.
    pub(crate) fn between(&self, from: i64, to: i64) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(move |arrival| (from..to).contains(&arrival.at))
    }

    /// How many calls arrived in each `span` that begins at `from` or, so that none cuts through calls that start together,
    /// in the longest pause that begins soon after it.
    pub(crate) fn spans(&self, from: i64, span: i64, end: i64) -> Vec<usize> {
        in_spans(&self.stamps(), from, span, end)
    }

    /// What part of a limit's quota arrived in the spans, guard included, that lie in `from..to` after the first arrival.
    pub(crate) fn share(&self, limit: &Limit, from: Duration, to: Duration) -> f64 {
        let first = self.arrivals.first().map_or(0, |arrival| arrival.at);
        self.share_between(limit, first + micros(from), first + micros(to))
    }

    /// The same for spans that lie in `from..to` on the upstream's clock.
    pub(crate) fn share_between(&self, limit: &Limit, from: i64, to: i64) -> f64 {
        let span = micros(limit.window() + limit.guard_or_default());
        let spans = self.spans(from, span, to);
        let quota = usize::try_from(limit.quota()).unwrap_or(usize::MAX);
        ratio(spans.iter().sum(), quota * spans.len())
    }

    /// At how many calls a window began in which more left than their limit allows: how long they were on their way no throttle can help.
    pub(crate) fn overfull(&self, limit: &Limit) -> usize {
        let quota = usize::try_from(limit.quota()).unwrap_or(usize::MAX);
        let mut left: Vec<_> = self.arrivals.iter().filter_map(travel::left_at).collect();
        assert_eq!(left.len(), self.arrivals.len(), "each call says when it left");
        left.sort_unstable();
        let window = micros(limit.window());
        left.iter().zip(left.iter().skip(quota)).filter(|(first, beyond)| *beyond - *first < window).count()
    }

    pub(crate) fn refused(&self) -> usize {
        self.arrivals.iter().filter(|arrival| !arrival.admitted).count()
    }

    /// Store calls per call that was granted.
    pub(crate) fn store_calls_per_call(&self) -> Option<f64> {
        self.store_calls.map(|calls| ratio(calls, self.arrivals.len()))
    }

    /// The most calls that lie in any window of a limit, and how long after the first arrival that window begins.
    pub(crate) fn worst_window(&self, limit: &Limit) -> (u64, Duration) {
        let first = self.arrivals.first().map_or(0, |arrival| arrival.at);
        let worst = oracle::worst_window(&self.stamps(), micros(limit.window()));
        (worst.count, Duration::from_micros(worst.at.abs_diff(first)))
    }

    /// Calls of each worker that arrived within so long after the first of all.
    pub(crate) fn shares(&self, within: Duration) -> Vec<f64> {
        let first = self.arrivals.first().map_or(0, |arrival| arrival.at);
        self.shares_between(first, first + micros(within))
    }

    /// Calls of each worker that arrived in `from..to` on the upstream's clock.
    pub(crate) fn shares_between(&self, from: i64, to: i64) -> Vec<f64> {
        let of = |number: usize| {
            let caller = format!("worker-{number}");
            self.between(from, to).filter(|arrival| arrival.caller.as_ref() == Some(&caller)).map(|_| 1.0).sum()
        };
        (0..self.plan.demands.len()).map(of).collect()
    }

    /// The longest part of `from..to` on the upstream's clock in which nothing arrived.
    pub(crate) fn longest_gap(&self, from: i64, to: i64) -> Duration {
        let arrivals = self.between(from, to).map(|arrival| arrival.at).chain([to]);
        let gaps = arrivals.scan(from, |last, at| Some(at.abs_diff(std::mem::replace(last, at))));
        Duration::from_micros(gaps.max().unwrap_or(0))
    }

    /// Not one call was refused by anybody, and no window of the upstream's held more than the quota.
    #[track_caller]
    pub(crate) fn assert_nobody_was_refused(&self) {
        let name = &self.plan.name;
        assert_eq!(self.refused(), 0, "{name}: calls refused by the upstream");
        for limit in &self.plan.limits {
            oracle::assert_never_more_than(limit.quota().into(), micros(limit.window()), &self.stamps());
        }
        for results in &self.results {
            assert_eq!((results.refused, results.failed), (0, 0), "{name}: calls refused by the throttle, failed");
        }
    }

    /// At least 98 % of what the limits allow was sent.
    #[track_caller]
    pub(crate) fn assert_quota_was_used(&self, within: Duration) {
        let (sent, allowed) = (self.sent(within), allowed(&self.plan.limits, within));
        assert!(sent * 100 >= allowed * 98, "{}: {sent} of {allowed} calls", self.plan.name);
    }

    pub(crate) fn stamps(&self) -> Vec<i64> {
        self.arrivals.iter().map(|arrival| arrival.at).collect()
    }
}

/// The most calls that limits and their guards allow to arrive within such a time after the first.
///
/// A caller that is never late starts this many. Those that start within a guard of the end may arrive behind it.
pub(crate) fn allowed(limits: &[Limit], within: Duration) -> usize {
    let span = |limit: &Limit| micros(limit.window() + limit.guard_or_default());
    let terms: Vec<_> = limits.iter().map(|limit| Term::new(limit.quota(), span(limit))).collect();
    let guard = limits.iter().map(Limit::guard_or_default).max().unwrap_or_default();
    let (mut log, mut calls, begin) = (SlidingLog::new(), 0, Stamp::from_micros(0));
    loop {
        let start = log.earliest(begin, &terms, 1);
        if start.since(begin) + guard >= within {
            return calls;
        }
        log.append(start, 1, i64::MAX / 4);
        calls += 1;
    }
}

/// How many of these stamps lie in each span, as [`Outcome::spans`] has them.
fn in_spans(stamps: &[i64], from: i64, span: i64, end: i64) -> Vec<usize> {
    let pauses = stamps.windows(2).filter(|pair| (from..from + span).contains(&pair[0]));
    let pause = pauses.max_by_key(|pair| pair[1] - pair[0]);
    let from = pause.map_or(from, |pair| i64::midpoint(pair[0], pair[1]));
    let begins = (from..end - span).step_by(usize::try_from(span).unwrap_or(usize::MAX));
    begins.map(|begin| stamps.iter().filter(|&&at| (begin..begin + span).contains(&at)).count()).collect()
}

pub(crate) fn ratio(part: usize, whole: usize) -> f64 {
    let number = |calls: usize| u32::try_from(calls).map_or(f64::INFINITY, f64::from);
    number(part) / number(whole)
}

#[test]
fn no_span_cuts_through_calls_that_start_together_where_their_pause_ends_in_the_next() {
    // Four calls in each of five spans of a second, by turns close together and far apart, and a long pause behind them.
    let calls =
        |span: i64| if span % 2 == 0 { [0, 50, 300, 400] } else { [0, 50, 100, 150] }.map(|at| 1_000 * span + at);
    let stamps: Vec<i64> = (0..5).flat_map(calls).collect();
    assert_eq!(in_spans(&stamps, 1_990, 1_000, 5_000), [4, 4]);
    assert_eq!(in_spans(&stamps, 1_650, 1_000, 5_000), [4, 4], "the pause ends behind the first second");
}
