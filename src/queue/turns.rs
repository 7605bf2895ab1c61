//! When it is whose turn, where slots come one by one to several processes. Pure.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use crate::ledger::Priority;

/// No shorter than this part of it is a rest for the others' sake.
const LEAST: f64 = 1.0 / 64.0;
/// Of those that have had no turn yet so many ask for each slot.
const FEW: f64 = 4.0;

/// So often in a row it looks in vain whether another slot was left, once one was.
const LOOKS: u8 = 3;

/// When a queue comes for its next slot.
#[derive(Debug)]
pub(super) struct Turns {
    /// When others that wait have had as many as this queue, by the priority of its callers; as far as that is known.
    own: [Option<Instant>; 3],
    /// Where a slot was left by everybody: so often it looks yet whether the next is, too, and when.
    looks: u8,
    look_at: Option<Instant>,
    left: LeftToOthers,
}

impl Turns {
    pub(super) const fn none() -> Self {
        Self { own: [None; 3], looks: 0, look_at: None, left: LeftToOthers(1.0) }
    }

    /// It has had one, and the next comes then, or is not known.
    pub(super) const fn note(&mut self, priority: Priority, next: Option<Instant>) {
        self.own[priority.place()] = next;
    }

    /// A slot goes back unused: it has had less than its turn, and the next is now.
    pub(super) fn handed_back(&mut self, now: Instant) {
        self.own = self.own.map(|own| own.and(Some(now)));
    }

    /// When it comes: when its turn is, the `first` where none is known, or to look for a slot that is left.
    pub(super) fn next(&self, priority: Priority, first: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        let own = self.own[priority.place()].or_else(first);
        own.map(|own| self.look_at.map_or(own, |look_at| own.min(look_at)))
    }

    /// Where slots are far apart: whether the one that it got, if any, had been left by those who could have had it before, and when
    /// the next has been left as well.
    pub(super) fn look(&mut self, was_left: bool, next_left_at: Option<Instant>) {
        self.looks = if was_left { LOOKS } else { self.looks.saturating_sub(1) };
        self.look_at = next_left_at.filter(|_| self.looks > 0);
    }

    /// Where they are not: whether the first that it got had been left.
    pub(super) const fn found(&mut self, was_left: bool) {
        self.left.found(was_left);
    }

    /// So long it rests of what it would for the others' sake, where it is so long until the last of its own slots.
    pub(super) fn rest(&self, rest: Duration, own: Duration) -> Duration {
        self.left.rest(rest, own)
    }
}

/// How long a queue that knows of no turn of its own lets the others come first, where slots are so far apart: so that of those who are like
/// it, and have waited for so long, a few ask for each slot. As many others wait as it has weight, so many times.
pub(super) fn first_turn(interval: Duration, waited: Duration, others: f64, random: &mut Rng) -> Duration {
    let served = waited.div_duration_f64(interval);
    let left = others + 1.0 - served;
    if left <= FEW {
        return Duration::ZERO;
    }
    // Of a geometric distribution: each slot by the same chance.
    let passed = (1.0 - random.f64()).ln() / (1.0 - FEW / left).ln();
    interval.mul_f64(passed.floor().min(left))
}

/// The part of a rest for the others' sake that they need: half of it each time that no slot was taken when the queue came back, and
/// all of it again soon after they took what was left.
#[derive(Clone, Copy, Debug)]
struct LeftToOthers(f64);

impl LeftToOthers {
    /// The first of its callers could go at once: what had been left to others passed, and nobody took it.
    const fn found(&mut self, is_unused: bool) {
        self.0 = if is_unused { (self.0 / 2.0).max(LEAST) } else { (self.0 * 2.0).min(1.0) };
    }

    /// So long it rests of what it would, where it is so long until the last of its own slots.
    fn rest(self, rest: Duration, own: Duration) -> Duration {
        own.min(rest) + rest.saturating_sub(own).mul_f64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_nobody_takes_is_left_to_nobody() {
        let mut left = LeftToOthers(1.0);
        let rest = |left: LeftToOthers| left.rest(300 * MS, 140 * MS).as_millis();
        assert_eq!(rest(left), 300);
        left.found(true);
        assert_eq!(rest(left), 220);
        (0..10).for_each(|_| left.found(true));
        assert_eq!(rest(left), 142);
        (0..6).for_each(|_| left.found(false));
        assert_eq!(rest(left), 300);
        assert_eq!(left.rest(100 * MS, 140 * MS).as_millis(), 100);
    }

    #[test]
    fn of_those_that_have_had_no_turn_a_few_ask_for_each_slot() {
        let (interval, mut random) = (250 * MS, Rng::with_seed(1));
        for (others, waited) in [(3_u32, 0), (10, 2_000), (10, 10_000)] {
            assert_eq!(first_turn(interval, waited * MS, others.into(), &mut random), Duration::ZERO);
        }
        for (others, waited) in [(23, 0_u32), (23, 3_000), (99, 0)] {
            let left = others + 1 - waited / 250;
            let mut count = |slot: u32| {
                let comes = |_: &u32| first_turn(interval, waited * MS, others.into(), &mut random) == slot * interval;
                (0..1_000 * left).filter(comes).count()
            };
            // In a thousand crowds of as many.
            assert!((3_700..4_300).contains(&count(0)), "{others} others, {waited} ms");
            assert!(count(left) < 20 * usize::try_from(left).unwrap());
        }
    }

    #[test]
    fn its_turn_is_its_own_or_when_the_next_slot_was_left_too() {
        let (mut turns, now) = (Turns::none(), Instant::now());
        let next = |turns: &Turns| turns.next(Priority::Normal, || Some(now + 7 * MS)).map(|at| (at - now).as_millis());
        assert_eq!(next(&turns), Some(7), "its first");
        turns.note(Priority::Normal, Some(now + 900 * MS));
        assert_eq!([next(&turns), turns.next(Priority::High, || None).map(|_| 0)], [Some(900), None]);
        turns.look(true, Some(now + 300 * MS));
        assert_eq!(next(&turns), Some(300));
        for look in 1..LOOKS {
            turns.look(false, Some(now + 500 * MS));
            assert_eq!(next(&turns), Some(500), "somebody came for {look}");
        }
        turns.look(false, Some(now + 600 * MS));
        assert_eq!(next(&turns), Some(900), "and for each that it looked for");
        turns.handed_back(now);
        assert_eq!([next(&turns), turns.next(Priority::High, || None).map(|_| 0)], [Some(0), None]);
    }
}
