//! A store whose answers come late, or never: it is believed no further than that.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::testing::oracle::assert_never_more_than;
use outgate::{Error, Limit, Throttle};
use tokio::time::{Instant, sleep};

use crate::support::{Counting, Way, endless, micros_since};

const MS: Duration = Duration::from_millis(1);

/// Callers that come together, each for one call: when each call went.
async fn crowd(throttle: &Throttle, callers: usize, begin: Instant) -> Vec<i64> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            drop(throttle.acquire("up").await.unwrap());
            micros_since(begin)
        });
    }
    tasks.join_all().await
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_of_a_process_may_be_slow_too() {
    let store = Counting::answering(|before| Way::slow(if before == 0 { 400 * MS } else { Duration::ZERO }));
    let starts = crowd(&store.limited(Limit::per_second(10)), 20, Instant::now()).await;
    // Slots that are 400 ms old by then would bring the next ten too close.
    assert_never_more_than(10, 1_000_000, &starts);
}

#[tokio::test(start_paused = true)]
async fn a_stall_that_hits_many_homes_is_noticed_by_each() {
    let stall = 40..140;
    let store =
        Counting::answering(move |before| Way::slow(if stall.contains(&before) { 400 * MS } else { Duration::ZERO }));
    let throttle = store.limited(Limit::per_second(10));
    for scope in 0..40_u32 {
        drop(throttle.acquire("up").scope(scope.to_le_bytes()).await.unwrap());
    }
    let mut tasks = tokio::task::JoinSet::new();
    for scope in 100..200_u32 {
        let throttle = throttle.clone();
        tasks.spawn(async move { throttle.acquire("up").scope(scope.to_le_bytes()).await.unwrap().waited() });
    }
    let waited = tasks.join_all().await;
    assert!(waited.iter().all(|&waited| waited > 401 * MS), "none went with a slot that was 400 ms old: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_never_used_later_than_half_the_guard_after_its_start() {
    let acted = Arc::new(Mutex::new(Instant::now()));
    let store = Counting::answering({
        let acted = Arc::clone(&acted);
        move |before| {
            *acted.lock().unwrap() = Instant::now();
            Way::slow(if before < 2 { Duration::ZERO } else { 49 * MS })
        }
    });
    let throttle = store.limited(Limit::per_second(10).guard(100 * MS));
    drop(throttle.acquire("up").await.unwrap());
    drop(throttle.acquire("up").await.unwrap());
    let caller = tokio::spawn(async move {
        let mut caller = Box::pin(async { throttle.acquire("up").await.unwrap() });
        tokio::select! {
            biased;
            _ = &mut caller => panic!("no answer yet"),
            () = sleep(10 * MS) => {}
        }
        // The answer comes 49 ms after its slot has started, and its caller is busy for another 48 ms.
        sleep(88 * MS).await;
        let permit = caller.await;
        (permit.late(), Instant::now())
    });
    let (late, used_at) = caller.await.unwrap();
    let late_in_truth = used_at - *acted.lock().unwrap();
    assert_eq!(store.asks(), 4, "of another slot, at once");
    assert!(late <= 50 * MS, "{late:?}");
    // The way there takes a millisecond, the way back none: half of that is what the process does not know.
    let start = late_in_truth.saturating_sub(store.ahead());
    assert!(start <= late + MS && late <= start + MS, "{late:?} late, and {start:?} in truth");
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_never_booked() {
    let begin = Instant::now();
    let store = Counting::answering(move |_| Way { delay: 100 * MS, lost: begin.elapsed() < Duration::from_secs(6) });
    let throttle = store.limited(Limit::per_hour(10));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let throttle = throttle.clone();
        tasks.spawn(async move { throttle.acquire("up").await });
    }
    for outcome in tasks.join_all().await {
        assert!(matches!(outcome, Err(Error::StoreUnavailable { .. })), "{outcome:?}");
    }
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    assert!(throttle.usage("up").await.unwrap().limits[0].used > 0, "the store has acted for callers that left");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 0);
}

/// The calls of four processes in 6 s, where each answer is held up for up to 200 ms: none of them knows from the start whether
/// its first answers were quick.
async fn starts_where_answers_jitter() -> Vec<i64> {
    let store = Counting::answering(|_| Way::slow(MS * fastrand::u32(1..200)));
    let (begin, mut tasks) = (Instant::now(), tokio::task::JoinSet::new());
    for _ in 0..4 {
        let throttle = store.process(|up| up.limit(Limit::per_second(100).burst(10)));
        for _ in 0..8 {
            let throttle = throttle.clone();
            tasks.spawn(async move {
                let mut starts = Vec::new();
                while begin.elapsed() < 6_000 * MS {
                    drop(throttle.acquire("up").await.unwrap());
                    starts.push(micros_since(begin));
                }
                starts
            });
        }
    }
    tasks.join_all().await.concat()
}

#[tokio::test(start_paused = true)]
async fn answers_that_jitter_from_the_start_bring_no_calls_too_close() {
    // Of some a process has four answers one after another that are held up as long, or twelve of which none is quick.
    for seed in (0..40).chain([71, 367, 442, 1_342, 11_402]) {
        fastrand::seed(seed);
        let starts = starts_where_answers_jitter().await;
        assert_never_more_than(100, 1_000_000, &starts);
        assert!(starts.len() >= 480, "seed {seed}: {} calls", starts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_jittery_store_is_not_hammered() {
    let cases =
        [(Limit::new(10, 100 * MS), 200, 1..30, 19 * 110 * MS), (Limit::per_second(10), 100, 1..100, 9 * 1_050 * MS)];
    for (limit, callers, jitter, best) in cases {
        for seed in 0..10 {
            fastrand::seed(seed);
            let jitter = jitter.clone();
            let store = Counting::answering(move |_| Way::slow(MS * fastrand::u32(jitter.clone())));
            let starts = crowd(&store.limited(limit.clone()), callers, Instant::now()).await;
            let last = Duration::from_micros(starts.into_iter().max().unwrap().unsigned_abs());
            let told = format!("{limit:?}, seed {seed}: {} messages, the last call after {last:?}", store.calls());
            // Many an answer comes too late to be of use, and yet that costs no more than a message for each call.
            assert!(store.calls() <= callers as u64 && last <= 2 * best, "{told}");
        }
    }
}

/// When 64 callers of four processes start within 10 s, where each answer takes 300 ms longer from 6 s on.
async fn starts_where_answers_take_longer(limit: Limit) -> Vec<i64> {
    let begin = Instant::now();
    let store = Counting::answering(move |_| Way::slow(if begin.elapsed() < 6_000 * MS { MS } else { 301 * MS }));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let throttle = store.limited(limit.clone());
        tasks.spawn(async move { endless(&throttle, 16, begin, begin + 10_000 * MS).await });
    }
    tasks.join_all().await.concat()
}

#[tokio::test(start_paused = true)]
async fn where_answers_take_longer_for_good_calls_go_on_within_a_second() {
    let limit = Limit::per_second(100);
    for limit in [limit.clone(), limit.clone().burst(10), limit.clone().burst(1), limit.spread()] {
        fastrand::seed(3);
        let starts = starts_where_answers_take_longer(limit.clone()).await;
        assert_never_more_than(100, 1_000_000, &starts);
        let later = starts.iter().filter(|&&start| start >= 7_000_000).count();
        assert!(later >= 270, "{limit:?}: {later} calls in 3 s");
    }
}
