//! Looks whether pauses still hold: one message a second and upstream at most, for all scopes that are paused.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::Queue;
use crate::ledger::{Body, Looked, Message, MessageId, ScopeHasher, ScopeId, Stamp};

/// How often a process looks.
const EVERY: Duration = Duration::from_secs(1);
/// So many scopes are looked at in one message, in turns. Of all others it tells which were released.
const AT_ONCE: usize = 64;
/// A pause that is no older may not be known to the store yet.
const FRESH: Duration = Duration::from_secs(5);
/// A pause that ends sooner by so much is another one.
const SOONER: Duration = Duration::from_millis(100);

/// The queues of one upstream that are paused, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By the streams of their messages.
    queues: HashMap<Arc<str>, Weak<Queue>, ScopeHasher>,
    /// Somebody looks.
    runs: bool,
    /// The log time of the last look, or of the first pause.
    since: Option<Stamp>,
    /// Whose turn it is to be looked at.
    turn: usize,
}

/// What is looked at.
struct Look {
    /// All queues that are paused.
    queues: Vec<Paused>,
    /// Those of them that are looked at: each but that of the whole upstream, which always is.
    scopes: Arc<[ScopeId]>,
    /// `None` where nothing was known of the store's time yet.
    since: Option<Stamp>,
}

/// A queue, and its pause.
struct Paused {
    queue: Arc<Queue>,
    since: Instant,
    until: Instant,
}

impl Looks {
    /// A queue is paused: its pause is looked at until it is over.
    pub(super) fn add(self: &Arc<Self>, queue: &Arc<Queue>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.lock();
        state.queues.insert(Arc::clone(&queue.settings.stream), Arc::downgrade(queue));
        if state.runs {
            return;
        }
        state.runs = true;
        state.since = queue.time.known();
        drop(state);
        runtime.spawn(Runs { looks: Arc::clone(self), ended: false }.run());
    }

    /// The pause of the whole upstream is over, or may be: whoever waits asks again.
    pub(super) fn release(&self) {
        let queues: Vec<_> = self.lock().queues.values().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(Queue::release);
    }

    /// What is to be looked at now, and whether anybody waits for it; `None` where nothing is paused any more.
    fn next(&self, now: Instant) -> Option<(Look, bool)> {
        let mut state = self.lock();
        let (mut queues, mut came) = (Vec::with_capacity(state.queues.len()), false);
        state.queues.retain(|_, queue| {
            let Some(queue) = queue.upgrade() else { return false };
            let Some((since, until, is_wanted)) = queue.paused_until(now) else { return false };
            came |= is_wanted;
            queues.push(Paused { queue, since, until });
            true
        });
        if queues.is_empty() {
            (state.runs, state.since) = (false, None);
            return None;
        }
        let first = state.turn % queues.len();
        state.turn = first + AT_ONCE;
        let in_turn = queues.iter().cycle().skip(first).take(queues.len().min(AT_ONCE));
        let scopes = in_turn.filter_map(|paused| paused.queue.scope()).collect();
        Some((Look { queues, scopes, since: state.since }, came))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look {
    /// Asks the store, and says what it answered.
    async fn ask(&self) -> Option<Looked> {
        let Paused { queue, .. } = self.queues.first()?;
        let since = self.since.unwrap_or(Stamp::NEVER);
        let body = Body::Look { scopes: Arc::clone(&self.scopes), since };
        let message = Message::new(Arc::clone(queue.ledger()), MessageId::nobodys(), body);
        let message = Message { known: queue.time.known(), ..message };
        match queue.process.store.apply(&message).await {
            Ok(reply) => reply.looked(),
            Err(error) => {
                tracing::debug!(upstream = &**queue.upstream(), %error, "whether pauses still hold is not known");
                None
            }
        }
    }

    /// Has those ask again whose pause has ended, or ends sooner than was known.
    fn tell(&self, looked: &Looked, now: Instant) {
        let released: HashSet<_> = looked.released.iter().filter(|_| self.since.is_some()).copied().collect();
        let scopes = std::iter::once(None).chain(self.scopes.iter().copied().map(Some));
        let paused: HashMap<_, _> = scopes.zip(&looked.paused).collect();
        let ends_before = |scope: Option<ScopeId>, until: Instant| {
            paused.get(&scope).is_some_and(|paused| {
                let left = paused.map_or(Duration::ZERO, |(until, _)| until.since(looked.now));
                now + left + SOONER < until
            })
        };
        let all = released.contains(&None);
        if let Some(Paused { queue, since, .. }) = self.queues.iter().min_by_key(|paused| paused.since)
            && let Some((until, _)) = queue.crowd.paused(now)
            && (all || (*since + FRESH <= now && ends_before(None, until)))
        {
            queue.crowd.release();
        }
        for Paused { queue, since, until } in &self.queues {
            let ends_sooner = *since + FRESH <= now && ends_before(queue.scope(), *until);
            if all || released.contains(&queue.scope()) || ends_sooner {
                tracing::debug!(upstream = &**queue.upstream(), "the pause has ended");
                queue.release_until(*until);
            }
        }
    }
}

/// Whoever looks: there is one at most. Dropped with its runtime, it lets another begin.
struct Runs {
    looks: Arc<Looks>,
    ended: bool,
}

impl Runs {
    async fn run(mut self) {
        let mut at = Instant::now() + EVERY;
        loop {
            sleep_until(at).await;
            let Some((look, is_wanted)) = self.looks.next(Instant::now()) else {
                self.ended = true;
                return;
            };
            at = Instant::now() + EVERY;
            let looked = if is_wanted { look.ask().await } else { None };
            let Some(looked) = looked else { continue };
            self.looks.lock().since = Some(looked.now);
            look.tell(&looked, Instant::now());
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if !self.ended {
            self.looks.lock().runs = false;
        }
    }
}
