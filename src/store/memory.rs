//! Ledgers in the memory of one process.

use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

#[cfg(any(test, feature = "testing"))]
use super::clock::ManualClock;
use super::turns::Turns;
use super::{Applied, Applying, Store};
use crate::ledger::{Ledger, Log, Message, ScopeHasher, Stamp, micros};

/// How many buckets the upstreams are in.
const BUCKETS: usize = 64;

/// Keeps the ledgers of one process. Clones share them.
///
/// Never unavailable. Its clock is tokio's, so that a paused clock in a test pauses the limits too; it shows the machine's time as of when
/// the store was made, and knows of no step that was made to that since, nor how long the machine was suspended. Scopes that have been
/// silent for as long as their longest limit are forgotten within some 20 s, as long as calls of any other of their upstream
/// come; those of an upstream that nobody calls any more within a quarter of an hour, as calls of others come.
///
/// ```
/// use outgate::{Limit, MemoryStore, Throttle, Upstream};
///
/// let store = MemoryStore::new();
/// let mail = || Upstream::new("mail").limit(Limit::per_second(5));
/// let first = Throttle::builder().store(store.clone()).upstream(mail()).build()?;
/// let second = Throttle::builder().store(store).upstream(mail()).build()?; // both share the quota
/// # drop((first, second));
/// # Ok::<(), outgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Memory>);

struct Memory {
    /// Upstreams whose names hash alike.
    buckets: [Mutex<Vec<Arc<Kept>>>; BUCKETS],
    hasher: ScopeHasher,
    clock: Clock,
    /// Upstreams that nobody calls are swept by calls of others, one bucket at a time.
    turns: Turns,
}

/// What is kept of one upstream, for as long as anybody holds it, or anything is to be remembered.
#[derive(Debug)]
pub(crate) struct Kept {
    upstream: Arc<str>,
    state: Mutex<State>,
    turns: Turns,
}

#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    /// What the clock showed at its last change.
    changed: Stamp,
}

#[derive(Clone, Debug)]
enum Clock {
    Tokio {
        epoch: Instant,
        /// What the clock shows then.
        began: Stamp,
    },
    #[cfg(any(test, feature = "testing"))]
    Manual(ManualClock),
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros);
        Self::on(Clock::Tokio { epoch: Instant::now(), began: Stamp::from_micros(now) })
    }

    /// An empty store on tokio's clock, which shows this now.
    ///
    /// ```
    /// use outgate::MemoryStore;
    /// use outgate::ledger::Stamp;
    ///
    /// let since_1970 = MemoryStore::beginning_at(Stamp::from_micros(1_700_000_000_000_000));
    /// # drop(since_1970);
    /// ```
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn beginning_at(began: Stamp) -> Self {
        Self::on(Clock::Tokio { epoch: Instant::now(), began })
    }

    /// An empty store on a clock that the test moves.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_clock(clock: ManualClock) -> Self {
        Self::on(Clock::Manual(clock))
    }

    /// Scopes that something is remembered of, an upstream's own among them.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn scopes_in_use(&self) -> usize {
        let now = self.0.now();
        self.0.all().map(|kept| kept.lock().ledger.scopes_in_use(now)).sum()
    }

    /// Loses all data, as a server does that is flushed.
    ///
    /// ```
    /// let store = outgate::MemoryStore::new();
    /// store.lose_data();
    /// assert_eq!(store.scopes_in_use(), 0);
    /// ```
    #[cfg(any(test, feature = "testing"))]
    pub fn lose_data(&self) {
        self.0.all().for_each(|kept| kept.lock().ledger = Ledger::new());
    }

    /// Loses its logs alone, as a server does that evicts them: those in which nothing has started for so long, or all.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let store = outgate::MemoryStore::new();
    /// store.lose_logs(Some(Duration::from_secs(20))); // what was told of pauses, and by whom, is kept
    /// ```
    #[cfg(any(test, feature = "testing"))]
    pub fn lose_logs(&self, unused_for: Option<Duration>) {
        let since = unused_for.map(|unused| self.0.now().plus(-micros(unused)));
        self.0.all().for_each(|kept| kept.lock().ledger.lose_logs(since));
    }

    fn on(clock: Clock) -> Self {
        let buckets = std::array::from_fn(|_| Mutex::default());
        Self(Arc::new(Memory { buckets, hasher: ScopeHasher::default(), clock, turns: Turns::default() }))
    }
}

impl Memory {
    fn now(&self) -> Stamp {
        match &self.clock {
            Clock::Tokio { epoch, began } => began.plus(micros(epoch.elapsed())),
            #[cfg(any(test, feature = "testing"))]
            Clock::Manual(clock) => clock.now(),
        }
    }

    /// What the clock showed when a call read tokio's, at `read`, or after that, at the last change of what it is charged in.
    #[inline]
    fn since_read(&self, read: Instant, changed: Stamp) -> Stamp {
        match &self.clock {
            Clock::Tokio { epoch, began } => began.plus(micros(read.saturating_duration_since(*epoch))).max(changed),
            #[cfg(any(test, feature = "testing"))]
            Clock::Manual(clock) => clock.now(),
        }
    }

    fn kept(&self, upstream: &Arc<str>) -> Arc<Kept> {
        let hash = usize::try_from(self.hasher.hash_one(&**upstream) % BUCKETS as u64).unwrap_or(0);
        let mut bucket = lock(&self.buckets[hash]);
        if let Some(kept) = bucket.iter().find(|kept| kept.upstream == *upstream) {
            return Arc::clone(kept);
        }
        let kept = Arc::new(Kept::new(upstream));
        bucket.push(Arc::clone(&kept));
        kept
    }

