//! The queues of one scope, and which of them nobody needs any more.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::config::charges::Scopes;
use crate::ledger::ScopeHasher;
use crate::queue::Queue;

/// How many queues one scope has at least before idle ones are looked for, and in how many of them it is looked for a pause.
pub(super) const SEVERAL: usize = 64;

/// The queues of one scope. Mostly there is one; several where their callers are also charged in logs of other scopes.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queue: Arc<Queue>,
    more: Option<Box<More>>,
}

/// Those of one scope beside the first, by edition and all their scopes. Behind a pointer, as there are as many entries as scopes.
#[derive(Debug)]
struct More {
    queues: HashMap<(u64, Scopes), Arc<Queue>, ScopeHasher>,
    sweep_at: usize,
    /// The newest edition, and whether there are any of former ones.
    newest: u64,
    has_former: bool,
}

/// Queues that were forgotten, to be dropped without the lock: what closures of the program hold may do anything when it goes.
pub(super) type Gone = Vec<Arc<Queue>>;

impl Entry {
    pub(super) const fn new(queue: Arc<Queue>) -> Self {
        Self { queue, more: None }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Queue>> {
        std::iter::once(&self.queue).chain(self.more.iter().flat_map(|more| more.queues.values()))
    }

    #[inline]
    pub(super) fn of(&self, edition: u64, scopes: &Scopes) -> Option<&Arc<Queue>> {
        if self.queue.is_of(edition, scopes) {
            return Some(&self.queue);
        }
        self.more.as_ref()?.queues.get(&(edition, scopes.clone()))
    }

    /// How many there are beside the first.
    pub(super) fn more(&self) -> usize {
        self.more.as_ref().map_or(0, |more| more.queues.len())
    }

    /// Those of former editions.
    pub(super) fn former(&self, edition: u64) -> impl Iterator<Item = &Arc<Queue>> {
        let more = self.more.iter().filter(move |more| more.has_former || more.newest < edition);
        let all = std::iter::once(&self.queue).chain(more.flat_map(|more| more.queues.values()));
        all.filter(move |queue| queue.edition() < edition)
    }

    /// Takes a queue in. Where there are many, or those of former limits, those go that nobody needs.
    pub(super) fn add(
        &mut self,
        queue: &Arc<Queue>,
        scopes: &Scopes,
        (may_remember, now): (bool, Instant),
        gone: &mut Gone,
    ) {
        let edition = queue.edition();
        if let Some(more) = &mut self.more
            && (more.newest < edition || more.queues.len() >= more.sweep_at)
        {
            more.newest = more.newest.max(edition);
            self.sweep((may_remember, now), gone);
        }
        if self.queue.is_closed() && is_idle(&self.queue) {
            gone.push(std::mem::replace(&mut self.queue, Arc::clone(queue)));
        } else {
            let more = self.more.get_or_insert_default();
            more.newest = more.newest.max(edition);
            gone.extend(more.queues.insert((edition, scopes.clone()), Arc::clone(queue)));
        }
    }

    /// Where the first is closed, and nobody's any more, another takes its place.
    pub(super) fn let_closed_go(&mut self, gone: &mut Gone) {
        if !(self.queue.is_closed() && is_idle(&self.queue)) {
            return;
        }
        let Some(more) = &mut self.more else { return };
        let next = more.queues.iter().find(|(_, queue)| !queue.is_closed()).map(|(key, _)| key.clone());
        if let Some(next) = next.and_then(|key| more.queues.remove(&key)) {
            gone.push(std::mem::replace(&mut self.queue, next));
        }
    }

    /// Lets those go, beside the first, that nobody needs, and has called lately. Says how many are left.
    pub(super) fn sweep(&mut self, (may_remember, now): (bool, Instant), gone: &mut Gone) -> usize {
        let Some(more) = &mut self.more else { return 0 };
        let is_called = |queue: &Arc<Queue>| queue.was_called_again() && !queue.is_closed();
        let is_over = |queue: &Arc<Queue>| !is_called(queue) && !is_needed(queue, may_remember, now);
        gone.extend(more.queues.extract_if(|_, queue| is_over(queue)).map(|(_, queue)| queue));
        let left = more.queues.len();
        more.queues.shrink_to(left * 2);
        more.sweep_at = (left * 2).max(SEVERAL);
        more.has_former = more.queues.keys().any(|(edition, _)| *edition < more.newest);
        left
    }
}

impl Default for More {
    fn default() -> Self {
        Self { queues: HashMap::default(), sweep_at: SEVERAL, newest: 0, has_former: false }
    }
}

/// Whether a queue is needed by somebody, or would be where the store cannot answer; or where it loses its data, if that is to matter.
pub(super) fn is_needed(queue: &Arc<Queue>, may_remember: bool, now: Instant) -> bool {
    !is_idle(queue) || queue.bars_without_store(now) || (may_remember && queue.asks_by(now).is_some())
}

/// Whether nobody needs a queue: whoever holds it may be about to use it.
pub(super) fn is_idle(queue: &Arc<Queue>) -> bool {
    Arc::strong_count(queue) == 1 && queue.is_idle()
}
