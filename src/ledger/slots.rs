//! Slots as an ask names them.

use std::sync::Arc;

use super::Stamp;

/// Slots of equal start and charges.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slots {
    /// How many slots.
    pub count: u32,
    /// When they start.
    pub start: Stamp,
    /// Units of each log of the ask that hands them back.
    pub charges: Arc<[u32]>,
    /// They were for a call that was to [look](super::Verdict::Looks) whether a pause still holds, and did not: another may.
    pub looks: bool,
}

impl Slots {
    /// So many slots of this start and these charges.
    #[must_use]
    pub fn new(count: u32, start: Stamp, charges: impl Into<Arc<[u32]>>) -> Self {
        Self { count, start, charges: charges.into(), looks: false }
    }
}
