//! Queues that rest for long beside others of their process which take of the same logs: where a call of one makes room, the others look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::engine::Engine;
use super::events::Event;
use super::listed::Listed;
use super::outbox::Outbox;
use super::settling::{LOOK, LOOK_OF_EACH};
use super::state::State;
use crate::ledger::Log;

/// Who rests no longer looks soon enough.
const LONG: Duration = Duration::from_secs(2);

/// Whoever gets no turn to look before this rests for as long as it would.
const LATEST: Duration = Duration::from_secs(30);

/// Those of one shard of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    list: Mutex<List>,
    /// How often room was made; written with the lock of the list.
    rooms: AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    queues: Listed,
    /// When the last of those looks that were told to.
    last_look: Option<Instant>,
}

impl List {
    /// When the next is to look, after all that were told before.
    fn next_look(&mut self, now: Instant) -> Option<Instant> {
        let at = self.last_look.map_or(now, |last| last.max(now)) + LOOK_OF_EACH;
        if at > now + LATEST {
            return None;
        }
        self.last_look = Some(at);
        Some(at)
    }

    /// Whether so many are to look that others hardly get a turn.
    fn is_full(&self, now: Instant) -> bool {
        self.last_look.is_some_and(|last| last > now + LATEST / 2)
    }
}

impl Resting {
    /// A queue rests that knows of room that was made so often. Where it was made again meanwhile, it looks.
    pub(super) fn add(&self, queue: &Arc<Queue>, rooms: u64) {
        let mut list = self.lock();
        if self.rooms() == rooms {
            list.queues.push(queue);
            return;
        }
        drop(list);
        self.tell(queue);
    }

    /// The store knows of room that a call of this queue has made: whoever rests beside it looks before long.
    pub(super) fn look_beside(&self, queue: &Arc<Queue>) {
        let mut list = self.lock();
        self.rooms.fetch_add(1, Ordering::Relaxed);
        if list.is_full(Instant::now()) {
            return;
        }
        let is_beside = |resting: &Arc<Queue>| resting.takes_of_logs_of(queue) && !Arc::ptr_eq(resting, queue);
        let [_others, beside] = list.queues.sort(|resting| !is_beside(resting));
        drop(list);
        for resting in beside {
            self.tell(&resting);
        }
    }

    /// Has a queue look that was taken from the list, or never stood in it; not one that rests no more.
    fn tell(&self, queue: &Arc<Queue>) {
        queue.happen(|state| {
            let now = Instant::now();
            // The answer to what it has asked knows nothing of that.
            if !state.engine.under_way {
                state.rest.rooms = self.rooms();
            }
            state.rest.is_listed = false;
            if !state.engine.rests_for_long(now) {
                return None;
            }
            let mut list = self.lock();
            let look = list.next_look(now);
            if look.is_none() {
                // It may look for what is made later.
                list.queues.push(queue);
                state.rest.is_listed = true;
            }
            drop(list);
            let soonest = state.rest.asked_at.map_or(now, |asked| asked + LOOK);
            state.rest.looks_at = look.map(|look| look.max(soonest));
            state.rest.looks_at.map(Event::MadeRoomBeside)
        });
    }

    /// How often room was made so far.
    fn rooms(&self) -> u64 {
        self.rooms.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn takes_of_logs_of(&self, other: &Self) -> bool {
        Log::scopes(&self.logs).any(|scope| Log::scopes(&other.logs).any(|of| of == scope))
    }
}

/// What a queue that rests knows of others beside it.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Stands in the list.
    is_listed: bool,
    /// How often room had been made when it asked last, and when that was.
    rooms: u64,
    asked_at: Option<Instant>,
    /// It is to look then.
    looks_at: Option<Instant>,
}

impl State {
    /// Has it looked after while it rests for long, where others of the process may make room for it, or have since it asked.
    pub(super) fn note_rest(&mut self, queue: &Queue, now: Instant, out: &mut Outbox) {
        if !queue.has_others_beside() {
            return;
        }
        if out.send.is_some() {
            let is_listed = self.rest.is_listed;
            // What is sent again is answered as it was then.
            let rooms = if self.engine.sends_again() { self.rest.rooms } else { queue.shard.resting.rooms() };
            self.rest = Rest { is_listed, rooms, asked_at: Some(now), looks_at: None };
            return;
        }
        let is_to_look = self.rest.looks_at.is_some_and(|look| self.engine.ask_at.is_some_and(|at| at <= look));
        if !self.rest.is_listed && !is_to_look && self.engine.rests_for_long(now) {
            self.rest.is_listed = true;
            out.beside.rests_since = Some(self.rest.rooms);
        }
    }
}

impl Engine {
    /// Where calls have lately used less than they were charged it looks now and then by itself.
    fn rests_for_long(&self, now: Instant) -> bool {
        let rests = self.waiters.has_unslotted() && !self.is_paused(now) && !self.looks_for_unused(now);
        rests && self.ask_at.is_some_and(|at| at > now + LONG)
    }

    /// A call of another queue has made room, and the store knows: this one asks then.
    pub(super) fn look_beside(&mut self, look: Instant, now: Instant) {
        if !self.looks_for_unused(now) {
            self.leave_nobody_out();
            self.next_slot = self.next_slot.map(|at| at.min(look));
            self.ask_at = self.ask_at.map(|at| at.min(look));
        }
    }
}
