//! Sees to it that the leases of seats are renewed, and that seats which are free are given back. Whoever drives a queue does that, and its runtime may stand
//! still, or be gone: in each runtime in which calls began, or ended, that have seats a task looks, as long as there are any.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::Queue;
use super::listed::Listed;
use super::resend::PATIENCE;
use super::seats::{SeatRules, Seats};
use super::shift::{Runtimes, StandsBy};

/// Whoever has not looked for this part of a lease after its time is replaced. It is renewed after a third.
const STUCK: u32 = 6;

/// Those of one shard of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Queues that hold seats.
    queues: Mutex<Listed>,
    /// In each of these a task looks.
    runtimes: Arc<Runtimes>,
}

impl Leases {
    /// A call of a queue that has a seat begins here, or ends.
    fn keep(self: &Arc<Self>, queue: &Arc<Queue>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(is_known) = queue.lease_mark.set(Some(runtime.id())) else { return };
        let mut queues = self.lock();
        if !is_known {
            queues.push(queue);
        }
        let stands_by = self.runtimes.stands_by(runtime.id());
        drop(queues);
        if stands_by.is_some() {
            runtime.spawn(watch(Arc::downgrade(self), stands_by));
        }
    }

    /// Says how long until whoever stands by looks again; `None` where no queue holds seats.
    fn look(&self, stands_by: &mut Option<StandsBy>) -> Option<Duration> {
        self.holding(stands_by).iter().filter_map(Queue::renews).min()
    }

    /// The queues that hold seats. Where there is none nobody looks any more.
    fn holding(&self, stands_by: &mut Option<StandsBy>) -> Vec<Arc<Queue>> {
        let mut queues = self.lock();
        let holds = |queue: &Arc<Queue>| queue.lease_mark.kept_by(|| queue.holds_seats().then_some(())).is_some();
        let [holding, _others] = queues.sort(holds);
        if holding.is_empty() {
            *stands_by = None;
        }
        drop(queues);
        holding
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks in a runtime, as long as any queue holds seats.
async fn watch(leases: Weak<Leases>, mut stands_by: Option<StandsBy>) {
    while let Some(wait) = leases.upgrade().and_then(|leases| leases.look(&mut stands_by)) {
        sleep(wait).await;
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
