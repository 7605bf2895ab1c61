//! One upstream in several shards: its scopes lie on several nodes, and what concerns all of it holds on all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outgate::testing::{RedisCluster, Reply, oracle};
use outgate::{Error, Feedback, Limit, RedisStore, Scope, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{Failure, Outcome, until};

const QUOTA: u32 = 20;
const WINDOW: Duration = Duration::from_secs(2);
const MERCHANTS: usize = 24;
/// Two or three on each node.
const SHARDS: u32 = 8;
const HORIZON: Duration = Duration::from_millis(250);

async fn process(cluster: &RedisCluster) -> Result<Throttle, Failure> {
    let store = RedisStore::cluster(cluster.urls()).connect().await?;
    let shop =
        Upstream::new("shop").scope_by(Scope::header("x-merchant")).limit(Limit::new(QUOTA, WINDOW)).shards(SHARDS);
    Ok(Throttle::builder().store(store).upstream(shop).build()?)
}

/// The calls of each merchant, which are made as soon as they may.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<usize, usize>>>);

impl Calls {
    fn of_each(&self) -> BTreeMap<usize, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn make(self, throttle: Throttle, merchant: usize) -> Result<(), Error> {
        loop {
            drop(throttle.acquire("shop").scope(merchant.to_string()).await?);
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(merchant).or_default() += 1;
        }
    }
}

/// The logs of a node: tag and scope, and their entries.
fn logs_on(cluster: &RedisCluster, node: usize) -> Result<Vec<(String, String, Vec<i64>)>, Failure> {
    let node = &cluster.nodes()[node];
    let Reply::Array(keys) = node.command(&["KEYS", "*:log:*"])? else { return Err("no keys".into()) };
    let log = |key: &str| {
        let (tag, rest) = key.split_once('{')?.1.split_once("}/")?;
        let Ok(Reply::Array(entries)) = node.command(&["LRANGE", key, "0", "-1"]) else { return None };
        let entries = entries.iter().filter_map(|entry| entry.text()?.parse().ok()).collect();
        Some((tag.to_owned(), rest.split_once(':')?.0.to_owned(), entries))
    };
    Ok(keys.iter().filter_map(|key| log(key.text()?)).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scopes_of_one_upstream_lie_on_all_nodes_and_a_pause_of_it_holds_on_all_until_it_is_released() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let (one, other) = (process(&cluster).await?, process(&cluster).await?);
    let (calls, mut callers) = (Calls::default(), JoinSet::new());
    for throttle in [&one, &other] {
        for merchant in 0..MERCHANTS {
            callers.spawn(calls.clone().make(throttle.clone(), merchant));
        }
    }
    until(|| Ok(calls.of_each().len() == MERCHANTS && calls.of_each().values().all(|&calls| calls > 20))).await?;

    let mut lies = BTreeMap::new();
    for node in 0..3 {
        let logs = logs_on(&cluster, node)?;
        let tags: BTreeSet<_> = logs.iter().map(|(tag, ..)| tag.clone()).collect();
        assert!((1..=3).contains(&tags.len()), "of eight shards: {tags:?}");
        for (tag, scope, entries) in logs {
            // What the log counts for, with its guard.
            oracle::assert_never_more_than(QUOTA.into(), 2_100_000, &entries);
            assert_eq!(lies.insert(scope, tag), None, "a scope lies in one shard");
        }
    }
    assert_eq!(lies.len(), MERCHANTS);

    one.report("shop", &Feedback::refused(Duration::from_secs(600))).await?;
    // What is booked by then goes; and a thread may be kept waiting.
    sleep(2 * HORIZON).await;
    let before = calls.of_each();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(calls.of_each(), before, "nobody starts on any node");
    for merchant in 0..MERCHANTS {
        let usage = other.usage_in("shop", merchant.to_string()).await?;
        assert!(usage.paused.is_some(), "{merchant}: {usage:?}");
    }
    one.release("shop").await?;
    until(|| Ok(calls.of_each().iter().all(|(merchant, calls)| calls > &before[merchant]))).await?;
    callers.shutdown().await;
    Ok(())
}
