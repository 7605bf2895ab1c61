//! Who holds the seats of one scope, and who waits for some.

use super::roll_call::{RollCall, Shown};
use super::{Other, Seating};
use crate::ledger::claims::Owner;
use crate::ledger::{LEAP, Stamp};

/// For so long a queue that waits, and is late, keeps its place among those who wait.
const PLACE: i64 = 10_000_000;

/// A queue that holds seats, or waits for some.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) owner: Owner,
    pub(super) held: u32,
    pub(super) lapse: Stamp,
    pub(super) wanted: u32,
    /// It asks again before this, if it still waits.
    pub(super) asks_by: Stamp,
    /// Since when it holds any.
    pub(super) since: Stamp,
    /// How many calls may be in flight, by its limit.
    pub(super) named: u32,
}

impl Holder {
    fn held(&self, now: Stamp) -> u32 {
        if self.lapse > now { self.held } else { 0 }
    }

    fn wanted(&self, now: Stamp) -> u32 {
        if self.asks_by > now { self.wanted } else { 0 }
    }

    fn has_place(&self, now: Stamp) -> bool {
        self.wanted > 0 && self.asks_by.plus(PLACE) > now
    }

    fn is_spent(&self, now: Stamp) -> bool {
        self.held(now) == 0 && !self.has_place(now)
    }
}

/// The holders of the seats of one scope. Those who wait are in the order in which they began to.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Holders {
    all: Vec<Holder>,
    pub(super) roll_call: Option<RollCall>,
}

impl Holders {
    pub(super) const fn none() -> Self {
        Self { all: Vec::new(), roll_call: None }
    }

    pub(in crate::ledger) fn is_spent(&self, now: Stamp) -> bool {
        self.all.iter().all(|holder| holder.is_spent(now)) && self.roll_call.is_none_or(|of| of.lapse <= now)
    }

    pub(in crate::ledger) const fn is_empty(&self) -> bool {
        self.all.is_empty() && self.roll_call.is_none()
    }

    /// Seats that a queue has said to hold, or was given, though its lease may have lapsed.
    pub(super) fn said_by(&self, owner: &Owner) -> u32 {
        self.all.iter().find(|holder| holder.owner == *owner).map_or(0, |holder| holder.held)
    }

    /// Seats that anybody holds.
    pub(in crate::ledger) fn taken(&self, now: Stamp) -> u32 {
        self.all.iter().fold(0, |taken, holder| taken.saturating_add(holder.held(now)))
    }

    /// How the seats are taken at `now`, as a queue sees it that keeps so many: of its own limit, or of the lowest that another process
    /// names and holds or wants seats of.
    pub(super) fn seating(&self, now: Stamp, owner: &Owner, named: u32, kept: u32, shown: &Shown) -> Seating {
        let own = self.all.iter().position(|holder| holder.owner == *owner);
        let place = own.filter(|&at| self.all[at].has_place(now)).unwrap_or(self.all.len());
        let own = own.map(|at| &self.all[at]);
        let (roll_call, is_lost) = shown.roll_call(now, self, owner);
        let binds =
            |holder: &&Holder| !holder.owner.is_of(owner) && holder.held(now).saturating_add(holder.wanted(now)) > 0;
        let lowest = self.all.iter().filter(binds).fold(named, |lowest, holder| lowest.min(holder.named));
        let is_other = |(_, holder): &(usize, &Holder)| holder.owner != *owner;
        let other = |(at, holder): (usize, &Holder)| Other {
            held: holder.held(now).into(),
            wanted: holder.wanted(now).into(),
            is_before: at < place,
        };
        Seating {
            now,
            named,
            seats: lowest.into(),
            kept: kept.into(),
            was_there: own.is_some_and(|own| !own.is_spent(now)),
            since: own.filter(|own| own.held(now) > 0).map(|own| own.since),
            waited: own.is_some_and(|own| own.has_place(now)),
            roll_call,
            is_lost,
            others: self.all.iter().enumerate().filter(is_other).map(other).collect(),
        }
    }

    /// Enters what a queue holds and wants from now on. Who was served, or waits anew, comes after those who wait already.
    pub(super) fn enter(&mut self, now: Stamp, holder: Holder, keeps_place: bool) {
        let at = self.all.iter().position(|before| before.owner == holder.owner);
        if let Some(at) = at.filter(|_| keeps_place) {
            self.all[at] = holder;
        } else {
            at.map(|at| self.all.remove(at));
            self.all.push(holder);
        }
        // What lapsed but now will matter again where the clock has leapt ahead and is set back.
        let since = now.plus(-LEAP);
        self.all.retain(|holder| (holder.held > 0 || holder.wanted > 0) && !holder.is_spent(since));
        self.roll_call = self.roll_call.filter(|of| of.lapse > since);
    }
}
