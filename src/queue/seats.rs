//! The seats of a queue, or of all queues that borrow from it: how many its calls use, how many are free, and for how long they are its own. Pure: time is an argument.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;
use super::events::{Effect, Effects, tell};
use super::waiters::{Slot, UNBOOKED, Waiter, Wish};
use crate::error::Error;
use crate::ledger::{self, Grant, SeatLimit};

/// How long a free seat is kept for the next caller, where nobody else waits for one; for up to twice as long where callers wait for something
/// else: what says so comes before their turn, and must not come time after time when that of others is.
const LINGER: Duration = Duration::from_millis(250);
/// Who uses seats again without a message hears so soon whether others wait by now.
const UNHEARD: Duration = Duration::from_millis(500);
/// No seat is used again in the last part of this kind of a lease: clocks drift, and the store's may leap.
const DOUBTED: u32 = 6;

/// The limits on calls in flight that the callers of a queue share.
#[derive(Clone, Debug)]
pub(crate) struct SeatRules {
    pub(crate) limits: Arc<[SeatLimit]>,
    pub(crate) lease: Duration,
}

/// The seats of each limit that a queue holds.
#[derive(Debug)]
pub(super) struct Seats {
    rules: SeatRules,
    /// Of calls, and of slots that are some caller's.
    used: u32,
    free: u32,
    /// Free ones that the message under way brings along for its callers.
    brought: u32,
    /// No more are used again here: others wait.
    keep: u32,
    free_since: Option<Instant>,
    /// Callers here wait for something else than a seat: those that are free are of no use to them yet.
    unused: bool,
    /// How long they are kept then.
    linger: Duration,
    /// When the message under way was written; and the last that was answered.
    stated_at: Option<Instant>,
    leased_at: Option<Instant>,
    /// The store may count seats until then that nobody here knows of: a message was given up.
    unsure_until: Option<Instant>,
    /// A seat was used again here since then, without a message.
    used_again: bool,
    /// Callers are short of a seat: no ask for more before this.
    ask_at: Option<Instant>,
}

impl Seats {
    pub(super) fn new(rules: SeatRules) -> Self {
        Self {
            rules,
            used: 0,
            free: 0,
            brought: 0,
            keep: u32::MAX,
            free_since: None,
            unused: false,
            linger: LINGER,
            stated_at: None,
            leased_at: None,
            unsure_until: None,
            used_again: false,
            ask_at: None,
        }
    }

    /// What a message says of them; one that asks for callers brings the free ones along, as far as they are not others' turn; so
    /// does any while they are kept for the next. All others it gives back.
    pub(super) fn state(&mut self, asks: bool, closed: bool, now: Instant) -> ledger::Seats {
        let is_kept = self.keep == u32::MAX && !closed && self.free_since.is_some_and(|since| now < since + LINGER);
        let brought =
            if (asks && !self.unused) || is_kept { self.free.min(self.keep.saturating_sub(self.used)) } else { 0 };
        (self.free, self.brought, self.free_since, self.stated_at) = (0, brought, None, Some(now));
        // Whose limits are others by now, or who is gone, binds nobody by these.
        let unbound = |limit: &SeatLimit| SeatLimit { seats: u32::MAX, ..*limit };
        let limits = &self.rules.limits;
        let limits = if closed { limits.iter().map(unbound).collect() } else { Arc::clone(limits) };
        let seats = ledger::Seats::new(limits).keeping(self.used + brought, brought);
        ledger::Seats { lease: self.rules.lease, ..seats }
    }

