//! Seats of a queue whose process shares them among several: it borrows one for each caller whose slot may be near. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;
use super::events::{Effects, tell};
use super::resend::PATIENCE;
use super::waiters::{Waiter, Wish};
use crate::config::priority::Priority;
use crate::error::Error;
use crate::ledger;
use crate::store::WithoutStore;

/// For no more callers at once a queue waits in the line for seats.
const MOST_WANTED: usize = 64;

/// Who waits for a seat: of which priority, and whether now or never.
pub(super) type Want = (Priority, bool);

/// The seats that a queue has borrowed: one for each slot that is some caller's, and these.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Borrowed {
    /// For callers that ask next.
    free: u32,
    /// For callers of the message under way.
    under_way: u32,
    /// On their way back.
    back: Back,
}

/// Seats that go back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Back {
    /// For the next in the lines.
    pub(super) free: u32,
    /// Nobody's: they were taken under a name that another process has, too.
    pub(super) lost: u32,
}

impl Back {
    pub(super) const fn add(&mut self, other: Self) {
        self.free += other.free;
        self.lost += other.lost;
    }
}

impl Borrowed {
    /// What a message says of them that asks for so many callers.
    pub(super) fn state(&mut self, callers: u32) -> Option<ledger::Seats> {
        self.free = self.free.saturating_sub(callers);
        self.under_way = callers;
        // Nothing has to be remembered for their sake.
        let lease = Duration::ZERO;
        (callers > 0).then(|| ledger::Seats { lease, ..ledger::Seats::new([]).keeping(callers, callers) })
    }

    /// The message is over, and so many of its callers have slots, which have the seats from now on.
    pub(super) fn answered(&mut self, granted: u32) {
        self.free += std::mem::take(&mut self.under_way).saturating_sub(granted);
    }

    /// So many go back whose callers want them no more.
    const fn give_back(&mut self, seats: u32) {
        self.back.free += seats;
    }

    /// Those under another name, and so many that belonged to slots, are nobody's.
    pub(super) fn lose(&mut self, of_slots: u32) {
        self.back.lost += std::mem::take(&mut self.free) + of_slots;
    }

    /// Those that go back now.
    pub(super) fn take_back(&mut self) -> Back {
        std::mem::take(&mut self.back)
    }

    /// For how many callers there are seats that may ask now.
    pub(super) const fn free(&self) -> u32 {
        self.free
    }

    pub(super) const fn has_any(&self) -> bool {
        self.free + self.under_way + self.back.free + self.back.lost > 0
    }
}

impl Engine {
    /// The message under way is over: so many of its callers have slots, and with these the seats that they borrowed.
    pub(super) fn seats_lent(&mut self, granted: u32) {
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.answered(granted);
        }
    }

    /// The same of a message that was sent under another name: its seats are nobody's.
    pub(super) fn seats_lost(&mut self) {
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.back.lost += std::mem::take(&mut borrowed.under_way);
        }
    }

    /// A seat came for the next caller.
    pub(super) const fn seated(&mut self) {
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.free += 1;
        }
    }

    /// There was no seat for a caller, and why. So many places are left of callers that want one now or never: beside those and the seats
    /// that are there, the last of them have none to hope for.
    pub(super) fn unseated(&mut self, error: &Error, left: usize, now: Instant, effects: &mut Effects) {
        if matches!(error, Error::Closed) {
            return self.close(now, effects);
        }
        let is_down = matches!(error, Error::StoreUnavailable { .. });
        let waits = self.settings.without_store == WithoutStore::Wait;
        let asked = self.unanswered.clone();
        let is_asked_for = |waiter: &Waiter| asked.as_ref().is_some_and(|message| message.asks_for(waiter.ticket));
        let (mut free, mut left) = if is_down { (0, 0) } else { (self.borrowed.map_or(0, |of| of.free), left) };
        let mut is_told = |waiter: &Waiter| {
            if is_asked_for(waiter) {
                return false;
            }
            if free > 0 {
                free -= 1;
                return false;
            }
            match waiter.wish {
                Wish::AtOnce { .. } if left > 0 => {
                    left -= 1;
                    false
                }
                Wish::AtOnce { .. } => true,
                Wish::Soon => is_down && (!waits || waiter.joined + PATIENCE <= now),
                Wish::By(_) => is_down && !waits,
            }
        };
        tell(effects, self.waiters.drop_hopeless(now, |waiter, _| is_told(waiter).then(|| error.clone())));
    }

    /// Seats are free that belonged to slots.
    pub(super) fn free_seats(&mut self, seats: u32, now: Instant) {
        if let Some(own) = &mut self.seats {
            own.leave(seats, now);
        }
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.give_back(seats);
        }
    }

    /// Whether it waits for others to give it a seat.
    pub(super) fn is_unseated(&self) -> bool {
        self.borrowed.is_some_and(|borrowed| borrowed.free == 0)
    }

    /// Whether its first caller may have a slot soon, as far as is known: only then a seat is of use.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        let is_later = |at: Option<Instant>| at.is_some_and(|at| at > now);
        !self.closed
            && !is_later(self.paused.map(|(until, _)| until))
            && !is_later(self.ask_at)
            && !is_later(self.silent_until)
    }

    /// Whether it has more seats, with so many places for which it waits, than callers without a slot.
    pub(super) fn has_seats_to_spare(&self, places: usize) -> bool {
        let has = |borrowed: Borrowed| (borrowed.free + borrowed.under_way) as usize + places;
        self.borrowed.is_some_and(|borrowed| has(borrowed) > self.waiters.len().saturating_sub(self.waiters.slots()))
    }

    /// For whom seats are to be had now; those that are of no use go back.
    pub(super) fn wants(&mut self, now: Instant) -> Vec<Want> {
        let may_ask = self.may_ask(now);
        let Some(borrowed) = &mut self.borrowed else { return Vec::new() };
        let has = (borrowed.free + borrowed.under_way) as usize;
        // Who goes first here, as it has waited for long enough, does so there.
        let wanted = |waiter: &Waiter| (self.waiters.rank(waiter), matches!(waiter.wish, Wish::AtOnce { .. }));
        let all = self.waiters.unslotted(now).take(has + MOST_WANTED);
        let all: Vec<Want> = if may_ask { all.map(wanted).collect() } else { Vec::new() };
        let excess = u32::try_from(has.saturating_sub(all.len())).unwrap_or(u32::MAX).min(borrowed.free);
        borrowed.free -= excess;
        borrowed.give_back(excess);
        all.into_iter().skip(has).collect()
    }
}
