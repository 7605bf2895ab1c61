//! When the store loses what counts for long: each process says again what it was granted.

use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::{Limit, Scope, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::{Counting, Way, micros_since};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Makes so many calls one after another, and says when they went.
async fn used(throttle: &Throttle, calls: usize, begin: Instant) -> Vec<i64> {
    let mut starts = Vec::new();
    for _ in 0..calls {
        drop(throttle.acquire("up").scope("a").await.unwrap());
        starts.push(micros_since(begin));
    }
    starts
}

/// So many calls that come at once, and wait no longer than `until`: when they went.
async fn at_once(throttle: Throttle, calls: usize, begin: Instant, until: Instant) -> Vec<i64> {
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            let permit = timeout_at(until, throttle.acquire("up").scope("a").into_future()).await.ok()?;
            drop(permit.unwrap());
            Some(micros_since(begin))
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// In a minute of 100 one process has used nearly all, and some of its callers wait; the store loses all data, and a second later another
/// process, which has used one, has much to do: when calls went.
async fn beside_who_waits(store: &Counting, [one, other]: [Throttle; 2], first: usize) -> Vec<i64> {
    let begin = Instant::now();
    let until = begin + secs(58);
    let mut starts = used(&other, 1, begin).await;
    starts.extend(at_once(one.clone(), first, begin, until).await);
    let waits = tokio::spawn(at_once(one, 130 - first, begin, until));
    sleep(secs(20)).await;
    store.lose_data();
    sleep(secs(1)).await;
    starts.extend(at_once(other, 150, begin, until).await);
    starts.extend(waits.await.unwrap());
    starts
}

#[tokio::test(start_paused = true)]
async fn callers_who_wait_hear_of_a_loss_though_calls_in_flight_are_limited() {
    let seats = [None, Some(Limit::in_flight(1_000)), Some(Limit::in_flight(1_000).each(Scope::header("x-m")))];
    for seats in seats {
        let store = Counting::default();
        let new = |up: Upstream| {
            let up = up.limit(Limit::per_minute(100)).limit(Limit::per_second(90).each(Scope::header("x-m")));
            seats.iter().cloned().fold(up, Upstream::limit)
        };
        let processes = [(); 2].map(|()| store.process(new));
        let starts = beside_who_waits(&store, processes, 85).await;
        assert!(starts.len() <= 100, "{seats:?}: {} in a minute", starts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn how_far_ahead_processes_book_overruns_no_window_after_a_loss() {
    for horizon in [250, 1_500, 7_000] {
        let store = Counting::default();
        let up = Upstream::new("up").limit(Limit::per_minute(100)).scope_by(Scope::header("x-m"));
        let builder = || Throttle::builder().store(store.clone()).horizon(Duration::from_millis(horizon));
        let processes = [(); 2].map(|()| builder().upstream(up.clone()).build().unwrap());
        let starts = beside_who_waits(&store, processes, 99).await;
        assert!(starts.len() <= 100, "{horizon} ms: {} in a minute", starts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_long_to_answer_overruns_no_window_after_a_loss() {
    for delay in [50, 400, 800] {
        let store = Counting::answering(move |_| Way::slow(Duration::from_millis(delay)));
        let new = |up: Upstream| up.limit(Limit::per_minute(100).each(Scope::header("x-m")));
        let processes = [(); 2].map(|()| store.process(new));
        let starts = beside_who_waits(&store, processes, 99).await;
        assert!(starts.len() <= 100, "{delay} ms: {} in a minute", starts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_comes_late_is_not_granted_again_what_it_remembers_itself() {
    let store = Counting::default();
    let [one, other] = [(); 2].map(|()| store.limited(Limit::per_minute(100).of("tokens")));
    drop(one.acquire("up").cost_of("tokens", 80).await.unwrap());
    drop(other.acquire("up").cost_of("tokens", 1).await.unwrap());
    store.lose_data();
    let sees = tokio::spawn(async move { drop(other.acquire("up").cost_of("tokens", 1).await.unwrap()) });
    sleep(secs(10)).await;
    let begin = Instant::now();
    drop(one.acquire("up").cost_of("tokens", 80).await.unwrap());
    assert!(begin.elapsed() > secs(45), "{:?}", begin.elapsed());
    sees.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_shares_a_short_limit_alone_hides_no_loss_of_a_long_one() {
    let (store, begin) = (Counting::default(), Instant::now());
    let account = [Limit::per_second(50), Limit::per_hour(100).of("tokens")];
    let builder = |up: Upstream| Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    let files = builder(Upstream::new("up").shares("account", account.clone()));
    let mail = builder(Upstream::new("mail").shares("account", [account[0].clone()]));
    let until = begin + secs(3_000);
    let mut starts = at_once(files.clone(), 90, begin, until).await;
    drop(mail.acquire("mail").await.unwrap());
    store.lose_data();
    let sees = tokio::spawn(async move { drop(mail.acquire("mail").await.unwrap()) });
    sleep(Duration::from_millis(300)).await;
    starts.extend(at_once(files, 150, begin, until).await);
    assert!(starts.len() <= 100, "{} in an hour", starts.len());
    sees.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_granted_in_scopes_in_which_nobody_calls_any_more_is_said_again_too() {
    let store = Counting::default();
    let new = |up: Upstream| up.limit(Limit::per_hour(100)).limit(Limit::per_second(10).each(Scope::header("x-m")));
    let [one, other] = [(); 2].map(|()| store.process(new));
    let call = async |throttle: &Throttle, scope: u32| {
        throttle.acquire("up").scope(scope.to_string()).max_wait(secs(60)).await.map(drop)
    };
    for scope in 0..80 {
        call(&one, scope).await.unwrap();
    }
    call(&other, 0).await.unwrap();
    sleep(secs(30)).await;
    store.lose_data();
    // One process calls in one of its scopes, and in no other.
    let mut further = u32::from(call(&one, 0).await.is_ok());
    for scope in 0..100 {
        further += u32::from(call(&other, 1_000 + scope).await.is_ok());
    }
    assert_eq!(further, 19, "81 were granted in this hour");
    println!("{} messages", store.told());
}

#[tokio::test(start_paused = true)]
async fn who_borrows_seats_and_comes_back_after_seconds_is_served_at_once() {
    let merchant = || Scope::header("x-m");
    let up = Upstream::new("up").limit(Limit::per_minute(100).each(merchant())).limit(Limit::in_flight(2));
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    for _ in 0..3 {
        let asked = Instant::now();
        drop(throttle.acquire("up").scope("a").await.unwrap());
        assert_eq!(asked.elapsed(), Duration::ZERO);
        sleep(secs(6)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_not_refused_for_a_loss_of_which_it_hears_only_now() {
    let store = Counting::default();
    let [one, other] = [(); 2].map(|()| store.limited(Limit::per_minute(100)));
    drop(one.acquire("up").await.unwrap());
    drop(other.acquire("up").await.unwrap());
    store.lose_data();
    drop(other.acquire("up").await.unwrap());
    sleep(secs(10)).await;
    drop(one.acquire("up").max_wait(Duration::from_millis(100)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_was_granted_in_a_scope_that_is_paused_is_said_again() {
    let store = Counting::default();
    let new = |up: Upstream| up.limit(Limit::per_hour(100)).limit(Limit::per_second(90).each(Scope::header("x-m")));
    let throttle = store.process(new);
    for _ in 0..80 {
        drop(throttle.acquire("up").scope("paused").await.unwrap());
    }
    throttle.report_in("up", "paused", &Feedback::refused(secs(60))).await.unwrap();
    let waits = throttle.clone();
    let waits = tokio::spawn(async move { waits.acquire("up").scope("paused").await.map(drop) });
    drop(throttle.acquire("up").scope("other").await.unwrap());
    sleep(secs(1)).await;
    store.lose_data();
    let mut further = 0;
    for _ in 0..30 {
        further += u32::from(throttle.acquire("up").scope("other").max_wait(secs(20)).await.is_ok());
    }
    assert_eq!(further, 19, "81 were granted in this hour");
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_makes_no_call_says_again_what_it_was_granted_too() {
    for (idle, is_scoped) in [(30, false), (30, true), (600, true), (3_300, false)] {
        let store = Counting::default();
        let new = |up: Upstream| {
            let scoped = Limit::per_second(10).each(Scope::header("x-m"));
            if is_scoped { up.limit(Limit::per_hour(100)).limit(scoped) } else { up.limit(Limit::per_hour(100)) }
        };
        let [one, other] = [(); 2].map(|()| store.process(new));
        let call = async |throttle: &Throttle, scope: u32| {
            let acquire = throttle.acquire("up").max_wait(secs(60));
            let acquire = if is_scoped { acquire.scope(scope.to_string()) } else { acquire };
            acquire.await.map(drop)
        };
        for scope in 0..60 {
            call(&one, scope).await.unwrap();
        }
        sleep(secs(idle)).await;
        call(&other, 0).await.unwrap();
        store.lose_data();
        let mut further = 0;
        for scope in [0].into_iter().chain(1_000..1_050) {
            further += u32::from(call(&other, scope).await.is_ok());
        }
        assert_eq!(further, 39, "idle for {idle} s: 61 were granted in this hour");
        drop(one);
    }
}

#[tokio::test(start_paused = true)]
async fn two_losses_within_seconds_are_both_heard_of() {
    let store = Counting::default();
    let new = |up: Upstream| up.limit(Limit::per_hour(100)).limit(Limit::per_second(10).each(Scope::header("x-m")));
    let throttle = store.process(new);
    for scope in 0..80_u32 {
        drop(throttle.acquire("up").scope(scope.to_string()).await.unwrap());
    }
    let mut further = 0;
    for _ in 0..2 {
        store.lose_data();
        let call = throttle.acquire("up").scope("0").max_wait(secs(1));
        further += u32::from(call.await.is_ok());
        sleep(secs(4)).await;
    }
    sleep(secs(10)).await;
    for _ in 0..30 {
        further += u32::from(throttle.acquire("up").scope("0").max_wait(secs(20)).await.is_ok());
    }
    assert_eq!(further, 20, "80 were granted in this hour");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_begins_after_a_loss_hides_it_from_none_whose_callers_wait() {
    let store = Counting::default();
    let [one, other] = [(); 2].map(|()| store.limited(Limit::per_hour(100)));
    for _ in 0..100 {
        drop(one.acquire("up").await.unwrap());
    }
    let waits = tokio::spawn(async move { one.acquire("up").await.map(drop) });
    sleep(secs(600)).await;
    store.lose_data();
    let mut further = 0;
    for nth in 0..50 {
        further += u32::from(other.acquire("up").max_wait(secs(20)).await.is_ok());
        if nth == 0 {
            sleep(secs(6)).await;
        }
    }
    assert_eq!(further, 1, "100 were granted in this hour");
    waits.abort();
}
