//! Whose turn it is to be swept, of several parts of a table: what fell silent must not stay until as much is new.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// How long after one part the next one is swept, as calls come, in microseconds: of sixteen, each every 10 s.
const EVERY: i64 = 625_000;

/// Sees to it that each part is swept now and then, by whoever comes by.
#[derive(Debug)]
pub(crate) struct Turns {
    due: AtomicI64,
    next: AtomicUsize,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

impl Turns {
    pub(crate) const fn new() -> Self {
        Self { due: AtomicI64::new(i64::MIN), next: AtomicUsize::new(0) }
    }

    /// Whether it is time to sweep the next part, for whoever asks; mostly it is not.
    pub(crate) fn is_due(&self, now: i64) -> bool {
        self.next(now, 1).is_some()
    }

    /// The part to be swept at `now`, in microseconds, by whoever asks; mostly none.
    pub(crate) fn next(&self, now: i64, parts: usize) -> Option<usize> {
        let due = self.due.load(Ordering::Relaxed);
        if now < due {
            return None;
        }
        let next_due = now.saturating_add(EVERY);
        self.due.compare_exchange(due, next_due, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        self.next.fetch_add(1, Ordering::Relaxed).checked_rem(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_turn_and_one_at_a_time() {
        let turns = Turns::new();
        let at = [0, 1, 624_999, 625_000, 1_249_999, 1_250_000, 9_000_000].map(|now| turns.next(now, 3));
        assert_eq!(at, [Some(0), None, None, Some(1), None, Some(2), Some(0)]);
    }
}
