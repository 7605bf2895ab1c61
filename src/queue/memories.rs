//! Which queues of a process would say again what they were granted, if the store lost that. When one is told that it has lost data, those hear of
//! it in which nobody calls: else only what is asked for meanwhile were said again. Where nobody calls at all, one asks now and then; and so does each
//! whose logs no other asks for.

mod rounds;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::Queue;
use super::listed::Listed;
use super::shift::{OnShift, Shift};
use crate::ledger::Stamp;

/// The queues of one shard of an upstream that have been granted what counts for long.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    known: Mutex<Known>,
    /// A task has one of them ask now and then.
    watch: Arc<Shift>,
    /// A task has all of them ask, after a loss.
    rounds: Arc<Shift>,
}

#[derive(Debug, Default)]
struct Known {
    queues: Listed,
    /// When the last loss was seen of which any queue was told, and of which all were that have asked.
    told: Stamp,
    asked: Stamp,
}

/// A queue that remembers what counts.
struct Remembering {
    queue: Arc<Queue>,
    /// When it was granted something last, and by when it is to ask again.
    granted_at: Instant,
    by: Instant,
}

impl Memories {
    /// A queue was granted what it would say again. In each runtime in which anything happens in any a task watches, or stands by.
    pub(super) fn add(self: &Arc<Self>, queue: &Arc<Queue>, now: Instant) {
        let runtime = Handle::try_current().ok();
        let here = runtime.as_ref().map(Handle::id);
        let is_known = queue.mark.set(here);
        if is_known == Some(false) {
            self.enter(queue);
        }
        let Some(runtime) = runtime else { return };
        self.watch.spawn((&runtime, is_known.is_some()), self.watch.begin(now, now), |on_shift, stands_by| {
            watch::run(Arc::downgrade(self), Arc::clone(&self.watch), on_shift, stands_by)
        });
    }

    fn enter(&self, queue: &Arc<Queue>) {
        self.lock().queues.push(queue);
    }

    /// The store has told a queue that it has lost data, as was seen then: all ask whether it was theirs, and say again what they were granted.
    /// Outside of a runtime nobody asks.
    pub(super) fn lost_data(self: &Arc<Self>, seen: Stamp) {
        let mut known = self.lock();
        known.told = known.told.max(seen);
        if known.told <= known.asked {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let now = Instant::now();
        let Some(shift) = self.rounds.begin(now, now) else { return };
        drop(known);
        runtime.spawn(rounds::run(Arc::clone(self), shift));
    }

    /// The queues that remember what counts. Where there is none nobody watches any more.
    fn remembering(&self, shift: &mut OnShift, now: Instant) -> Vec<Remembering> {
        let mut known = self.lock();
        let mut times = Vec::new();
        let [remembering, _others] = known.queues.sort(|queue| {
            let asks = queue.mark.kept_by(|| queue.asks_by(now));
            times.extend(asks);
            asks.is_some()
        });
        if remembering.is_empty() {
            shift.end();
        }
        drop(known);
        let with_times = remembering.into_iter().zip(times);
        with_times.map(|(queue, (granted_at, by))| Remembering { queue, granted_at, by }).collect()
    }

    /// Where not all have asked that are to, and whoever has them ask stands still, another does.
    pub(super) fn goes_on_asking(self: &Arc<Self>) {
        self.lost_data(Stamp::NEVER);
    }

    /// The queues that are to ask now, for all losses seen up to then; none where all have, since the last.
    fn to_ask(&self, shift: &mut OnShift) -> Option<(Stamp, Vec<Weak<Queue>>)> {
        let known = self.lock();
        if known.told <= known.asked {
            shift.end();
            return None;
        }
        Some((known.told, known.queues.to_vec()))
    }

    /// Whether another loss was seen since.
    fn has_lost_more(&self, seen: Stamp) -> bool {
        self.lock().told > seen
    }

    /// All have asked, for all losses seen up to then.
    fn has_asked(&self, seen: Stamp) {
        let mut known = self.lock();
        known.asked = known.asked.max(seen);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
