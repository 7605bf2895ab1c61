//! The queues of one process, one for each home in use.

mod entry;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use self::entry::{Entry, Gone, SEVERAL, is_idle, is_needed};
use crate::config::charges::Scopes;
use crate::config::plan::Registered;
use crate::error::Error;
use crate::ledger::ScopeId;
use crate::ledger::micros;
use crate::ledger::{Reason, ScopeHasher};
use crate::queue::Queue;
use crate::queue::crowd::Crowd;
use crate::store::turns::Turns;

/// How long closing waits for the store.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// How many queues a part has at least before idle ones are looked for. To make one anew costs more than to keep it, as long as all that are
/// kept stay in a cache of the processor.
const FEW: usize = 128;

/// Where a part has more, idle ones are forgotten that would say again what they were granted, if the store lost it: each takes some KiB.
const MANY: usize = 1_024;

/// How many parts the queues are in, so that threads seldom wait for each other.
const PARTS: usize = 16;

/// Whose queue: of an upstream, by its place among those registered, and a scope.
pub(crate) type Key = (usize, Option<ScopeId>);

/// Finds the queue of a home. Where there are many, those that nobody has used for a while are forgotten, as calls of others come.
#[derive(Debug)]
pub(crate) struct Queues {
    parts: [Mutex<Map>; PARTS],
    epoch: Instant,
    turns: Turns,
}

impl Default for Queues {
    fn default() -> Self {
        Self { parts: Default::default(), epoch: Instant::now(), turns: Turns::new() }
    }
}

#[derive(Debug)]
struct Map {
    queues: HashMap<Key, Entry, ScopeHasher>,
    /// How many queues it takes to look for idle ones again: twice as many as were left the last time.
    sweep_at: usize,
    /// How many queues more than scopes there are.
    more: usize,
    closed: bool,
}

impl Queues {
    /// The queue of some scopes at `now`, by an edition of the upstream's limits: new if need be. Where it takes the place of another that
    /// is paused, so is it; and it remembers what that was granted.
    #[inline]
    pub(crate) fn get(
        &self,
        (key, edition): (Key, u64),
        scopes: &Scopes,
        now: Instant,
        new: impl FnOnce() -> Result<Queue, Error>,
    ) -> Result<Arc<Queue>, Error> {
        self.sweep_in_turn(now);
        let mut gone = Gone::new();
        let mut guard = self.part(key);
        let map = &mut *guard;
        if map.closed {
            return Err(Error::Closed);
        }
        let may_remember = map.may_remember();
        if let Some(entry) = map.queues.get_mut(&key) {
            if let Some(queue) = entry.of(edition, scopes) {
                queue.is_called_again();
                return Ok(Arc::clone(queue));
            }
            // Who has a pause from another has told it to all.
            let pauses = entry.all().take(SEVERAL).filter_map(|queue| queue.paused(now));
            let pause = pauses.max_by_key(|(until, _)| *until);
            let queue = Arc::new(new()?);
            entry.former(edition).for_each(|before| queue.take_over(before, now));
            let more = entry.more();
            entry.add(&queue, scopes, (may_remember, now), &mut gone);
            map.more = (map.more + entry.more()).saturating_sub(more);
            drop(guard);
            if let Some((until, reason)) = pause {
                queue.pause(until - now, reason, now);
            }
            return Ok(queue);
        }
        if map.queues.len() >= map.sweep_at {
            map.sweep(now, &mut gone);
        }
        let queue = Arc::new(new()?);
        map.queues.insert(key, Entry::new(Arc::clone(&queue)));
        Ok(queue)
    }

    fn sweep_in_turn(&self, now: Instant) {
        let passed = micros(now.saturating_duration_since(self.epoch));
        if let Some(part) = self.turns.next(passed, PARTS).and_then(|next| self.parts.get(next)) {
            let mut gone = Gone::new();
            let mut map = lock(part);
            if map.queues.len() + map.more >= FEW {
                map.sweep(now, &mut gone);
            }
            // Before those.
            drop(map);
        }
    }

