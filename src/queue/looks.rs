//! Looks whether pauses still hold: one message a second and upstream at most, for all scopes that are paused. What the store has lost of them
//! it is told again.

mod lost;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::lost::LostPauses;
use super::Queue;
use super::shift::{OnShift, Shift, StandsBy};
use crate::ledger::{Body, Looked, MessageId, Reason, ScopeHasher, ScopeId, Stamp, micros};

/// How often a process looks, where callers wait or come.
const EVERY: Duration = Duration::from_secs(1);
/// How often it does otherwise: often enough to be told of each release, and to miss what the store has lost.
const IDLE: Duration = Duration::from_secs(3);
/// So many scopes are looked at in one message, in turns. Of all others it tells which were released.
const AT_ONCE: usize = 64;
/// A pause that is no older may not be known to the store yet.
const FRESH: Duration = Duration::from_secs(5);
/// A pause that ends sooner by so much is another one.
const SOONER: Duration = Duration::from_millis(100);
/// Who looks after so long is told that everything was released, as the store does not know any more what was.
const LONG_AGO: Duration = Duration::from_secs(5);

/// The queues of one upstream that are paused, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    state: Mutex<State>,
    /// Somebody looks.
    shift: Arc<Shift>,
    /// Whoever looks is to look now.
    hurry: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By the streams of their messages.
    queues: HashMap<Arc<str>, Weak<Queue>, ScopeHasher>,
    /// When the last look was.
    looked_at: Option<Instant>,
    /// The log time of the last look, or of the first pause.
    since: Option<Stamp>,
    /// Whose turn it is to be looked at.
    turn: usize,
    /// Whose pauses the store has known. `None` is the whole upstream.
    seen: HashMap<Option<ScopeId>, Seen>,
    /// Of whose pauses the store has not answered whether it takes them.
    untold: HashSet<Option<ScopeId>>,
    /// When the store was last seen to have lost data, and whether nobody has looked since.
    lost_data: Option<(Instant, bool)>,
}

/// That the store has known a pause.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// It was told the pause then, or looked at it: what is told again is told as of then, so that it undoes no release that came since.
    at: Instant,
    /// When it answered.
    heard: Instant,
}

/// What is looked at.
struct Look {
    /// When.
    asked: Instant,
    /// All queues that are paused.
    queues: Vec<Paused>,
    /// Those of them that are looked at: each but that of the whole upstream, which always is.
    scopes: Arc<[ScopeId]>,
    /// `None` where nothing was known of the store's time yet.
    since: Option<Stamp>,
    /// How many releases were known.
    releases: u64,
    /// The store has lost data.
    is_after_loss: bool,
}

/// A queue, and its pause.
struct Paused {
    queue: Arc<Queue>,
    since: Instant,
    until: Instant,
    reason: Reason,
}

/// What the store says of a pause that is known here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Holds,
    /// It is over, or ends sooner.
    Ends,
    /// The store knows of none, and did then.
    Lost(Instant),
}

impl Looks {
    /// A queue is paused: its pause is looked at until it is over.
    pub(super) fn add(self: &Arc<Self>, queue: &Arc<Queue>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.lock();
        state.queues.insert(Arc::clone(&queue.settings().stream), Arc::downgrade(queue));
        let is_first = state.since.is_none();
        let on_shift = self.begin(&mut state, Instant::now());
        if on_shift.is_some() && is_first {
            state.since = queue.shard.time.known();
        }
        drop(state);
        // It may be known here alone.
        queue.process.see_to_news();
        self.shift.spawn((&runtime, true), on_shift, |on_shift, stands_by| run(Arc::clone(self), on_shift, stands_by));
    }

    fn begin(&self, state: &mut State, now: Instant) -> Option<OnShift> {
        let shift = self.shift.begin(now, now + EVERY)?;
        // Whoever looked before was not there to the end: what was released long ago is not known any more.
        (state.since, state.looked_at) = (None, Some(now));
        // The next is told, and not one that is polled no more.
        self.hurry.notify_waiters();
        Some(shift)
    }

    /// The pause of the whole upstream is over, or may be: whoever waits asks again.
    pub(super) fn release(&self) {
        let queues: Vec<_> = self.lock().queues.values().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(Queue::release);
    }

    /// The store has taken a pause that it was told then: should it lose that before the next look, it is told again. Where nobody looks, no queue
    /// knows of it.
    pub(crate) fn saw(&self, scope: Option<ScopeId>, at: Instant, heard: Instant) {
        let mut state = self.lock();
        if !state.queues.is_empty() {
            state.seen.insert(scope, Seen { at, heard });
        }
    }

    /// Whether the store has yet to answer whether it takes a pause: what it says of that pause by a look means nothing until then.
    pub(crate) fn awaits(&self, scope: Option<ScopeId>, is_untold: bool) {
        let untold = &mut self.lock().untold;
        _ = if is_untold { untold.insert(scope) } else { untold.remove(&scope) };
    }

