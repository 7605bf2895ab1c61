//! Which queues of a process would say again what they were granted, if the store lost that. When one sees that it has lost data, those hear of
//! it in which nobody calls: else only what is asked for meanwhile were said again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::Queue;
use super::events::Event;

/// How many queues ask at once, and for how long they are waited for before the next ones ask.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(1);
/// Who sees so soon again that data is lost sees the same loss.
const FRESH: Duration = Duration::from_secs(10);
/// How many queues there are at least before those are looked for that are gone.
const FEW: usize = 64;

/// The queues of one shard of an upstream that have been granted what counts for long.
#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    queues: Vec<Weak<Queue>>,
    /// So many there are when they are looked through again.
    sweep_at: usize,
    lost_data: Option<Instant>,
}

impl Memories {
    /// A queue was granted what it would say again, for the first time.
    pub(super) fn add(&self, queue: &Arc<Queue>) {
        let mut known = self.lock();
        if known.queues.len() >= known.sweep_at {
            known.queues.retain(|queue| queue.strong_count() > 0);
            known.sweep_at = (2 * known.queues.len()).max(FEW);
        }
        known.queues.push(Arc::downgrade(queue));
    }

    /// The store has lost data: queues in which nobody calls ask it whether it was theirs, and say again what they were granted. Outside of a
    /// runtime nobody asks.
    pub(super) fn lost_data(&self, now: Instant) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut known = self.lock();
        if known.queues.is_empty() || known.lost_data.is_some_and(|at| now < at + FRESH) {
            return;
        }
        known.lost_data = Some(now);
        let queues = known.queues.clone();
        drop(known);
        runtime.spawn(ask(queues));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(queues: Vec<Weak<Queue>>) {
    for some in queues.chunks(AT_ONCE) {
        // Who waits asks anyhow.
        let asks = |queue: &Arc<Queue>| queue.remembers() && queue.waiting() == 0;
        let some: Vec<_> = some.iter().filter_map(Weak::upgrade).filter(asks).collect();
        let all = async {
            for queue in &some {
                queue.happen(|_| Some(Event::LostData));
            }
            for queue in &some {
                queue.idle().await;
            }
        };
        // Some may be in use by now.
        _ = timeout(PATIENCE, all).await;
    }
}
