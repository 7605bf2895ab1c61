//! What an ask adds to a log before it is entered.

use super::Stamp;

/// Starts in ascending order, those that were added together as one: a call may take thousands of units.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// Each with the units up to its last one.
    runs: Vec<(Stamp, usize)>,
}

impl Added {
    /// Adds units that start then. Says whether those are any.
    pub(super) fn push(&mut self, start: Stamp, units: u32) -> bool {
        if units > 0 {
            self.runs.push((start, self.units() + units as usize));
        }
        units > 0
    }

    /// How many units.
    pub(super) fn units(&self) -> usize {
        self.runs.last().map_or(0, |(_, upto)| *upto)
    }

    /// The start of the unit with `n - 1` newer ones, where it is among these.
    pub(super) fn nth_newest(&self, n: usize) -> Option<Stamp> {
        let place = self.units().checked_sub(n)?;
        let run = self.runs.partition_point(|(_, upto)| *upto <= place);
        self.runs.get(run).map(|(start, _)| *start)
    }

    /// How many were added together.
    pub(super) const fn len(&self) -> usize {
        self.runs.len()
    }

    /// Keeps the first of those that were added together, so many.
    pub(super) fn truncate(&mut self, len: usize) {
        self.runs.truncate(len);
    }

    /// Each start, with its units.
    pub(super) fn into_steps(self) -> Vec<(Stamp, usize)> {
        let mut before = 0;
        let units_of = |(start, upto)| (start, upto - std::mem::replace(&mut before, upto));
        self.runs.into_iter().map(units_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_together_is_as_many_units_as_it_was() {
        let at = Stamp::from_micros;
        let mut added = Added::default();
        let pushed = [(3, 1), (5, 4_000_000_000), (5, 0), (9, 2)].map(|(start, units)| added.push(at(start), units));
        assert_eq!((pushed, added.len(), added.units()), ([true, true, false, true], 3, 4_000_000_003));
        let nth = [0, 1, 2, 3, 4_000_000_002, 4_000_000_003, 4_000_000_004].map(|n| added.nth_newest(n));
        assert_eq!(nth, [None, Some(9), Some(9), Some(5), Some(5), Some(3), None].map(|start| start.map(at)));
        added.truncate(2);
        assert_eq!(added.nth_newest(1), Some(at(5)));
        assert_eq!(added.into_steps(), [(at(3), 1), (at(5), 4_000_000_000)]);
    }
}
