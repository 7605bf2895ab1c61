//! A store in Redis, or in a Redis Cluster, to be checked.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::Stamp;
use outgate::testing::conformance::Subject;
use outgate::testing::{ManualClock, RedisServer, Reply};
use outgate::{RedisStore, Store};

pub(super) struct Redis<S> {
    servers: S,
    clock: ManualClock,
    store: RedisStore,
    /// The same by a connection of its own.
    another: RedisStore,
    running: RedisStore,
}

/// The servers that together keep a store's keys.
pub(super) trait Servers: Send + Sync {
    fn all(&self) -> &[RedisServer];
}

impl Servers for RedisServer {
    fn all(&self) -> &[RedisServer] {
        std::slice::from_ref(self)
    }
}

impl Redis<RedisServer> {
    pub(super) async fn new() -> Self {
        let server = must(RedisServer::start());
        let store = must(RedisStore::connect(&server.url()).await);
        let another = must(RedisStore::connect(&server.url()).await);
        let running = must(RedisStore::builder(&server.url()).prefix("running").connect().await);
        Self::of(server, [store, another], running)
    }
}

impl<S> Redis<S> {
    /// With two handles of a store whose clock stands still, and one under the prefix `running`.
    pub(super) fn of(servers: S, stores: [RedisStore; 2], running: RedisStore) -> Self {
        let clock = ManualClock::new(Stamp::from_micros(0));
        let [store, another] = stores.map(|store| store.with_clock(clock.clone()));
        Self { servers, clock, store, another, running }
    }
}

#[async_trait]
impl<S: Servers> Subject for Redis<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn another(&self) -> &dyn Store {
        &self.another
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn running(&self) -> &dyn Store {
        &self.running
    }

    async fn kept(&self) -> Vec<String> {
        let keys_of = |server: &RedisServer| match must(server.command(&["KEYS", "running:*"])) {
            Reply::Array(keys) => keys.iter().map(|key| key.text().unwrap_or("?").to_owned()).collect::<Vec<_>>(),
            reply => panic!("{reply:?}"),
        };
        // In which format the prefix is kept, is no upstream's.
        self.servers.all().iter().flat_map(keys_of).filter(|key| !key.ends_with("{~format}")).collect()
    }

    /// While nothing is on its way: a paused clock would jump to the next timeout of the connection.
    async fn age(&self, by: Duration) {
        tokio::time::pause();
        tokio::time::advance(by).await;
        tokio::time::resume();
    }
}

pub(super) fn must<T, E: Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}
