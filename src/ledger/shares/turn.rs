//! Whose turn it is: callers that wait, and when each may start.

use std::sync::Arc;

use crate::ledger::{Priority, Stamp};

/// A caller that waits. Others may start before it, as long as it does not start later for it.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Turn {
    /// Units of each log of the ask.
    pub(in crate::ledger) charges: Arc<[u32]>,
    pub(in crate::ledger) start: Stamp,
    pub(in crate::ledger) priority: Priority,
}

impl Turn {
    /// By which turns are ordered in time.
    pub(in crate::ledger) const fn place_in_time(&self) -> (usize, Stamp) {
        (self.priority.place(), self.start)
    }
}

/// Turns in the order of time, once they are settled.
pub(in crate::ledger) fn in_time(turns: &[Turn]) -> Vec<&Turn> {
    let mut turns: Vec<&Turn> = turns.iter().collect();
    turns.sort_by_key(|turn| turn.place_in_time());
    turns
}

/// When the last of them starts.
pub(super) fn latest(turns: &[Turn]) -> Option<Stamp> {
    turns.iter().map(|turn| turn.start).max()
}
