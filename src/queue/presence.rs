//! Has the store know that this process uses an upstream, and who waits here: a message every 15 s while anybody does, one a minute as calls
//! come or while a pause lasts; and every 5 s where each process would throttle by itself without the store. A process that says nothing more is
//! forgotten.

mod told;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::told::Told;
use super::Queue;
use super::resend::PATIENCE;
use super::shift::{OnShift, Shift};
use crate::error::StoreError;
use crate::ledger::{Body, Presence, Renewal, Reply, ScopeId, ScopePresence, micros};
use crate::store::WithoutStore;

/// The store is told no more often; and so often where each process would throttle by itself without it, and must know how many there are.
const STEADILY: Duration = Duration::from_secs(5);
/// How often it is told of callers who wait otherwise: that is only to be seen.
const WAITING: Duration = Duration::from_secs(15);
/// How often it is told otherwise, and how the upstream is described.
const AS_CALLS_COME: Duration = Duration::from_secs(60);
/// Who waits for less long, or calls for less long, is not worth a message.
const FIRST: Duration = Duration::from_secs(1);
/// Who hears so soon again that the store has lost data hears of the same loss, as each queue does for itself.
const SAME_LOSS: Duration = Duration::from_secs(15);
/// For how long the process is known of where it tells steadily, while callers wait, and otherwise: two messages at least may be lost.
const LAPSES: [Duration; 3] = [Duration::from_secs(20), Duration::from_secs(45), Duration::from_secs(180)];
/// A number of processes that was told so long before the store was lost is still believed.
const BELIEVED: Duration = Duration::from_secs(15);
/// So many scopes are named.
const MOST_SCOPES: usize = 64;
/// For so long nothing else is waited for when a throttle is closed.
const FAREWELL: Duration = Duration::from_secs(1);

/// That of one upstream in this process.
#[derive(Debug)]
pub(crate) struct Attendance {
    epoch: Instant,
    /// When the next call has the store told, in microseconds since then.
    due: AtomicI64,
    /// Somebody looks who waits.
    shift: Arc<Shift>,
    /// Whoever has the store told takes them meanwhile: there may be as many as scopes, and no caller is to wait for that.
    used: Mutex<Used>,
    told: Mutex<Told>,
}

/// The queues that were used within the last minute, each once, and when.
type Used = Vec<(Weak<Queue>, Instant)>;

impl Default for Attendance {
    fn default() -> Self {
        let (due, shift) = (AtomicI64::new(i64::MIN), Arc::default());
        Self { epoch: Instant::now(), due, shift, used: Mutex::default(), told: Mutex::default() }
    }
}

impl Attendance {
    /// A call goes by a queue, or this process looks whether its pause lasts. Mostly there is nothing to do.
    #[inline]
    pub(crate) fn called(self: &Arc<Self>, queue: &Arc<Queue>, now: Instant) {
        if queue.note_use() {
            self.enter(queue, now);
        }
        let (due, now_micros) = (self.due.load(Ordering::Relaxed), micros(now.saturating_duration_since(self.epoch)));
        if now_micros < due {
            return;
        }
        let next = now_micros + micros(if due == i64::MIN { FIRST } else { again(queue) });
        let is_mine = self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine && is_steady(queue) {
            lock(&self.told).is_steady = true;
            return self.run(now, now);
        }
        if is_mine
            && due != i64::MIN
            && self.shift.is_free(now)
            && let Ok(runtime) = Handle::try_current()
        {
            let attendance = Arc::clone(self);
            runtime.spawn(async move { attendance.tell().await });
        }
    }

    /// From now on it has to be known how many processes there are: the next call has the store told.
    pub(crate) fn hurry(&self) {
        self.due.store(i64::MIN, Ordering::Relaxed);
    }

    /// Callers wait in a queue: the store is told now and then, as long as any do.
    pub(super) fn waited_in(self: &Arc<Self>, queue: &Arc<Queue>, now: Instant) {
        if queue.note_use() {
            self.enter(queue, now);
        }
        self.run(now + FIRST, now);
    }

    /// Has the store told now and then, as long as that is worth it: at first then, at the earliest.
    fn run(self: &Arc<Self>, first: Instant, now: Instant) {
        if !self.shift.is_free(now) {
            return;
        }
        let told = lock(&self.told);
        let Ok(runtime) = Handle::try_current() else { return };
        let at = first.max(told.last.map_or(now, |(last, _)| last + STEADILY));
        let Some(shift) = self.shift.begin(now, at).filter(|_| !told.closed) else { return };
        drop(told);
        runtime.spawn(run(Arc::clone(self), shift, at));
    }

