//! Who drives a queue.

use std::time::Duration;

use tokio::runtime::Id;
use tokio::time::Instant;

use super::driver::Driver;
use super::resend::{LATE, PATIENCE};
use super::wants::Wants;

/// So often callers in other runtimes look whether a driver is overdue sooner than it was; so many of them at once.
const LOOKS: Duration = Duration::from_millis(500);
const CALLERS: usize = 64;

/// The duty to drive a queue, which one driver has at most.
#[derive(Default)]
pub(super) struct Duty {
    pub(super) driven: bool,
    /// Which driver drives: one that was given up on, and comes back, finds another number here.
    pub(super) number: u64,
    /// When the driver promised to look again.
    pub(super) look_by: Option<Instant>,
    /// How long after that it is given up on.
    pub(super) patience: Duration,
    /// Where it is polled.
    pub(super) runtime: Option<Id>,
    pub(super) by_hand: ByHand,
    /// Its places in the lines for seats.
    pub(super) wants: Wants,
}

/// Who drives in a caller's own task, while the message is under way.
#[derive(Default)]
pub(super) enum ByHand {
    #[default]
    Nobody,
    /// Left here by its caller between two polls: whoever comes may have a task drive on, as that caller may be polled no more.
    Parked(Driver),
    /// Its caller polls it at present, without the lock; and whether a task is to drive on after that.
    Polled { wanted: bool },
}

impl Duty {
    /// Whether this is the driver that drives.
    pub(super) const fn is_driven_by(&self, driver: u64) -> bool {
        self.driven && self.number == driver
    }

    pub(super) const fn is_undriven(&self) -> bool {
        !self.driven
    }

    /// Whoever drives is polled in this runtime.
    pub(super) const fn is_polled_in(&mut self, runtime: Option<Id>) {
        self.runtime = runtime;
    }

    /// So it will be, if this driver drives.
    pub(super) fn is_to_be_polled_in(&mut self, driver: u64, runtime: Id) {
        if self.is_driven_by(driver) {
            self.is_polled_in(Some(runtime));
        }
    }

    /// Whether whoever drives, or drove last, is polled here.
    pub(super) fn is_near(&self, here: Option<Id>) -> bool {
        here.is_some() && self.runtime == here
    }

    /// Whether the driver promised to look only later than this.
    pub(super) fn is_too_late(&self, wake: Option<Instant>) -> bool {
        wake.is_some_and(|wake| self.look_by.is_none_or(|at| wake < at))
    }

    /// Has the driver promise to look by then. Says whether that is news to it.
    pub(super) fn hurry(&mut self, wake: Option<Instant>) -> bool {
        let is_news = self.is_too_late(wake);
        if is_news {
            self.look_by = wake;
        }
        is_news
    }

    /// When a caller that is polled in another runtime looks after the driver: well after it promised to look itself.
    pub(super) fn overdue_at(&self, here: Option<Id>) -> Option<Instant> {
        self.overdue_after(self.patience, here)
    }

    /// The same, so long after that.
    pub(super) fn overdue_after(&self, patience: Duration, here: Option<Id>) -> Option<Instant> {
        self.look_by.filter(|_| self.driven && !self.is_near(here)).map(|at| at + patience)
    }

    /// The driver has looked: nobody is there to be given up on soon while the store, or a seat, is `awaited`. For a slot alone it may be as soon as
    /// is late; but so many callers in other runtimes look in turn.
    pub(super) fn be_patient(&mut self, awaits: bool, callers: usize) {
        self.patience = if awaits { PATIENCE } else { in_turn(LATE, callers).min(PATIENCE) };
    }

    /// How long until a caller, one of so many, looks again whether it is overdue: it may be so sooner by then.
    pub(super) fn looks_again_after(callers: usize) -> Duration {
        in_turn(LOOKS, callers).min(2 * PATIENCE)
    }

    /// The driver that was parked by hand; one that is polled at present is to go on in a task.
    pub(super) fn take_by_hand(&mut self) -> Option<Driver> {
        match std::mem::take(&mut self.by_hand) {
            ByHand::Parked(driver) => Some(driver),
            ByHand::Polled { .. } => {
                self.by_hand = ByHand::Polled { wanted: true };
                None
            }
            ByHand::Nobody => None,
        }
    }

    /// Gives back a driver that was parked before, to be dropped without the lock.
    pub(super) fn put_by_hand(&mut self, by_hand: ByHand) -> Option<Driver> {
        match std::mem::replace(&mut self.by_hand, by_hand) {
            ByHand::Parked(driver) => Some(driver),
            _ => None,
        }
    }
}

/// So long, or so many times that: as many as take turns.
fn in_turn(time: Duration, callers: usize) -> Duration {
    time.saturating_mul(u32::try_from(1 + callers / CALLERS).unwrap_or(u32::MAX))
}
