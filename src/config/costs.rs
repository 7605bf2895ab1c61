//! What a call takes of each log.

use std::ops::Deref;
use std::sync::Arc;

/// Logs that one call may be charged in.
pub(crate) const MAX_LOGS: usize = 16;

/// What most calls take: one of each.
static ONES: [u32; MAX_LOGS] = [1; MAX_LOGS];

/// Units of each log, in the order of the logs. Those of most calls are copied without a counted reference, which calls on several threads
/// would contend for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Costs {
    /// One of each of so many.
    OneEach(usize),
    /// Something else.
    Others(Arc<[u32]>),
}

impl Costs {
    pub(crate) fn of(units: &Arc<[u32]>) -> Self {
        let is_one_each = units.len() <= MAX_LOGS && units.iter().all(|&units| units == 1);
        if is_one_each { Self::OneEach(units.len()) } else { Self::Others(Arc::clone(units)) }
    }

    /// Whether a call takes of any log something else than one unit, or is charged in more logs than there can be.
    pub(crate) const fn is_large(&self) -> bool {
        matches!(self, Self::Others(_))
    }
}

impl Deref for Costs {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        match self {
            Self::OneEach(logs) => &ONES[..*logs],
            Self::Others(units) => units,
        }
    }
}

impl From<&Costs> for Arc<[u32]> {
    fn from(costs: &Costs) -> Self {
        match costs {
            Costs::OneEach(_) => (**costs).into(),
            Costs::Others(units) => Self::clone(units),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_what_they_were_made_of() {
        for (units, is_large) in
            [(vec![], false), (vec![1; 16], false), (vec![1, 2], true), (vec![0], true), (vec![1; 17], true)]
        {
            let of: Arc<[u32]> = units.into();
            let costs = Costs::of(&of);
            assert_eq!((&*costs, costs.is_large()), (&*of, is_large));
            assert_eq!(Arc::<[u32]>::from(&costs), of);
            assert_eq!(costs, Costs::of(&of.iter().copied().collect()), "whoever made them");
        }
    }
}
