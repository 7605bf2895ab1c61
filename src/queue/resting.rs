//! Queues that rest for long beside others of their process which take of the same logs: where a call of one makes room, the others look.

use std::sync::atomic::{AtomicU64, Ordering};
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

/// Within so long they look, but all together no more often than one in the time that each adds.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_OF_EACH: Duration = Duration::from_millis(10);

/// How many there are at least before those that are gone are looked for.
const FEW: usize = 64;

/// Those of one shard of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    queues: Mutex<List>,
    /// How often room was made.
    rooms: AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    all: Vec<Weak<Queue>>,
    sweep_at: usize,
}

impl Resting {
    pub(super) fn add(&self, queue: &Arc<Queue>) {
        let mut list = self.lock();
        if list.all.len() >= list.sweep_at {
            list.all.retain(|queue| queue.strong_count() > 0);
            list.sweep_at = (2 * list.all.len()).max(FEW);
        }
        list.all.push(Arc::downgrade(queue));
    }

    /// The store knows of room that a call of this queue has made: whoever rests beside it looks before long.
    pub(super) fn look_beside(&self, queue: &Arc<Queue>) {
        self.rooms.fetch_add(1, Ordering::Relaxed);
        // Those that are gone by now are dropped without the lock.
        let (mut beside, mut others) = (Vec::new(), Vec::new());
        let mut list = self.lock();
        list.all.retain(|resting| {
            let Some(resting) = resting.upgrade() else { return false };
            let is_beside = resting.takes_of_logs_of(queue) && !Arc::ptr_eq(&resting, queue);
            if is_beside { &mut beside } else { &mut others }.push(resting);
            !is_beside
        });
        drop(list);
        let within = within(beside.len());
        for resting in beside {
            resting.happen(|state| {
                state.is_resting = false;
                Some(Event::MadeRoomBeside(within))
            });
        }
    }

    /// How often room was made so far.
    pub(super) fn rooms(&self) -> u64 {
        self.rooms.load(Ordering::Relaxed)
    }

    fn within(&self) -> Duration {
        within(self.lock().all.len())
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Within how long so many queues look.
fn within(queues: usize) -> Duration {
    LOOK.max(LOOK_OF_EACH.saturating_mul(u32::try_from(queues).unwrap_or(u32::MAX)))
}

impl Queue {
    fn takes_of_logs_of(&self, other: &Self) -> bool {
        Log::scopes(&self.logs).any(|scope| Log::scopes(&other.logs).any(|of| of == scope))
    }
}

impl State {
    /// Has it looked after while it rests for long, where others of the process may make room for it, or have since it asked.
    pub(super) fn note_rest(&mut self, queue: &Queue, now: Instant, out: &mut Outbox) {
        if !queue.has_others_beside() {
            return;
        }
        let resting = &queue.shard.resting;
        if out.send.is_some() {
            self.rooms = resting.rooms();
        } else if !self.is_resting && self.engine.rests_for_long(now) {
            if std::mem::replace(&mut self.rooms, resting.rooms()) == self.rooms {
                self.is_resting = true;
                out.beside.rests = true;
            } else {
                self.engine.look_beside(resting.within(), now);
                out.wake = out.wake.into_iter().chain(self.engine.ask_at).min();
            }
        }
    }
}

impl Engine {
    /// Where calls have lately used less than they were charged it looks now and then by itself.
    fn rests_for_long(&self, now: Instant) -> bool {
        let rests = self.waiters.has_unslotted() && !self.is_paused(now) && !self.looks_for_unused(now);
        rests && self.ask_at.is_some_and(|at| at > now + LONG)
    }

    /// A call of another queue has made room, and the store knows: this one asks within so long.
    pub(super) fn look_beside(&mut self, within: Duration, now: Instant) {
        if !self.looks_for_unused(now) {
            self.leave_nobody_out();
            self.next_slot = None;
            let look = within.mul_f64(0.1 + 0.9 * self.random.f64());
            self.ask_at = self.ask_at.map(|at| at.min(now + look));
        }
    }
}
