//! A caller that waits, and a slot.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::costs::Costs;
use crate::config::priority::Priority;
use crate::ledger::Stamp;
use crate::queue::glance::WaitsFor;

/// Others, who know the store's clock no better than to half of what may be late, may start early by up to twice this part of it.
const EARLY: u64 = 8;

/// How long a caller for now or never waits for the store's answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// Stamps are whole microseconds: a slot that begins within the one of the store's answer has started.
const STEP: Duration = Duration::from_micros(1);

/// The stamp of a slot that no log knows of.
pub(crate) const UNBOOKED: Stamp = Stamp::from_micros(i64::MIN);

/// A booked start time, as its process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// What the store calls it.
    pub(crate) stamp: Stamp,
    /// When it starts on this process's clock.
    pub(crate) start: Instant,
    /// What it takes of each log.
    pub(crate) costs: Costs,
    /// By how much it may have started earlier, as the store's clock is not known yet.
    pub(crate) excess: Duration,
    /// The name that it was booked under.
    pub(crate) sender: u64,
    /// It is for the one call that looks whether a pause still holds.
    pub(crate) looks: bool,
    /// What its caller has waited for, once it is told.
    pub(crate) waited_for: WaitsFor,
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
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    /// Ascending in order of arrival.
    pub(crate) ticket: u64,
    pub(crate) costs: Costs,
    pub(crate) joined: Instant,
    pub(crate) wish: Wish,
    pub(crate) priority: Priority,
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

    /// No answer after this is of use. `None`: as long as the store answers.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self.wish {
            Wish::Soon => None,
            Wish::By(deadline) => Some(deadline),
            Wish::AtOnce { .. } => Some(self.joined + ANSWER_PATIENCE),
        }
    }

    /// Whether it had any time left when it came.
    pub(crate) fn had_time(&self) -> bool {
        self.until().is_none_or(|until| until > self.joined)
    }

    /// Whether a slot is in time for it.
    pub(super) fn is_served_by(&self, slot: &Slot, now: Instant) -> bool {
        let begins_with = |deadline: Instant| slot.start.saturating_duration_since(deadline) < STEP;
        match self.wish {
            Wish::Soon => true,
            Wish::By(deadline) => slot.start <= deadline,
            Wish::AtOnce { within } => now.checked_add(within).is_none_or(begins_with),
        }
    }
}

impl Slot {
    /// Whether it is too late to use the slot.
    pub(crate) fn is_stale(&self, now: Instant, stale_after: Duration) -> bool {
        // By integers: each slot is looked at twice, and to divide a `Duration` takes longer than all the rest.
        let late = u64::try_from(stale_after.as_nanos()).unwrap_or(u64::MAX);
        let most = Duration::from_nanos(late - late / EARLY).checked_sub(self.excess);
        !self.is_unbooked() && most.is_none_or(|most| self.start + most < now)
    }

    /// Whether no log knows of it: its seat was left by another call of the same queue, and nothing else limits the callers.
    pub(crate) fn is_unbooked(&self) -> bool {
        self.stamp == UNBOOKED
    }

    /// How long after its start it is, at most.
    pub(crate) fn late(&self, now: Instant) -> Duration {
        if now <= self.start { self.excess } else { now.duration_since(self.start) + self.excess }
    }

    pub(crate) fn units(&self) -> u64 {
        of_first(&self.costs)
    }
}

/// What a call of these costs takes of the first log.
pub(crate) fn of_first(costs: &[u32]) -> u64 {
    u64::from(costs.first().copied().unwrap_or(0))
}
