//! Which queues of a process would say again what they were granted, if the store lost that. When one is told that it has lost data, those hear of
//! it in which nobody calls: else only what is asked for meanwhile were said again. Where nobody calls at all, one asks now and then; and so does each
//! whose logs no other asks for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

use super::Queue;
use super::events::Event;
use super::memory::HEARS;
use crate::ledger::Stamp;

/// How many queues ask at once, how often it is looked whether they have said all, and for how long they are waited for.
const AT_ONCE: usize = 64;
const LOOKS: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(1);
/// From the begin of one round to the begin of the next. Each scope has its own time at which its loss was seen, mostly in the first round.
const ROUND: Duration = Duration::from_secs(3);
/// How many queues there are at least before those are looked for that are gone.
const FEW: usize = 64;
/// A queue that was to ask, and has not come to it for so long, leaves it to another.
const STUCK: Duration = Duration::from_secs(1);
/// One that tries again for so long is refused alone, or not polled: else the store does not answer any other either.
const GIVES_UP: Duration = Duration::from_secs(20);
/// One that has not come to ask, or tried in vain, is left out for so long.
const ASIDE: Duration = Duration::from_secs(60);
/// One queue asks so long after another.
const APART: Duration = Duration::from_millis(200);
/// Those that are to ask are listed so long after each other at least, and at most.
const LISTED: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The queues of one shard of an upstream that have been granted what counts for long.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    known: Mutex<Known>,
    /// A task has one of them ask now and then.
    is_watched: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    queues: Vec<Weak<Queue>>,
    /// So many there are when they are looked through again.
    sweep_at: usize,
    /// When the last loss was seen of which any queue was told, and of which all were that began to ask.
    told: Stamp,
    asked: Stamp,
    /// A task has them ask.
    runs: bool,
}

impl Memories {
    /// A queue was granted what it would say again.
    pub(super) fn add(self: &Arc<Self>, queue: &Arc<Queue>) {
        if !queue.is_remembering.swap(true, Ordering::Relaxed) {
            self.enter(queue);
        }
        if !self.is_watched.load(Ordering::Relaxed)
            && let Ok(runtime) = Handle::try_current()
            && !self.is_watched.swap(true, Ordering::Relaxed)
        {
            runtime.spawn(Watch::of(self).run());
        }
    }

    fn enter(&self, queue: &Arc<Queue>) {
        let mut known = self.lock();
        if known.queues.len() >= known.sweep_at {
            known.queues.retain(|queue| queue.strong_count() > 0);
            known.sweep_at = (2 * known.queues.len()).max(FEW);
        }
        known.queues.push(Arc::downgrade(queue));
    }

