//! What refusals are evidence of.

use std::time::Duration;

use super::{Log, Term};

/// So few calls that are served between two refusals say nothing: those may have been under way.
const FEW: u32 = 10;

/// Calls that were refused for a quota, as evidence of what the upstream allows: as many as it served in the window before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// The log that they were charged in, of the scope that is paused.
    pub log: Log,
    /// How many calls were refused.
    pub calls: u32,
    /// Units that they were charged, all together.
    pub units: u32,
    /// The windows that the upstream may count by: a term of the log for each, and how long the upstream counts a call.
    pub windows: Vec<(Term, Duration)>,
}

impl Evidence {
    /// One call of so many units was refused.
    #[must_use]
    pub const fn new(log: Log, units: u32, windows: Vec<(Term, Duration)>) -> Self {
        Self { log, calls: 1, units, windows }
    }

    /// Whether as many units as these are a whole quota of the shortest window, and more than a few.
    pub(super) fn is_whole_quota(&self, units: usize) -> bool {
        let shortest = self.windows.iter().min_by_key(|(_, window)| *window);
        shortest.is_some_and(|(term, _)| units >= term.quota.max(FEW) as usize)
    }

    /// This and that of later refusals of the same log.
    pub(crate) fn and(self, later: &Self) -> Self {
        let (calls, units) = (self.calls.saturating_add(later.calls), self.units.saturating_add(later.units));
        Self { calls, units, ..self }
    }
}
