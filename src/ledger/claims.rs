//! Callers of large charges that nobody may delay: a caller that was put off once keeps the next place of its size.

use std::sync::Arc;

use super::{MessageId, Priority, Stamp};

/// So many callers may claim a scope at once: each makes every decision dearer.
pub(super) const MAX_CLAIMS: usize = 8;

/// What a caller claims of the logs of one scope.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) owner: Owner,
    pub(super) start: Stamp,
    pub(super) lapse: Stamp,
    /// Units, by what they count.
    pub(super) units: Box<[(Arc<str>, u32)]>,
    pub(super) priority: Priority,
    /// Of its process.
    pub(super) weight: u32,
}

/// The queue that a caller who claims is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    sender: u64,
    stream: Arc<str>,
}

impl Owner {
    pub(super) fn of(id: &MessageId) -> Self {
        Self { sender: id.sender, stream: Arc::clone(&id.stream) }
    }

    /// Whether both are of one process.
    pub(super) const fn is_of(&self, other: &Self) -> bool {
        self.sender == other.sender
    }
}

impl Claim {
    /// Units claimed of the log that counts `unit`.
    pub(super) fn units_of(&self, unit: &str) -> u32 {
        self.units.iter().find(|(of, _)| **of == *unit).map_or(0, |(_, units)| *units)
    }
}
