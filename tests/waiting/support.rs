//! A store that counts what it is told, and processes that share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use outgate::store::{Ask, Grant, HandBack, Hold, Home, Log, LogUsage};
use outgate::{Limit, MemoryStore, Store, StoreError, Throttle, Upstream};
use tokio::time::{Instant, sleep};

/// How long the store takes to answer.
const LATENCY: Duration = Duration::from_millis(1);

/// A memory store a millisecond away, which counts its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counting {
    inner: MemoryStore,
    asks: Arc<AtomicU64>,
    hand_backs: Arc<AtomicU64>,
}

impl Counting {
    pub(crate) fn asks(&self) -> u64 {
        self.asks.load(Ordering::Relaxed)
    }

    pub(crate) fn hand_backs(&self) -> u64 {
        self.hand_backs.load(Ordering::Relaxed)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.asks() + self.hand_backs()
    }

    /// One process of the cluster, with one upstream named `up`.
    pub(crate) fn process(&self, upstream: impl FnOnce(Upstream) -> Upstream) -> Throttle {
        Throttle::builder().store(self.clone()).upstream(upstream(Upstream::new("up"))).build().unwrap()
    }

    pub(crate) fn limited(&self, limit: Limit) -> Throttle {
        self.process(|up| up.limit(limit))
    }
}

#[async_trait]
impl Store for Counting {
    async fn book(&self, ask: &Ask) -> Result<Grant, StoreError> {
        self.asks.fetch_add(1, Ordering::Relaxed);
        sleep(LATENCY).await;
        self.inner.book(ask).await
    }

    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError> {
        self.hand_backs.fetch_add(1, Ordering::Relaxed);
        sleep(LATENCY).await;
        self.inner.hand_back(message).await
    }

    async fn hold(&self, home: &Home, hold: &Hold) -> Result<Duration, StoreError> {
        self.inner.hold(home, hold).await
    }

    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError> {
        self.inner.usage(home, logs).await
    }
}

/// Microseconds since `begin`.
pub(crate) fn micros_since(begin: Instant) -> i64 {
    i64::try_from(begin.elapsed().as_micros()).unwrap()
}

/// Callers of one process that ask again as soon as they are served, until `end`: when each call went.
pub(crate) async fn endless(throttle: &Throttle, callers: usize, begin: Instant, end: Instant) -> Vec<i64> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            let mut starts = Vec::new();
            while let Ok(permit) = tokio::time::timeout_at(end, async { throttle.acquire("up").await }).await {
                drop(permit.unwrap());
                starts.push(micros_since(begin));
            }
            starts
        });
    }
    tasks.join_all().await.concat()
}
