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
    used: u32,
    missed: u32,
    said_at: Option<Instant>,
}

impl Misses {
    /// Somebody was told that a slot has started.
    pub(super) const fn told(&mut self) {
        self.used = self.used.saturating_add(1);
    }

    /// One was missed, after somebody was told of it or before. Says how many of how many were, if that is to be said.
    fn missed(&mut self, was_told: bool, now: Instant) -> Option<(u32, u32)> {
        self.used = self.used.saturating_sub(u32::from(was_told));
        let since = *self.since.get_or_insert(now);
        let counted_for = now.saturating_duration_since(since);
        let of = self.used.saturating_add(self.missed);
        let is_many = (SPAN..2 * SPAN).contains(&counted_for) && self.missed >= FEWEST && self.missed >= of / 3;
        let said = is_many.then_some((self.missed, of));
        if counted_for >= SPAN {
            (self.since, self.used, self.missed) = (Some(now), 0, 0);
        }
        self.missed = self.missed.saturating_add(1);
        let said = said.filter(|_| self.said_at.is_none_or(|at| now.saturating_duration_since(at) >= SAID_AGAIN));
        if said.is_some() {
            self.said_at = Some(now);
        }
        said
    }
}

impl Engine {
    /// A slot was stale before it was used, after somebody was told of it or before.
    pub(super) fn note_miss(&mut self, was_told: bool, now: Instant) {
        if let Some((missed, of)) = self.misses.missed(was_told, now) {
            let (upstream, guard) = (&*self.settings.upstream, self.settings.stale_after * 2);
            tracing::warn!(
                upstream,
                missed,
                of,
                ?guard,
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
