//! Every law of a store, on every store.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use outgate::testing::conformance::{self, Subject};
use outgate::testing::{RedisServer, Reply};
use outgate::{ManualClock, MemoryStore, RedisStore, Stamp, Store};

struct Memory {
    clock: ManualClock,
    store: MemoryStore,
    running: MemoryStore,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::new(Stamp::from_micros(0));
        Self { store: MemoryStore::with_clock(clock.clone()), clock, running: MemoryStore::new() }
    }
}

#[async_trait]
impl Subject for Memory {
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
        (0..self.running.homes()).map(|home| format!("home {home}")).collect()
    }

    async fn age(&self, by: Duration) {
        tokio::time::advance(by).await;
    }
}

struct Redis {
    server: RedisServer,
    clock: ManualClock,
    store: RedisStore,
    running: RedisStore,
}

impl Redis {
    async fn new() -> Self {
        let server = must(RedisServer::start());
        let clock = ManualClock::new(Stamp::from_micros(0));
        let store = must(RedisStore::connect(&server.url()).await);
        let running = must(store.clone().prefix("running"));
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

macro_rules! laws {
    ($($law:ident $sentence:ident)*) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $sentence() {
                super::conformance::$law(&super::Memory::new()).await;
            })*
        }

        mod in_redis {
            $(#[tokio::test]
            async fn $sentence() {
                super::conformance::$law(&super::Redis::new().await).await;
            })*
        }
    };
}

laws! {
    law_1 no_interval_of_a_span_ever_holds_more_than_the_quota
    law_2 slots_are_given_in_the_order_asked
    law_3 a_batch_gives_what_the_same_asks_one_by_one_would
    law_4 a_slot_handed_back_can_be_given_again
    law_5 handing_back_twice_or_something_never_given_changes_nothing
    law_6 an_empty_log_means_no_wait
    law_7 a_hold_delays_every_later_slot_and_no_earlier_one
    law_8 homes_do_not_affect_each_other
    law_9 after_the_longest_span_of_silence_nothing_is_stored
    law_10 the_answer_does_not_depend_on_the_clock_of_the_caller
    law_11 the_same_message_sent_twice_acts_once
    check_all all_laws_hold_one_after_another_on_the_same_store
}