    /// The message was answered: of so many callers these got their seats. `random` in [0, 1) spreads those who were told the same
    /// time.
    pub(super) fn answered(&mut self, grant: &Grant, (callers, asked): (u32, u32), random: f64, now: Instant) {
        let left = self.brought.saturating_sub(callers);
        let has_enough = left > 0 || grant.seats.is_some_and(|told| told.again.is_zero());
        self.unused = has_enough && grant.answered(asked) < asked;
        self.linger = if self.unused { LINGER.mul_f64(1.0 + random) } else { LINGER };
        // One that was doubted meanwhile says nothing of whose they are by now.
        self.unsure_until = self.unsure_until.filter(|_| self.stated_at.is_none());
        (self.brought, self.used_again) = (0, false);
        self.used += callers;
        self.set_free(self.free + left, now);
        self.leased_at = self.stated_at.take();
        let Some(told) = grant.seats else { return };
        self.keep = told.keep;
        self.ask_at = (!told.again.is_zero()).then(|| now + told.again.mul_f64(1.0 + random / 5.0));
    }

    /// Nobody waits for the answer to the message any more.
    pub(super) fn give_up(&mut self, now: Instant) {
        if self.stated_at.take().is_some() {
            self.unsure_until = Some(now + self.rules.lease);
        }
        self.brought = 0;
    }

    /// Calls, or slots that nobody wants, have left so many.
    pub(super) fn leave(&mut self, seats: u32, now: Instant) {
        self.used = self.used.saturating_sub(seats);
        if seats > 0 {
            self.set_free(self.free + seats, now);
        }
    }

    /// So many that were in use are nobody's.
    pub(super) const fn lose(&mut self, seats: u32) {
        self.used = self.used.saturating_sub(seats);
    }

    /// Those of no call are nobody's: they were taken under a name that another process has, too. Those of calls are taken anew
    /// with the next message, and count twice until the lease of that name ends.
    pub(super) fn rename(&mut self) {
        (self.free, self.brought, self.stated_at, self.leased_at, self.ask_at) = (0, 0, None, None, None);
    }

    fn set_free(&mut self, free: u32, now: Instant) {
        self.free_since = if free > 0 { self.free_since.or(Some(now)) } else { None };
        self.free = free;
    }

    /// Nobody knows for how long they are its own: those that no call uses are let go of, and the store is told.
    pub(super) fn doubt(&mut self, now: Instant) {
        if self.has_any() || self.stated_at.is_some() {
            self.unsure_until = Some(now + self.rules.lease);
        }
        // An answer on its way may be of before.
        (self.leased_at, self.stated_at) = (None, None);
        self.set_free(0, now);
    }

    /// Whether the store certainly holds its seats for it.
    pub(super) fn is_sure(&self, now: Instant) -> bool {
        let lease = self.rules.lease;
        self.leased_at.is_some_and(|at| now < at + lease - lease / DOUBTED)
    }

    /// Takes a free seat for the next caller here, if there is one that is not others' turn.
    fn take(&mut self, now: Instant) -> bool {
        let may = self.may_take(now);
        if may {
            self.used += 1;
            self.used_again = true;
            self.set_free(self.free - 1, now);
        }
        may
    }

    fn may_take(&self, now: Instant) -> bool {
        self.free > 0 && self.used < self.keep && self.is_sure(now)
    }

    /// How many calls use, and slots that are some caller's.
    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    /// Whether some are free.
    pub(super) const fn has_free(&self) -> bool {
        self.free > 0
    }

    /// No ask for more before this.
    pub(super) fn ask_at(&self, now: Instant) -> Option<Instant> {
        self.ask_at.filter(|_| !self.may_take(now))
    }

    /// When the store is told again, whether or not anybody asks: at the latest.
    pub(super) fn tell_at(&self, is_wanted: bool, closed: bool, now: Instant) -> Option<Instant> {
        let others_wait = self.keep < u32::MAX;
        let is_wanted = is_wanted && !self.unused;
        let is_others = self.used + self.free > self.keep || (others_wait && !is_wanted);
        let back_at = match self.free_since {
            Some(_) if is_others || closed => Some(now),
            Some(since) if !is_wanted => Some(since + self.linger),
            _ => None,
        };
        let after = if self.used_again { UNHEARD } else { ledger::renewed_after(self.rules.lease) };
        let renew_at = self.leased_at.map_or(now, |at| at + after);
        let renew_at = (self.used > 0).then_some(renew_at);
        let unsure = self.unsure_until.map(|_| now);
        [back_at, renew_at, unsure].into_iter().flatten().min()
    }

