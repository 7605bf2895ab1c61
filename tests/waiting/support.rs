//! A store that counts what it is told, and processes that share it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::ledger::{Body, Message};
use outgate::store::{Applied, Applying};
use outgate::store::{StoreError, StoreErrorKind};
use outgate::{Limit, MemoryStore, Priority, Store, Throttle, Upstream};
use tokio::time::{Instant, sleep, timeout_at};

/// How long the store takes to answer.
const LATENCY: Duration = Duration::from_millis(1);

/// What becomes of an answer on its way back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    pub(crate) delay: Duration,
    pub(crate) lost: bool,
}

impl Way {
    pub(crate) const fn slow(delay: Duration) -> Self {
        Self { delay, lost: false }
    }
}

/// The way of the answer to each message, by how many came before; looked up in the moment in which the store acts.
#[derive(Clone)]
struct Ways(Arc<dyn Fn(u64) -> Way + Send + Sync>);

impl Default for Ways {
    fn default() -> Self {
        Self(Arc::new(|_| Way::default()))
    }
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ways")
    }
}

/// A memory store a millisecond away, which counts its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counting {
    inner: Arc<Mutex<MemoryStore>>,
    calls: Arc<AtomicU64>,
    asks: Arc<AtomicU64>,
    hand_backs: Arc<AtomicU64>,
    reports: Arc<AtomicU64>,
    looks: Arc<AtomicU64>,
    pauses: Arc<AtomicU64>,
    /// How far ahead the last ask was, in microseconds.
    ahead: Arc<AtomicU64>,
    ways: Ways,
}

impl Counting {
    /// A store that acts as it should, and whose answers come late or never.
    pub(crate) fn answering(ways: impl Fn(u64) -> Way + Send + Sync + 'static) -> Self {
        Self { ways: Ways(Arc::new(ways)), ..Self::default() }
    }

    async fn answer(&self, before: u64, answer: Applied) -> Applied {
        let way = (self.ways.0)(before);
        // Sleeping for no time takes a millisecond.
        if !way.delay.is_zero() {
            sleep(way.delay).await;
        }
        if way.lost { Err(StoreError::new(StoreErrorKind::Unreachable, "the answer was lost")) } else { answer }
    }

    fn inner(&self) -> MemoryStore {
        self.inner.lock().unwrap().clone()
    }

    /// Loses everything it has kept.
    pub(crate) fn lose_data(&self) {
        self.inner().lose_data();
    }

    /// Loses its logs alone.
    pub(crate) fn lose_logs(&self) {
        self.inner().lose_logs(None);
    }

    /// Loses the logs in which nothing has started for so long.
    pub(crate) fn lose_unused_logs(&self, unused_for: Duration) {
        self.inner().lose_logs(Some(unused_for));
    }

    pub(crate) fn asks(&self) -> u64 {
        self.asks.load(Ordering::Relaxed)
    }

    pub(crate) fn hand_backs(&self) -> u64 {
        self.hand_backs.load(Ordering::Relaxed)
    }

    pub(crate) fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// How many pauses it was told.
    pub(crate) fn told(&self) -> u64 {
        self.pauses.load(Ordering::Relaxed)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How far ahead of now the last ask was.
    pub(crate) fn ahead(&self) -> Duration {
        Duration::from_micros(self.ahead.load(Ordering::Relaxed))
    }

    /// One process of the cluster, with one upstream named `up`.
    pub(crate) fn process(&self, upstream: impl FnOnce(Upstream) -> Upstream) -> Throttle {
        Throttle::builder().store(self.clone()).upstream(upstream(Upstream::new("up"))).build().unwrap()
    }

    pub(crate) fn limited(&self, limit: Limit) -> Throttle {
        self.process(|up| up.limit(limit))
    }
}

impl Store for Counting {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            let Body::Ask(ask) = &message.body else {
                self.looks.fetch_add(u64::from(matches!(message.body, Body::Look { .. })), Ordering::Relaxed);
                self.pauses.fetch_add(u64::from(matches!(message.body, Body::Pause { .. })), Ordering::Relaxed);
                self.reports.fetch_add(u64::from(matches!(message.body, Body::Report { .. })), Ordering::Relaxed);
                return self.inner().apply(message).await;
            };
            let before = self.calls.fetch_add(1, Ordering::Relaxed);
            if ask.runs.is_empty() && !ask.back.is_empty() {
                self.hand_backs.fetch_add(1, Ordering::Relaxed);
            } else {
                self.asks.fetch_add(1, Ordering::Relaxed);
                self.ahead.store(u64::try_from(ask.ahead.as_micros()).unwrap(), Ordering::Relaxed);
                // Slots go back with an ask as well.
                self.hand_backs.fetch_add(u64::from(!ask.back.is_empty()), Ordering::Relaxed);
            }
            sleep(LATENCY).await;
            let answer = self.inner().apply(message).await;
            self.answer(before, answer).await
        })
    }
}

/// Microseconds since `begin`.
pub(crate) fn micros_since(begin: Instant) -> i64 {
    i64::try_from(begin.elapsed().as_micros()).unwrap()
}

/// A caller of a priority that asks again as soon as it is served, until `end`: when its calls went, since `begin`.
pub(crate) async fn again_and_again(throttle: Throttle, priority: Priority, begin: Instant, end: Instant) -> Vec<i64> {
    let mut starts = Vec::new();
    while let Ok(permit) = timeout_at(end, throttle.acquire("up").priority(priority).into_future()).await {
        drop(permit.unwrap());
        starts.push(micros_since(begin));
    }
    starts
}

/// Callers of one process that ask again as soon as they are served, until `end`: when each call went.
pub(crate) async fn endless(throttle: &Throttle, callers: usize, begin: Instant, end: Instant) -> Vec<i64> {
    endless_of(throttle, callers, Priority::Normal, begin, end).await
}

/// The same of a priority.
pub(crate) async fn endless_of(
    throttle: &Throttle,
    callers: usize,
    priority: Priority,
    begin: Instant,
    end: Instant,
) -> Vec<i64> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        tasks.spawn(again_and_again(throttle.clone(), priority, begin, end));
    }
    tasks.join_all().await.concat()
}
