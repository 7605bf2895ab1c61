//! A store in Redis, to be checked.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::Stamp;
use outgate::testing::conformance::Subject;
use outgate::testing::{ManualClock, RedisServer, Reply};
use outgate::{RedisStore, Store};

pub(super) struct Redis {
    server: RedisServer,
    clock: ManualClock,
    store: RedisStore,
    running: RedisStore,
}

impl Redis {
    pub(super) async fn new() -> Self {
        let server = must(RedisServer::start());
        let clock = ManualClock::new(Stamp::from_micros(0));
        let store = must(RedisStore::connect(&server.url()).await);
        let running = must(RedisStore::builder(&server.url()).prefix("running").connect().await);
        Self { store: store.with_clock(clock.clone()), clock, running, server }
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
        match must(self.server.command(&["KEYS", "running:*"])) {
            Reply::Array(keys) => keys.iter().map(|key| key.text().unwrap_or("?").to_owned()).collect(),
            reply => panic!("{reply:?}"),
        }
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
