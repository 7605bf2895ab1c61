//! Queues that rest for long beside others of their process which take of the same logs: where a call of one makes room, the others look.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::engine::Engine;
use super::events::Event;
use super::state::{Outbox, State};
use crate::ledger::Log;

/// Who rests no longer looks soon enough.
const LONG: Duration = Duration::from_secs(2);

/// Those of one shard of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Resting(Mutex<Vec<Weak<Queue>>>);

impl Resting {
    pub(super) fn add(&self, queue: &Arc<Queue>) {
        self.lock().push(Arc::downgrade(queue));
    }

    /// The store knows of room that a call of this queue has made: whoever rests beside it looks before long, once.
    pub(super) fn look_beside(&self, queue: &Arc<Queue>) {
        // Those that are gone by now are dropped without the lock.
        let (mut beside, mut others) = (Vec::new(), Vec::new());
        let mut all = self.lock();
        all.retain(|resting| {
            let Some(resting) = resting.upgrade() else { return false };
            let is_beside = resting.takes_of_logs_of(queue) && !Arc::ptr_eq(&resting, queue);
            if is_beside { &mut beside } else { &mut others }.push(resting);
            !is_beside
        });
        drop(all);
        for resting in beside {
            resting.happen(|state| {
                state.is_resting = false;
                Some(Event::MadeRoomBeside)
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Queue>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn takes_of_logs_of(&self, other: &Self) -> bool {
        Log::scopes(&self.logs).any(|scope| Log::scopes(&other.logs).any(|of| of == scope))
    }
}

impl State {
    /// Has it looked after while it rests for long, where others of the process may make room for it.
    pub(super) fn note_rest(&mut self, queue: &Queue, now: Instant, out: &mut Outbox) {
        if !self.is_resting && queue.has_others_beside() && self.engine.rests_for_long(now) {
            self.is_resting = true;
            out.beside.rests = true;
        }
    }
}

impl Engine {
    fn rests_for_long(&self, now: Instant) -> bool {
        self.waiters.has_unslotted() && !self.is_paused(now) && self.ask_at.is_some_and(|at| at > now + LONG)
    }

    /// A call of another queue has made room, and the store knows: this one asks before long. Where that was known before, it looks now and then
    /// by itself.
    pub(super) fn look_beside(&mut self, now: Instant) {
        let looks_by_itself = self.looks_for_unused(now);
        self.unused_at = Some(now);
        if !looks_by_itself {
            self.leave_nobody_out();
            self.next_slot = None;
            let look = self.random_look();
            self.ask_at = self.ask_at.map(|at| at.min(now + look));
        }
    }
}
