//! The seats of one ask.

use std::time::Duration;

use super::{Holders, SeatLimit, Seated, Seating, Shown, Taking};
use crate::ledger::claims::Owner;
use crate::ledger::scope::Scope;
use crate::ledger::{Ask, Ledger, MessageId, Stamp, micros};

/// Where nobody holds a seat.
static NOBODY: Holders = Holders::none();

/// Who was left without a seat.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ledger) struct Short {
    /// So many callers wait for one.
    pub(in crate::ledger) waiting: u32,
    /// Somebody was refused for want of one.
    pub(in crate::ledger) was_refused: bool,
}

/// The seats that an ask wants: one of each limit for each caller.
pub(in crate::ledger) struct AskedSeats {
    each: Vec<Seating>,
    /// What the queue may take of each.
    most: Vec<u64>,
    /// For so many callers there are seats.
    pub(in crate::ledger) callers: u32,
    pub(in crate::ledger) again: i64,
}

impl AskedSeats {
    pub(in crate::ledger) fn of(ledger: &Ledger, now: Stamp, id: &MessageId, ask: &Ask) -> Option<Self> {
        let seats = ask.seats.as_ref()?;
        let (owner, wanted) = (Owner::of(id), u64::from(ask.callers()).saturating_sub(seats.idle.into()));
        let shown = Shown::by(ledger, now, id, ask, seats);
        let seating = |limit: &SeatLimit| {
            let holders = ledger.scope(limit.scope).and_then(Scope::seats).unwrap_or(&NOBODY);
            holders.seating(now, &owner, limit.seats, seats.kept, &shown)
        };
        let each: Vec<Seating> = seats.limits.iter().map(seating).collect();
        let most: Vec<u64> = each.iter().map(|seating| seating.most(wanted)).collect();
        let new = most.iter().copied().min().unwrap_or(0);
        let again = each.iter().map(|seating| seating.again(u64::from(seats.kept) + new)).max().unwrap_or(0);
        let callers = u32::try_from(u64::from(seats.idle) + new).unwrap_or(u32::MAX);
        Some(Self { each, most, callers, again })
    }

    /// Whether no seat is given, as data was lost.
    pub(in crate::ledger) fn is_closed(&self) -> bool {
        self.each.iter().any(|seating| seating.closed_for().is_some())
    }

    /// Enters what was taken, and who is still short of seats. Says what the queue is told, and whether anything has
    /// changed.
    pub(in crate::ledger) fn enter(
        self,
        ledger: &mut Ledger,
        id: &MessageId,
        ask: &Ask,
        granted: u32,
        short: Short,
    ) -> (Seated, bool) {
        let Some(seats) = &ask.seats else { return (Seated::new(u32::MAX, Duration::ZERO), false) };
        let (owner, least) = (Owner::of(id), self.most.iter().copied().min().unwrap_or(0));
        let (mut keep, mut changed) = (u32::MAX, false);
        for ((limit, seating), most) in seats.limits.iter().zip(&self.each).zip(self.most) {
            // Who waits for seats of one limit keeps nobody from those of another.
            let wanted = if most == least { u64::from(short.waiting) } else { 0 };
            let taken = u64::from(granted.saturating_sub(seats.idle));
            let taking = Taking { taken, wanted, again: self.again, lease: micros(seats.lease) };
            let enter = |holders: &mut Holders| seating.enter(holders, &owner, &taking);
            let (kept, is_news) = ledger.scope_mut(limit.scope).seat(enter);
            (keep, changed) = (keep.min(kept), changed || is_news);
        }
        let again = if short.waiting > 0 || short.was_refused {
            Duration::from_micros(self.again.unsigned_abs())
        } else {
            Duration::ZERO
        };
        (Seated::new(keep, again), changed)
    }
}
