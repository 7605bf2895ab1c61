//! The callers in their order, and the slots that are theirs. Pure: time is an argument.

mod matching;
#[cfg(test)]
mod tests;
mod units;
mod waiter;

use std::collections::VecDeque;

use tokio::time::Instant;

use self::matching::Matching;
use self::units::Units;
pub(crate) use self::waiter::{Slot, UNBOOKED, Waiter, Wish};
use self::waiter::{is_large, is_same};
use crate::error::Error;

/// Places that are kept although nobody is in them any more.
const SPARE: usize = 64;

/// Callers in order of arrival, and slots in order of their starts.
///
/// A slot is nobody's own: the earliest is always the earliest caller's, among those of its cost whom it is in time for, in
/// whatever order slots and callers come and go. So nobody's slot passes while it waits in the wrong place.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Ascending by ticket. A caller that leaves from the middle leaves its place empty, until many are.
    places: VecDeque<(u64, Option<Waiter>)>,
    waiting: usize,
    /// Callers for whom a slot may come too late.
    hurried: usize,
    /// Callers and slots of another cost than one unit.
    large: usize,
    units: Units,
    /// Each is some caller's.
    slots: VecDeque<Slot>,
    slot_units: u64,
}

impl Waiters {
    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.waiting
    }

    /// How many slots are some caller's.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The first caller without a slot for whom none comes too late.
    pub(crate) fn first_patient(&self, now: Instant) -> Option<&Waiter> {
        let some = self.hurried < self.waiting;
        some.then(|| self.unslotted(now).find(|waiter| waiter.wish == Wish::Soon)).flatten()
    }

    /// Whether a slot may come too late for anybody.
    pub(crate) const fn has_hurried(&self) -> bool {
        self.hurried > 0
    }

    /// Callers without a slot, in order.
    pub(crate) fn unslotted(&self, now: Instant) -> impl Iterator<Item = &Waiter> {
        self.matching(now).filter(|(_, slot)| slot.is_none()).map(|(waiter, _)| waiter)
    }

    pub(crate) fn has_unslotted(&self) -> bool {
        self.slots.len() < self.waiting
    }

    /// Units of the first log that the callers without a slot want.
    pub(crate) const fn units_wanted(&self) -> u64 {
        self.units.total().saturating_sub(self.slot_units)
    }

    /// Units of the first log that the callers without a slot want who come before a ticket whose caller has none.
    pub(crate) fn units_before(&self, ticket: u64) -> u64 {
        let (begin, sum) = self.units.of_blocks_before(ticket);
        let from = self.places.partition_point(|(other, _)| *other < begin);
        let rest = self.places.range(from..).take_while(|(other, _)| *other < ticket);
        let rest = rest.filter_map(|(_, waiter)| waiter.as_ref()).map(Waiter::units).sum::<u64>();
        (sum + rest).saturating_sub(self.slot_units)
    }

    /// Puts a caller in its place: at the end, unless it had a ticket before.
    pub(crate) fn join(&mut self, waiter: Waiter) {
        self.waiting += 1;
        self.hurried += usize::from(waiter.wish != Wish::Soon);
        self.large += is_large(&waiter.costs);
        self.units.add(waiter.ticket, waiter.units());
        let ticket = waiter.ticket;
        if self.is_behind_all(ticket) {
            self.places.push_back((ticket, Some(waiter)));
            return;
        }
        match self.places.binary_search_by_key(&ticket, |(other, _)| *other) {
            Ok(at) => self.places[at].1 = Some(waiter),
            Err(at) => self.places.insert(at, (ticket, Some(waiter))),
        }
    }

    /// Takes a caller out, and with it the slots that nobody here wants then.
    pub(crate) fn leave(&mut self, ticket: u64, now: Instant) -> Option<Vec<Slot>> {
        let at = self.places.binary_search_by_key(&ticket, |(other, _)| *other).ok()?;
        self.remove(at)?;
        self.tidy();
        Some(self.unwanted(now))
    }

    /// Takes the caller out of a place. The place stays, so that those of the others do.
    fn remove(&mut self, at: usize) -> Option<Waiter> {
        let waiter = self.places.get_mut(at)?.1.take()?;
        self.waiting -= 1;
        self.hurried -= usize::from(waiter.wish != Wish::Soon);
        self.large -= is_large(&waiter.costs);
        self.units.take(waiter.ticket, waiter.units());
        Some(waiter)
    }

    /// Drops the empty places at the front, and all of them once they are the most.
    fn tidy(&mut self) {
        while self.places.front().is_some_and(|(_, waiter)| waiter.is_none()) {
            self.places.pop_front();
        }
        if self.places.len() > 2 * self.waiting + SPARE {
            self.places.retain(|(_, waiter)| waiter.is_some());
        }
        if self.places.capacity() > 4 * (self.places.len() + SPARE) {
            self.places.shrink_to(2 * self.places.len());
        }
    }

    /// Takes slots in, and gives back those that nobody here wants.
    pub(crate) fn give(&mut self, slots: impl IntoIterator<Item = Slot>, now: Instant) -> Vec<Slot> {
        for slot in slots {
            self.slot_units += slot.units();
            self.large += is_large(&slot.costs);
            let at = self.slots.iter().rposition(|other| other.start <= slot.start).map_or(0, |before| before + 1);
            self.slots.insert(at, slot);
        }
        self.unwanted(now)
    }

    /// Takes out the slots that are no caller's.
    fn unwanted(&mut self, now: Instant) -> Vec<Slot> {
        if self.slots.is_empty() {
            return Vec::new();
        }
        if self.is_plain() {
            let unwanted = self.slots.drain(self.waiting.min(self.slots.len())..).collect();
            return self.without(unwanted);
        }
        let mut matching = self.matching(now);
        while matching.has_slots() && matching.next().is_some() {}
        let unwanted = matching.into_unmatched();
        let taken = unwanted.into_iter().rev().filter_map(|at| self.slots.remove(at)).collect();
        self.without(taken)
    }

    /// Takes every slot that starts before `until` from the callers.
    pub(crate) fn take_slots_before(&mut self, until: Instant) -> Vec<Slot> {
        let early = self.slots.partition_point(|slot| slot.start < until);
        // Whoever looks whether a pause still holds starts within it.
        let (looks, early): (Vec<Slot>, Vec<Slot>) = self.slots.drain(..early).partition(|slot| slot.looks);
        for slot in looks.into_iter().rev() {
            self.slots.push_front(slot);
        }
        self.without(early)
    }

    /// Drops every slot, and says how many there were: the callers have none any more.
    pub(crate) fn drop_slots(&mut self) -> u32 {
        let all = self.slots.drain(..).collect();
        u32::try_from(self.without(all).len()).unwrap_or(u32::MAX)
    }

    /// Takes out the first caller without a slot.
    pub(crate) fn pop_unslotted(&mut self, now: Instant) -> Option<Waiter> {
        let ticket = self.unslotted(now).next()?.ticket;
        let at = self.places.binary_search_by_key(&ticket, |(other, _)| *other).ok()?;
        let waiter = self.remove(at);
        self.tidy();
        waiter
    }

    fn without(&mut self, taken: Vec<Slot>) -> Vec<Slot> {
        for slot in &taken {
            self.count_no_more(slot);
        }
        taken
    }

    /// A slot was taken out.
    fn count_no_more(&mut self, slot: &Slot) {
        self.slot_units -= slot.units();
        self.large -= is_large(&slot.costs);
    }

    /// When the first slot starts.
    pub(crate) fn first_start(&self) -> Option<Instant> {
        self.slots.front().map(|slot| slot.start)
    }

    /// Takes out the first slot, if it has started.
    pub(crate) fn pop_started(&mut self, now: Instant) -> Option<Slot> {
        self.slots.front().filter(|slot| slot.start <= now)?;
        let slot = self.slots.pop_front()?;
        self.count_no_more(&slot);
        Some(slot)
    }

    /// Takes out the caller whose the first slot was.
    pub(crate) fn pop_owner(&mut self, slot: &Slot, now: Instant) -> Option<Waiter> {
        let wants = |waiter: &Waiter| is_same(&waiter.costs, &slot.costs) && waiter.is_served_by(slot, now);
        let at = self.places.iter().position(|(_, waiter)| waiter.as_ref().is_some_and(wants))?;
        let waiter = self.remove(at);
        self.tidy();
        waiter
    }

    /// Takes callers without a slot out, by their tickets in ascending order. Says who was there.
    pub(crate) fn refuse(&mut self, refused: Vec<(u64, Error)>, now: Instant) -> Vec<(u64, Error)> {
        let mut refused = refused.into_iter().peekable();
        self.drop_hopeless(now, |waiter, _| {
            while refused.next_if(|(ticket, _)| *ticket < waiter.ticket).is_some() {}
            refused.next_if(|(ticket, _)| *ticket == waiter.ticket).map(|(_, error)| error)
        })
    }

    /// Takes every caller out that is hopeless at its place, and says why: `hopeless` sees the caller without a slot, and the
    /// units of the first log that those before it want.
    pub(crate) fn drop_hopeless(
        &mut self,
        now: Instant,
        mut hopeless: impl FnMut(&Waiter, u64) -> Option<Error>,
    ) -> Vec<(u64, Error)> {
        if !self.has_unslotted() {
            return Vec::new();
        }
        let mut ahead = 0;
        let mut errors = Vec::new();
        for waiter in self.unslotted(now) {
            match hopeless(waiter, ahead) {
                Some(error) => errors.push((waiter.ticket, error)),
                None => ahead += waiter.units(),
            }
        }
        for (ticket, _) in &errors {
            if let Ok(at) = self.places.binary_search_by_key(ticket, |(other, _)| *other) {
                self.remove(at);
            }
        }
        self.tidy();
        errors
    }

    /// Takes everybody out, and every slot: with the tickets in their order.
    pub(crate) fn drain(&mut self) -> (impl Iterator<Item = u64> + use<>, VecDeque<Slot>) {
        let Self { places, slots, .. } = std::mem::take(self);
        (places.into_iter().filter_map(|(_, waiter)| waiter).map(|waiter| waiter.ticket), slots)
    }

    /// Whether nobody has a later ticket.
    pub(crate) fn is_behind_all(&self, ticket: u64) -> bool {
        self.places.back().is_none_or(|(last, _)| *last < ticket)
    }

    /// Whether any slot does for any caller, as is mostly so.
    const fn is_plain(&self) -> bool {
        self.hurried == 0 && self.large == 0
    }

    /// Who has which slot.
    fn matching(&self, now: Instant) -> Matching<'_, impl Iterator<Item = &Waiter>> {
        let waiters = self.places.iter().filter_map(|(_, waiter)| waiter.as_ref());
        Matching::new(waiters, &self.slots, self.is_plain(), now)
    }
}