    /// How many callers of these scopes wait, whichever logs they take of.
    pub(crate) fn waiting(&self, (key, edition): (Key, u64), scopes: &Scopes) -> usize {
        let queues = self.of_scope(key).into_iter();
        queues.filter(|queue| queue.is_of_scopes(edition, scopes)).map(|queue| queue.waiting()).sum()
    }

    /// Closes the queues of an upstream: its limits are replaced, or it is removed. Those are left that have something to tell the store.
    pub(crate) fn retire(&self, upstream: &Registered) -> Vec<Arc<Queue>> {
        let (index, edition) = (upstream.key(None).0, upstream.edition());
        // Callers may have come to those of the next edition already.
        let mut queues = self.all(|key, queue| key.0 == index && queue.edition() <= edition);
        queues.iter().for_each(Queue::close);
        queues.retain(|queue| !queue.is_done());
        queues
    }

    /// The queues of limits that were replaced, which would say again what they were granted.
    pub(crate) fn remembering(&self, upstream: &Registered) -> Vec<Arc<Queue>> {
        let (index, edition) = (upstream.key(None).0, upstream.edition());
        self.all(|key, queue| key.0 == index && queue.edition() <= edition && queue.remembers())
    }

    /// Forgets the queues of an upstream that was removed, and has [retired](Self::retire), but for those that somebody holds, or that have
    /// something to do.
    pub(crate) fn forget(&self, upstream: &Registered) {
        let index = upstream.key(None).0;
        for part in &self.parts {
            let mut map = lock(part);
            let of_it = |key: &Key, entry: &Entry| key.0 == index && entry.all().all(is_idle);
            let gone: Vec<_> = map.queues.extract_if(|key, entry| of_it(key, entry)).collect();
            map.more = map.more.saturating_sub(gone.iter().map(|(_, entry)| entry.more()).sum());
            let as_many_more = 2 * map.queues.len();
            map.queues.shrink_to(as_many_more);
            drop(map);
            drop(gone);
        }
    }

    /// The queues of a scope.
    fn of_scope(&self, key: Key) -> Vec<Arc<Queue>> {
        self.part(key).queues.get(&key).map_or_else(Vec::new, |entry| entry.all().map(Arc::clone).collect())
    }

