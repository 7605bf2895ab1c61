//! Calls in flight: never more than the limit in all processes together, all seats in use while callers wait, and each in its turn.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use outgate::testing::oracle::{assert_never_more_than, jain};
use outgate::{Error, Feedback, Limit, MemoryStore, Priority, Throttle, Upstream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::gauge::Gauge;
use crate::support::{Counting, micros_since};

const SECOND: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Callers of one process that call again as soon as they are served, until `end`: how many calls they made, and the longest wait.
fn callers(throttle: &Throttle, gauge: &Gauge, count: usize, length: Duration, end: Instant) -> Calling {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (throttle, gauge) = (throttle.clone(), gauge.clone());
        tasks.spawn(async move {
            let (mut calls, mut longest) = (0, Duration::ZERO);
            while Instant::now() < end {
                let permit = throttle.acquire("up").await.unwrap();
                longest = longest.max(permit.waited());
                gauge.call(length.mul_f64(0.5 + fastrand::f64())).await;
                drop(permit);
                calls += 1;
            }
            (calls, longest)
        });
    }
    Calling(tasks)
}

struct Calling(tokio::task::JoinSet<(u32, Duration)>);

impl Calling {
    async fn end(self) -> (u32, Duration) {
        let all = self.0.join_all().await;
        (all.iter().map(|(calls, _)| calls).sum(), all.iter().map(|(_, longest)| *longest).max().unwrap())
    }
}

