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
    /// It is asked sooner than planned, for whoever goes before those for whom the queue rests.
    pub(super) fn ask_before_time(&mut self, now: Instant) {
        // An answer that is under way says all of this anew; and a claim, or a seat, is of all who wait.
        let may_leave_out =
            self.unanswered.is_none() && !self.insists && self.seats.is_none() && self.borrowed.is_none();
        if let Some(ask_at) = self.ask_at.filter(|&at| may_leave_out && self.aside.is_none() && at > now) {
            let Self { next_slot, rest_until, near_at, rests_for, .. } = *self;
            let (put_off, taken) = (self.put_off.take(), [0; 3]);
            self.aside = Some(Aside { ask_at, next_slot, rest_until, near_at, rests_for, put_off, taken });
        }
        (self.ask_at, self.next_slot, self.put_off) = (None, None, None);
    }

    /// A caller has come. Where it takes the booked slot of a lower one, while the queue rests, asks for that one in its place.
    pub(super) fn note_taken(&mut self, waiter: &Waiter, now: Instant) {
        let in_time = |start| waiter.deadline(now).is_none_or(|deadline| start <= deadline);
        let takes = self.ask_at.is_some_and(|at| at > now) && self.waiters.slot_for(waiter).is_some_and(in_time);
        if takes && waiter.priority != Priority::Low {
            self.ask_before_time(now);
            if let Some(aside) = &mut self.aside {
                aside.taken[waiter.priority.place()] += 1;
            }
        }
    }

    /// Until when callers are left out. Nobody is from now on where it is their time, or it is asked for nobody else.
    pub(super) fn left_out_until(&mut self, now: Instant) -> Option<Instant> {
        let aside = self.aside.as_ref()?;
        let first = self.waiters.unslotted(now).next().map(|waiter| self.waiters.rank(waiter));
        if aside.ask_at <= now {
            self.aside = None;
            (self.ask_at, self.next_slot, self.put_off) = (None, None, None);
        } else if first.is_none_or(|rank| aside.taken == [0; 3] && aside.leaves_out(rank)) {
            self.take_back_aside();
        }
        self.aside.as_ref().map(|aside| aside.ask_at)
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
