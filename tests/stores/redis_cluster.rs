//! A store in a Redis Cluster, to be checked.

use outgate::RedisStore;
use outgate::testing::{RedisCluster, RedisServer};

use super::redis::{Redis, Servers, must};

impl Servers for RedisCluster {
    fn all(&self) -> &[RedisServer] {
        self.nodes()
    }
}

impl Redis<RedisCluster> {
    pub(super) async fn in_cluster() -> Self {
        let cluster = must(RedisCluster::start(3, 0));
        let store = must(RedisStore::cluster(cluster.urls()).connect().await);
        let another = must(RedisStore::cluster(cluster.urls()).connect().await);
        let running = must(RedisStore::cluster(cluster.urls()).prefix("running").connect().await);
        Self::of(cluster, [store, another], running)
    }
}