    fn part(&self, (upstream, scope): Key) -> MutexGuard<'_, Map> {
        lock(&self.parts[scope.map_or(upstream, |scope| usize::from(scope.first_bits())) % PARTS])
    }

    /// A queue of an upstream in which callers can wait.
    fn any(&self, upstream: usize) -> Option<Arc<Queue>> {
        self.parts.iter().find_map(|part| {
            let part = lock(part);
            let mut all = part.queues.iter().filter(|(key, _)| key.0 == upstream).flat_map(|(_, entry)| entry.all());
            all.find(|queue| !queue.is_line() && !queue.is_closed()).map(Arc::clone)
        })
    }

    /// The queues for which something holds.
    pub(crate) fn all(&self, which: impl Fn(Key, &Arc<Queue>) -> bool) -> Vec<Arc<Queue>> {
        let mut all = Vec::new();
        for part in &self.parts {
            let part = lock(part);
            for (key, entry) in &part.queues {
                all.extend(entry.all().filter(|queue| which(*key, queue)).map(Arc::clone));
            }
        }
        all
    }

    /// Lets nobody of this process send to a scope, or to any scope of an upstream, for a while; `crowd` are that upstream's callers.
    pub(crate) fn pause(&self, whom: Key, crowd: &Crowd, (wait, reason): (Duration, Reason), now: Instant) {
        for queue in self.told_at_once(whom, crowd, now + wait, reason, now) {
            queue.pause(wait, reason, now);
        }
    }

    /// The queues that are told of a pause at once: that of its scope. Of a whole upstream, those that are in use, when the pause
    /// begins, and one where none is: it looks whether the pause lasts. Every queue finds it in its crowd, and how it is lengthened, as soon as
    /// it has something to do.
    fn told_at_once(
        &self,
        (upstream, scope): Key,
        crowd: &Crowd,
        until: Instant,
        reason: Reason,
        now: Instant,
    ) -> Vec<Arc<Queue>> {
        if scope.is_some() {
            return self.of_scope((upstream, scope));
        }
        if !crowd.pause(until, reason, now) {
            return Vec::new();
        }
        // Whoever waits holds the queue, but for those that wait for a host.
        let is_held = |key: Key, queue: &Arc<Queue>| key.0 == upstream && Arc::strong_count(queue) > 1;
        let waiting = if crowd.is_empty() { Vec::new() } else { self.all(is_held) };
        if waiting.is_empty() { self.any(upstream).into_iter().collect() } else { waiting }
    }

    /// The pauses of a scope, or of an upstream and all its scopes, are over: whoever waits asks again. `crowd` are that upstream's
    /// callers.
    pub(crate) fn release(&self, whom: Key, crowd: &Crowd) {
        crowd.note_release();
        if whom.1.is_none() {
            crowd.release();
        }
        self.of(whom).iter().for_each(Queue::release);
    }

    /// The same of a pause that was to last until then, and of no longer one.
    pub(crate) fn release_until(&self, whom: Key, crowd: &Crowd, until: Instant) {
        crowd.note_release();
        if whom.1.is_none() {
            crowd.release_until(until);
        }
        let now = Instant::now();
        for queue in self.of(whom).iter().filter(|queue| queue.paused(now).is_some()) {
            queue.release_until(until);
        }
    }

    /// The queues of a scope, or of an upstream and all its scopes.
    fn of(&self, (upstream, scope): Key) -> Vec<Arc<Queue>> {
        if scope.is_some() { self.of_scope((upstream, scope)) } else { self.all(|key, _| key.0 == upstream) }
    }

    /// What counted in some logs of an upstream was forgotten by hand: whoever waits asks again, for those that it shares too.
    pub(crate) fn reset(&self, upstream: &Registered) {
        let (index, ledger) = (upstream.key(None).0, &upstream.home().ledger);
        self.all(|key, queue| key.0 == index || queue.ledger() == ledger).iter().for_each(Queue::reset);
    }

    /// Closes every queue, and waits until each has told the store what it hands back. Outside of a runtime nobody is told.
    pub(crate) async fn close(&self) {
        self.parts.iter().for_each(|part| lock(part).closed = true);
        let mut queues = self.all(|_, _| true);
        for queue in &queues {
            queue.close();
        }
        if Handle::try_current().is_err() {
            tracing::warn!("closed outside of a runtime: the store is not told");
            return;
        }
        // Lines last: the others give them back the seats that they have borrowed.
        queues.sort_by_key(|queue| queue.is_line());
        let all = async {
            for queue in &queues {
                queue.idle().await;
            }
        };
        if timeout(CLOSE_PATIENCE, all).await.is_err() {
            tracing::warn!("closed without an answer from the store");
        }
    }
}

impl Default for Map {
    fn default() -> Self {
        Self { queues: HashMap::default(), sweep_at: FEW, more: 0, closed: false }
    }
}

impl Map {
    fn may_remember(&self) -> bool {
        self.queues.len() + self.more <= MANY
    }

    fn sweep(&mut self, now: Instant, gone: &mut Gone) {
        self.queues.values_mut().for_each(|entry| entry.let_closed_go(gone));
        self.more = self.queues.values().map(Entry::more).sum();
        let may_remember = self.may_remember();
        self.more = self.queues.values_mut().map(|entry| entry.sweep((may_remember, now), gone)).sum();
        let is_over = |entry: &Entry| {
            entry.all().nth(1).is_none()
                && !entry.queue.was_called_again()
                && !is_needed(&entry.queue, may_remember, now)
        };
        gone.extend(self.queues.extract_if(|_, entry| is_over(entry)).map(|(_, entry)| entry.queue));
        self.queues.shrink_to(self.queues.len() * 2);
        self.sweep_at = (self.queues.len() * 2).max(FEW);
    }
}

fn lock(part: &Mutex<Map>) -> MutexGuard<'_, Map> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
