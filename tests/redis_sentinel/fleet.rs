//! Four workers that call one upstream, which judges them strictly. Two of them reach the Sentinels through proxies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outgate::testing::{FlakyProxy, Judge, Mode, RedisSentinel, Reply, Shape};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};
use tokio::task::JoinSet;

use crate::{Failure, until};

const QUOTA: u32 = 60;
const WINDOW: Duration = Duration::from_secs(2);
/// Longer than a busy machine keeps a thread waiting.
const GUARD: Duration = Duration::from_millis(300);
/// Callers of each worker.
const CALLERS: usize = 6;
pub(crate) const WORKERS: usize = 4;
/// The workers behind these reach the Sentinels through proxies.
pub(crate) const QUICK: usize = 2;

struct Judged {
    judge: Judge,
    admitted: Vec<(usize, Instant)>,
    refused: usize,
}

pub(crate) struct Fleet {
    proxies: Vec<FlakyProxy>,
    judged: Arc<Mutex<Judged>>,
    stopped: Arc<AtomicBool>,
    callers: JoinSet<Result<(), Error>>,
}

impl Fleet {
    /// Calls until it is stopped.
    pub(crate) async fn start(redis: &RedisSentinel) -> Result<Self, Failure> {
        let proxies = redis.sentinels().iter().map(|sentinel| FlakyProxy::start(sentinel.addr()));
        let proxies = proxies.collect::<Result<Vec<_>, _>>()?;
        let judge = Judge::new().limit(QUOTA.into(), i64::try_from(WINDOW.as_micros())?, Shape::SlidingLog);
        let judged = Arc::new(Mutex::new(Judged { judge, admitted: Vec::new(), refused: 0 }));
        let mut fleet = Self { proxies, judged, stopped: Arc::default(), callers: JoinSet::new() };
        let began = Instant::now();
        for worker in 0..WORKERS {
            let urls = if worker < QUICK { redis.urls() } else { fleet.proxies.iter().map(FlakyProxy::url).collect() };
            let store = RedisStore::sentinel(RedisSentinel::NAME, urls).connect().await?;
            let up = Upstream::new("up").limit(Limit::new(QUOTA, WINDOW).guard(GUARD));
            let throttle = Throttle::builder().store(store).upstream(up).build()?;
            for _ in 0..CALLERS {
                fleet.callers.spawn(call(throttle.clone(), worker, began, fleet.judged.clone(), fleet.stopped.clone()));
            }
        }
        for worker in 0..WORKERS {
            fleet.goes_on(worker, began).await?;
        }
        Ok(fleet)
    }

    /// What workers behind proxies can do about the Sentinels.
    pub(crate) fn set(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }

    /// Calls of a worker since then.
    pub(crate) fn since(&self, worker: usize, at: Instant) -> usize {
        self.judged().admitted.iter().filter(|&&(of, call)| of == worker && call >= at).count()
    }

    /// Waits for a call of a worker since then, and says how long it took.
    pub(crate) async fn goes_on(&self, worker: usize, at: Instant) -> Result<Duration, Failure> {
        until("a call", || Ok(self.since(worker, at) > 0)).await?;
        let judged = self.judged();
        let first = judged.admitted.iter().find(|&&(of, call)| of == worker && call >= at).ok_or("no call")?;
        Ok(first.1.duration_since(at))
    }

    /// How long it took the last of some workers to go on.
    pub(crate) async fn all_go_on(&self, workers: std::ops::Range<usize>, at: Instant) -> Result<Duration, Failure> {
        let mut longest = Duration::ZERO;
        for worker in workers {
            longest = longest.max(self.goes_on(worker, at).await?);
        }
        Ok(longest)
    }

    /// Ends, and says how many calls there were, and how many of them were refused.
    pub(crate) async fn stop(mut self) -> Result<(usize, usize), Failure> {
        self.stopped.store(true, Ordering::Relaxed);
        while let Some(caller) = self.callers.join_next().await {
            caller??;
        }
        let judged = self.judged();
        Ok((judged.admitted.len() + judged.refused, judged.refused))
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn call(
    throttle: Throttle,
    worker: usize,
    began: Instant,
    judged: Arc<Mutex<Judged>>,
    stopped: Arc<AtomicBool>,
) -> Result<(), Error> {
    while !stopped.load(Ordering::Relaxed) {
        match throttle.acquire("up").await {
            Ok(permit) => {
                let mut judged = judged.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                let micros = i64::try_from(now.duration_since(began).as_micros()).unwrap_or(i64::MAX);
                if judged.judge.admit(micros, 1).admitted {
                    judged.admitted.push((worker, now));
                } else {
                    judged.refused += 1;
                }
                drop(permit);
            }
            // Longer than a caller waits for a store.
            Err(Error::StoreUnavailable { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until a Sentinel names another primary than this server, and says when it did.
pub(crate) async fn another_is_named(redis: &RedisSentinel, than: usize) -> Result<Instant, Failure> {
    let port = redis.servers()[than].port().to_string();
    until("another primary", || {
        for sentinel in redis.sentinels() {
            let said = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinel::NAME])?;
            if let Reply::Array(address) = said
                && address.get(1).and_then(Reply::text) != Some(port.as_str())
            {
                return Ok(true);
            }
        }
        Ok(false)
    })
    .await?;
    Ok(Instant::now())
}