    /// These pauses are released, as is known here: that the store has known them does not count any more.
    pub(crate) fn unsee(&self, is_released: impl Fn(Option<ScopeId>) -> bool) {
        self.lock().seen.retain(|scope, _| !is_released(*scope));
    }

    /// Whether no queue that is paused is known here.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().queues.is_empty()
    }

    /// The store has lost data: whoever looks is to look at once. Who hears so soon again hears of the same loss.
    pub(super) fn lost_data(&self, now: Instant) {
        let mut state = self.lock();
        if !self.shift.is_free(now) && state.lost_data.is_none_or(|(at, _)| at + FRESH <= now) {
            state.lost_data = Some((now, true));
            self.hurry.notify_one();
        }
    }

    /// What is to be looked at now, and whether it is time for that; `None` where nothing is paused any more.
    fn next(&self, shift: &mut OnShift, now: Instant) -> Option<(Look, bool)> {
        let mut state = self.lock();
        let is_after_loss = state.lost_data.as_mut().is_some_and(|(_, is_news)| std::mem::take(is_news));
        let (mut queues, mut came) = (Vec::with_capacity(state.queues.len()), false);
        state.queues.retain(|_, queue| {
            let Some(queue) = queue.upgrade() else { return false };
            let Some((since, (until, reason), is_wanted)) = queue.paused_since(now) else { return false };
            came |= is_wanted;
            queues.push(Paused { queue, since, until, reason });
            true
        });
        if queues.is_empty() {
            state.since = None;
            state.seen.clear();
            shift.end();
            return None;
        }
        let first = state.turn % queues.len();
        state.turn = first + AT_ONCE;
        let in_turn = queues.iter().cycle().skip(first).take(queues.len().min(AT_ONCE));
        let scopes = in_turn.filter_map(|paused| paused.queue.scope()).collect();
        let is_due = came || is_after_loss || state.looked_at.is_none_or(|at| at + IDLE <= now);
        state.looked_at = if is_due { Some(now) } else { state.looked_at };
        let releases = queues.first().map_or(0, |paused| paused.queue.crowd.releases());
        Some((Look { asked: now, queues, scopes, since: state.since, releases, is_after_loss }, is_due))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look {
    /// Whoever is paused for long may not call meanwhile: the process is known to be there all the same, so that people find the pause.
    fn attend(&self, now: Instant) {
        for Paused { queue, .. } in &self.queues {
            queue.registered().attendance.called(queue, now);
        }
        // Here tasks are polled.
        if let Some(Paused { queue, .. }) = self.queues.first() {
            queue.process.see_to_news();
        }
    }

    /// Asks the store, and says what it answered.
    async fn ask(&self) -> Option<Looked> {
        let Paused { queue, .. } = self.queues.first()?;
        let since = self.since.unwrap_or(Stamp::NEVER);
        let body = Body::Look { scopes: Arc::clone(&self.scopes), since };
        match queue.process.store.apply(&queue.shard.message(MessageId::nobodys(), body)).await {
            Ok(reply) => reply.looked(),
            Err(error) => {
                tracing::debug!(upstream = &**queue.upstream(), %error, "whether pauses still hold is not known");
                None
            }
        }
    }

    /// Has those ask again whose pause has ended, or ends sooner than was known. Says which pauses the store has lost: those that it has known.
    fn tell(
        &self,
        looked: &Looked,
        (seen, untold): (&mut HashMap<Option<ScopeId>, Seen>, &HashSet<Option<ScopeId>>),
        now: Instant,
    ) -> LostPauses {
        let is_old = self.since.is_none_or(|since| since.plus(micros(LONG_AGO)) <= looked.now);
        let knows_releases = self.since.is_some() && !(is_old && self.is_after_loss);
        let released: HashSet<_> = looked.released.iter().filter(|_| knows_releases).copied().collect();
        let scopes = std::iter::once(None).chain(self.scopes.iter().copied().map(Some));
        let paused: HashMap<_, _> = scopes.zip(&looked.paused).collect();
        let all = released.contains(&None);
        let is_newest = self.queues.first().is_some_and(|paused| paused.queue.crowd.releases() == self.releases);
        if let Some(Paused { queue, .. }) = self.queues.first().filter(|_| !released.is_empty()) {
            queue.crowd.note_release();
        }
        let is_paused: HashSet<_> = self.queues.iter().map(|paused| paused.queue.scope()).chain([None]).collect();
        // What it has taken since it was asked, it may not have known then.
        let is_newer = |seen: &Seen| seen.heard >= self.asked;
        seen.retain(|scope, seen| !all && !released.contains(scope) && (is_newer(seen) || is_paused.contains(scope)));
        let known = paused.iter().filter(|(_, known)| known.is_some()).map(|(scope, _)| *scope);
        seen.extend(known.map(|scope| (scope, Seen { at: self.asked, heard: now })));
        // That of the whole upstream holds in each scope.
        let whole = looked.paused.first().copied().flatten().map(|(end, _)| end);
        let is_covered = |until: Instant| whole.is_some_and(|end| now + end.since(looked.now) + SOONER >= until);
        let fate = |scope: Option<ScopeId>, since: Instant, until: Instant| {
            let ends_sooner = match paused.get(&scope) {
                // After so long it does not know what was released: it judges of the pause when it is told.
                _ if is_old && untold.contains(&scope) => return Fate::Holds,
                _ if all || released.contains(&scope) => return Fate::Ends,
                _ if untold.contains(&scope) || (scope.is_some() && is_covered(until)) => return Fate::Holds,
                Some(None) => match seen.get(&scope) {
                    Some(seen) if is_newer(seen) => false,
                    Some(seen) => return Fate::Lost(since.min(seen.at)),
                    // What it was told, and did not take, it never knew.
                    None => true,
                },
                Some(Some((end, _))) => now + end.since(looked.now) + SOONER < until,
                None => false,
            };
            if ends_sooner && since + FRESH <= now { Fate::Ends } else { Fate::Holds }
        };
        let mut lost = LostPauses::new(looked.now, now);
        // What it has lost of the whole upstream, or does not know of it yet, explains what its scopes do not know by themselves.
        let mut of_all = None;
        if let Some(Paused { queue, since, .. }) = self.queues.iter().min_by_key(|paused| paused.since)
            && let Some(pause) = queue.crowd.paused(now)
        {
            match fate(None, *since, pause.0) {
                Fate::Holds => of_all = untold.contains(&None).then_some(pause.0),
                Fate::Ends => queue.crowd.release(),
                Fate::Lost(since) => {
                    of_all = Some(pause.0);
                    lost.add(None, queue, since, pause);
                }
            }
        }
        if is_newest {
            // What it says is of after the releases that it tells.
            self.note_pause_of_all(looked, self.releases + u64::from(!released.is_empty()), now);
        }
        for Paused { queue, since, until, reason } in &self.queues {
            match fate(queue.scope(), *since, *until) {
                Fate::Holds => {}
                Fate::Ends if of_all.is_some_and(|all| *until <= all) => {}
                Fate::Ends => {
                    tracing::debug!(upstream = &**queue.upstream(), "the pause has ended");
                    queue.release_until(*until);
                }
                Fate::Lost(since) => lost.add(queue.scope(), queue, since, (*until, *reason)),
            }
        }
        lost
    }

    /// Whether the whole upstream is paused, as the store knows: those who have not asked, and may go without it later, are to know it then.
    fn note_pause_of_all(&self, looked: &Looked, releases: u64, now: Instant) {
        let Some(Paused { queue, .. }) = self.queues.first() else { return };
        let pause =
            looked.paused.first().copied().flatten().filter(|(end, _)| *end > looked.now).map(|(end, cause)| {
                let known = self.queues.iter().map(|paused| paused.reason).find(|reason| reason.cause == cause);
                (now + end.since(looked.now), known.unwrap_or_else(|| Reason::new(cause, 0)))
            });
        queue.shard.contact.note_pause(pause, releases);
    }
}

/// Looks, if it has the shift, as long as anything is paused; and stands by while another has it.
async fn run(looks: Arc<Looks>, on_shift: Option<OnShift>, stands_by: Option<StandsBy>) {
    let begin = || looks.begin(&mut looks.lock(), Instant::now());
    looks.shift.take_turns(on_shift, stands_by, begin, |shift| look(&looks, shift)).await;
}

/// Looks now and then. Says whether nothing is paused any more: else another has begun.
async fn look(looks: &Looks, mut shift: OnShift) -> bool {
    let mut at = Instant::now() + EVERY;
    while shift.goes_on(at) {
        select! {
            () = sleep_until(at) => {}
            () = looks.hurry.notified() => {}
        }
        at = Instant::now() + EVERY;
        if !shift.goes_on(at) {
            return false;
        }
        let Some((look, is_due)) = looks.next(&mut shift, Instant::now()) else { return true };
        look.attend(Instant::now());
        let asks = async { if is_due { look.ask().await } else { None } };
        let Some(looked) = shift.during(asks).await else { return false };
        let Some(looked) = looked else { continue };
        let (mut seen, untold) = {
            let mut state = looks.lock();
            state.since = Some(looked.now);
            (std::mem::take(&mut state.seen), state.untold.clone())
        };
        let lost = look.tell(&looked, (&mut seen, &untold), Instant::now());
        lost.attend(Instant::now());
        {
            // What was taken meanwhile is newer.
            let mut state = looks.lock();
            seen.extend(std::mem::take(&mut state.seen));
            state.seen = seen;
        }
        if shift.during(lost.tell_again(at)).await.is_none() {
            return false;
        }
    }
    false
}
