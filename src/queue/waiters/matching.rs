//! Whose slot is whose: the earliest slot is the earliest caller's.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::waiter::{Slot, Waiter};
use crate::config::costs::Costs;

/// The callers in their order, each with the slot that is its own: the earliest of its cost that is nobody's before it, where
/// that is in time.
pub(super) struct Matching<'a, W> {
    waiters: W,
    slots: &'a VecDeque<Slot>,
    /// Any slot does for any caller.
    is_plain: bool,
    now: Instant,
    /// For each cost, the first slot that may still be had.
    next: Vec<(&'a Costs, usize)>,
    /// Slots that are nobody's yet.
    left: usize,
}

impl<'a, W: Iterator<Item = &'a Waiter>> Matching<'a, W> {
    pub(super) fn new(waiters: W, slots: &'a VecDeque<Slot>, is_plain: bool, now: Instant) -> Self {
        Self { waiters, slots, is_plain, now, next: Vec::new(), left: slots.len() }
    }

    /// Whether a slot is left for the next caller.
    pub(super) const fn has_slots(&self) -> bool {
        self.left > 0
    }

    /// The places of the slots that are nobody's so far, in ascending order.
    pub(super) fn into_unmatched(self) -> Vec<usize> {
        if self.left == 0 {
            return Vec::new();
        }
        let is_taken =
            |at: usize, slot: &Slot| self.next.iter().any(|(costs, next)| **costs == slot.costs && at < *next);
        (0..).zip(self.slots).filter(|(at, slot)| !is_taken(*at, slot)).map(|(at, _)| at).collect()
    }

    fn slot_of(&mut self, waiter: &'a Waiter) -> Option<&'a Slot> {
        if self.left == 0 {
            return None;
        }
        if self.is_plain {
            let slot = self.slots.get(self.slots.len() - self.left);
            self.left -= 1;
            return slot;
        }
        let known = self.next.iter().position(|(costs, _)| **costs == waiter.costs);
        let known = known.unwrap_or_else(|| {
            self.next.push((&waiter.costs, 0));
            self.next.len() - 1
        });
        let next = &mut self.next.get_mut(known)?.1;
        let rest = self.slots.range((*next).min(self.slots.len())..);
        let (skipped, slot) = (0..).zip(rest).find(|(_, slot)| slot.costs == waiter.costs)?;
        if !waiter.is_served_by(slot, self.now) {
            return None;
        }
        *next += skipped + 1;
        self.left -= 1;
        Some(slot)
    }
}

impl<'a, W: Iterator<Item = &'a Waiter>> Iterator for Matching<'a, W> {
    type Item = (&'a Waiter, Option<&'a Slot>);

    fn next(&mut self) -> Option<Self::Item> {
        let waiter = self.waiters.next()?;
        Some((waiter, self.slot_of(waiter)))
    }
}
