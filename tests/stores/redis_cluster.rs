//! A store in a Redis Cluster, to be checked.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::Stamp;
use outgate::testing::conformance::Subject;
use outgate::testing::{ManualClock, RedisCluster, Reply};
use outgate::{RedisStore, Store};

pub(super) struct Redis {
    cluster: RedisCluster,
    clock: ManualClock,
    store: RedisStore,
    running: RedisStore,
}

impl Redis {
    pub(super) async fn new() -> Self {
        let cluster = must(RedisCluster::start(3, 0));
        let clock = ManualClock::new(Stamp::from_micros(0));
        let store = must(RedisStore::cluster(cluster.urls()).connect().await);
        let running = must(RedisStore::cluster(cluster.urls()).prefix("running").connect().await);
        Self { store: store.with_clock(clock.clone()), clock, running, cluster }
    }
}

#[async_trait]
impl Subject for Redis {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn running(&self) -> &dyn Store {
        &self.running
    }

    async fn kept(&self) -> Vec<String> {
        let mut kept = Vec::new();
        for node in self.cluster.nodes() {
            match must(node.command(&["KEYS", "running:*"])) {
                Reply::Array(keys) => kept.extend(keys.iter().map(|key| key.text().unwrap_or("?").to_owned())),
                reply => panic!("{reply:?}"),
            }
        }
        kept
    }

    /// While nothing is on its way: a paused clock would jump to the next timeout of the connection.
    async fn age(&self, by: Duration) {
        tokio::time::pause();
        tokio::time::advance(by).await;
        tokio::time::resume();
    }
}

fn must<T, E: Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}
