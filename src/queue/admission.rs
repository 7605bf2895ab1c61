//! Who is let in: what the last answer says of a caller who comes.

use tokio::time::Instant;

use super::engine::Engine;
use super::settling::Corrections;
use super::waiters::Waiter;
use crate::error::Error;
use crate::ledger::Priority;

impl Engine {
    /// Whether a caller may wait; and where it goes before others, or the last answer says nothing of it, that it is asked for at once.
    pub(super) fn admit(&mut self, waiter: &Waiter, now: Instant) -> Result<(), Error> {
        if self.closed {
            return Err(Error::Closed);
        }
        if let Some(barred) = self.barred(now) {
            return Err(barred);
        }
        self.check_store(waiter.wish, now)?;
        self.check_seats(waiter.wish, now)?;
        if self.is_spared_the_wait(waiter, now) || self.goes_before_who_rests(waiter) {
            if self.is_left_out(waiter) {
                self.aside = None;
            }
            self.ask_before_time(waiter.priority, now);
            self.rests_for = Priority::High;
        } else if !self.waiters.has_unslotted() {
            (self.ask_at, self.next_slot, self.put_off) = (self.rest_of(waiter, now), None, None);
            self.aside = None;
        } else if let Some(deadline) =
            waiter.deadline(now).filter(|&by| !self.hands_back() && !self.takes_slot(waiter, by))
        {
            if self.is_asked_for(waiter, deadline, now) {
                return Ok(());
            }
            let is_last = self.waiters.is_behind_all(waiter);
            let before = |waiter: &Waiter| self.waiters.units_before(waiter.priority, waiter.ticket);
            let ahead = if is_last { self.waiters.units_wanted() } else { before(waiter) };
            self.check_time(deadline, &ahead, now)?;
            // Who cannot wait for the others' turn does not rest for it.
            if self.ask_at == self.rest_until && self.rest_until.is_some_and(|until| deadline <= until) {
                self.ask_at = self.rest_of(waiter, now);
            }
        }
        self.hurry_aside(waiter, now);
        self.note_taken(waiter, now);
        Ok(())
    }

    /// Who came while it was asked for others, and cannot wait for the turns of those in other processes, does not rest for them.
    pub(super) fn ask_for_hasty(&mut self, now: Instant) {
        let Some(until) = self.rest_until.filter(|_| self.ask_at == self.rest_until && self.waiters.has_hurried())
        else {
            return;
        };
        let cannot_wait = |waiter: &&Waiter| waiter.deadline(now).is_some_and(|deadline| deadline <= until);
        let rests = self.waiters.unslotted(now).filter(cannot_wait).map(|waiter| self.rest_of(waiter, now));
        if let Some(shortest) = rests.min() {
            self.ask_at = shortest;
        }
    }

    /// Until when a caller rests for others, where nobody waits before it: as long as its queue does, or at least until a slot is near. Who
    /// cannot wait for so long does not.
    fn rest_of(&self, waiter: &Waiter, now: Instant) -> Option<Instant> {
        let by = waiter.deadline(now);
        let mut rests = [self.rest_until, self.near_at].into_iter().flatten();
        rests.find(|&until| until > now && by.is_none_or(|by| by > until))
    }

    /// Whether a booked slot is a caller's who comes, and in time.
    fn takes_slot(&self, waiter: &Waiter, deadline: Instant) -> bool {
        self.waiters.slot_for(waiter).is_some_and(|start| start <= deadline)
    }

    /// Whether slots are on their way back, or about to be: they make room that the last answer knew nothing of.
    pub(super) fn hands_back(&self) -> bool {
        let has_unused = self.corrections.as_ref().is_some_and(Corrections::make_room);
        has_unused
            || !self.surplus.is_empty()
            || self.unanswered.as_deref().is_some_and(|message| !message.back().is_empty())
    }

    /// Whether a caller goes before those who wait, and waits for fewer logs than the first of them: what the store said of that one is
    /// nothing to it.
    fn is_spared_the_wait(&self, waiter: &Waiter, now: Instant) -> bool {
        let waits_for_more = |first: &Waiter| {
            let mut charges = waiter.costs.iter().zip(first.costs.iter());
            waiter.priority.place() < first.priority.place() && charges.any(|(own, other)| *own == 0 && *other > 0)
        };
        waiter.costs.contains(&0) && self.waiters.unslotted(now).next().is_some_and(waits_for_more)
    }

    /// Whether a caller has a higher priority than those for whom the queue rests, and none of their slots.
    fn goes_before_who_rests(&self, waiter: &Waiter) -> bool {
        waiter.priority.place() < self.rests_for.place() && !self.waiters.has_slot_for(waiter)
    }
}
