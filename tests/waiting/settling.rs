//! What a call used in truth is known when it is over: less makes room, more delays those who come later.

use std::time::Duration;

use outgate::{Limit, Passage, Permit, Throttle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Counting, Way};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// A window of a minute, and its guard.
const MINUTE: Duration = Duration::from_secs(61);
/// Until the store knows of settlements, where nobody waits and all goes well.
const TOLD: Duration = Duration::from_millis(260);

/// Four processes, and what they share.
fn four(limit: &Limit) -> (Counting, [Throttle; 4]) {
    let store = Counting::default();
    let processes = [(); 4].map(|()| store.limited(limit.clone()));
    (store, processes)
}

async fn take(throttle: &Throttle, units: u32) -> Permit {
    throttle.acquire("up").cost(units).await.unwrap()
}

/// How long a call of so many units waits from now on.
async fn wait(throttle: &Throttle, units: u32) -> Duration {
    let begin = Instant::now();
    drop(take(throttle, units).await);
    begin.elapsed()
}

/// Units that count, once the store has been told.
async fn used(throttle: &Throttle) -> u32 {
    sleep(TOLD).await;
    throttle.usage("up").await.unwrap().limits[0].used
}

#[tokio::test(start_paused = true)]
async fn what_a_call_did_not_use_goes_at_once_to_who_waits_here() {
    let (_, processes) = four(&Limit::per_minute(100));
    let permit = take(&processes[0], 60).await;
    drop(take(&processes[1], 40).await);
    let waiting = {
        let throttle = processes[0].clone();
        tokio::spawn(async move { wait(&throttle, 30).await })
    };
    sleep(5 * SECOND).await;
    assert!(!waiting.is_finished());
    permit.settle("calls", 30);
    let waited = waiting.await.unwrap();
    assert!(waited <= 5 * SECOND + 5 * MS, "{waited:?}");
    assert_eq!(used(&processes[2]).await, 100);
}