    /// Time has passed: what the store may have given to others is nobody's here.
    pub(super) fn pass(&mut self, now: Instant) {
        self.unsure_until = self.unsure_until.filter(|&until| until > now);
        if !self.is_sure(now) {
            self.set_free(0, now);
        }
    }

    /// Whether the store is to be told of any, now or later.
    pub(super) const fn has_any(&self) -> bool {
        self.used + self.free + self.brought > 0 || self.unsure_until.is_some()
    }

    /// Whether the store knows of each that no call uses.
    pub(super) const fn is_told(&self) -> bool {
        self.free + self.brought == 0 && self.unsure_until.is_none()
    }
}

impl Engine {
    /// Whether nothing but seats, and pauses, limits its callers: those that are left here can be used again without a message.
    fn is_seats_only(&self) -> bool {
        self.seats.is_some() && self.settings.logs.iter().all(|log| log.terms.is_empty())
    }

    /// Gives the seats that are free to the first callers, where they need nothing else.
    pub(super) fn seat_callers(&mut self, now: Instant, effects: &mut Effects) {
        if self.is_paused(now) || self.closed || !self.is_seats_only() {
            return;
        }
        while self.waiters.has_unslotted() && self.seats.as_mut().is_some_and(|seats| seats.take(now)) {
            let Some(waiter) = self.waiters.pop_unslotted(now) else { return };
            let (excess, sender, waited_for) = (Duration::ZERO, self.sender, self.waited_for.since(waiter.joined));
            let costs = waiter.costs;
            let slot = Slot { stamp: UNBOOKED, start: now, costs, excess, sender, looks: false, waited_for };
            effects.push(Effect::Tell(waiter.ticket, Ok(slot)));
        }
    }

    /// Puts slots with those that nobody here wants; their seats are free.
    pub(super) fn put_back(&mut self, slots: impl IntoIterator<Item = Slot>, now: Instant) {
        let is_seats_only = self.is_seats_only();
        for slot in slots {
            self.aside = None;
            self.free_seats(1, now);
            // It has had less than its turn.
            self.turns.handed_back(now);
            if self.near_at.take().is_some() {
                self.rest_until = None;
            }
            // Where no log keeps it there is nothing to hand back.
            if !slot.is_unbooked() && (!is_seats_only || slot.looks) {
                self.surplus.push(slot);
            }
        }
    }

    /// Refuses who wants a seat now or never, where it is known that none is free.
    pub(super) fn check_seats(&self, wish: Wish, now: Instant) -> Result<(), Error> {
        let ask_at = self.seats.as_ref().and_then(|seats| seats.ask_at(now)).filter(|&at| at > now);
        match (wish, ask_at) {
            (Wish::AtOnce { .. }, Some(at)) => Err(self.throttled(at - now, now)),
            _ => Ok(()),
        }
    }

    /// The same of those who came while it was asked for others.
    pub(super) fn refuse_seatless(&mut self, now: Instant, effects: &mut Effects) {
        let at_once = Wish::AtOnce { within: Duration::ZERO };
        let Err(error) = self.check_seats(at_once, now) else { return };
        let wants_now = |waiter: &Waiter| matches!(waiter.wish, Wish::AtOnce { .. });
        tell(effects, self.waiters.drop_hopeless(now, |waiter, _| wants_now(waiter).then(|| error.clone())));
    }

    /// When the store is told of seats, whether or not anybody asks.
    pub(super) fn tell_of_seats_at(&self, now: Instant) -> Option<Instant> {
        let is_wanted = self.waiters.has_unslotted() && !self.closed;
        self.seats.as_ref().and_then(|seats| seats.tell_at(is_wanted, self.closed, now))
    }
}

#[cfg(test)]
mod tests;