    /// How many processes there were when the store was found lost then, where it had told that not long before it was. What the first of many
    /// processes that start together is told does not count: it does not know of the others.
    pub(super) fn processes(&self, lost_at: Instant) -> Option<u32> {
        let (processes, known, is_sure) = lock(&self.told).processes?;
        (is_sure && known + BELIEVED > lost_at).then_some(processes.max(1))
    }

    /// When all others that go by their parts have heard of this process, where they still hear of others: as one shard alone is lost.
    pub(super) fn heard_of(&self) -> Option<Instant> {
        lock(&self.told).counted.map(|counted| counted + STEADILY)
    }

    /// The store has lost data, and with that who is there. It is told at once: as far as anybody sees nobody uses the upstream until then.
    pub(super) fn lost_data(self: &Arc<Self>, now: Instant) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut told = lock(&self.told);
        let is_same = told.lost_data.is_some_and(|at| at + SAME_LOSS > now);
        if is_same || told.last.is_none() {
            return;
        }
        (told.lost_data, told.described) = (Some(now), None);
        drop(told);
        let attendance = Arc::clone(self);
        runtime.spawn(async move { attendance.tell().await });
    }

    /// Has the store know now, where there is anything to know. Says how many processes there are, and whether callers wait.
    pub(crate) async fn tell(&self) -> (Option<u32>, bool) {
        let (renewed, is_waiting) = self.say().await;
        let Some((_, false)) = renewed else { return (renewed.map(|(processes, _)| processes), is_waiting) };
        // It has lost how the upstream is described.
        lock(&self.told).described = None;
        (self.say().await.0.map(|(processes, _)| processes), is_waiting)
    }

    /// Says it once. Says how many processes there are, and whether the store knows how the upstream is described; and whether callers wait.
    async fn say(&self) -> (Option<(u32, bool)>, bool) {
        let now = Instant::now();
        let Some((queue, renewal)) = self.renewal(now) else { return (None, false) };
        let is_waiting = renewal.presence.callers > 0;
        let outcome = send(&queue, renewal).await;
        let mut told = lock(&self.told);
        match outcome {
            Ok(Some((processes, _))) => told.count(processes, now, Instant::now()),
            // As far as any message of the upstream tells.
            Err(ref error) if error.serves_nobody() && !queue.registered().home().contact.has_answered_since(now) => {
                told.lose(Instant::now());
            }
            _ => {}
        }
        if outcome.is_err() {
            // It may not have come so far.
            told.described = None;
        }
        drop(told);
        (outcome.ok().flatten(), is_waiting || is_steady(&queue))
    }

    /// This process is gone from all of these. Nothing is waited for any longer than so.
    pub(crate) async fn leave(all: impl Iterator<Item = &Arc<Self>>, patience: Duration) {
        let queues: Vec<_> = all.filter_map(|attendance| attendance.close()).collect();
        // Outside of a runtime nobody is told.
        if Handle::try_current().is_err() {
            return;
        }
        let mut farewells = JoinSet::new();
        for queue in queues {
            let renewal = Renewal::new(Arc::clone(queue.upstream()), Presence::default(), Duration::ZERO);
            farewells.spawn(async move { send(&queue, renewal).await });
        }
        let all_told = async { while farewells.join_next().await.is_some() {} };
        let _ = timeout(patience.min(FAREWELL), all_told).await;
    }

    /// Nothing is said any more, but that the process is gone: by this queue, where the store knows that it was there.
    fn close(&self) -> Option<Arc<Queue>> {
        let mut told = lock(&self.told);
        told.closed = true;
        told.last?;
        lock(&self.used).iter().find_map(|(queue, _)| queue.upgrade())
    }

    fn enter(&self, queue: &Arc<Queue>, now: Instant) {
        let mut used = lock(&self.used);
        if used.len() == used.capacity() {
            // Those that are gone take room as long as they stand here.
            used.retain(|(queue, _)| queue.strong_count() > 0);
            let as_many_more = used.len();
            used.reserve(as_many_more);
        }
        used.push((Arc::downgrade(queue), now));
    }

    /// What is to be said now.
    fn renewal(&self, now: Instant) -> Option<(Arc<Queue>, Renewal)> {
        let mut told = lock(&self.told);
        if told.closed {
            return None;
        }
        let mut all = std::mem::take(&mut *lock(&self.used));
        let (mut any, mut queues) = (None, Vec::with_capacity(all.len()));
        all.retain_mut(|(queue, used)| {
            let Some(queue) = queue.upgrade() else { return false };
            let (callers, oldest, is_used) = queue.attended(now);
            *used = if is_used || callers > 0 { now } else { *used };
            let is_recent = now.saturating_duration_since(*used) < AS_CALLS_COME;
            if !is_recent {
                queue.is_listed.store(false, Ordering::Relaxed);
            }
            any = Some(Arc::clone(&queue));
            queues.extend(is_recent.then_some((Attended { callers, oldest, used: *used }, queue)));
            is_recent
        });
        all.shrink_to(all.len() * 2);
        let mut used = lock(&self.used);
        all.append(&mut used);
        *used = all;
        drop(used);
        let queue = any?;
        let registered = queue.registered();
        let (described, about) = registered.description();
        let is_known = |(hash, at): (u64, Instant)| hash == described && now < at + AS_CALLS_COME;
        let about = (!told.described.is_some_and(is_known)).then_some(about);
        let callers = queues.iter().map(|(of, _)| of.callers).sum();
        let presence = Presence {
            weight: queue.process.weight,
            callers,
            oldest: queues.iter().map(|(of, _)| of.oldest).max().unwrap_or_default(),
            described,
            scopes: scopes(&queues),
        };
        let lasting = if is_steady(&queue) { 0 } else { 1 + usize::from(callers == 0) };
        told.last = Some((now, callers > 0));
        if about.is_some() {
            told.described = Some((described, now));
        }
        drop(told);
        let next = micros(now.saturating_duration_since(self.epoch) + again(&queue));
        self.due.store(next, Ordering::Relaxed);
        let renewal = Renewal { about, ..Renewal::new(Arc::clone(queue.upstream()), presence, LAPSES[lasting]) };
        Some((queue, renewal))
    }

    /// Whether the store is to be told: of callers who wait, or that none do any more.
    fn is_worth_it(&self) -> bool {
        let has_waited = lock(&self.told).last.is_some_and(|(_, waited)| waited);
        let is_waited_in = |(queue, _): &(Weak<Queue>, Instant)| {
            queue.upgrade().is_some_and(|queue| queue.waiting() > 0 || is_steady(&queue))
        };
        has_waited || lock(&self.used).iter().any(is_waited_in)
    }
}

