//! How much sooner than a slot starts its queue wakes, where the machine wakes it late.
//!
//! Virtual machines whose memory is taken back while nobody touches it need milliseconds to run what has slept for a tenth of a second.
//! Where that is more than a slot may be late, as with windows of 100 ms, each slot would be stale, for ever. So a queue that missed a
//! slot wakes sooner for the next, and sleeps again for the rest: what has just run is woken on time.

use std::iter::successors;
use std::time::Duration;

use tokio::time::Instant;

/// Who was later than this stood still, and need not the next time.
const MOST: Duration = Duration::from_millis(50);
/// By so much it wakes too early, if the machine is as late again.
const MARGIN: Duration = Duration::from_millis(5);
/// Each slot that is used in time takes this part of it back, so that a machine which is late no more costs no wakes.
const PART: u32 = 256;
/// Timers are no finer.
const LEAST: Duration = Duration::from_millis(1);

/// Zero until a slot is missed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadStart {
    by: Duration,
    plan: Option<Plan>,
}

/// For which slot an early wake was planned last, and how early.
#[derive(Clone, Copy, Debug)]
struct Plan {
    start: Instant,
    by: Duration,
}

impl HeadStart {
    /// A slot was stale that started then. Where the wake for it was early already, it was later than that by as much again.
    pub(super) fn missed(&mut self, start: Instant, now: Instant) {
        let late = now.saturating_duration_since(start);
        if late > MOST {
            return;
        }
        let planned = self.plan.filter(|plan| plan.start <= start).map_or(Duration::ZERO, |plan| plan.by);
        self.by = self.by.max((planned + late).min(MOST) + MARGIN);
    }

    /// A slot was used in time that started then.
    pub(super) fn met(&mut self, start: Instant) {
        if self.plan.take_if(|plan| plan.start == start).is_none() {
            return;
        }
        self.by -= self.by / PART;
        if self.by < LEAST {
            self.by = Duration::ZERO;
        }
    }

    /// When to wake for a slot that starts then: where it is awake early, after half of what is left, as whoever sleeps for long is woken late again.
    pub(super) fn wakes_at(&mut self, start: Instant, now: Instant) -> Instant {
        let naps = successors(Some(self.by), |by| Some(*by / 2)).take_while(|by| *by >= LEAST);
        let mut sooner = naps.filter_map(|by| Some((by, start.checked_sub(by)?)));
        let Some((by, sooner)) = sooner.find(|(_, sooner)| now + LEAST <= *sooner) else { return start };
        if self.plan.is_none_or(|plan| plan.start != start) {
            self.plan = Some(Plan { start, by });
        }
        sooner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// How long after `now` it wakes for slots that start so many milliseconds later.
    fn wakes_after<const N: usize>(head_start: &mut HeadStart, now: Instant, starts: [u64; N]) -> [Duration; N] {
        starts.map(|start| head_start.wakes_at(now + ms(start), now) - now)
    }

    #[test]
    fn who_missed_a_slot_wakes_sooner_for_the_next_and_then_after_half_of_what_is_left() {
        let (now, mut head_start) = (Instant::now(), HeadStart::default());
        assert_eq!(wakes_after(&mut head_start, now, [100]), [100].map(ms));
        head_start.missed(now, now + ms(3));
        assert_eq!(wakes_after(&mut head_start, now, [100, 9, 8, 4, 2, 1]), [92, 1, 4, 2, 1, 1].map(ms));
        head_start.missed(now, now + ms(51));
        assert_eq!(wakes_after(&mut head_start, now, [100]), [92].map(ms), "nobody stands still each time");
    }

    #[test]
    fn who_missed_a_slot_in_spite_of_an_early_wake_was_late_by_that_as_well() {
        let (now, mut head_start) = (Instant::now(), HeadStart::default());
        head_start.missed(now, now + ms(5));
        for (misses, by) in [(1, 21), (3, 32), (1, 43), (1, 54), (1, 55), (1, 55)] {
            let start = now + ms(100);
            wakes_after(&mut head_start, now, [100, 100]);
            (0..misses).for_each(|_| head_start.missed(start, start + ms(6)));
            assert_eq!(head_start.by, ms(by));
            head_start.plan = None;
        }
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
