//! The callers in their order, and the slots that are theirs. Pure: time is an argument.

mod matching;
mod part;
#[cfg(test)]
mod tests;
mod units;
mod waiter;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use self::matching::Matching;
use self::part::Part;
pub(crate) use self::units::Units;
pub(crate) use self::waiter::{Slot, UNBOOKED, Waiter, Wish, of_first};
use crate::config::priority::Priority;
use crate::error::Error;

/// Callers in order, and slots in order of their starts. Who has a higher priority goes first; of one priority, who came first.
///
/// A slot is nobody's own: the earliest is always the earliest caller's, among those of its cost whom it is in time for, in
/// whatever order slots and callers come and go. So nobody's slot passes while it waits in the wrong place.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Of high, normal and low priority.
    parts: [Part; 3],
    /// How long callers of low priority wait before they go first.
    patience_of_low: Option<Duration>,
    /// Callers of low priority that have waited so long are those with tickets before this.
    aged_below: u64,
    waiting: usize,
    /// Callers for whom a slot may come too late.
    hurried: usize,
    /// Callers and slots of another cost than one unit.
    large: usize,
    /// Each is some caller's.
    slots: VecDeque<Slot>,
    slot_units: Units,
}

impl Waiters {
    /// Nobody; callers of low priority will go first once they have waited so long.
    pub(crate) fn new(patience_of_low: Option<Duration>) -> Self {
        Self { patience_of_low, ..Self::default() }
    }

    /// Lets those of low priority go first who have waited for long enough by now. Where there are any, gives back the slots that nobody
    /// here wants then: whoever they pass may need an earlier one.
    pub(crate) fn age(&mut self, now: Instant) -> Option<Vec<Slot>> {
        let patience = self.patience_of_low?;
        let low = &self.parts[Priority::Low.place()];
        let has_aged = |waiter: &&Waiter| now.saturating_duration_since(waiter.joined) >= patience;
        let aged = low.since(self.aged_below).take_while(has_aged).last()?;
        self.aged_below = aged.ticket + 1;
        Some(self.unwanted(now))
    }

    /// When the next of low priority will have waited for long enough to go first.
    pub(crate) fn ages_at(&self) -> Option<Instant> {
        let next = self.parts[Priority::Low.place()].since(self.aged_below).next();
        next?.joined.checked_add(self.patience_of_low?)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.waiting
    }

    /// How many slots are some caller's.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// When the caller came who has waited longest: of each priority that is the first.
    pub(crate) fn first_joined(&self) -> Option<Instant> {
        self.parts.iter().filter_map(|part| part.all().next()).map(|waiter| waiter.joined).min()
    }

    /// When the first caller came, of those without a slot for whom none comes too late.
    pub(crate) fn first_patient(&self, now: Instant) -> Option<Instant> {
        if self.hurried == self.waiting {
            return None;
        }
        // Of each priority the first has waited longest.
        let mut rest = self.parts.each_ref().map(|part| !part.is_empty());
        let mut first = None::<Instant>;
        for waiter in self.unslotted(now).filter(|waiter| waiter.wish == Wish::Soon) {
            if std::mem::take(&mut rest[waiter.priority.place()]) {
                first = Some(first.map_or(waiter.joined, |first| first.min(waiter.joined)));
            }
            if !rest.contains(&true) {
                break;
            }
        }
        first
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

    /// The priority by which a caller asks beside others: one of low priority that has waited for long enough goes first.
    pub(crate) const fn rank(&self, waiter: &Waiter) -> Priority {
        let is_aged = matches!(waiter.priority, Priority::Low) && waiter.ticket < self.aged_below;
        if is_aged { Priority::High } else { waiter.priority }
    }

    /// Units that the callers without a slot want.
    pub(crate) fn units_wanted(&self) -> Units {
        let all = self.parts.iter().map(Part::units).fold(Units::default(), Units::and);
        all.without(&self.slot_units)
    }

    /// Units that the callers without a slot want who come before a caller that has none.
    pub(crate) fn units_before(&self, priority: Priority, ticket: u64) -> Units {
        self.all_units_before(priority, ticket).without(&self.slot_units)
    }

    fn all_units_before(&self, priority: Priority, ticket: u64) -> Units {
        let [high, normal, low] = &self.parts;
        let is_aged = priority == Priority::Low && ticket < self.aged_below;
        let is_before_aged = self.aged_below == 0 || low.is_empty();
        let aged = || if is_before_aged { Units::default() } else { low.units_before(self.aged_below) };
        match priority {
            Priority::Low if is_aged => low.units_before(ticket),
            Priority::High => high.units_before(ticket).and(&aged()),
            Priority::Normal => normal.units_before(ticket).and(high.units()).and(&aged()),
            Priority::Low => low.units_before(ticket).and(high.units()).and(normal.units()),
        }
    }

    /// Whether one of the slots is that of a caller who comes.
    pub(crate) fn has_slot_for(&self, waiter: &Waiter) -> bool {
        self.all_units_before(waiter.priority, waiter.ticket).of(0) < self.slot_units.of(0)
    }

    /// When that starts, where all want the same.
    pub(crate) fn slot_for(&self, waiter: &Waiter) -> Option<Instant> {
        let before = usize::try_from(self.all_units_before(waiter.priority, waiter.ticket).of(0)).ok()?;
        self.slots.get(before).filter(|slot| self.large == 0 && slot.costs == waiter.costs).map(|slot| slot.start)
    }

    /// Whether any caller, or slot, is of another cost than one unit.
    pub(crate) const fn has_large(&self) -> bool {
        self.large > 0
    }

    /// Who has this ticket.
    pub(crate) fn find(&self, ticket: u64) -> Option<&Waiter> {
        self.parts.iter().find_map(|part| part.since(ticket).next().filter(|waiter| waiter.ticket == ticket))
    }

    /// Puts a caller in its place: behind all of its priority, unless it had a ticket before.
    pub(crate) fn join(&mut self, waiter: Waiter) {
        self.waiting += 1;
        self.hurried += usize::from(waiter.wish != Wish::Soon);
        self.large += usize::from(waiter.costs.is_large());
        self.parts[waiter.priority.place()].join(waiter);
    }

    /// Takes a caller out, and with it the slots that nobody here wants then.
    pub(crate) fn leave(&mut self, ticket: u64, now: Instant) -> Option<Vec<Slot>> {
        self.remove(ticket)?;
        self.tidy();
        Some(self.unwanted(now))
    }

    fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let waiter = self.parts.iter_mut().find_map(|part| part.remove(ticket))?;
        self.is_without(&waiter);
        Some(waiter)
    }

