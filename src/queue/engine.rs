//! What a queue knows, who comes and goes, and what is to be done next. Time is an argument; nothing here waits.

use std::sync::Arc;

use tokio::time::Instant;

use super::Queue;
use super::in_flight::InFlight;
use super::resend::{MEMORY, PATIENCE, Silence};
use super::waiters::{Slot, Waiter, Waiters, Wish};
use crate::error::Error;
use crate::ledger::{Cause, Stamp};

/// Everything that changes about a queue.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(super) struct Engine {
    pub(super) waiters: Waiters,
    tickets: u64,
    /// Slots that nobody here wants.
    pub(super) surplus: Vec<Slot>,
    /// The message that the store has not answered yet. It stays the same until then, however often it is sent.
    pub(super) unanswered: Option<Arc<InFlight>>,
    pub(super) silence: Option<Silence>,
    driven: bool,
    /// Which driver drives: one that was given up on, and comes back, finds another number here.
    driver: u64,
    /// When the driver promised to look again.
    look_by: Option<Instant>,
    pub(super) closed: bool,
    /// The number of the last message that the store is known to remember; zero where none is known.
    pub(super) previous: u64,
    /// In which period the store counted this queue among those whose callers wait, for each scope.
    pub(super) counted: Vec<Stamp>,
    /// The store has callers of this queue on record as waiting.
    pub(super) on_record: bool,
    /// Nobody sends before this, and why.
    pub(super) held: Option<(Instant, Cause)>,
    /// Slots before the end of the hold were granted: the store does not know of it.
    pub(super) unknown: bool,
    /// No ask before this.
    pub(super) ask_at: Option<Instant>,
    /// No message before this: the last ask was granted what cannot be used.
    pub(super) pause_until: Option<Instant>,
    /// Others wait as well, and their turn comes before this.
    pub(super) rest_until: Option<Instant>,
    /// The first caller without a slot cannot start before this.
    pub(super) next_slot: Option<Instant>,
    /// The first caller without a slot, when the store put it off.
    pub(super) put_off: Option<u64>,
}

/// What the driver does next.
pub(super) struct Step {
    pub(super) send: Option<Arc<InFlight>>,
    /// When there is more to do, if the store does not answer first.
    pub(super) wake: Option<Instant>,
    /// There is nothing to do: the duty to drive has ended.
    pub(super) idle: bool,
}

impl Engine {
    pub(super) fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Takes a caller in, or refuses it at once. Says whether the driver has something new to do.
    pub(super) fn join(&mut self, waiter: Waiter, queue: &Queue, now: Instant) -> Result<bool, Error> {
        if self.closed {
            return Err(Error::Closed);
        }
        if let Some(barred) = self.barred(queue, now) {
            return Err(barred);
        }
        if !self.waiters.has_unslotted() {
            let rest = self.rest_until.filter(|&until| until > now && waiter.deadline(now).is_none_or(|by| by > until));
            (self.ask_at, self.next_slot, self.put_off) = (rest, None, None);
        } else if let Some(deadline) = waiter.deadline(now).filter(|_| !self.hands_back()) {
            let is_last = waiter.ticket == self.tickets;
            let ahead = if is_last { self.waiters.units_wanted() } else { self.waiters.units_before(waiter.ticket) };
            self.check_time(deadline, ahead, queue, now)?;
            // Who cannot wait for the others' turn does not rest for it.
            if self.ask_at == self.rest_until && self.rest_until.is_some_and(|until| deadline <= until) {
                self.ask_at = None;
            }
        }
        if let Some(silence) = &mut self.silence {
            silence.hurry(now);
        }
        self.waiters.join(waiter);
        Ok(self.ask_at.is_none() || self.silence.is_some())
    }

    /// Whether slots are on their way back, or about to be: they make room that the last answer knew nothing of.
    fn hands_back(&self) -> bool {
        !self.surplus.is_empty() || self.unanswered.as_deref().is_some_and(InFlight::hands_back)
    }

