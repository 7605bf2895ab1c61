//! How much sooner than a slot starts its queue wakes, where the machine wakes it late.
//!
//! Virtual machines whose memory is taken back while nobody touches it need milliseconds to run what has slept for a tenth of a second.
//! Where that is more than a slot may be late, as with windows of 100 ms, each slot would be stale, for ever. So a queue that missed a
//! slot wakes sooner for the next, and sleeps again for the rest: what has just run is woken on time.

use std::time::Duration;

use tokio::time::Instant;

/// Who was later than this stood still, and need not the next time.
const MOST: Duration = Duration::from_millis(50);
/// Left for a sleep that is short, at most.
const NAP: Duration = Duration::from_millis(5);
/// Each slot that is used in time after an early wake takes this part of it back: to miss one now and then, and so learn whether all of it is still
/// needed, costs little beside 256 that are not missed.
const PART: u32 = 256;
/// Timers are no finer.
const LEAST: Duration = Duration::from_millis(1);

/// Zero until a slot is missed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadStart {
    by: Duration,
    /// The slot that it was used for last.
    used_for: Option<Instant>,
}

impl HeadStart {
    /// A slot was stale that started then.
    pub(super) fn missed(&mut self, start: Instant, now: Instant) {
        let late = now.saturating_duration_since(start);
        if late <= MOST {
            self.by = self.by.max(late + late.min(NAP));
        }
    }

    /// A slot was used in time that started then.
    pub(super) fn met(&mut self, start: Instant) {
        if self.used_for.take_if(|used_for| *used_for == start).is_none() {
            return;
        }
        self.by -= self.by / PART;
        if self.by < LEAST {
            self.by = Duration::ZERO;
        }
    }

    /// When to wake for a slot that starts then.
    pub(super) fn wakes_at(&mut self, start: Instant, now: Instant) -> Instant {
        let Some(sooner) = start.checked_sub(self.by).filter(|sooner| *sooner < start && now + LEAST <= *sooner) else {
            return start;
        };
        self.used_for = Some(start);
        sooner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn who_missed_a_slot_wakes_sooner_for_the_next() {
        let (now, mut head_start) = (Instant::now(), HeadStart::default());
        let wakes_after = |head_start: &mut HeadStart, start| head_start.wakes_at(now + ms(start), now) - now;
        assert_eq!(wakes_after(&mut head_start, 100), ms(100));
        head_start.missed(now, now + ms(4));
        assert_eq!([100, 9, 8, 1].map(|start| wakes_after(&mut head_start, start)), [92, 1, 8, 1].map(ms));
        head_start.missed(now, now + ms(20));
        head_start.missed(now, now + ms(3));
        assert_eq!(wakes_after(&mut head_start, 100), ms(75));
        head_start.missed(now, now + ms(51));
        assert_eq!(wakes_after(&mut head_start, 100), ms(75), "nobody stands still each time");
    }

    #[test]
    fn it_is_forgotten_slowly_where_slots_are_used_in_time_for_which_it_was_used() {
        let (now, mut head_start) = (Instant::now(), HeadStart::default());
        let after_more = |head_start: &mut HeadStart, wakes| {
            for slot in 0..wakes {
                let start = now + ms(100 + slot);
                head_start.wakes_at(start, now);
                (0..10).for_each(|_| head_start.met(start));
            }
            head_start.by
        };
        head_start.missed(now, now + ms(8));
        (0..1_000).for_each(|_| head_start.met(now));
        assert_eq!(head_start.by, ms(13));
        assert!(after_more(&mut head_start, 100) > ms(8), "{head_start:?}");
        assert_eq!(after_more(&mut head_start, 1_000), Duration::ZERO);
    }
}