/// Who waits in a queue, and when it was used last.
#[derive(Clone, Copy)]
struct Attended {
    callers: u32,
    oldest: Duration,
    used: Instant,
}

/// The scopes of some queues: where callers have waited longest first, and then what was used last.
fn scopes(queues: &[(Attended, Arc<Queue>)]) -> Vec<ScopePresence> {
    let mut all: HashMap<(u32, ScopeId), (Attended, ScopePresence)> = HashMap::new();
    for (of, queue) in queues {
        for (kind, scope) in queue.registered().charges.named_scopes(queue.scopes()) {
            let new = || (*of, ScopePresence::new(kind, scope));
            let (used, seen) = all.entry((kind, scope)).or_insert_with(new);
            used.used = used.used.max(of.used);
            seen.callers += of.callers;
            seen.oldest = seen.oldest.max(of.oldest);
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|(of, seen)| (Reverse((seen.oldest, of.used)), seen.scope));
    all.truncate(MOST_SCOPES);
    all.into_iter().map(|(_, seen)| seen).collect()
}

/// Whether each process that uses the upstream is counted all the time.
fn is_steady(queue: &Arc<Queue>) -> bool {
    queue.without_store() == WithoutStore::ThrottleLocally
}

/// So long after the store was told a call has it told again: where it is told steadily, as soon as whoever does that is replaced.
fn again(queue: &Arc<Queue>) -> Duration {
    if is_steady(queue) { STEADILY + PATIENCE + FIRST } else { AS_CALLS_COME }
}

async fn send(queue: &Arc<Queue>, renewal: Renewal) -> Result<Option<(u32, bool)>, StoreError> {
    let (upstream, home) = (Arc::clone(queue.upstream()), queue.registered().home());
    let id = queue.process.next_message(format!("+{upstream}").into());
    match queue.process.store.apply(&home.message(id, Body::Renew(renewal))).await {
        Ok(Reply::Renewed { processes, is_described }) => Ok(Some((processes, is_described))),
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::debug!(upstream = &*upstream, %error, "the others do not know who waits here");
            Err(error)
        }
    }
}

/// Tells the store now and then, while callers wait.
async fn run(attendance: Arc<Attendance>, mut shift: OnShift, mut at: Instant) {
    while shift.goes_on(at) {
        sleep_until(at).await;
        let tells = async { attendance.is_worth_it() && attendance.tell().await.1 };
        let Some(is_waiting) = shift.during(tells).await else { return };
        if !is_waiting {
            shift.end();
            if std::mem::take(&mut lock(&attendance.told).is_steady) {
                // The next call has the process counted anew.
                attendance.due.store(i64::MIN, Ordering::Relaxed);
            }
            return;
        }
        at = Instant::now() + lock(&attendance.told).pace();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
