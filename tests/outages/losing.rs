//! When Redis loses data: workers that share a quota remember it, and the upstream refuses nobody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outgate::testing::{Judge, RedisServer, Reply, Shape};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scene::{LOG, Outcome};

const QUOTA: u32 = 60;
const WINDOW: Duration = Duration::from_secs(1);
/// Longer than a busy machine keeps a thread waiting.
const GUARD: Duration = Duration::from_millis(300);
const WORKERS: usize = 3;
/// Callers of each worker.
const CALLERS: usize = 6;
/// Of the whole upstream, beside its log.
const STATE: &str = "outgate:v1:{up}:state";
/// Calls go on within so long: a window and its guard, what may have been booked ahead, and a new connection.
const WAIT: Duration = Duration::from_millis(1_300 + 250 + 1_200);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the upstream has admitted, and how many calls it has refused.
struct Judged {
    judge: Judge,
    admitted: Vec<Instant>,
    refused: usize,
}

/// Workers that call one upstream without end.
struct Fleet {
    judged: Arc<Mutex<Judged>>,
    stopped: Arc<AtomicBool>,
    callers: JoinSet<Result<(), Error>>,
}

impl Fleet {
    /// All of them have called for more than a window.
    async fn start(redis: &RedisServer) -> Result<Self, Failure> {
        let judge = Judge::new().limit(QUOTA.into(), i64::try_from(WINDOW.as_micros())?, Shape::SlidingLog);
        let judged = Arc::new(Mutex::new(Judged { judge, admitted: Vec::new(), refused: 0 }));
        let mut fleet = Self { judged, stopped: Arc::default(), callers: JoinSet::new() };
        let began = Instant::now();
        for _ in 0..WORKERS {
            let up = Upstream::new("up").limit(Limit::new(QUOTA, WINDOW).guard(GUARD));
            let store = RedisStore::connect(&redis.url()).await?;
            let throttle = Throttle::builder().store(store).upstream(up).build()?;
            for _ in 0..CALLERS {
                fleet.callers.spawn(call(throttle.clone(), began, fleet.judged.clone(), fleet.stopped.clone()));
            }
        }
        sleep(WINDOW + GUARD + Duration::from_millis(200)).await;
        Ok(fleet)
    }

    /// Strikes, and says what came of it: nobody is refused, and calls go on before long.
    async fn struck(self, what: &str, strike: impl FnOnce() -> Outcome) -> Outcome {
        strike()?;
        let struck = Instant::now();
        sleep(WAIT).await;
        self.stopped.store(true, Ordering::Relaxed);
        self.callers.join_all().await.into_iter().collect::<Result<(), _>>()?;
        let judged = lock(&self.judged);
        let since = judged.admitted.iter().filter(|call| **call >= struck).count();
        let first = judged.admitted.iter().find(|call| **call >= struck).map(|call| call.duration_since(struck));
        let refused = judged.refused;
        println!(
            "{what}: {refused} of {} calls refused; {since} since, the first after {first:?}",
            judged.admitted.len()
        );
        assert_eq!(refused, 0, "{what}");
        assert!(since > 0, "{what}: calls go on");
        Ok(())
    }
}

