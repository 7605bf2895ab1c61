//! From the limits of an upstream to those that take their place: what was booked by the former goes back first.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::engine::Engine;
use super::events::Event;
use crate::ledger::{Log, Slots};

/// Nobody waits longer for the store to know.
const LONGEST: Duration = Duration::from_millis(250);
/// How often each queue looks whether the store knows, for so many that have to tell it.
const LOOK: Duration = Duration::from_millis(1);
const OF: usize = 64;

/// How many successors there are at least before those that are gone are looked for.
const FEW: usize = 16;

/// So soon the store mostly knows what a call has given back.
const KNOWN: Duration = Duration::from_millis(25);

/// No queue of the new limits asks before it is over. Meanwhile callers come to them from those of the old limits, in whatever order,
/// and take their old places.
#[derive(Debug)]
pub(crate) struct Handover {
    is_over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    until: Instant,
    /// The queues of before that have something left to tell the store; `None` until they are closed.
    before: Option<Vec<Arc<Queue>>>,
}

impl Handover {
    /// Of limits that took nobody's place.
    pub(crate) fn none() -> Self {
        Self { is_over: AtomicBool::new(true), ..Self::begun() }
    }

    /// From limits whose queues are about to be closed.
    pub(crate) fn begun() -> Self {
        let state = State { until: Instant::now() + LONGEST, before: None };
        Self { is_over: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// These are closed now.
    pub(crate) fn closed(&self, before: Vec<Arc<Queue>>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_over.load(Ordering::Acquire) {
            state.before = Some(before);
        }
    }

    /// When to look again whether it is over; `None` once it is.
    #[inline]
    pub(super) fn look_at(&self, now: Instant) -> Option<Instant> {
        if self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = state.until <= now;
        let is_over = state.before.as_mut().is_some_and(|before| {
            // Whoever looks may hold the lock of a new queue, and whoever has that of an old one may want it.
            while before.pop_if(|queue| queue.is_seen_to_be_done()).is_some() {}
            before.is_empty()
        });
        if is_over || is_late {
            state.before = None;
            self.is_over.store(true, Ordering::Release);
            return None;
        }
        let left = state.before.as_ref().map_or(0, Vec::len);
        let look = LOOK.saturating_mul(u32::try_from(1 + left / OF).unwrap_or(u32::MAX));
        Some(state.until.min(now + look))
    }
}

/// The queues to which the callers of a closed one went.
#[derive(Debug, Default)]
pub(super) struct Successors(Mutex<Known>);

/// By their addresses, which are no others' as long as these are here.
#[derive(Debug, Default)]
struct Known {
    queues: HashMap<usize, Weak<Queue>>,
    sweep_at: usize,
}

impl Successors {
    pub(super) fn add(&self, queue: &Arc<Queue>) {
        let mut known = self.lock();
        if known.queues.len() >= known.sweep_at {
            known.queues.retain(|_, queue| queue.strong_count() > 0);
            known.sweep_at = (2 * known.queues.len()).max(FEW);
        }
        known.queues.insert(Arc::as_ptr(queue).addr(), Arc::downgrade(queue));
    }

    /// The queue hands back what was charged in these logs: whoever remembers it in its place forgets it.
    pub(super) fn forget(&self, slots: &[Slots], logs: &[Log]) {
        if slots.is_empty() {
            return;
        }
        for queue in self.reached() {
            queue.forget(slots, logs);
        }
    }

    /// Whether there is any.
    pub(super) fn is_any(&self) -> bool {
        self.lock().queues.values().any(|queue| queue.strong_count() > 0)
    }

    /// The closed queue was granted something all the same: it is remembered in its place.
    pub(super) fn take_over(&self, before: &Arc<Queue>, now: Instant) {
        for queue in self.all().iter().filter(|queue| !queue.is_closed()) {
            queue.take_over(before, now);
        }
    }

    /// A call of the closed queue has made room: who waits asks before long.
    pub(super) fn look(&self) {
        for queue in self.reached() {
            queue.happen(|_| Some(Event::MadeRoom));
        }
    }

    /// They and their own successors, as limits may have been replaced again: each once, however many it succeeded.
    fn reached(&self) -> Vec<Arc<Queue>> {
        let (mut reached, mut known, mut looked_at) = (self.all(), HashSet::new(), 0);
        known.extend(reached.iter().map(|queue| Arc::as_ptr(queue).addr()));
        while let Some(queue) = reached.get(looked_at) {
            let next = queue.successors.all().into_iter();
            reached.extend(next.filter(|queue| known.insert(Arc::as_ptr(queue).addr())));
            looked_at += 1;
        }
        reached
    }

    fn all(&self) -> Vec<Arc<Queue>> {
        self.lock().queues.values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// A call of before has made room: the store knows by then.
    pub(super) fn look_for_room(&mut self, now: Instant) {
        self.unused_at = Some(now);
        self.leave_nobody_out();
        self.ask_at = self.ask_at.map(|at| at.min(now + KNOWN));
    }
}
