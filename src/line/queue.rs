//! The callers in their order, and the slots they hold. Pure: time is an argument.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
use crate::log::Stamp;

/// A booked start time, as its process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// What the store calls it.
    pub(crate) stamp: Stamp,
    /// When it starts on this process's clock: never before it does on the store's.
    pub(crate) start: Instant,
    /// What it takes of each log.
    pub(crate) costs: Arc<[u32]>,
    /// By how much the answer was slower than the fastest: the slot may have started earlier by as much.
    pub(crate) excess: Duration,
}

/// By when a caller wants its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// As soon as may be.
    #[default]
    Soon,
    /// No slot after this is of use.
    By(Instant),
    /// No slot but one that has started when the store answers.
    AtOnce,
}

/// A caller that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Ascending in order of arrival.
    pub(crate) ticket: u64,
    pub(crate) costs: Arc<[u32]>,
    pub(crate) joined: Instant,
    pub(crate) wish: Wish,
    pub(crate) slot: Option<Slot>,
    pub(crate) tell: oneshot::Sender<Result<Slot, Error>>,
}

/// Callers in order of arrival. Where several hold slots, theirs are in the same order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiters: VecDeque<Waiter>,
    /// How many of them hold a slot.
    slotted: usize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Callers without a slot, in order.
    pub(crate) fn unslotted(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(|waiter| waiter.slot.is_none())
    }

    pub(crate) fn has_unslotted(&self) -> bool {
        self.slotted < self.waiters.len()
    }

    /// Puts a caller in its place: at the end, unless it had a ticket before.
    pub(crate) fn join(&mut self, waiter: Waiter) {
        let at = self.waiters.partition_point(|other| other.ticket < waiter.ticket);
        self.slotted += usize::from(waiter.slot.is_some());
        self.waiters.insert(at, waiter);
    }

    /// Takes a caller out.
    pub(crate) fn leave(&mut self, ticket: u64) -> Option<Waiter> {
        let at = self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        self.remove(at)
    }

    /// Takes a caller out, unless it holds a slot.
    pub(crate) fn leave_unslotted(&mut self, ticket: u64) -> Option<Waiter> {
        let at = self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        if self.waiters[at].slot.is_some() { None } else { self.remove(at) }
    }

    fn remove(&mut self, at: usize) -> Option<Waiter> {
        let waiter = self.waiters.remove(at)?;
        self.slotted -= usize::from(waiter.slot.is_some());
        Some(waiter)
    }

    /// Gives a slot to the caller it was asked for, or if that has gone, or has one, to the next in line.
    ///
    /// Whether it is in time for the caller it was asked for, the store has judged.
    pub(crate) fn give_to(&mut self, ticket: u64, slot: Slot, now: Instant) -> Option<Slot> {
        let at = self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok();
        match at.and_then(|at| self.waiters.get_mut(at)).filter(|waiter| waiter.slot.is_none()) {
            Some(waiter) => {
                waiter.slot = Some(slot);
                self.slotted += 1;
                None
            }
            None => self.give(slot, now),
        }
    }

    /// Gives a slot to the next in line who wants its like. Whoever holds a later one moves up. What is left in the end,
    /// nobody here wants.
    pub(crate) fn give(&mut self, mut slot: Slot, now: Instant) -> Option<Slot> {
        for waiter in &mut self.waiters {
            let late = waiter.deadline(now).is_some_and(|deadline| slot.start > deadline);
            if late || waiter.costs != slot.costs {
                continue;
            }
            match &mut waiter.slot {
                None => {
                    waiter.slot = Some(slot);
                    self.slotted += 1;
                    return None;
                }
                Some(later) if later.start > slot.start => std::mem::swap(later, &mut slot),
                Some(_) => {}
            }
        }
        Some(slot)
    }

    /// Takes every slot that starts before `until` from its caller.
    pub(crate) fn take_slots_before(&mut self, until: Instant) -> Vec<Slot> {
        let early = |waiter: &mut Waiter| waiter.slot.take_if(|slot| slot.start < until);
        let slots: Vec<_> = self.waiters.iter_mut().filter_map(early).collect();
        self.slotted -= slots.len();
        slots
    }

    /// When the first slot starts.
    pub(crate) fn first_start(&self) -> Option<Instant> {
        if self.slotted == 0 {
            return None;
        }
        self.waiters.iter().find_map(|waiter| waiter.slot.as_ref()).map(|slot| slot.start)
    }

    /// Takes out the first caller whose slot has started, with it.
    pub(crate) fn pop_started(&mut self, now: Instant) -> Option<(Waiter, Slot)> {
        if self.first_start()? > now {
            return None;
        }
        let at = self.waiters.iter().position(|waiter| waiter.slot.is_some())?;
        let mut waiter = self.remove(at)?;
        let slot = waiter.slot.take()?;
        Some((waiter, slot))
    }

    /// Takes every caller out that is hopeless at its place: `hopeless` sees the caller without a slot, and the units of
    /// the first log that those before it want.
    pub(crate) fn drop_hopeless(&mut self, mut hopeless: impl FnMut(&Waiter, u64) -> Option<Error>) {
        if !self.has_unslotted() {
            return;
        }
        let mut ahead = 0;
        let mut at = 0;
        while at < self.waiters.len() {
            let waiter = &self.waiters[at];
            if waiter.slot.is_none() {
                if let Some(error) = hopeless(waiter, ahead) {
                    if let Some(waiter) = self.remove(at) {
                        // A caller that has gone needs no news.
                        let _ = waiter.tell.send(Err(error));
                    }
                    continue;
                }
                ahead += waiter.units();
            }
            at += 1;
        }
    }

    /// Takes everybody out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Waiter> {
        self.slotted = 0;
        std::mem::take(&mut self.waiters).into_iter()
    }
}