#[tokio::test(start_paused = true)]
async fn what_a_call_did_not_use_is_there_for_every_process() {
    let (_, processes) = four(&Limit::per_minute(100));
    let permit = take(&processes[0], 100).await;
    permit.settle("calls", 40);
    sleep(TOLD).await;
    for process in &processes[1..] {
        assert!(wait(process, 20).await <= 5 * MS);
    }
    assert!(processes[1].try_acquire("up").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn who_waits_elsewhere_finds_before_long_what_calls_did_not_use() {
    let (store, processes) = four(&Limit::per_minute(100));
    // So both know that units come back.
    take(&processes[1], 10).await.settle("calls", 5);
    sleep(TOLD).await;
    let permit = take(&processes[0], 95).await;
    let waiting = {
        let throttle = processes[1].clone();
        tokio::spawn(async move { wait(&throttle, 50).await })
    };
    sleep(20 * SECOND).await;
    let before = store.calls();
    permit.settle("calls", 45);
    let waited = waiting.await.unwrap();
    assert!(waited >= 20 * SECOND && waited <= 22 * SECOND, "{waited:?}");
    assert!(before <= 30, "{before} messages, one a second");
}

#[tokio::test(start_paused = true)]
async fn what_a_call_used_beyond_its_charge_delays_later_calls() {
    let (_, processes) = four(&Limit::per_minute(100));
    let begin = Instant::now();
    let permit = take(&processes[0], 10).await;
    let before = take(&processes[1], 80).await;
    sleep(10 * SECOND).await;
    permit.settle("calls", 150);
    assert_eq!(used(&processes[3]).await, 190, "beyond the quota, and of the debt no more than that");
    // The first ninety count no more after a minute, the debt only ten seconds later.
    drop(take(&processes[2], 1).await);
    let waited = begin.elapsed();
    assert!(waited >= MINUTE + 10 * SECOND && waited <= MINUTE + 11 * SECOND, "{waited:?}");
    drop(before);
}

#[tokio::test(start_paused = true)]
async fn a_small_debt_leaves_the_rest_of_the_quota() {
    let (_, processes) = four(&Limit::per_minute(100));
    take(&processes[0], 10).await.settle("calls", 25);
    sleep(TOLD).await;
    assert!(wait(&processes[1], 75).await <= 5 * MS);
    assert!(processes[2].try_acquire("up").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_may_be_settled_again_and_again() {
    let (_, processes) = four(&Limit::per_minute(1_000));
    let permit = take(&processes[0], 100).await;
    for (settled, counts) in [(80, 80), (90, 90), (90, 90), (0, 10), (300, 300), (200, 300)] {
        permit.settle("calls", settled);
        assert_eq!(used(&processes[1]).await, counts, "settled at {settled}");
    }
}

#[tokio::test(start_paused = true)]
async fn handed_back_a_settled_call_takes_nothing_of_anybody_else() {
    let (_, processes) = four(&Limit::per_minute(100));
    // All start at the same time, and so look alike to the store.
    let [first, second] = tokio::join!(take(&processes[0], 20), take(&processes[0], 20)).into();
    let others = take(&processes[0], 30).await;
    first.settle("calls", 5);
    assert_eq!(used(&processes[1]).await, 55);
    first.hand_back();
    assert_eq!(used(&processes[1]).await, 50);
    let passage = second.passage();
    second.hand_back();
    assert_eq!(used(&processes[1]).await, 30);
    for settled in [0, 5, 50] {
        passage.settle("calls", settled);
    }
    assert_eq!(used(&processes[1]).await, 30, "of a call that was handed back nothing is left to settle");
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn what_a_settled_call_owes_stays_when_it_is_handed_back() {
    let (_, processes) = four(&Limit::per_minute(100));
    let permit = take(&processes[0], 20).await;
    permit.settle("calls", 50);
    permit.hand_back();
    assert_eq!(used(&processes[1]).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_passage_settles_from_another_task_when_the_permit_is_gone() {
    let (_, processes) = four(&Limit::per_minute(100));
    let permit = take(&processes[0], 50).await;
    let passages: Vec<Passage> = (0..3).map(|_| permit.passage()).collect();
    assert_eq!(passages[0], passages[1]);
    drop(permit);
    assert_eq!(used(&processes[1]).await, 50, "a permit that is dropped keeps its slot");
    sleep(40 * SECOND).await;
    let [first, second, third]: [Passage; 3] = passages.try_into().unwrap();
    tokio::spawn(async move { first.settle("calls", 20) }).await.unwrap();
    assert_eq!(used(&processes[1]).await, 20);
    std::thread::spawn(move || second.settle("calls", 30)).join().unwrap();
    // On a thread without a runtime the next call tells it.
    assert!(wait(&processes[0], 70).await <= 5 * MS);
    assert_eq!(used(&processes[1]).await, 100);
    sleep(30 * SECOND).await;
    third.settle("calls", 0);
    assert_eq!(used(&processes[1]).await, 80, "ten were owed at 40 s, and the rest is long over");
}

#[test]
fn outside_of_a_runtime_nobody_panics() {
    let store = Counting::default();
    let (throttle, runtime) = (store.limited(Limit::per_minute(100)), || {
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
    });
    let permit = runtime().block_on(take(&throttle, 50));
    permit.settle("calls", 10);
    permit.settle("calls", 70);
    permit.settle("tokens", 70);
    runtime().block_on(async {
        assert!(wait(&throttle, 30).await <= 5 * MS);
        assert!(throttle.try_acquire("up").await.is_err());
    });
}

#[tokio::test(start_paused = true)]
async fn many_settlements_cost_one_message() {
    let (store, processes) = four(&Limit::per_minute(1_000));
    let mut permits = Vec::new();
    for _ in 0..32 {
        permits.push(take(&processes[0], 2).await);
        sleep(MS).await;
    }
    sleep(SECOND).await;
    let before = store.calls();
    for (used, permit) in (0_u64..).zip(&permits) {
        permit.settle("calls", used % 4);
    }
    let begin = Instant::now();
    for permit in &permits {
        permit.settle("calls", 1);
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    sleep(TOLD).await;
    assert_eq!(store.calls() - before, 1);
    // Some were settled at nothing or at 3 first: of those one is owed, and nothing is left of the charge.
    assert_eq!(used(&processes[1]).await, 32);
    for permit in &permits {
        permit.settle("calls", 1);
    }
    sleep(TOLD).await;
    assert_eq!(store.calls() - before, 1, "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn a_throttle_that_is_closed_tells_the_store_what_calls_used() {
    let (store, processes) = four(&Limit::per_minute(100));
    let permits = [take(&processes[0], 20).await, take(&processes[0], 20).await, take(&processes[0], 20).await];
    permits[0].settle("calls", 5);
    permits[1].settle("calls", 30);
    let begin = Instant::now();
    processes[0].close().await;
    assert!(begin.elapsed() <= 5 * MS, "{:?}", begin.elapsed());
    let before = store.calls();
    assert_eq!(used(&processes[1]).await, 55);
    permits[2].settle("calls", 0);
    assert_eq!(used(&processes[1]).await, 35, "and what is known only later");
    assert_eq!(store.calls() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn units_that_count_when_a_call_ends_are_entered_anew() {
    let (_, processes) = four(&Limit::per_minute(100).counted_at_end());
    let permit = take(&processes[0], 60).await;
    sleep(20 * SECOND).await;
    assert_eq!(used(&processes[1]).await, 60, "reserved from its start on");
    permit.settle("calls", 60);
    sleep(41 * SECOND).await;
    assert_eq!(used(&processes[1]).await, 60, "it counts from its end on");
    permit.settle("calls", 80);
    permit.settle("calls", 10);
    assert_eq!(used(&processes[1]).await, 80, "more is entered, and nothing goes back");
    sleep(20 * SECOND).await;
    assert_eq!(used(&processes[1]).await, 20);
}

#[tokio::test(start_paused = true)]
async fn what_no_message_told_of_a_silent_store_outlasts_the_one_that_is_given_up() {
    let begin = Instant::now();
    let is_silent = move || (2 * SECOND..45 * SECOND).contains(&begin.elapsed());
    let store = Counting::answering(move |_| Way { lost: is_silent(), ..Way::default() });
    let throttle = store.limited(Limit::per_hour(100).counted_at_end());
    let permits = [take(&throttle, 40).await, take(&throttle, 40).await];
    sleep(3 * SECOND).await;
    permits[0].settle("calls", 40);
    sleep(3 * SECOND).await;
    permits[1].settle("calls", 10);
    sleep(54 * SECOND).await;
    assert_eq!(used(&throttle).await, 50, "each counts once");
}

#[tokio::test(start_paused = true)]
async fn what_a_long_call_used_is_not_taken_for_a_loss_of_data() {
    let throttle = Counting::default().limited(Limit::per_minute(100).counted_at_end());
    let permit = take(&throttle, 60).await;
    // Longer than anything of before it counts.
    sleep(70 * SECOND).await;
    permit.settle("calls", 60);
    sleep(TOLD).await;
    let waited = wait(&throttle, 1).await;
    assert!(waited < SECOND, "{waited:?}");
    assert_eq!(used(&throttle).await, 61, "it counts once");
}

#[tokio::test(start_paused = true)]
async fn what_calls_used_is_said_again_after_a_loss_of_data() {
    for counted_at_end in [true, false] {
        let (store, limit) = (Counting::default(), Limit::per_hour(100));
        let throttle = store.limited(if counted_at_end { limit.counted_at_end() } else { limit });
        let permits = [take(&throttle, 10).await, take(&throttle, 10).await];
        sleep(SECOND).await;
        for permit in &permits {
            permit.settle("calls", 30);
        }
        drop(permits);
        // Nobody calls any more.
        sleep(70 * SECOND).await;
        store.lose_data();
        sleep(SECOND).await;
        let mut went = 0;
        while throttle.acquire("up").cost(10).max_wait(10 * SECOND).await.is_ok() {
            went += 10;
        }
        assert_eq!(went, 40, "counted at end: {counted_at_end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_deadline_is_not_refused_for_what_comes_back() {
    let (_, processes) = four(&Limit::per_minute(100));
    let permit = take(&processes[0], 100).await;
    let begin = Instant::now();
    let full = processes[0].acquire("up").cost(10).max_wait(SECOND).await;
    assert!(full.is_err() && begin.elapsed() <= 5 * MS);
    permit.settle("calls", 90);
    let served = processes[0].acquire("up").cost(10).max_wait(SECOND).await;
    assert!(served.is_ok() && begin.elapsed() <= 10 * MS, "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn what_many_calls_did_not_use_is_told_though_each_answer_takes_long() {
    let store = Counting::answering(|_| Way::slow(50 * MS));
    // Each call has a start of its own.
    let paced = Limit::per_second(1_000).burst(1);
    let throttle = store.process(|up| up.limit(paced).limit(Limit::per_minute(20_000).of("tokens")));
    let mut calls = JoinSet::new();
    for _ in 0..5_000 {
        let throttle = throttle.clone();
        calls.spawn(async move {
            let permit = throttle.acquire("up").cost_of("tokens", 4).await.unwrap();
            permit.settle("tokens", 1);
        });
        sleep(MS).await;
    }
    calls.join_all().await;
    sleep(SECOND).await;
    assert_eq!(throttle.usage("up").await.unwrap().limits[1].used, 5_000);
}
