//! The callers in their order, and the slots that are theirs. Pure: time is an argument.

mod matching;
#[cfg(test)]
mod tests;
mod units;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use self::matching::Matching;
use self::units::Units;
use crate::error::Error;
use crate::ledger::Stamp;

/// Others, who know the store's clock no better than to half of what may be late, may start early by up to twice this part of it.
const EARLY: u32 = 8;

/// Places that are kept although nobody is in them any more.
const SPARE: usize = 64;

/// A booked start time, as its process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// What the store calls it.
    pub(crate) stamp: Stamp,
    /// When it starts on this process's clock.
    pub(crate) start: Instant,
    /// What it takes of each log.
    pub(crate) costs: Arc<[u32]>,
    /// By how much it may have started earlier, as the store's clock is not known yet.
    pub(crate) excess: Duration,
    /// The name that it was booked under.
    pub(crate) sender: u64,
}

/// By when a caller wants its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// As soon as may be.
    #[default]
    Soon,
    /// No slot after this is of use.
    By(Instant),
    /// No slot but one that has started when the store answers, or so soon after.
    AtOnce { within: Duration },
}

/// A caller that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Ascending in order of arrival.
    pub(crate) ticket: u64,
    pub(crate) costs: Arc<[u32]>,
    pub(crate) joined: Instant,
    pub(crate) wish: Wish,
    pub(crate) tell: oneshot::Sender<Result<Slot, Error>>,
}

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
        if self.places.back().is_none_or(|(last, _)| *last < ticket) {
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
        let early = self.slots.drain(..early).collect();
        self.without(early)
    }

    /// Drops every slot: the callers have none any more.
    pub(crate) fn drop_slots(&mut self) {
        let all = self.slots.drain(..).collect();
        self.without(all);
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

    /// Refuses callers without a slot, by their tickets in ascending order.
    pub(crate) fn refuse(&mut self, refused: Vec<(u64, Error)>, now: Instant) {
        let mut refused = refused.into_iter().peekable();
        self.drop_hopeless(now, |waiter, _| {
            while refused.next_if(|(ticket, _)| *ticket < waiter.ticket).is_some() {}
            refused.next_if(|(ticket, _)| *ticket == waiter.ticket).map(|(_, error)| error)
        });
    }

    /// Takes every caller out that is hopeless at its place: `hopeless` sees the caller without a slot, and the units of
    /// the first log that those before it want.
    pub(crate) fn drop_hopeless(&mut self, now: Instant, mut hopeless: impl FnMut(&Waiter, u64) -> Option<Error>) {
        if !self.has_unslotted() {
            return;
        }
        let mut ahead = 0;
        let mut errors = Vec::new();
        for waiter in self.unslotted(now) {
            match hopeless(waiter, ahead) {
                Some(error) => errors.push((waiter.ticket, error)),
                None => ahead += waiter.units(),
            }
        }
        for (ticket, error) in errors {
            let at = self.places.binary_search_by_key(&ticket, |(other, _)| *other);
            if let Some(waiter) = at.ok().and_then(|at| self.remove(at)) {
                // A caller that has gone needs no news.
                let _ = waiter.tell.send(Err(error));
            }
        }
        self.tidy();
    }

    /// Takes everybody out, and every slot.
    pub(crate) fn drain(&mut self) -> (impl Iterator<Item = Waiter> + use<>, VecDeque<Slot>) {
        let Self { places, slots, .. } = std::mem::take(self);
        (places.into_iter().filter_map(|(_, waiter)| waiter), slots)
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

impl Waiter {
    /// No slot after this is of use.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        match self.wish {
            Wish::Soon => None,
            Wish::By(deadline) => Some(deadline),
            Wish::AtOnce { within } => now.checked_add(within),
        }
    }

    /// Whether a slot is in time for it.
    fn is_served_by(&self, slot: &Slot, now: Instant) -> bool {
        self.deadline(now).is_none_or(|deadline| slot.start <= deadline)
    }

    /// What it takes of the first log.
    pub(crate) fn units(&self) -> u64 {
        of_first(&self.costs)
    }
}

impl Slot {
    /// Whether it is too late to use the slot.
    pub(crate) fn is_stale(&self, now: Instant, stale_after: Duration) -> bool {
        self.late(now) > stale_after.saturating_sub(stale_after / EARLY)
    }

    /// How long after its start it is, at most.
    pub(crate) fn late(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start) + self.excess
    }

    pub(crate) fn units(&self) -> u64 {
        of_first(&self.costs)
    }
}

/// Whether two costs are the same; mostly they are one.
fn is_same(one: &Arc<[u32]>, other: &Arc<[u32]>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn is_large(costs: &[u32]) -> usize {
    usize::from(*costs != [1])
}

/// What a call of these costs takes of the first log.
fn of_first(costs: &[u32]) -> u64 {
    u64::from(costs.first().copied().unwrap_or(0))
}
