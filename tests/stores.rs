//! Every law of a store, on every store.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::{Ask, HandBack, Hold, Home, Lesson, Log, MessageId, Report, Run, Slots};
use outgate::ledger::{Stamp, Term};
use outgate::testing::ManualClock;
use outgate::testing::conformance::{self, Subject};
use outgate::testing::{RedisServer, Reply};
use outgate::{MemoryStore, RedisStore, Store};

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
    law_12 what_is_at_hand_is_what_a_message_would_be_granted_at_once
    law_13 log_time_is_as_asks_know_it_however_the_clock_steps
    check_all all_laws_hold_one_after_another_on_the_same_store
}

/// A store in memory with a log of two calls in 100 ms in every home, and the scope that the cases are about.
struct Desk {
    clock: ManualClock,
    store: MemoryStore,
    logs: [Log; 1],
    home: Home,
}

impl Desk {
    fn new() -> Self {
        let Memory { clock, store, .. } = Memory::new();
        let logs = [Log::new("calls", [Term::new(2, 100_000)])];
        Self { clock, store, logs, home: Home::new("up", Some("scope")) }
    }

    /// Whether a slot is at hand at this time. It is booked, and starts then.
    fn has(&self, cost: u32, at: i64) -> bool {
        self.clock.set(Stamp::from_micros(at));
        let start = self.store.at_hand(&self.home, &self.logs, &[cost]);
        assert!(start.is_none_or(|start| start == self.clock.now()), "{start:?} at {at}");
        start.is_some()
    }

    async fn ask(&self, sender: u64, number: u64, callers: u32) {
        must(self.store.book(&self.message(sender, number, Run::new(callers, [1]))).await);
    }

    fn message(&self, sender: u64, number: u64, run: Run) -> Ask {
        Ask::new(self.home.clone(), sender, number, self.logs.clone(), vec![run])
    }
}

#[tokio::test]
async fn a_slot_is_at_hand_as_long_as_there_is_room() {
    let desk = Desk::new();
    let had = [desk.has(3, 0), desk.has(1, 0), desk.has(2, 0), desk.has(1, 5), desk.has(1, 6)];
    assert_eq!(had, [false, true, false, true, false], "a cost of three never fits, one of two not beside one");
    assert_eq!([desk.has(1, 99_999), desk.has(1, 100_000), desk.has(1, 100_004)], [false, true, false]);
    let usage = must(desk.store.usage(&desk.home, &desk.logs).await);
    assert_eq!(usage[0].terms[0].used, 2, "what is at hand is entered, what is not leaves no trace");
    assert!(desk.has(2, 1_000_000));
}

#[tokio::test]
async fn nothing_is_at_hand_of_several_logs_unless_there_is_room_in_all() {
    let desk = Desk::new();
    let both = [desk.logs[0].clone(), Log::new("points", [Term::new(5, 100_000)])];
    let had = |costs: &[u32]| desk.store.at_hand(&desk.home, &both, costs).is_some();
    assert_eq!([had(&[1, 4]), had(&[1, 2]), had(&[1, 1]), had(&[1, 1])], [true, false, true, false]);
}

#[tokio::test]
async fn nothing_is_at_hand_before_slots_that_are_booked() {
    let desk = Desk::new();
    desk.ask(1, 1, 3).await;
    let slots = vec![Slots::new(2, Stamp::from_micros(0), [1])];
    must(desk.store.hand_back(&HandBack::new(desk.home.clone(), 1, 2, desk.logs.clone(), slots)).await);
    assert_eq!(
        [desk.has(1, 50), desk.has(1, 99_999), desk.has(1, 100_000)],
        [false, false, true],
        "one starts at 100 ms"
    );
}

#[tokio::test]
async fn nothing_is_at_hand_while_a_process_waits() {
    let desk = Desk::new();
    desk.ask(1, 1, 9).await;
    // Two each at 0, 100, 200 ms; the rest asks again by 300 ms, and has a horizon's time for it.
    assert_eq!([desk.has(1, 300_000), desk.has(1, 549_999), desk.has(1, 550_000)], [false, false, true]);
    desk.ask(1, 2, 9).await;
    desk.ask(1, 3, 0).await;
    assert!(desk.has(1, 2_000_000), "it waits no more");
}

#[tokio::test]
async fn nothing_is_at_hand_until_the_recovery_after_a_hold_is_over() {
    let desk = Desk::new();
    let mut hold = Hold::new(Duration::from_micros(300));
    (hold.recovery, hold.memory) = (Duration::from_micros(400), Duration::from_secs(9));
    must(desk.store.hold(&desk.home, MessageId::new(1, 1), &hold).await);
    assert_eq!([desk.has(1, 0), desk.has(1, 699), desk.has(1, 700)], [false, false, true]);
    let desk = Desk::new();
    must(desk.store.hold(&Home::new("up", None), MessageId::new(1, 1), &hold).await);
    must(desk.store.hold(&Home::new("other", None), MessageId::new(1, 2), &Hold::new(Duration::from_secs(9))).await);
    assert_eq!([desk.has(1, 0), desk.has(1, 699), desk.has(1, 700)], [false, false, true], "of the whole upstream");
}

#[tokio::test]
async fn nothing_is_at_hand_while_others_use_the_quota_or_spans_are_wider() {
    let desk = Desk::new();
    let term = desk.logs[0].terms[0];
    let mut lesson = Lesson::default();
    lesson.reports = vec![Report::new(term, Duration::from_millis(100), 1, Duration::from_micros(400))];
    must(desk.store.learn(&desk.home, MessageId::new(1, 1), &desk.logs[0], &lesson).await);
    // It counts for a sixteenth of the span longer.
    assert_eq!([desk.has(1, 0), desk.has(1, 6_649), desk.has(1, 6_650)], [false, false, true], "others use the quota");

    let desk = Desk::new();
    let mut lesson = Lesson::default();
    (lesson.refused, lesson.memory) = (true, Duration::from_micros(500));
    must(desk.store.learn(&Home::new("up", Some("another")), MessageId::new(1, 1), &desk.logs[0], &lesson).await);
    assert_eq!([desk.has(1, 0), desk.has(1, 499), desk.has(1, 500)], [false, false, true], "spans are wider");
}

#[tokio::test]
async fn nothing_is_ever_at_hand_in_redis() {
    let (redis, home) = (Redis::new().await, Home::new("up", None));
    assert_eq!(redis.store.at_hand(&home, &Desk::new().logs, &[1]), None);
}