    fn is_without(&mut self, waiter: &Waiter) {
        self.waiting -= 1;
        self.hurried -= usize::from(waiter.wish != Wish::Soon);
        self.large -= usize::from(waiter.costs.is_large());
    }

    fn tidy(&mut self) {
        self.parts.iter_mut().for_each(Part::tidy);
    }

    /// Takes slots in, and gives back those that nobody here wants.
    pub(crate) fn give(&mut self, slots: impl IntoIterator<Item = Slot>, now: Instant) -> Vec<Slot> {
        for slot in slots {
            self.slot_units.add(&slot.costs);
            self.large += usize::from(slot.costs.is_large());
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

    /// Takes every slot from the callers.
    pub(crate) fn take_slots(&mut self) -> Vec<Slot> {
        let all = self.slots.drain(..).collect();
        self.without(all)
    }

    /// Drops every slot, and says how many there were: the callers have none any more.
    pub(crate) fn drop_slots(&mut self) -> u32 {
        u32::try_from(self.take_slots().len()).unwrap_or(u32::MAX)
    }

    /// Takes out the first caller without a slot.
    pub(crate) fn pop_unslotted(&mut self, now: Instant) -> Option<Waiter> {
        let ticket = self.unslotted(now).next()?.ticket;
        let waiter = self.remove(ticket);
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
        self.slot_units.take(&slot.costs);
        self.large -= usize::from(slot.costs.is_large());
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
        let wants = |waiter: &&Waiter| waiter.costs == slot.costs && waiter.is_served_by(slot, now);
        let Waiter { ticket, priority, .. } = *self.in_order().find(wants)?;
        let part = &mut self.parts[priority.place()];
        let waiter = part.remove(ticket)?;
        part.tidy();
        self.is_without(&waiter);
        Some(waiter)
    }

    /// Takes callers without a slot out, by their tickets. Says who was there.
    pub(crate) fn refuse(&mut self, refused: Vec<(u64, Error)>, now: Instant) -> Vec<(u64, Error)> {
        let mut refused: HashMap<u64, Error> = refused.into_iter().collect();
        self.drop_hopeless(now, |waiter, _| refused.remove(&waiter.ticket))
    }

    /// Takes every caller out that is hopeless at its place, and says why: `hopeless` sees the caller without a slot, and the
    /// units that those before it want.
    pub(crate) fn drop_hopeless(
        &mut self,
        now: Instant,
        mut hopeless: impl FnMut(&Waiter, &Units) -> Option<Error>,
    ) -> Vec<(u64, Error)> {
        if !self.has_unslotted() {
            return Vec::new();
        }
        let mut ahead = Units::default();
        let mut errors = Vec::new();
        for waiter in self.unslotted(now) {
            match hopeless(waiter, &ahead) {
                Some(error) => errors.push((waiter.ticket, error)),
                None => ahead.add(&waiter.costs),
            }
        }
        for (ticket, _) in &errors {
            self.remove(*ticket);
        }
        self.tidy();
        errors
    }

    /// Takes everybody out, and every slot: with the tickets in their order.
    pub(crate) fn drain(&mut self) -> (Vec<u64>, VecDeque<Slot>) {
        let all = std::mem::replace(self, Self::new(self.patience_of_low));
        (all.in_order().map(|waiter| waiter.ticket).collect(), all.slots)
    }

    /// Whether nobody who waits comes behind a caller.
    pub(crate) fn is_behind_all(&self, waiter: &Waiter) -> bool {
        let place = waiter.priority.place();
        let is_last = self.parts[place].is_behind_all(waiter.ticket);
        is_last && self.parts[place + 1..].iter().all(Part::is_empty)
    }

    /// Everybody in order.
    fn in_order(&self) -> impl Iterator<Item = &Waiter> {
        let [high, normal, low] = &self.parts;
        low.before(self.aged_below).chain(high.all()).chain(normal.all()).chain(low.since(self.aged_below))
    }

    /// Whether any slot does for any caller, as is mostly so.
    const fn is_plain(&self) -> bool {
        self.hurried == 0 && self.large == 0
    }

    /// Who has which slot.
    fn matching(&self, now: Instant) -> Matching<'_, impl Iterator<Item = &Waiter>> {
        Matching::new(self.in_order(), &self.slots, self.is_plain(), now)
    }
}