/// Processes with endless demand, for so long: the part of the seats that was used, the calls of each, and the longest wait.
async fn demand(
    store: &Counting,
    (seats, processes, each): (u32, usize, usize),
    length: Duration,
    secs: u32,
) -> (f64, Vec<f64>, Duration) {
    let (gauge, end) = (Gauge::new(), Instant::now() + SECOND * secs);
    let throttles: Vec<_> = (0..processes).map(|_| store.limited(Limit::in_flight(seats))).collect();
    let calling: Vec<_> = throttles.iter().map(|throttle| callers(throttle, &gauge, each, length, end)).collect();
    sleep_until(end).await;
    let share = gauge.share(seats, SECOND * secs);
    let (mut calls, mut longest) = (Vec::new(), Duration::ZERO);
    for calling in calling {
        let (count, wait) = calling.end().await;
        calls.push(f64::from(count));
        longest = longest.max(wait);
    }
    assert!(gauge.most() <= seats, "{} of {seats} in flight", gauge.most());
    (share, calls, longest)
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_than_seats_are_in_flight_and_all_seats_are_used() {
    fastrand::seed(1);
    let store = Counting::default();
    let (share, calls, _) = demand(&store, (25, 4, 50), ms(100), 20).await;
    let all: f64 = calls.iter().sum();
    println!("{share:.4} of the seats used, {calls:?} calls, {} store calls", store.calls());
    assert!(share >= 0.99, "{share}");
    assert!(jain(&calls) >= 0.99, "{calls:?}");
    assert!(store.calls() <= 4 * 20 * 5, "{} store calls of 4 processes in 20 s", store.calls());
    assert!(all >= 4_900.0, "{all}");
}

#[tokio::test(start_paused = true)]
async fn where_more_processes_wait_than_there_are_seats_all_have_their_turns() {
    fastrand::seed(2);
    let store = Counting::default();
    let (share, calls, longest) = demand(&store, (5, 20, 3), ms(50), 60).await;
    println!("{share:.4} of the seats used, {calls:?} calls, longest wait {longest:?}, {} store calls", store.calls());
    assert!(share >= 0.95, "{share}");
    assert!(jain(&calls) >= 0.95, "{calls:?}");
    assert!(longest < ms(10_000), "{longest:?}");
    assert!(store.calls() <= 20 * 60 * 20, "{} store calls", store.calls());
}

#[tokio::test(start_paused = true)]
async fn who_comes_later_gets_its_part() {
    fastrand::seed(3);
    let (store, gauge, end) = (Counting::default(), Gauge::new(), Instant::now() + 30 * SECOND);
    let limit = Limit::in_flight(24);
    let [first, second, third] = [(); 3].map(|()| store.limited(limit.clone()));
    let first = callers(&first, &gauge, 50, ms(200), end);
    sleep(3 * SECOND).await;
    gauge.share(24, SECOND);
    let second = callers(&second, &gauge, 50, ms(200), end);
    sleep(3 * SECOND).await;
    let third = callers(&third, &gauge, 50, ms(200), end);
    sleep_until(end).await;
    let share = gauge.share(24, 27 * SECOND);
    let calls = [first.end().await.0, second.end().await.0, third.end().await.0];
    println!("{share:.4} of the seats used, {calls:?} calls, {} store calls", store.calls());
    assert!(gauge.most() <= 24 && share >= 0.98, "{} {share}", gauge.most());
    // A third of 24 seats for 24 s, five calls a second: 960.
    assert!((900..1_050).contains(&calls[2]), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_process_are_served_in_their_order() {
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(2));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..40 {
        let (throttle, order) = (throttle.clone(), Arc::clone(&order));
        tasks.spawn(async move {
            let permit = throttle.acquire("up").await.unwrap();
            order.lock().unwrap().push(caller);
            sleep(ms(30 + caller % 7)).await;
            drop(permit);
        });
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
    assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_is_left_goes_to_the_next_caller_without_a_message() {
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(1));
    let permit = throttle.acquire("up").await.unwrap();
    let next = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.acquire("up").await.map(|permit| (permit, Instant::now())) }
    });
    sleep(ms(20)).await;
    let before = store.calls();
    drop(permit);
    let left = Instant::now();
    let (permit, served) = next.await.unwrap().unwrap();
    assert_eq!((served, store.calls()), (left, before));
    // Nobody waits any more: it goes back before long, and the lease of none is renewed.
    drop(permit);
    sleep(SECOND).await;
    let told = store.calls();
    sleep(120 * SECOND).await;
    assert_eq!(store.calls(), told);
    let other = store.limited(Limit::in_flight(1));
    assert!(other.try_acquire("up").await.is_ok());
    let usage = async || {
        let limit = other.usage("up").await.unwrap().limits.remove(0);
        (limit.limit, limit.used, limit.free, limit.next)
    };
    assert_eq!(usage().await, (Limit::in_flight(1), 1, 0, Duration::ZERO), "it keeps the seat for its next call");
    sleep(SECOND).await;
    assert_eq!(usage().await, (Limit::in_flight(1), 0, 1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_handed_back_frees_its_seat_and_its_slot() {
    let store = Counting::default();
    let throttle = store.process(|up| up.limit(Limit::in_flight(1)).limit(Limit::per_hour(2)));
    throttle.acquire("up").await.unwrap().hand_back();
    drop(throttle.acquire("up").await.unwrap());
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 1, "dropped, it keeps its slot and frees its seat");
    let permit = throttle.acquire("up").await.unwrap();
    let error = throttle.acquire("up").max_wait(ms(100)).await.unwrap_err();
    assert!(matches!(error, Error::Throttled { .. }), "{error}");
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn who_wants_a_seat_now_or_never_is_refused_without_a_wait() {
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(1));
    let permit = throttle.try_acquire("up").await.unwrap();
    for _ in 0..3 {
        let begin = Instant::now();
        let error = throttle.try_acquire("up").await.unwrap_err();
        assert!(matches!(error, Error::Throttled { retry_after, .. } if retry_after <= ms(300)), "{error}");
        assert!(begin.elapsed() <= ms(5), "{:?}", begin.elapsed());
    }
    drop(permit);
    assert!(throttle.try_acquire("up").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_has_a_longest_wait_is_told_when_it_is_over_and_served_before() {
    let store = Counting::default();
    let [throttle, other] = [(); 2].map(|()| store.limited(Limit::in_flight(1)));
    let permit = throttle.acquire("up").await.unwrap();
    for throttle in [&throttle, &other] {
        let begin = Instant::now();
        let error = throttle.acquire("up").max_wait(ms(700)).await.unwrap_err();
        assert!(matches!(error, Error::Throttled { .. }), "{error}");
        assert_eq!(begin.elapsed(), ms(700));
    }
    let waiting = tokio::spawn(async move { other.acquire("up").max_wait(SECOND).await.map(drop) });
    sleep(ms(500)).await;
    drop(permit);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn seats_and_quotas_hold_together() {
    fastrand::seed(4);
    let store = Counting::default();
    let (gauge, begin) = (Gauge::new(), Instant::now());
    let end = begin + 20 * SECOND;
    let starts = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let throttle = store.process(|up| up.limit(Limit::in_flight(4)).limit(Limit::per_second(40)));
        for _ in 0..10 {
            let (throttle, gauge, starts) = (throttle.clone(), gauge.clone(), Arc::clone(&starts));
            tasks.spawn(async move {
                while Instant::now() < end {
                    let permit = throttle.acquire("up").await.unwrap();
                    starts.lock().unwrap().push(micros_since(begin));
                    gauge.call(ms(100)).await;
                    drop(permit);
                }
            });
        }
    }
    sleep_until(end).await;
    let share = gauge.share(4, 20 * SECOND);
    tasks.join_all().await;
    let starts = starts.lock().unwrap();
    println!("{share:.4} of the seats used, {} calls, {} store calls", starts.len(), store.calls());
    assert!(gauge.most() <= 4, "{}", gauge.most());
    assert_never_more_than(40, 1_050_000, &starts);
    // Four seats for calls of 100 ms are used as far as the quota allows: 38 of 40 a second.
    assert!(starts.len() >= 690, "{}", starts.len());
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_seat_while_the_upstream_is_paused() {
    let store = Counting::default();
    let [throttle, other] = [(); 2].map(|()| store.limited(Limit::in_flight(1)));
    let permit = throttle.acquire("up").await.unwrap();
    let begin = Instant::now();
    let wait = |throttle: Throttle| async move { throttle.acquire("up").await.map(|_| begin.elapsed()) };
    let waiting = [tokio::spawn(wait(throttle.clone())), tokio::spawn(wait(other))];
    sleep(ms(10)).await;
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("2"))]);
    let refused = Feedback::read(StatusCode::TOO_MANY_REQUESTS, &headers, std::time::SystemTime::now());
    throttle.report("up", &refused).await.unwrap();
    drop(permit);
    for waiting in waiting {
        let waited = waiting.await.unwrap().unwrap();
        assert!(waited >= 2 * SECOND && waited < 3 * SECOND, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_no_seat_taken() {
    fastrand::seed(5);
    let store = Counting::default();
    let throttle = store.limited(Limit::in_flight(3));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            sleep(ms(fastrand::u64(0..2_000))).await;
            let call = async {
                let permit = throttle.acquire("up").await.unwrap();
                sleep(ms(fastrand::u64(0..40))).await;
                drop(permit);
            };
            let _ = timeout(ms(fastrand::u64(0..100)), call).await;
        });
    }
    tasks.join_all().await;
    sleep(SECOND).await;
    let other =
        Throttle::builder().store(store).upstream(Upstream::new("up").limit(Limit::in_flight(3))).build().unwrap();
    let all = [other.try_acquire("up").await, other.try_acquire("up").await, other.try_acquire("up").await];
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_in_memory_needs_no_round_trip() {
    fastrand::seed(1);
    let upstream = Upstream::new("up").limit(Limit::in_flight(2));
    let throttle = Throttle::builder().store(MemoryStore::new()).upstream(upstream).build().unwrap();
    let gauge = Gauge::new();
    let end = Instant::now() + 5 * SECOND;
    let calls = callers(&throttle, &gauge, 10, ms(10), end).end().await.0;
    assert!(gauge.most() == 2 && calls >= 940, "{} {calls}", gauge.most());
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_nobody_here_wants_goes_to_others_within_one_poll_of_theirs() {
    let store = Counting::default();
    let [throttle, other] = [(); 2].map(|()| store.limited(Limit::in_flight(1)));
    let permit = throttle.acquire("up").await.unwrap();
    let waiting = tokio::spawn(async move { other.acquire("up").await.map(|permit| (permit, Instant::now())) });
    // The first learns with its next message that somebody waits: at the latest when it asks for another of its callers.
    sleep(ms(100)).await;
    assert!(throttle.acquire("up").max_wait(ms(10)).await.is_err());
    let left = Instant::now();
    drop(permit);
    let (_permit, served) = waiting.await.unwrap().unwrap();
    assert!(served - left <= ms(70), "{:?}", served - left);
}

#[tokio::test(start_paused = true)]
async fn who_has_as_many_callers_as_seats_and_asks_for_no_more_hears_that_others_wait() {
    fastrand::seed(6);
    let (store, gauge, end) = (Counting::default(), Gauge::new(), Instant::now() + 20 * SECOND);
    let [first, second] = [(); 2].map(|()| store.limited(Limit::in_flight(10)));
    let first = callers(&first, &gauge, 10, ms(50), end);
    sleep(5 * SECOND).await;
    let before = store.calls();
    assert!(before <= 2 * 5 + 5, "{before} store calls of one process that has all seats");
    let begin = Instant::now();
    let permit = second.acquire("up").await.unwrap();
    assert!(begin.elapsed() < ms(700), "{:?}", begin.elapsed());
    drop(permit);
    let second = callers(&second, &gauge, 10, ms(50), end);
    sleep(2 * SECOND).await;
    gauge.share(10, SECOND);
    sleep_until(end).await;
    let share = gauge.share(10, 13 * SECOND);
    let calls = [first.end().await.0, second.end().await.0];
    println!("{share:.4} of the seats used, {calls:?} calls, {} store calls", store.calls());
    assert!(share >= 0.98 && gauge.most() <= 10 && calls[1] > 1_100, "{share} {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_log_keeps_no_seat_that_its_calls_leave_meanwhile() {
    let store = Counting::default();
    let limits =
        |up: Upstream| up.limit(Limit::new(10, 9 * SECOND)).reserve(Priority::High, 50).limit(Limit::in_flight(6));
    let [throttle, other] = [(); 2].map(|()| store.process(limits));
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(throttle.acquire("up").await.unwrap());
    }
    sleep(ms(500)).await;
    let waiting = tokio::spawn(async move { throttle.acquire("up").await.map(drop) });
    sleep(ms(500)).await;
    drop(permits);
    sleep(SECOND).await;
    let begin = Instant::now();
    let mut high = Vec::new();
    for _ in 0..5 {
        high.push(other.acquire("up").priority(Priority::High).await.unwrap());
    }
    assert!(begin.elapsed() < ms(20), "{:?}: no call is in flight", begin.elapsed());
    drop(high);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn seats_that_go_back_while_callers_wait_for_a_slot_take_nobodys_turn() {
    // Where every call takes as long its seats go back at one time of each turn.
    for length in (240..300).step_by(5) {
        fastrand::seed(length);
        let (store, end) = (Counting::default(), Instant::now() + 60 * SECOND);
        let limits = |up: Upstream| up.limit(Limit::new(1, ms(500))).limit(Limit::in_flight(8));
        let mut tasks = Vec::new();
        for process in 0..4 {
            let throttle = store.process(limits);
            for _ in 0..2 {
                let throttle = throttle.clone();
                tasks.push(tokio::spawn(async move {
                    let mut calls = 0;
                    while Instant::now() < end {
                        let permit = throttle.acquire("up").await.unwrap();
                        sleep(ms(length)).await;
                        drop(permit);
                        calls += 1;
                    }
                    (process, calls)
                }));
            }
        }
        let mut calls = [0_u32; 4];
        for task in tasks {
            let (process, made): (usize, u32) = task.await.unwrap();
            calls[process] += made;
        }
        let fairness = jain(&calls.map(f64::from));
        println!("{length} ms: {calls:?}, {fairness:.3}, {} store calls", store.calls());
        assert!(fairness >= 0.97 && calls.iter().sum::<u32>() >= 112, "{length} ms: {calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_limits_the_lower_holds_for_all_and_both_processes_go_on() {
    fastrand::seed(8);
    let (store, gauge, end) = (Counting::default(), Gauge::new(), Instant::now() + 20 * SECOND);
    let [old, new] = [25, 10].map(|seats| store.limited(Limit::in_flight(seats)));
    let old = callers(&old, &gauge, 50, ms(100), end);
    sleep(2 * SECOND).await;
    let calling = callers(&new, &gauge, 50, ms(100), end);
    sleep(SECOND).await;
    gauge.share(10, SECOND);
    sleep(5 * SECOND).await;
    let share = gauge.share(10, 5 * SECOND);
    sleep_until(end).await;
    let calls = [old.end().await.0, calling.end().await.0];
    println!("{share:.4} of the seats used, {calls:?} calls, {} store calls", store.calls());
    assert!(gauge.most() <= 25 && (0.98..=1.0).contains(&share), "{} {share}", gauge.most());
    // Half of ten seats for 17 s, ten calls a second.
    assert!(calls[1] >= 800, "{calls:?}");
    let end = Instant::now() + 2 * SECOND;
    sleep(SECOND).await;
    let old = callers(&store.limited(Limit::in_flight(25)), &gauge, 50, ms(100), end);
    gauge.share(25, SECOND);
    sleep_until(end).await;
    assert!(gauge.share(25, SECOND) >= 0.95, "a limit that nobody calls by any more is none");
    old.end().await;
}

#[tokio::test(start_paused = true)]
async fn where_seats_are_shared_a_slot_that_comes_back_is_found_within_half_a_minute() {
    let merchants = |up: Upstream| {
        up.limit(Limit::in_flight(5)).limit(Limit::per_hour(1).each(outgate::Scope::header("x-merchant")))
    };
    for resets in [false, true] {
        let store = Counting::default();
        let [one, other] = [(); 2].map(|()| store.process(merchants));
        let permit = one.acquire("up").scope_of("x-merchant", "m").await.unwrap();
        let waits = other.acquire("up").scope_of("x-merchant", "m");
        let waits = tokio::spawn(async move { waits.await.map(drop) });
        sleep(SECOND).await;
        if resets {
            one.reset_in("up", "m").await.unwrap();
            drop(permit);
        } else {
            permit.hand_back();
        }
        timeout(40 * SECOND, waits).await.expect("the slot is free").unwrap().unwrap();
    }
}