impl Waiter {
    /// No slot after this is of use.
    pub(crate) const fn deadline(&self, now: Instant) -> Option<Instant> {
        match self.wish {
            Wish::Soon => None,
            Wish::By(deadline) => Some(deadline),
            Wish::AtOnce => Some(now),
        }
    }

    /// What it takes of the first log.
    pub(crate) fn units(&self) -> u64 {
        u64::from(self.costs.first().copied().unwrap_or(0))
    }
}

impl Slot {
    /// Whether it is too late to use the slot.
    pub(crate) fn is_stale(&self, now: Instant, stale_after: Duration) -> bool {
        self.late(now) > stale_after
    }

    /// How long after its start it is, at most.
    pub(crate) fn late(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start) + self.excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(ticket: u64, cost: u32) -> (Waiter, oneshot::Receiver<Result<Slot, Error>>) {
        let (tell, told) = oneshot::channel();
        let waiter =
            Waiter { ticket, costs: [cost].into(), joined: Instant::now(), wish: Wish::Soon, slot: None, tell };
        (waiter, told)
    }

    fn slot(epoch: Instant, ms: u64, cost: u32) -> Slot {
        let start = epoch + Duration::from_millis(ms);
        Slot {
            stamp: Stamp::from_micros(i64::try_from(ms).unwrap()),
            start,
            costs: [cost].into(),
            excess: Duration::ZERO,
        }
    }

    fn slots(queue: &Queue) -> Vec<Option<i64>> {
        queue.waiters.iter().map(|waiter| waiter.slot.as_ref().map(|slot| slot.stamp.as_micros())).collect()
    }

    fn queue(costs: &[u32]) -> Queue {
        let mut queue = Queue::default();
        for (ticket, &cost) in costs.iter().enumerate() {
            queue.join(waiter(ticket as u64, cost).0);
        }
        queue
    }

    #[test]
    fn when_a_caller_leaves_everybody_behind_it_moves_up() {
        let epoch = Instant::now();
        let mut queue = queue(&[1, 1, 1, 1]);
        for ms in [10, 20, 30] {
            assert!(queue.give(slot(epoch, ms, 1), epoch).is_none());
        }
        let gone = queue.leave(0).and_then(|waiter| waiter.slot).unwrap();
        assert!(queue.give(gone, epoch).is_none());
        assert_eq!(slots(&queue), [Some(10), Some(20), Some(30)]);
        let gone = queue.leave(1).and_then(|waiter| waiter.slot).unwrap();
        let left = queue.give(gone, epoch).unwrap();
        assert_eq!((slots(&queue), left.stamp.as_micros()), (vec![Some(10), Some(20)], 30), "the last slot is left");
    }

    #[test]
    fn a_slot_goes_only_to_a_caller_of_its_cost() {
        let epoch = Instant::now();
        let mut queue = queue(&[5, 1, 5]);
        assert!(queue.give(slot(epoch, 10, 1), epoch).is_none());
        assert_eq!(slots(&queue), [None, Some(10), None]);
        assert!(queue.give(slot(epoch, 20, 1), epoch).is_some());
        assert_eq!(queue.pop_started(epoch + Duration::from_millis(10)).unwrap().0.ticket, 1);
        assert!(queue.pop_started(epoch + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn a_caller_that_comes_back_with_its_ticket_has_its_old_place() {
        let mut queue = queue(&[1, 1, 1]);
        let first = queue.leave(0).unwrap();
        queue.join(first);
        let order: Vec<_> = queue.waiters.iter().map(|waiter| waiter.ticket).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn the_hopeless_are_told_and_do_not_count_for_those_behind() {
        let mut queue = queue(&[1, 1, 1]);
        let mut seen = Vec::new();
        queue.drop_hopeless(|waiter, ahead| {
            seen.push(ahead);
            (waiter.ticket == 1).then_some(Error::Closed)
        });
        assert_eq!((seen, queue.len()), (vec![0, 1, 1], 2));
    }
}