    /// Forgets what fell silent in one bucket, where that has its turn.
    #[cold]
    fn sweep_others(&self, now: Stamp) {
        let Some(bucket) = self.turns.next(now.as_micros(), BUCKETS).and_then(|turn| self.buckets.get(turn)) else {
            return;
        };
        let mut bucket = lock(bucket);
        bucket.iter().for_each(|kept| kept.lock().ledger.sweep(now));
        bucket.retain(|kept| Arc::strong_count(kept) > 1 || !kept.lock().ledger.is_empty(now));
        let as_many_more = 2 * bucket.len();
        bucket.shrink_to(as_many_more);
    }

    #[cfg(any(test, feature = "testing"))]
    fn all(&self) -> impl Iterator<Item = Arc<Kept>> {
        self.buckets.iter().flat_map(|bucket| lock(bucket).clone())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn new(upstream: &Arc<str>) -> Self {
        Self { upstream: Arc::clone(upstream), state: Mutex::default(), turns: Turns::default() }
    }

    /// A ledger is never left half changed by a panic: its parts are total.
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl MemoryStore {
    /// Applies a message now.
    pub(super) fn applied(&self, message: &Message) -> Applied {
        let kept = self.0.kept(&message.upstream);
        // Read under the lock, so that messages are applied in the order of their times.
        self.change(&kept, |_| self.0.now(), |ledger, now| ledger.apply(now, message)).map_err(Into::into)
    }

    /// What is kept of an upstream, to be asked at once.
    pub(crate) fn kept(&self, upstream: &Arc<str>) -> Arc<Kept> {
        self.0.kept(upstream)
    }

    /// The answer to one caller who asks at `now` and does not wait, without a message, where there is one at a glance: its start, or how
    /// long it is until there is one.
    #[inline]
    pub(crate) fn at_once(
        &self,
        kept: &Kept,
        logs: &[Log],
        charges: &[u32],
        now: Instant,
    ) -> Option<Result<Stamp, Duration>> {
        self.change(kept, |changed| self.0.since_read(now, changed), |ledger, now| ledger.at_once(now, logs, charges))
    }

    #[inline]
    fn change<T>(
        &self,
        kept: &Kept,
        now: impl FnOnce(Stamp) -> Stamp,
        change: impl FnOnce(&mut Ledger, Stamp) -> T,
    ) -> T {
        let mut state = kept.lock();
        let now = now(state.changed);
        state.changed = now;
        let answer = change(&mut state.ledger, now);
        if kept.turns.is_due(now.as_micros()) {
            state.ledger.sweep(now);
            drop(state);
            self.0.sweep_others(now);
        }
        answer
    }
}

impl Store for MemoryStore {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::in_memory(self, message)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ask, Log, MessageId, Run, ScopeId, Term};

    #[test]
    fn scopes_that_fell_silent_are_forgotten_as_calls_of_others_come() {
        let clock = ManualClock::new(Stamp::from_micros(0));
        let store = MemoryStore::with_clock(clock.clone());
        let call = |scope: &[u8]| {
            let log = Log::new("calls", [Term::new(1, 1_000_000)]).of(Some(ScopeId::of(scope)));
            let message = Message::new("up", MessageId::nobodys(), Ask::new([log], vec![Run::new(1, [1])]));
            store.apply(&message).at_hand().unwrap().unwrap();
        };
        for scope in 0..20_000_u32 {
            call(&scope.to_be_bytes());
        }
        for turn in 1..=30 {
            clock.set(Stamp::from_micros(turn * 2_000_000));
            call(b"busy");
        }
        assert_eq!(store.scopes_in_use(), 1);
        let room = |upstream: &str| store.0.kept(&upstream.into()).lock().ledger.room();
        assert!(room("up") < 1_000, "{}", room("up"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_a_moment_after_reading_the_clock_is_not_before_those_who_have_started() {
        let store = MemoryStore::beginning_at(Stamp::from_micros(1_000_000));
        let kept = store.kept(&"up".into());
        let logs = [Log::new("calls", [Term::new(3, 1_000_000)])];
        let (read, later) = (Instant::now(), Instant::now() + Duration::from_micros(7));
        let starts = [later, read, later].map(|read| store.at_once(&kept, &logs, &[1], read));
        assert_eq!(starts, [Some(Ok(Stamp::from_micros(1_000_007))); 3]);
        let until_next = Duration::from_secs(1);
        assert_eq!(store.at_once(&kept, &logs, &[1], read), Some(Err(until_next)));
    }

    #[test]
    fn an_upstream_that_nobody_calls_any_more_is_forgotten_as_others_are_called() {
        let clock = ManualClock::new(Stamp::from_micros(0));
        let store = MemoryStore::with_clock(clock.clone());
        let call = |upstream: &str, scope: u32| {
            let log = Log::new("calls", [Term::new(1, 1_000_000)]).of(Some(ScopeId::of(&scope.to_be_bytes())));
            let message = Message::new(upstream, MessageId::nobodys(), Ask::new([log], vec![Run::new(1, [1])]));
            store.apply(&message).at_hand().unwrap().unwrap();
        };
        let ask = Ask::new([Log::new("calls", [Term::new(9, 1_000_000)])], vec![Run::new(1, [1])]);
        let of_all = Message::new("tenant-7", MessageId::nobodys(), ask);
        store.apply(&of_all).at_hand().unwrap().unwrap();
        for tenant in 0..200 {
            (0..100).for_each(|scope| call(&format!("tenant-{tenant}"), scope));
        }
        for turn in 1..=1_100 {
            clock.set(Stamp::from_micros(turn * 1_000_000));
            call("busy", 0);
        }
        let names: Vec<_> = store.0.all().map(|kept| kept.upstream.to_string()).collect();
        assert_eq!(names, ["busy"]);
    }
}
