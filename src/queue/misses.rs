//! How many slots a queue misses, as its process is woken later than the guard allows; and the warning that it misses many.

use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;

/// Looked at in parts of so long.
const SPAN: Duration = Duration::from_secs(10);
/// The warning is repeated after so long at the soonest.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// Fewer may be missed while a process stands still once.
const FEWEST: u32 = 20;

/// What became of slots since then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Misses {
    since: Option<Instant>,
    slots: u32,
    missed: u32,
    said_at: Option<Instant>,
}

impl Misses {
    /// Somebody was told that a slot has started.
    pub(super) const fn told(&mut self) {
        self.slots = self.slots.saturating_add(1);
    }

    /// One was missed, after somebody was told of it or before. Says how many of how many were until now, if that is to be said.
    fn missed(&mut self, was_told: bool, now: Instant) -> Option<(u32, u32)> {
        let counted_for = now.saturating_duration_since(*self.since.get_or_insert(now));
        let is_many = self.missed >= FEWEST && self.missed >= self.slots / 3;
        let is_said = is_many
            && (SPAN..2 * SPAN).contains(&counted_for)
            && self.said_at.is_none_or(|at| now.saturating_duration_since(at) >= SAID_AGAIN);
        // Some were told before the others were counted.
        let said = is_said.then_some((self.missed, self.slots.max(self.missed)));
        if is_said {
            self.said_at = Some(now);
        }
        if counted_for >= SPAN {
            (self.since, self.slots, self.missed) = (Some(now), 0, 0);
        }
        self.slots = self.slots.saturating_add(u32::from(!was_told));
        self.missed = self.missed.saturating_add(1);
        said
    }
}

impl Engine {
    /// A slot was stale before it was used, after somebody was told of it or before.
    pub(super) fn note_miss(&mut self, was_told: bool, now: Instant) {
        if let Some((missed, of)) = self.misses.missed(was_told, now) {
            tracing::warn!(
                upstream = &*self.settings.upstream,
                scope = self.settings.key.1.map(tracing::field::display),
                missed,
                of,
                may_be_late = ?self.settings.stale_after,
                "this process is woken later than the guard allows, and misses slots: a longer guard wastes fewer"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it is said, in seconds, where so many are used and so many missed each second.
    fn said(used: u32, missed: u32, seconds: u64) -> Vec<(u64, (u32, u32))> {
        let (begin, mut counted, mut said) = (Instant::now(), Misses::default(), Vec::new());
        for second in 0..seconds {
            (0..used).for_each(|_| counted.told());
            for _ in 0..missed {
                let now = begin + Duration::from_secs(second);
                said.extend(counted.missed(false, now).map(|what| (second, what)));
            }
        }
        said
    }

    #[test]
    fn it_is_said_once_a_minute_where_a_third_of_the_slots_is_missed() {
        assert_eq!(said(5, 5, 75), [(10, (50, 105)), (70, (50, 100))]);
        assert_eq!(said(0, 5, 15), [(10, (50, 50))]);
        for (used, missed) in [(20, 5), (0, 1), (9, 0)] {
            assert_eq!(said(used, missed, 75), [], "{used} {missed}");
        }
    }

    #[test]
    fn a_process_that_stands_still_now_and_then_is_not_warned() {
        let (begin, mut misses) = (Instant::now(), Misses::default());
        for minute in 0..10 {
            let now = begin + Duration::from_secs(60 * minute);
            assert!((0..100).all(|_| misses.missed(true, now).is_none()));
        }
    }
}