    /// Takes a caller out; the slots go to those behind it. Says whether it was there.
    pub(super) fn leave(&mut self, ticket: u64, now: Instant) -> bool {
        let Some(unwanted) = self.waiters.leave(ticket, now) else {
            return false;
        };
        self.surplus.extend(unwanted);
        true
    }

    /// Lets go of what was booked under a name that another process has, too: either may use it, and a slot that nobody uses breaks
    /// no limit.
    pub(super) fn disown(&mut self, sender: u64, queue: &Queue) {
        queue.process.rename(sender);
        self.waiters.drop_slots();
        self.surplus.clear();
        (self.previous, self.on_record) = (0, false);
        (self.ask_at, self.next_slot, self.put_off) = (None, None, None);
    }

    /// Gives a slot to the next in queue, or puts it with those that nobody here wants.
    pub(super) fn give(&mut self, slot: Slot, queue: &Queue, now: Instant) {
        if slot.sender != queue.process.id() {
            return;
        }
        if self.is_held_back(&slot, queue, now) || slot.is_stale(now, queue.stale_after) {
            self.surplus.push(slot);
        } else {
            self.surplus.extend(self.waiters.give([slot], now));
        }
    }

    /// Whether a slot starts before the end of the hold. Two answers tell that end a little differently: by as much as a slot
    /// may be late.
    pub(super) fn is_held_back(&self, slot: &Slot, queue: &Queue, now: Instant) -> bool {
        self.held.is_some_and(|(until, _)| until > now && slot.start + queue.stale_after < until)
    }

    /// Nobody sends before `until`: whoever holds an earlier slot asks again, and who cannot be helped by waiting is told.
    pub(super) fn withhold(&mut self, until: Instant, cause: Cause, queue: &Queue, now: Instant) {
        let before = self.held.filter(|(held, _)| *held > now);
        if until <= now || before.is_some_and(|(held, graver)| held >= until && graver >= cause) {
            return;
        }
        let (until, cause) = before.map_or((until, cause), |(held, graver)| (held.max(until), graver.max(cause)));
        tracing::debug!(upstream = &*queue.upstream, held = ?until - now, cause = cause.words(), "held");
        self.held = Some((until, cause));
        let early = self.waiters.take_slots_before(until.checked_sub(queue.stale_after).unwrap_or(until));
        if !early.is_empty() {
            self.surplus.extend(early);
            self.ask_at = None;
        }
        if let Some(barred) = self.barred(queue, now) {
            self.waiters.drop_hopeless(now, |_, _| Some(barred.clone()));
        }
    }

    /// The error for callers whom waiting does not help.
    fn barred(&self, queue: &Queue, now: Instant) -> Option<Error> {
        let (until, cause) = self.held.filter(|(until, cause)| *until > now && *cause != Cause::Refusal)?;
        Some(Error::Barred { upstream: Arc::clone(&queue.upstream), cause, retry_after: until - now })
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        let (waiters, slots) = self.waiters.drain();
        self.surplus.extend(slots);
        for waiter in waiters {
            // A caller that has gone needs no news.
            let _ = waiter.tell.send(Err(Error::Closed));
        }
    }

    /// Nobody drives any more: everybody who waits comes back with its ticket, and one of them drives.
    pub(super) fn abandon(&mut self) {
        self.driven = false;
        self.driver += 1;
        let (_, slots) = self.waiters.drain();
        self.surplus.extend(slots);
    }

