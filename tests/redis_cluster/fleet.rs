//! Two processes that call several upstreams of a Cluster, each of which judges them strictly.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outgate::testing::{Judge, RedisCluster, Shape};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};
use tokio::task::JoinSet;

use crate::{Failure, Outcome, until};

const QUOTA: u32 = 40;
/// Its guard is longer than a busy machine keeps a thread waiting.
const WINDOW: Duration = Duration::from_secs(2);
/// Callers of each process and upstream.
const CALLERS: usize = 2;

/// An upstream, the node that has its keys at first, and its calls.
pub(crate) struct Called {
    pub(crate) name: String,
    pub(crate) slot: u16,
    pub(crate) node: usize,
    judged: Mutex<Judged>,
}

struct Judged {
    judge: Judge,
    admitted: Vec<Instant>,
    refused: usize,
}

impl Called {
    fn new(cluster: &RedisCluster, name: String) -> Result<Self, Failure> {
        let slot = cluster.slot_of(&format!("outgate:v1:{{{name}}}:state"))?;
        let node = cluster.primary(slot)?.ok_or("nobody has the slot")?;
        let judge = Judge::new().limit(QUOTA.into(), i64::try_from(WINDOW.as_micros())?, Shape::SlidingLog);
        Ok(Self { name, slot, node, judged: Mutex::new(Judged { judge, admitted: Vec::new(), refused: 0 }) })
    }

    fn call(&self, began: Instant) {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let micros = i64::try_from(now.duration_since(began).as_micros()).unwrap_or(i64::MAX);
        if judged.judge.admit(micros, 1).admitted {
            judged.admitted.push(now);
        } else {
            judged.refused += 1;
        }
    }

    /// Calls since then.
    pub(crate) fn since(&self, at: Instant) -> usize {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).admitted.iter().filter(|&&call| call >= at).count()
    }

    fn refused(&self) -> usize {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).refused
    }

    /// Waits for a call since then, and says how long it took.
    pub(crate) async fn goes_on(&self, at: Instant) -> Result<Duration, Failure> {
        until(|| Ok(self.since(at) > 0)).await?;
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let first = judged.admitted.iter().find(|&&call| call >= at).ok_or("no call")?;
        Ok(first.duration_since(at))
    }
}

pub(crate) struct Fleet {
    pub(crate) upstreams: Arc<Vec<Called>>,
    throttles: Vec<Throttle>,
    stopped: Arc<AtomicBool>,
    callers: JoinSet<Result<usize, Error>>,
}

impl Fleet {
    /// Calls two upstreams of each node that has slots, until it is stopped.
    pub(crate) async fn start(cluster: &RedisCluster, nodes: usize) -> Result<Self, Failure> {
        let mut upstreams: Vec<Called> = Vec::new();
        for n in 0.. {
            let called = Called::new(cluster, format!("up-{n}"))?;
            if upstreams.iter().filter(|other| other.node == called.node).count() < 2 {
                upstreams.push(called);
            }
            if upstreams.len() == 2 * nodes {
                break;
            }
        }
        let mut throttles = Vec::new();
        for _ in 0..2 {
            let store = RedisStore::cluster(cluster.urls()).connect().await?;
            let of = |called: &Called| Upstream::new(called.name.as_str()).limit(Limit::new(QUOTA, WINDOW));
            let builder = Throttle::builder().store(store);
            let builder = upstreams.iter().fold(builder, |builder, called| builder.upstream(of(called)));
            throttles.push(builder.build()?);
        }
        let mut fleet =
            Self { upstreams: Arc::new(upstreams), throttles, stopped: Arc::default(), callers: JoinSet::new() };
        fleet.call();
        let began = Instant::now();
        for called in fleet.upstreams.iter() {
            called.goes_on(began).await?;
        }
        Ok(fleet)
    }

    fn call(&mut self) {
        let began = Instant::now();
        for throttle in &self.throttles {
            for place in (0..self.upstreams.len()).flat_map(|place| [place; CALLERS]) {
                let (throttle, upstreams) = (throttle.clone(), Arc::clone(&self.upstreams));
                let stopped = Arc::clone(&self.stopped);
                self.callers.spawn(async move {
                    let (called, mut waited_in_vain) = (&upstreams[place], 0);
                    while !stopped.load(Ordering::Relaxed) {
                        match throttle.acquire(&called.name).await {
                            Ok(permit) => {
                                called.call(began);
                                drop(permit);
                            }
                            // Longer than a caller waits for a store, on a busy machine.
                            Err(Error::StoreUnavailable { .. }) => waited_in_vain += 1,
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(waited_in_vain)
                });
            }
        }
    }

    /// Upstreams that had their keys on a node.
    pub(crate) fn on(&self, node: usize) -> impl Iterator<Item = &Called> {
        self.upstreams.iter().filter(move |called| called.node == node)
    }

    /// Ends, and says how many waited in vain; nobody was refused.
    pub(crate) async fn stop(mut self) -> Result<usize, Failure> {
        self.stopped.store(true, Ordering::Relaxed);
        let mut waited_in_vain = 0;
        while let Some(caller) = self.callers.join_next().await {
            waited_in_vain += caller??;
        }
        for called in self.upstreams.iter() {
            assert_eq!(called.refused(), 0, "{} refused", called.name);
        }
        Ok(waited_in_vain)
    }
}

/// Demands that calls went on.
pub(crate) async fn all_go_on(fleet: &Fleet, within: Duration) -> Outcome {
    let now = Instant::now();
    for called in fleet.upstreams.iter() {
        let took = called.goes_on(now).await?;
        // None may come for as long as the window is full.
        assert!(took < WINDOW + within, "{}: {took:?}", called.name);
    }
    Ok(())
}