async fn call(
    throttle: Throttle,
    began: Instant,
    judged: Arc<Mutex<Judged>>,
    stopped: Arc<AtomicBool>,
) -> Result<(), Error> {
    while !stopped.load(Ordering::Relaxed) {
        match throttle.acquire("up").max_wait(Duration::from_secs(1)).await {
            Ok(_permit) => {
                let mut judged = lock(&judged);
                let now = Instant::now();
                let micros = i64::try_from(now.duration_since(began).as_micros()).unwrap_or(i64::MAX);
                if judged.judge.admit(micros, 1).admitted {
                    judged.admitted.push(now);
                } else {
                    judged.refused += 1;
                }
            }
            // Longer than it waits.
            Err(Error::StoreUnavailable { .. } | Error::Throttled { .. }) => sleep(Duration::from_millis(20)).await,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has another client fill a server that evicts, until this log was evicted once.
fn fill_until_evicted(redis: &RedisServer, log: &str) -> Outcome {
    // A megabyte more than there is now, in pieces of a fifth. What is too much is evicted before a script runs.
    let used = redis.command(&["INFO", "memory"])?;
    let used = used.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix("used_memory:")));
    let most = used.and_then(|used| used.trim().parse::<u64>().ok()).ok_or("no figure")? + 1_000_000;
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", &most.to_string()])?;
    let fills = "redis.call('SET', KEYS[1], string.rep('x', 200000)) return redis.call('EXISTS', KEYS[2])";
    for piece in 0..10_000 {
        if redis.command(&["EVAL", fills, "2", &format!("piece {piece}"), log])? == Reply::Int(0) {
            return Ok(());
        }
    }
    Err("it was never evicted".into())
}

/// Deletes a key as soon as there is one: on a busy machine nobody may have waited for a while.
fn delete(redis: &RedisServer, key: &str) -> Outcome {
    let end = Instant::now() + Duration::from_secs(10);
    while redis.command(&["DEL", key])? != Reply::Int(1) {
        if Instant::now() > end {
            return Err(format!("there is no {key}").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_a_server_starts_again_without_its_data() -> Outcome {
    let redis = RedisServer::start()?;
    let fleet = Fleet::start(&redis).await?;
    fleet.struck("a restart without data", || Ok(redis.restart()?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_a_server_that_is_full_evicts_the_log() -> Outcome {
    let redis = RedisServer::start()?;
    let fleet = Fleet::start(&redis).await?;
    fleet.struck("an eviction", || fill_until_evicted(&redis, LOG)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_the_log_alone_is_gone() -> Outcome {
    let redis = RedisServer::start()?;
    let fleet = Fleet::start(&redis).await?;
    fleet.struck("the log alone is gone", || delete(&redis, LOG)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_what_is_kept_beside_the_log_alone_is_gone() -> Outcome {
    let redis = RedisServer::start()?;
    let fleet = Fleet::start(&redis).await?;
    fleet.struck("the state alone is gone", || delete(&redis, STATE)).await
}

/// Calls of an hour that two processes were granted before the log was lost count as before, once 6 s are over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_counts_for_an_hour_is_told_again_when_the_log_is_evicted_or_all_data_is_lost() -> Outcome {
    for what in ["an eviction", "a restart without data"] {
        let redis = RedisServer::start()?;
        let mut processes = Vec::new();
        for calls in [30, 20] {
            let up = Upstream::new("up").limit(Limit::new(60, Duration::from_secs(3_600)));
            let throttle = Throttle::builder().store(RedisStore::connect(&redis.url()).await?).upstream(up).build()?;
            for _ in 0..calls {
                drop(throttle.acquire("up").await?);
            }
            processes.push(throttle);
        }
        if what == "an eviction" {
            fill_until_evicted(&redis, LOG)?;
            redis.command(&["CONFIG", "SET", "maxmemory", "0"])?;
        } else {
            redis.restart()?;
        }
        let struck = Instant::now();
        let mut callers = JoinSet::new();
        for throttle in &processes {
            for _ in 0..30 {
                let acquire = throttle.acquire("up").max_wait(Duration::from_secs(12));
                callers.spawn(async move { acquire.await.map(|permit| (struck.elapsed(), drop(permit))) });
            }
        }
        let outcomes = callers.join_all().await;
        let granted: Vec<_> = outcomes.iter().flatten().map(|(at, ())| *at).collect();
        println!("{what}: {} calls go on, the first after {:?}", granted.len(), granted.iter().min());
        assert_eq!(granted.len(), 10, "{what}: {outcomes:?}");
        assert!(granted.iter().all(|at| *at >= Duration::from_millis(5_900)), "{what}: {granted:?}");
    }
    Ok(())
}
