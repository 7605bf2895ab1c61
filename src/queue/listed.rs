//! A list of queues that keeps none of them.

use std::sync::{Arc, Weak};

use super::Queue;

/// How many there are at least before those are looked for that are gone.
const FEW: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Listed {
    queues: Vec<Weak<Queue>>,
    /// So many there are when they are looked through again.
    sweep_at: usize,
}

impl Listed {
    pub(super) fn push(&mut self, queue: &Arc<Queue>) {
        if self.queues.len() >= self.sweep_at {
            self.queues.retain(|queue| queue.strong_count() > 0);
            self.sweep_at = (2 * self.queues.len()).max(FEW);
        }
        self.queues.push(Arc::downgrade(queue));
    }

    /// Keeps those for which this holds, and takes the others out: both, to be dropped without the lock that the list is under.
    pub(super) fn sort(&mut self, mut is_kept: impl FnMut(&Arc<Queue>) -> bool) -> [Vec<Arc<Queue>>; 2] {
        let [mut kept, mut taken] = [Vec::new(), Vec::new()];
        self.queues.retain(|queue| {
            let Some(queue) = queue.upgrade() else { return false };
            let keeps = is_kept(&queue);
            if keeps { &mut kept } else { &mut taken }.push(queue);
            keeps
        });
        [kept, taken]
    }

    pub(super) fn to_vec(&self) -> Vec<Weak<Queue>> {
        self.queues.clone()
    }
}
