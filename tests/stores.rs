//! Every law of a store, on every store.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::{Ask, Log, Message, MessageId, Reply, Run, Stamp, Term};
use outgate::testing::ManualClock;
use outgate::testing::conformance::{self, Subject};
use outgate::{MemoryStore, Store};

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
        (0..self.running.scopes_in_use()).map(|scope| format!("scope {scope}")).collect()
    }

    async fn age(&self, by: Duration) {
        tokio::time::advance(by).await;
    }
}

#[cfg(feature = "redis")]
#[path = "stores/redis.rs"]
mod redis;

#[cfg(feature = "redis-cluster")]
#[path = "stores/redis_cluster.rs"]
mod redis_cluster;

#[cfg(feature = "redis-sentinel")]
#[path = "stores/redis_sentinel.rs"]
mod redis_sentinel;

macro_rules! laws {
    ($($law:ident $sentence:ident)*) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $sentence() {
                super::conformance::$law(&super::Memory::new()).await;
            })*
        }

        #[cfg(feature = "redis")]
        mod in_redis {
            $(#[tokio::test]
            async fn $sentence() {
                super::conformance::$law(&super::redis::Redis::new().await).await;
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
    law_7 a_pause_delays_every_later_slot_and_no_earlier_one
    law_8 scopes_and_upstreams_do_not_affect_each_other
    law_9 after_the_longest_span_of_silence_nothing_is_stored
    law_10 the_answer_does_not_depend_on_the_clock_of_the_caller
    law_11 the_same_message_sent_twice_acts_once
    law_12 all_logs_of_a_call_are_charged_or_none
    law_13 log_time_is_as_messages_know_it_however_the_clock_steps
    law_14 no_stamp_lies_beyond_the_horizon
    law_15 a_release_ends_pauses_and_one_call_looks
    law_16 a_rate_lowers_quotas_and_is_kept
    law_17 seats_in_use_never_exceed_the_limit
    law_18 true_costs_count_from_the_moment_they_are_known
    law_19 a_process_is_told_of_until_it_lapses
    law_20 nobody_starts_until_all_that_may_be_missing_counts_no_more
    law_21 what_a_reset_names_counts_no_more_and_is_not_lost
    law_22 messages_that_come_at_once_act_one_after_another
    check_all all_laws_hold_one_after_another_on_the_same_store
}

/// One Cluster for all laws, as it takes a while to start.
#[cfg(feature = "redis-cluster")]
#[tokio::test]
async fn all_laws_hold_in_a_redis_cluster() {
    conformance::check_all(&redis::Redis::in_cluster().await).await;
}

/// Some of them: the same scripts decide.
#[cfg(feature = "redis-sentinel")]
#[tokio::test]
async fn some_laws_hold_in_a_primary_that_sentinels_name() {
    let redis = redis::Redis::by_sentinels().await;
    conformance::law_4(&redis).await;
    conformance::law_5(&redis).await;
    conformance::law_15(&redis).await;
    conformance::law_16(&redis).await;
}

/// What a store in memory answers is there when it is asked for.
#[test]
fn the_memory_answers_at_the_first_poll() {
    let store = MemoryStore::new();
    let log = Log::new("calls", [Term::new(1, 1_000_000)]);
    let message = Message::new("up", MessageId::nobodys(), Ask::new([log], vec![Run::new(1, [1])]));
    for granted in [1, 0] {
        let answer = pin!(store.apply(&message)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Ok(Reply::Grant(grant))) if grant.answered(1) == granted));
    }
}
