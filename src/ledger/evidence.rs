//! What refusals are evidence of.

use std::time::Duration;

use super::log::SlidingLog;
use super::pause::Pausing;
use super::{Log, Stamp, Term, micros};

/// So few calls that start between two refusals say nothing: those may have been under way.
const FEW: u32 = 10;
/// For so many microseconds more than it counts a log is kept wherever it is.
const KEPT: i64 = 10_000_000;

/// Calls that were refused for a quota, as evidence of what the upstream allows: as many as it served in the window before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// The log that they were charged in, of the scope that is paused.
    pub log: Log,
    /// How many calls were refused; zero where that says nothing of the limits.
    pub calls: u32,
    /// Units that they were charged, all together.
    pub units: u32,
    /// The windows that the upstream may count by: a term of the log for each, and how long the upstream has counted a call by then.
    pub windows: Vec<(Term, Duration)>,
}

impl Evidence {
    /// One call of so many units was refused.
    #[must_use]
    pub const fn new(log: Log, units: u32, windows: Vec<(Term, Duration)>) -> Self {
        Self { log, calls: 1, units, windows }
    }

    /// Whether a refusal told at `now` of a call that started then is of another row than the pause before: its call started as long after that as it
    /// had lasted, and at least a whole quota of the shortest window between, as far back as a log is sure to be kept.
    pub(super) fn ends_row(&self, before: Pausing, started: Stamp, now: Stamp, entries: &SlidingLog) -> bool {
        let windows = self.windows.iter().map(|&(term, window)| (term.quota, length(term, window)));
        let Some((quota, window)) = windows.min_by_key(|(_, window)| *window) else { return false };
        let since = before.until.max(now.plus(-(window + KEPT)));
        let served = entries.used_since(since).saturating_sub(entries.used_since(started));
        started >= before.until.plus(before.again) && served >= quota.max(FEW) as usize
    }

    /// This, and that of refusals of the same log which started before.
    pub(crate) fn and(self, earlier: &Self) -> Self {
        let (calls, units) = (self.calls.saturating_add(earlier.calls), self.units.saturating_add(earlier.units));
        Self { calls, units, ..self }
    }
}

/// How long a window is as a whole, about: one that was just reset has counted for less long. The span of any other is no more than twice as
/// long, unless its guard is longer than itself.
pub(super) fn length(term: Term, window: Duration) -> i64 {
    micros(window).max(term.span / 2)
}