    /// The store has told a queue that it has lost data, as was seen then: all ask whether it was theirs, and say again what they were granted.
    /// Outside of a runtime nobody asks.
    pub(super) fn lost_data(self: &Arc<Self>, seen: Stamp) {
        let mut known = self.lock();
        known.told = known.told.max(seen);
        if known.runs || known.told <= known.asked {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        known.runs = true;
        drop(known);
        runtime.spawn(Rounds { memories: Arc::clone(self), ended: false }.run());
    }

    /// The queues that remember what counts, each with when it is to ask again. Where there is none nobody watches any more.
    fn remembering(&self, now: Instant) -> Vec<(Instant, Arc<Queue>)> {
        // Those that are gone by now are dropped without the lock.
        let (mut remembering, mut others) = (Vec::new(), Vec::new());
        let mut known = self.lock();
        known.queues.retain(|queue| {
            let Some(queue) = queue.upgrade() else { return false };
            let by = queue.asks_by(now).or_else(|| {
                queue.is_remembering.store(false, Ordering::Relaxed);
                // It may have been granted more just now, and not have entered itself as it stood here.
                queue.asks_by(now).filter(|_| !queue.is_remembering.swap(true, Ordering::Relaxed))
            });
            match by {
                Some(by) => remembering.push((by, queue)),
                None => others.push(queue),
            }
            by.is_some()
        });
        if remembering.is_empty() {
            self.is_watched.store(false, Ordering::Relaxed);
        }
        drop(known);
        remembering
    }

    /// The queues that ask now; `None` where all have, since the last loss.
    fn next_round(&self) -> Option<Vec<Weak<Queue>>> {
        let mut known = self.lock();
        known.runs = known.told > known.asked;
        known.asked = known.told;
        known.runs.then(|| known.queues.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has queues ask now and then, as long as any remembers what counts: there is one at most. Dropped with its runtime, it lets another begin.
///
/// Each asks for the logs that its callers alone use. Of all others the one asks that was granted something last: a store that has lost all of
/// its data, or the last of it, tells that.
struct Watch {
    memories: Weak<Memories>,
    /// Those that are to ask, in their order; when they were listed, and when the next is to ask that is not among them.
    due: VecDeque<Weak<Queue>>,
    listed_at: Option<Instant>,
    next_by: Instant,
    /// By when the one is to ask that was granted something last.
    last_by: Instant,
    /// Those that are left out, and since when.
    aside: Vec<(Weak<Queue>, Instant)>,
    /// Who was to ask last, and when.
    asked: Option<(Weak<Queue>, Instant)>,
    ended: bool,
}

impl Watch {
    fn of(memories: &Arc<Memories>) -> Self {
        let (memories, next_by) = (Arc::downgrade(memories), Instant::now());
        let (due, aside) = (VecDeque::new(), Vec::new());
        Self { memories, due, listed_at: None, next_by, last_by: next_by, aside, asked: None, ended: false }
    }

    async fn run(mut self) {
        let mut at = Instant::now();
        loop {
            sleep_until(at).await;
            let Some(next) = self.look(Instant::now()) else {
                self.ended = true;
                return;
            };
            at = next;
        }
    }

    /// Has the next queue ask. Says when to look again; `None` where nothing counts any more.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        if self.waits(now) {
            return Some(now + APART);
        }
        let [least, most] = LISTED;
        let is_over = |listed: Instant| {
            let at_most = if self.due.is_empty() { listed } else { self.last_by.min(listed + most) };
            at_most.max(listed + least) <= now
        };
        if self.listed_at.is_none_or(is_over) {
            self.list(now)?;
        }
        let is_due = |queue: &Arc<Queue>| queue.asks_by(now).is_some_and(|by| by <= now);
        let mut due = std::iter::from_fn(|| self.due.pop_front()).filter_map(|queue| queue.upgrade());
        let Some(queue) = due.find(is_due) else {
            let listed_at = self.listed_at.unwrap_or(now);
            return Some(self.next_by.clamp(listed_at + least, listed_at + most));
        };
        self.asked = Some((Arc::downgrade(&queue), now));
        queue.leave_to_a_task();
        queue.happen(|_| Some(Event::LostData));
        Some(now + APART)
    }

    /// Whether to wait for the one that was to ask last: where the store does not answer one tries at a time.
    fn waits(&mut self, now: Instant) -> bool {
        let Some((queue, at)) = self.asked.as_ref().and_then(|(queue, at)| Some((queue.upgrade()?, *at))) else {
            return false;
        };
        let has_said = queue.has_said_again();
        if !has_said {
            // A caller that is polled no more may have driven it.
            queue.leave_to_a_task();
        }
        let waited_for = now - at;
        let is_stuck = waited_for >= if queue.is_under_way() { HEARS } else { STUCK };
        let tries_again = queue.tries_again();
        let waits = !has_said && !is_stuck || tries_again && waited_for < GIVES_UP;
        if !waits {
            let is_in_vain = !has_said || tries_again;
            self.aside.extend(is_in_vain.then(|| (Arc::downgrade(&queue), now)));
            self.asked = None;
        }
        waits
    }

    /// Lists those that are to ask by now; `None` where nothing counts any more.
    fn list(&mut self, now: Instant) -> Option<()> {
        let mut queues = self.memories.upgrade()?.remembering(now);
        self.aside.retain(|(_, since)| *since + ASIDE > now);
        let is_aside = |queue: &Arc<Queue>| self.aside.iter().any(|(of, _)| of.as_ptr() == Arc::as_ptr(queue));
        if queues.iter().any(|(_, queue)| !is_aside(queue)) {
            queues.retain(|(_, queue)| !is_aside(queue));
        }
        let (last_by, last) = queues.iter().max_by_key(|(_, queue)| queue.granted_at())?;
        let last = Arc::clone(last);
        self.last_by = *last_by;
        queues.retain(|(_, queue)| queue.counts_alone_for_long() || Arc::ptr_eq(queue, &last));
        queues.sort_by_key(|(by, queue)| (!Arc::ptr_eq(queue, &last), *by));
        let (due, later): (Vec<_>, Vec<_>) = queues.into_iter().partition(|(by, _)| *by <= now);
        self.due = due.iter().map(|(_, queue)| Arc::downgrade(queue)).collect();
        self.next_by = later.iter().map(|(by, _)| *by).min().unwrap_or(now);
        self.listed_at = Some(now);
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(memories) = self.memories.upgrade().filter(|_| !self.ended) {
            memories.is_watched.store(false, Ordering::Relaxed);
        }
    }
}

/// Has queues ask: there is one at most. Dropped with its runtime, it lets another begin.
struct Rounds {
    memories: Arc<Memories>,
    ended: bool,
}

impl Rounds {
    async fn run(mut self) {
        while let Some(queues) = self.memories.next_round() {
            let next = Instant::now() + ROUND;
            for some in queues.chunks(AT_ONCE) {
                ask(some).await;
            }
            sleep_until(next).await;
        }
        self.ended = true;
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if !self.ended {
            self.memories.lock().runs = false;
        }
    }
}

/// Lets a few queues ask, and waits until they have said what there is to say, or the store does not answer.
async fn ask(queues: &[Weak<Queue>]) {
    let queues: Vec<_> = queues.iter().filter_map(Weak::upgrade).filter(|queue| queue.remembers()).collect();
    for queue in &queues {
        queue.happen(|_| Some(Event::LostData));
    }
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && !queues.iter().all(|queue| queue.has_said_again()) {
        sleep(LOOKS).await;
    }
}