    /// Whether nobody is here, nothing is held, and the store knows of nobody.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        !self.closed && self.is_idle() && self.held.is_none_or(|(until, _)| until <= now)
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.driven && !self.has_work()
    }

    fn has_work(&self) -> bool {
        !self.waiters.is_empty() || !self.surplus.is_empty() || self.unanswered.is_some() || self.on_record
    }

    /// Takes the duty to drive where there is work and nobody has it yet; with the number of the driver.
    pub(super) fn must_be_driven(&mut self, now: Instant) -> Option<u64> {
        let must = !self.driven && self.has_work();
        if must {
            (self.driven, self.look_by) = (true, Some(now));
        }
        must.then_some(self.driver)
    }

    /// Whether this is the driver that drives.
    pub(super) const fn is_driven_by(&self, driver: u64) -> bool {
        self.driven && self.driver == driver
    }

    /// When a caller that waits looks after the driver: well after it promised to look itself.
    pub(super) fn overdue_at(&self, now: Instant) -> Instant {
        self.look_by.unwrap_or(now) + PATIENCE
    }

    /// Ends the duty to drive where there is no work.
    pub(super) fn stop_if_idle(&mut self) -> bool {
        self.driven = self.has_work();
        !self.driven
    }

    /// Hands out what has started, and says what to send and when to look again.
    pub(super) fn step(&mut self, queue: &Queue, now: Instant, in_flight: bool) -> Step {
        self.hand_out(queue, now);
        let expiry = self.expire(queue, now);
        let (send, later) = if in_flight { (None, None) } else { self.next_message(queue, now) };
        let wake = [expiry, later, self.waiters.first_start()].into_iter().flatten().min();
        let idle = send.is_none() && !in_flight && self.stop_if_idle();
        let answered_by = (in_flight || send.is_some()).then(|| now + PATIENCE);
        // Woken by then, the driver shows that it is there however long the store takes.
        self.look_by = wake.into_iter().chain(answered_by).min();
        Step { send, wake: self.look_by, idle }
    }

    /// Tells every caller whose slot has started. A slot that is stale by now is asked for again.
    pub(super) fn hand_out(&mut self, queue: &Queue, now: Instant) {
        while let Some(slot) = self.waiters.pop_started(now) {
            if slot.sender != queue.process.id() {
                self.ask_at = None;
            } else if slot.is_stale(now, queue.stale_after) {
                tracing::debug!(upstream = &*queue.upstream, "slot stale, asking again");
                self.surplus.push(slot);
                self.ask_at = None;
            } else if let Some(waiter) = self.waiters.pop_owner(&slot, now) {
                if let Err(Ok(slot)) = waiter.tell.send(Ok(slot)) {
                    self.give(slot, queue, now);
                }
            } else {
                self.surplus.push(slot);
            }
        }
    }

    /// Refuses callers without a deadline for whom the store has been silent too long, and forgets what it was to be told
    /// once nobody waits any more. Says when to look again.
    fn expire(&mut self, queue: &Queue, now: Instant) -> Option<Instant> {
        let silence = self.silence.as_ref()?;
        let since = silence.since;
        let expiry = |waiter: &Waiter| waiter.joined.max(since) + PATIENCE;
        let first = |waiters: &Waiters| waiters.first_patient(now).map(expiry);
        if first(&self.waiters).is_some_and(|first| first <= now) {
            let error = Error::StoreUnavailable { upstream: Arc::clone(&queue.upstream), source: silence.error() };
            let expired = |waiter: &Waiter| waiter.wish == Wish::Soon && expiry(waiter) <= now;
            self.waiters.drop_hopeless(now, |waiter, _| expired(waiter).then(|| error.clone()));
        }
        if silence.has_failed() && since + MEMORY <= now {
            // The store may have forgotten that it acted: twice, a hand-back would take somebody else's slots, and an ask book
            // more. A wasted slot breaks no limit.
            (self.unanswered, self.silence, self.previous) = (None, None, 0);
            if self.waiters.is_empty() {
                self.on_record = false;
                self.surplus.clear();
            }
            return Some(now);
        }
        let end = since + MEMORY;
        first(&self.waiters).or_else(|| self.waiters.is_empty().then_some(end)).filter(|&at| at > now)
    }
}
