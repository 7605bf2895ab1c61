//! A Redis behind a proxy, the ways in which it goes out, and a throttle in front.

use std::error::Error as StdError;
use std::future::IntoFuture as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outgate::testing::{FlakyProxy, Mode, RedisServer, Reply};
use outgate::{Acquire, Error, Limit, Permit, RedisStore, Store, Throttle, Upstream};
use tokio::task::JoinSet;

pub(crate) use crate::recorder::chain;

pub(crate) type Outcome = Result<(), Box<dyn StdError + Send + Sync>>;

/// How long a caller without a longest wait waits for the store.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a call after the outage may take: a new connection, the pause before a retry, some round trips, and the turns
/// that all threads involved wait for. The pauses between retries have grown to more than a second by then.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(800);

/// The key of the log of the calls to "up" without a scope.
pub(crate) const LOG: &str = "outgate:v1:{up}:log:calls";

pub(crate) struct Scene {
    pub(crate) redis: RedisServer,
    pub(crate) proxy: FlakyProxy,
}

impl Scene {
    pub(crate) fn new() -> io::Result<Self> {
        Self::with(&[])
    }

    pub(crate) fn with(extra: &[&str]) -> io::Result<Self> {
        let redis = RedisServer::start_with(extra)?;
        let proxy = FlakyProxy::start(redis.addr())?;
        Ok(Self { redis, proxy })
    }

    /// A throttle behind the proxy, which has not connected yet.
    pub(crate) fn throttle(&self, limit: Limit) -> Result<Throttle, Box<dyn StdError + Send + Sync>> {
        throttle(RedisStore::open(&self.proxy.url())?, limit)
    }

    /// What the log holds, oldest first.
    pub(crate) fn log(&self) -> io::Result<Vec<i64>> {
        let Reply::Array(entries) = self.redis.command(&["LRANGE", LOG, "0", "-1"])? else {
            return Err(io::Error::other("no list"));
        };
        let stamp = |entry: &Reply| entry.text().and_then(|text| text.parse().ok());
        // The mark of a loss may stand in front of them.
        let is_mark = |entry: &&Reply| entry.text().is_some_and(|text| text.starts_with('L'));
        entries
            .iter()
            .skip_while(is_mark)
            .map(|entry| stamp(entry).ok_or_else(|| io::Error::other("no stamp")))
            .collect()
    }

    /// Waits until the log holds so many entries.
    pub(crate) async fn log_holds(&self, length: usize) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        while self.log()?.len() != length {
            if Instant::now() > deadline {
                return Err(format!("{length} entries expected, found {:?}", self.log()?).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Sends a command to Redis, which must not refuse it.
    pub(crate) fn redis(&self, command: &str) -> io::Result<Reply> {
        match self.redis.command(&command.split(' ').collect::<Vec<_>>())? {
            Reply::Error(refusal) => Err(io::Error::other(refusal)),
            reply => Ok(reply),
        }
    }
}

pub(crate) fn throttle(store: impl Store, limit: Limit) -> Result<Throttle, Box<dyn StdError + Send + Sync>> {
    Ok(Throttle::builder().store(store).upstream(Upstream::new("up").limit(limit)).build()?)
}

/// More than any test here uses.
pub(crate) const fn plenty() -> Limit {
    Limit::new(10_000, Duration::from_secs(60))
}

/// The same in windows that count no more once a server is back that has lost its data.
pub(crate) const fn brief() -> Limit {
    Limit::new(10_000, Duration::from_millis(50)).guard(Duration::from_millis(25))
}

const BEAT: Duration = Duration::from_millis(5);

/// Measures how late a timer of this runtime fires that has nothing to do with what is tested.
#[derive(Clone)]
pub(crate) struct Metronome {
    worst: Arc<AtomicU64>,
    _task: Arc<JoinSet<()>>,
}

impl Metronome {
    pub(crate) fn start() -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let (mut task, lateness) = (JoinSet::new(), Arc::clone(&worst));
        task.spawn(async move {
            loop {
                let due = Instant::now() + BEAT;
                tokio::time::sleep(BEAT).await;
                let late = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
                lateness.fetch_max(late, Ordering::Relaxed);
            }
        });
        Self { worst, _task: Arc::new(task) }
    }

    /// What a deadline may be missed by: as much as any other, and the time in which two cores poll a few thousand callers
    /// that are told all at once.
    pub(crate) async fn margin(&self) -> Duration {
        // The beat that is due may be late, too.
        tokio::time::sleep(BEAT).await;
        Duration::from_micros(self.worst.load(Ordering::Relaxed)) + Duration::from_millis(200)
    }
}

/// How a store goes out as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// The server is gone.
    Stopped,
    /// Every connection is closed at once.
    Refused,
    /// Connections can be made, nothing passes.
    Blackholed,
    /// The server's process stands still.
    Paused,
    /// The server acts, its replies are lost.
    Swallowed,
}

impl Outage {
    pub(crate) const ALL: [Self; 5] = [Self::Stopped, Self::Refused, Self::Blackholed, Self::Paused, Self::Swallowed];

    pub(crate) fn begin(self, scene: &Scene) -> io::Result<()> {
        match self {
            Self::Stopped => scene.redis.stop(),
            Self::Refused => scene.proxy.set(Mode::Refuse),
            Self::Blackholed => scene.proxy.set(Mode::Blackhole),
            Self::Paused => scene.redis.pause()?,
            Self::Swallowed => scene.proxy.set(Mode::SwallowReplies),
        }
        Ok(())
    }

    pub(crate) fn end(self, scene: &Scene) -> io::Result<()> {
        match self {
            Self::Stopped => scene.redis.restart()?,
            Self::Paused => scene.redis.resume()?,
            Self::Refused | Self::Blackholed | Self::Swallowed => scene.proxy.set(Mode::Pass),
        }
        Ok(())
    }
}

/// Awaits an ask, and says how long that took.
pub(crate) async fn timed(acquire: Acquire) -> (Result<Permit, Error>, Duration) {
    let since = Instant::now();
    let outcome = acquire.into_future().await;
    (outcome, since.elapsed())
}

/// Demands that the store was unavailable, and returns why: every error of the chain.
#[track_caller]
pub(crate) fn unavailable<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(error @ Error::StoreUnavailable { .. }) => chain(&error),
        other => panic!("the store should have been unavailable: {other:?}"),
    }
}
