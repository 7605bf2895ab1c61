//! Who is left out while a queue asks sooner than it was told to, for those who go before all for whom it rests.

use tokio::time::Instant;

use super::engine::Engine;
use super::put_off::PutOff;
use super::waiters::Waiter;
use crate::ledger::Priority;

/// What the last answer said to callers who are left out: it holds again when those who go before them are served, or when it is time.
///
/// Asked for with each of those, they would have more of what is shared than callers of other processes; and put off with each of them, less.
#[derive(Debug)]
pub(super) struct Aside {
    ask_at: Instant,
    next_slot: Option<Instant>,
    rest_until: Option<Instant>,
    near_at: Option<Instant>,
    rests_for: Priority,
    put_off: Option<PutOff>,
    /// So many callers of each priority took booked slots of lower ones, who are asked for in their place.
    taken: [u32; 3],
}

impl Aside {
    /// Whether callers of a priority are left out.
    const fn leaves_out(&self, rank: Priority) -> bool {
        rank.place() >= self.rests_for.place()
    }

    /// By which priority it is asked for a caller of this one: a higher one where its slot was taken. By none where it is left out.
    pub(super) fn asked_for_as(&mut self, rank: Priority) -> Option<Priority> {
        let taken = Priority::ALL.into_iter().find(|of| of.place() < rank.place() && self.taken[of.place()] > 0);
        if let Some(of) = taken {
            self.taken[of.place()] -= 1;
        }
        taken.or_else(|| (!self.leaves_out(rank)).then_some(rank))
    }
}

impl Engine {
    /// Whether those for whom the queue rests are left out while it is asked for a caller of a priority that goes before them.
    fn may_leave_out(&self, rank: Priority) -> bool {
        // An answer that is under way says anew what they were told. A seat, a claim, and room that is given back are for all who wait; and
        // where calls differ in size, an answer to one says nothing to another.
        let is_plain = self.unanswered.is_none() && self.seats.is_none() && self.borrowed.is_none() && !self.insists;
        is_plain && !self.waiters.has_large() && !self.hands_back() && rank.place() < self.rests_for.place()
    }

    /// It is asked sooner than planned, for a caller of a priority that goes before those for whom the queue rests: these are left out.
    pub(super) fn ask_before_time(&mut self, rank: Priority, now: Instant) {
        let may_leave_out = self.aside.is_none() && self.may_leave_out(rank);
        if let Some(ask_at) = self.ask_at.filter(|&at| may_leave_out && at > now) {
            let Self { next_slot, rest_until, near_at, rests_for, .. } = *self;
            let (put_off, taken) = (self.put_off.take(), [0; 3]);
            self.aside = Some(Aside { ask_at, next_slot, rest_until, near_at, rests_for, put_off, taken });
        }
        (self.ask_at, self.next_slot, self.put_off) = (None, None, None);
    }

    /// A caller has come that goes before those for whom the queue rests. Where it takes the booked slot of one of them, that one is asked
    /// for in its place.
    pub(super) fn note_taken(&mut self, waiter: &Waiter, now: Instant) {
        let in_time = |start| waiter.deadline(now).is_none_or(|deadline| start <= deadline);
        let goes_before = match &self.aside {
            Some(aside) => !aside.leaves_out(waiter.priority),
            None => self.may_leave_out(waiter.priority) && self.ask_at.is_some_and(|at| at > now),
        };
        if goes_before && self.waiters.slot_for(waiter).is_some_and(in_time) {
            self.ask_before_time(waiter.priority, now);
            if let Some(aside) = &mut self.aside {
                aside.taken[waiter.priority.place()] += 1;
            }
        }
    }

    /// A caller leaves: a slot that it took is taken no more.
    pub(super) fn note_taker_left(&mut self, ticket: u64) {
        if let Some(aside) = &mut self.aside
            && let Some(waiter) = self.waiters.find(ticket)
        {
            let taken = &mut aside.taken[self.waiters.rank(waiter).place()];
            *taken = taken.saturating_sub(1);
        }
    }

    /// Whether a caller who comes is left out.
    pub(super) fn is_left_out(&self, waiter: &Waiter) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.leaves_out(waiter.priority))
    }

    /// Where a caller is left out whose time is up before it is asked for the others, it is asked for all at once.
    pub(super) fn hurry_aside(&mut self, waiter: &Waiter, now: Instant) {
        let is_late = |aside: &Aside| waiter.deadline(now).is_some_and(|deadline| deadline < aside.ask_at);
        if self.aside.as_ref().is_some_and(|aside| aside.leaves_out(waiter.priority) && is_late(aside)) {
            (self.aside, self.ask_at) = (None, None);
        }
    }

    /// When it asks next, for whomever.
    pub(super) fn next_ask(&self) -> Option<Instant> {
        self.ask_at.map(|at| self.aside.as_ref().map_or(at, |aside| aside.ask_at.min(at)))
    }

    /// Nobody is left out any more: all are asked for when any of them would be.
    pub(super) fn leave_nobody_out(&mut self) {
        (self.ask_at, self.aside) = (self.next_ask(), None);
    }

    /// Nobody is left out any more where it is time for all, or there is nobody else to ask for: then what they were told holds again.
    pub(super) fn end_aside(&mut self, now: Instant) {
        let Some(aside) = &mut self.aside else { return };
        let first = self.waiters.unslotted(now).next().map(|waiter| self.waiters.rank(waiter));
        if aside.ask_at <= now {
            self.put_off = self.put_off.take().or(aside.put_off.take());
            (self.ask_at, self.next_slot, self.aside) = (None, None, None);
        } else if first.is_none_or(|rank| aside.taken == [0; 3] && aside.leaves_out(rank)) {
            self.take_back_aside();
        }
    }

    /// Those who go before the others are served: what these were told holds again.
    pub(super) fn take_back_aside(&mut self) {
        if let Some(Aside { ask_at, next_slot, rest_until, near_at, rests_for, put_off, .. }) = self.aside.take() {
            self.ask_at = Some(ask_at);
            (self.next_slot, self.rest_until, self.near_at) = (next_slot, rest_until, near_at);
            (self.rests_for, self.put_off) = (rests_for, put_off);
        }
    }
}
