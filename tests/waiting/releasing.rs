//! Pauses that end before their time: by hand, or since a call that looked was served.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use outgate::feedback::{Feedback, Refusal};
use outgate::{Error, Limit, Permit, Throttle, Upstream};
use tokio::time::{Instant, sleep, timeout};

use crate::support::Counting;

const SECOND: Duration = Duration::from_secs(1);

fn upstream(up: Upstream) -> Upstream {
    up.limit(Limit::per_second(10))
}

async fn refuse(throttle: &Throttle, wait: Duration) {
    throttle.report("up", &Feedback::refused(wait)).await.unwrap();
}

/// How long a call waits from now on, of the whole upstream or of a scope.
async fn wait(throttle: &Throttle, scope: Option<&str>) -> Duration {
    let begin = Instant::now();
    let acquire = throttle.acquire("up");
    let acquire = if let Some(scope) = scope { acquire.scope(scope) } else { acquire };
    drop(acquire.await.unwrap());
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_release_lets_callers_of_every_process_go_within_two_seconds() {
    let store = Counting::default();
    let processes: Vec<Throttle> = (0..4).map(|_| store.process(upstream)).collect();
    refuse(&processes[0], 600 * SECOND).await;
    let waiting: Vec<_> = processes
        .iter()
        .map(|process| {
            let process = process.clone();
            tokio::spawn(async move { wait(&process, None).await })
        })
        .collect();
    sleep(10 * SECOND).await;
    let usage = processes[1].usage("up").await.unwrap();
    assert!(usage.limits[0].next > 580 * SECOND, "it lasts");
    processes[3].release("up").await.unwrap();
    for waited in waiting {
        let waited = waited.await.unwrap();
        assert!(waited >= 10 * SECOND && waited <= 12 * SECOND, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_of_one_scope_is_of_no_other_and_one_of_the_upstream_is_of_all() {
    let store = Counting::default();
    let (one, other) = (store.process(upstream), store.process(upstream));
    for scope in ["a", "b", "c"] {
        one.report_in("up", scope, &Feedback::refused(600 * SECOND)).await.unwrap();
    }
    one.release_in("up", "a").await.unwrap();
    assert!(wait(&other, Some("a")).await < SECOND);
    assert!(wait(&one, Some("a")).await < SECOND);
    let calls = ["b", "c"].map(|scope| {
        let other = other.clone();
        tokio::spawn(async move { wait(&other, Some(scope)).await })
    });
    sleep(5 * SECOND).await;
    assert!(calls.iter().all(|call| !call.is_finished()));
    one.release("up").await.unwrap();
    for call in calls {
        let waited = call.await.unwrap();
        assert!(waited <= 7 * SECOND, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_refused_a_call_from_before_a_release_says_nothing_any_more() {
    use outgate::ledger::{Body, Message, MessageId, Pause};
    use outgate::{MemoryStore, Store};
    let store = MemoryStore::new();
    let throttle = Throttle::builder().store(store.clone()).upstream(upstream(Upstream::new("up"))).build().unwrap();
    refuse(&throttle, SECOND).await;
    let message = |number, body| Message::new("up", MessageId::new(7, "late", number), body);
    let pause = |started| Body::Pause {
        scope: None,
        pause: {
            let mut pause = Pause::new(60 * SECOND);
            pause.started = Some(started);
            pause
        },
    };
    let paused = store
        .apply(&message(1, Body::Pause { scope: None, pause: Pause::new(SECOND) }))
        .await
        .unwrap()
        .paused()
        .unwrap();
    sleep(SECOND / 1_000).await;
    throttle.release("up").await.unwrap();
    let late = store.apply(&message(2, pause(paused.now))).await.unwrap().paused().unwrap();
    assert_eq!((late.wait(), late.first), (Duration::ZERO, false), "it started before");
    assert!(wait(&throttle, None).await < SECOND);
}

#[tokio::test(start_paused = true)]
async fn processes_look_once_a_second_for_all_their_scopes() {
    let store = Counting::default();
    let throttle = store.process(upstream);
    let mut calls = Vec::new();
    for scope in 0..1_000 {
        throttle.report_in("up", scope.to_string(), &Feedback::refused(600 * SECOND)).await.unwrap();
        let throttle = throttle.clone();
        calls.push(tokio::spawn(async move { wait(&throttle, Some(&scope.to_string())).await }));
    }
    sleep(SECOND).await;
    let (looks, asks) = (store.looks(), store.asks());
    sleep(20 * SECOND).await;
    println!("1,000 paused scopes with callers, 20 s: {} looks, {} asks", store.looks() - looks, store.asks() - asks);
    assert!((18..=21).contains(&(store.looks() - looks)), "{}", store.looks() - looks);
    throttle.release("up").await.unwrap();
    for call in calls {
        call.await.unwrap();
    }
    let looks = store.looks();
    sleep(10 * SECOND).await;
    assert_eq!(store.looks(), looks, "nothing is paused any more");
}

#[tokio::test(start_paused = true)]
async fn after_the_longest_pause_one_call_looks_and_all_others_wait_for_it() {
    let store = Counting::default();
    let up = |up: Upstream| upstream(up).max_pause(60 * SECOND);
    let processes: Vec<Throttle> = (0..3).map(|_| store.process(up)).collect();
    refuse(&processes[0], 3_600 * SECOND).await;
    let begin = Instant::now();
    let calls: Vec<_> = (0..30)
        .map(|call| {
            let process = processes[call % 3].clone();
            tokio::spawn(async move {
                drop(process.acquire("up").await.unwrap());
                begin.elapsed().as_secs()
            })
        })
        .collect();
    sleep(290 * SECOND).await;
    // Nobody says what became of the calls that looked, so that another does each minute.
    assert_eq!(calls.iter().filter(|call| call.is_finished()).count(), 4);
    processes[1].release("up").await.unwrap();
    sleep(10 * SECOND).await;
    let mut times = Vec::new();
    for call in calls {
        times.push(call.await.unwrap());
    }
    times.sort_unstable();
    assert_eq!(times[..4], [60, 120, 180, 240]);
    assert!(times[4..].iter().all(|at| (290..=296).contains(at)), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_looked_says_that_its_call_was_served_and_the_pause_is_over_for_all() {
    for scope in [None, Some("a")] {
        let store = Counting::default();
        let up = |up: Upstream| upstream(up).max_pause(60 * SECOND);
        let (one, other) = (store.process(up), store.process(up));
        let hour = Feedback::refused(3_600 * SECOND);
        match scope {
            None => one.report("up", &hour).await.unwrap(),
            Some(scope) => one.report_in("up", scope, &hour).await.unwrap(),
        }
        let calls = [&one, &other].map(|throttle| {
            let throttle = throttle.clone();
            tokio::spawn(async move {
                let begin = Instant::now();
                let acquire = throttle.acquire("up");
                let acquire = if let Some(scope) = scope { acquire.scope(scope) } else { acquire };
                let permit = acquire.await.unwrap();
                let waited = begin.elapsed();
                // The call takes a second.
                sleep(SECOND).await;
                permit.served();
                waited.as_secs()
            })
        });
        let mut waited = [0; 2];
        for (waited, call) in waited.iter_mut().zip(calls) {
            *waited = call.await.unwrap();
        }
        waited.sort_unstable();
        assert_eq!(waited[0], 60);
        assert!((61..=62).contains(&waited[1]), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_longest_ban_one_call_looks_too() {
    let store = Counting::default();
    let throttle = store.process(|up| upstream(up).max_pause(60 * SECOND));
    let ban = Feedback::default().with_refusal(Refusal::Ban).with_wait(3_600 * SECOND);
    throttle.report("up", &ban).await.unwrap();
    assert!(matches!(throttle.acquire("up").await, Err(Error::Barred { .. })));
    sleep(61 * SECOND).await;
    let looks = throttle.acquire("up").await.unwrap();
    assert!(matches!(throttle.acquire("up").await, Err(Error::Barred { .. })), "one looks, and nobody else");
    // It was never sent: another call looks at once.
    looks.hand_back();
    sleep(SECOND).await;
    drop(throttle.acquire("up").await.unwrap());
}

/// Binance bans by a 418 and shuts out by a 403; AWS throttles by a 400 at times.
#[tokio::test(start_paused = true)]
async fn an_answer_that_may_shut_out_does_not_end_the_pause_that_its_call_looked_at() {
    for (status, ends) in
        [(400, false), (401, false), (403, false), (408, false), (500, false), (200, true), (404, true), (409, true)]
    {
        let throttle = Counting::default().process(|up| upstream(up).max_pause(60 * SECOND));
        refuse(&throttle, 3_600 * SECOND).await;
        let looks = throttle.acquire("up").await.unwrap();
        throttle.answered(&looks, StatusCode::from_u16(status).unwrap(), &HeaderMap::new());
        drop(looks);
        let left = wait(&throttle, None).await;
        assert_eq!(left < 5 * SECOND, ends, "{status}: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slowed_down_by_hand_every_process_sends_less_until_it_ends_or_is_released() {
    let store = Counting::default();
    let up = |up: Upstream| up.limit(Limit::per_second(20).guard(Duration::ZERO));
    let (one, other) = (store.process(up), store.process(up));
    let sent = async |throttle: &Throttle, time: Duration| {
        let (end, mut sent) = (Instant::now() + time, 0);
        while timeout(end - Instant::now(), async { throttle.acquire("up").await })
            .await
            .is_ok_and(|permit| permit.is_ok())
        {
            sent += 1;
        }
        sent
    };
    one.slow_down("up", 0.5, 10 * SECOND).await.unwrap();
    let slowed = sent(&other, 8 * SECOND).await;
    assert!((80..=90).contains(&slowed), "{slowed}");
    sleep(3 * SECOND).await;
    let full = sent(&other, 5 * SECOND).await;
    assert!((100..=120).contains(&full), "{full}");
    sleep(SECOND).await;
    one.slow_down("up", 0.25, 3_600 * SECOND).await.unwrap();
    one.release("up").await.unwrap();
    let full = sent(&other, 5 * SECOND).await;
    assert!((100..=120).contains(&full), "{full}");
    for factor in [0.0, -1.0, 1.1, f64::NAN] {
        assert!(matches!(one.slow_down("up", factor, SECOND).await, Err(Error::Factor { .. })), "{factor}");
    }
    assert!(matches!(one.release("no").await, Err(Error::UnknownUpstream { .. })));
}

/// A response that says to wait for so many seconds.
fn refusing(throttle: &Throttle, permit: &Permit, status: StatusCode, secs: u32) {
    throttle.answered(permit, status, &HeaderMap::from_iter([(header::RETRY_AFTER, secs.into())]));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_from_before_a_release_silences_nobody_in_the_process_that_got_it_either() {
    for of_scope in [false, true] {
        let store = Counting::default();
        let throttle = store.process(upstream);
        let acquire = async || {
            let acquire = throttle.acquire("up").max_wait(SECOND);
            if of_scope { acquire.scope("a").await } else { acquire.await }
        };
        let slow = [acquire().await.unwrap(), acquire().await.unwrap()];
        refuse(&throttle, 600 * SECOND).await;
        sleep(10 * SECOND).await;
        throttle.release("up").await.unwrap();
        drop(acquire().await.unwrap());
        sleep(3 * SECOND).await;
        for permit in &slow {
            refusing(&throttle, permit, StatusCode::TOO_MANY_REQUESTS, 3_600);
        }
        let begin = Instant::now();
        let waited = acquire().await.map(|_| begin.elapsed());
        assert!(waited.as_ref().is_ok_and(|waited| *waited < SECOND / 10), "{waited:?}");
    }
}

/// The store may not have heard of it yet.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_whole_upstream_from_before_a_release_ends_no_pause_of_a_scope() {
    let store = Counting::default();
    let throttle = store.process(upstream);
    let slow = throttle.acquire("up").await.unwrap();
    refuse(&throttle, 600 * SECOND).await;
    sleep(10 * SECOND).await;
    throttle.release("up").await.unwrap();
    let fresh = throttle.acquire("up").scope("a").await.unwrap();
    refusing(&throttle, &slow, StatusCode::SERVICE_UNAVAILABLE, 50);
    refusing(&throttle, &fresh, StatusCode::TOO_MANY_REQUESTS, 30);
    let begin = Instant::now();
    drop(throttle.acquire("up").scope("a").await.unwrap());
    assert!(begin.elapsed() >= 30 * SECOND, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_from_before_a_release_ends_no_pause_that_came_after_it() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(10));
    let slow = throttle.acquire("up").await.unwrap();
    sleep(SECOND).await;
    throttle.release("up").await.unwrap();
    refuse(&throttle, 20 * SECOND).await;
    refusing(&throttle, &slow, StatusCode::TOO_MANY_REQUESTS, 3_600);
    let waited = wait(&throttle, None).await;
    assert!(waited >= 20 * SECOND && waited <= 21 * SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_soon_after_a_release_is_told_to_all_whoever_released() {
    for by_itself in [true, false] {
        let store = Counting::default();
        let (one, other) = (store.limited(Limit::per_second(10)), store.limited(Limit::per_second(10)));
        let before = one.acquire("up").await.unwrap();
        refusing(&one, &before, StatusCode::SERVICE_UNAVAILABLE, 60);
        let waiting = one.clone();
        let after = tokio::spawn(async move { waiting.acquire("up").await.unwrap() });
        sleep(SECOND / 10).await;
        if by_itself { &one } else { &other }.release("up").await.unwrap();
        let after = after.await.unwrap();
        refusing(&one, &after, StatusCode::SERVICE_UNAVAILABLE, 55);
        sleep(SECOND / 2).await;
        assert!(other.usage("up").await.unwrap().paused.is_some(), "released by itself: {by_itself}");
    }
}
