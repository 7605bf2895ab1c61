//! Sees to it that the leases of seats are renewed, and that seats which are free are given back. Whoever drives a queue does that, and its runtime may stand
//! still, or be gone: in each runtime in which calls began, or ended, that have seats a task looks, as long as there are any.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::sleep;

use super::Queue;
use super::resend::PATIENCE;
use super::seats::{SeatRules, Seats};

/// Whoever has not looked for this part of a lease after its time is replaced. It is renewed after a third.
const STUCK: u32 = 6;

/// Those of one shard of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Queues that hold seats.
    queues: Vec<Weak<Queue>>,
    /// In each of these a task looks.
    runtimes: Vec<Id>,
}

/// Looks in a runtime until it is dropped.
#[derive(Debug)]
struct Watch {
    leases: Weak<Leases>,
    here: Id,
    /// It has ended, and another may look by now.
    is_over: bool,
}

impl Leases {
    /// A call of a queue that has a seat begins here, or ends.
    fn keep(self: &Arc<Self>, queue: &Arc<Queue>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let here = runtime.id();
        let Some(is_known) = queue.lease_mark.set(Some(here)) else { return };
        let mut known = self.lock();
        if !is_known {
            known.queues.push(Arc::downgrade(queue));
        }
        let is_new = !known.runtimes.contains(&here);
        known.runtimes.extend(is_new.then_some(here));
        drop(known);
        if is_new {
            runtime.spawn(Watch { leases: Arc::downgrade(self), here, is_over: false }.run());
        }
    }

    /// The queues that hold seats. Where there is none nobody looks any more.
    fn holding(&self, watch: &mut Watch) -> Vec<Arc<Queue>> {
        // Those that are gone by now are dropped without the lock.
        let (mut holding, mut others) = (Vec::new(), Vec::new());
        let mut known = self.lock();
        known.queues.retain(|queue| {
            let Some(queue) = queue.upgrade() else { return false };
            let holds = queue.holds_seats() || {
                queue.lease_mark.clear();
                // A call may have begun just now, and not have it entered as it stood here.
                queue.holds_seats() && !queue.lease_mark.set_again()
            };
            if holds { &mut holding } else { &mut others }.push(queue);
            holds
        });
        watch.is_over = holding.is_empty();
        if watch.is_over {
            known.leave(watch.here);
        }
        drop(known);
        holding
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn leave(&mut self, runtime: Id) {
        self.runtimes.retain(|other| *other != runtime);
    }
}

impl Watch {
    async fn run(mut self) {
        while let Some(wait) = self.look() {
            sleep(wait).await;
        }
    }

    /// Says how long until it looks again; `None` where no queue holds seats.
    fn look(&mut self) -> Option<Duration> {
        let holding = self.leases.upgrade()?.holding(self);
        holding.iter().filter_map(|queue| queue.renews()).min()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(leases) = self.leases.upgrade().filter(|_| !self.is_over) {
            leases.lock().leave(self.here);
        }
    }
}

impl Queue {
    /// A call that has a seat, or one of each line, begins here, or ends.
    pub(crate) fn keeps_leases(self: &Arc<Self>) {
        for queue in self.seats.iter().map(|_| self).chain(self.lines.iter()) {
            queue.shard.leases.keep(queue);
        }
    }

    fn holds_seats(&self) -> bool {
        self.known().is_some_and(|state| state.engine.seats.as_ref().is_some_and(Seats::has_any))
    }

    /// Has a task of this runtime drive where nobody does, or whoever did stands still. Says after how long to look again.
    fn renews(self: &Arc<Self>) -> Option<Duration> {
        let patience = self.seats.as_ref().map(SeatRules::patience)?;
        self.is_driven_on(patience);
        Some(patience)
    }
}

impl SeatRules {
    /// For how long after its time whoever renews a lease may look.
    fn patience(&self) -> Duration {
        (self.lease / STUCK).min(PATIENCE)
    }
}
