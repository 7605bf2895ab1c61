//! Callers who take less than one that waits: they go into what that one leaves.

use std::future::IntoFuture as _;
use std::time::Duration;

use outgate::{Acquire, Error, Limit, Priority, Scope, Throttle, Upstream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Counting, Way};

const SECOND: Duration = Duration::from_secs(1);

/// Of 100 a minute 60 are used, and another call of 60 waits for a minute.
async fn with_a_large_call_waiting() -> (Counting, Throttle) {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_minute(100));
    drop(throttle.acquire("up").cost(60).await.unwrap());
    let large = throttle.clone();
    tokio::spawn(async move { large.acquire("up").cost(60).await });
    sleep(SECOND).await;
    (store, throttle)
}

#[tokio::test(start_paused = true)]
async fn a_small_call_with_little_time_is_not_refused_for_a_large_one_that_waits() {
    let (store, throttle) = with_a_large_call_waiting().await;
    let before = store.calls();
    for _ in 0..20 {
        let permit = throttle.acquire("up").cost(2).max_wait(2 * SECOND).await.unwrap();
        assert!(permit.waited() < SECOND / 100, "{:?}", permit.waited());
    }
    let calls = store.calls() - before;
    assert!(calls <= 24, "{calls} store calls");
    // Now it is used up.
    assert!(throttle.acquire("up").cost(1).max_wait(2 * SECOND).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn small_calls_that_have_time_do_not_wait_for_the_large_one() {
    let (_, throttle) = with_a_large_call_waiting().await;
    let all = async {
        for _ in 0..40 {
            drop(throttle.acquire("up").await.unwrap());
        }
    };
    timeout(SECOND, all).await.expect("forty units are free");
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_large_call_that_has_gone_away_is_asked_for() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_minute(100));
    drop(throttle.acquire("up").cost(60).await.unwrap());
    let spawn = |cost| {
        let throttle = throttle.clone();
        tokio::spawn(async move { throttle.acquire("up").cost(cost).await.map(|permit| permit.waited()) })
    };
    let large = spawn(60);
    sleep(SECOND).await;
    // As large as the first, and so left to wait; what it leaves others of it takes.
    let (second, third) = (spawn(50), spawn(45));
    sleep(SECOND).await;
    let small = spawn(30);
    let went = timeout(SECOND, small).await.expect("thirty are free").unwrap().unwrap();
    assert!(went < SECOND, "{went:?}");
    large.abort();
    second.abort();
    third.abort();
    sleep(SECOND).await;
    let permit = timeout(SECOND, throttle.acquire("up").cost(10).into_future()).await.expect("ten are free").unwrap();
    assert!(permit.waited() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn what_one_call_wants_of_a_scarce_unit_holds_nobody_who_takes_none_of_it() {
    let store = Counting::default();
    let throttle = store.process(|up: Upstream| {
        up.limit(Limit::per_minute(500))
            .limit(Limit::per_minute(200_000).of("tokens"))
            .limit(Limit::per_hour(5).of("exports"))
    });
    let ask = |tokens, exports| throttle.acquire("up").cost_of("tokens", tokens).cost_of("exports", exports);
    drop(ask(150_000, 5).await.unwrap());
    let waiting = [ask(0, 1), ask(60_000, 0)].map(|asked| tokio::spawn(async move { asked.await.map(drop) }));
    sleep(SECOND).await;
    for tokens in [1_000, 0, 40_000] {
        let permit = timeout(SECOND, ask(tokens, 0).into_future()).await.expect("there is room").unwrap();
        assert!(permit.waited() < SECOND / 2, "{tokens}: {:?}", permit.waited());
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn small_calls_now_or_never_are_refused_at_once_where_nothing_is_left_and_seldom_asked_for() {
    let (store, throttle) = with_a_large_call_waiting().await;
    drop(throttle.acquire("up").cost(40).await.unwrap());
    let (before, begin) = (store.calls(), Instant::now());
    for _ in 0..1_000 {
        assert!(matches!(throttle.try_acquire("up").cost(1).await, Err(Error::Throttled { .. })));
    }
    assert!(store.calls() - before <= 2 && begin.elapsed() < SECOND / 100, "{}", store.calls() - before);
    // The first units are free again after a minute, and somebody waits who takes less than the large call.
    sleep(61 * SECOND).await;
    assert!(throttle.try_acquire("up").cost(1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn where_more_wait_than_one_ask_names_those_who_take_less_are_asked_for_now_and_then() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_minute(100));
    let ask = |cost| {
        let throttle = throttle.clone();
        tokio::spawn(async move { throttle.acquire("up").cost(cost).await.map(drop) })
    };
    drop(throttle.acquire("up").cost(100).await.unwrap());
    let mut waiting: Vec<_> = (0..2_000).map(|_| ask(60)).collect();
    sleep(SECOND).await;
    let before = store.calls();
    for _ in 0..1_000 {
        waiting.push(ask(1));
        sleep(SECOND / 1_000).await;
    }
    assert!(store.calls() - before <= 10, "{} store calls", store.calls() - before);
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn large_calls_go_though_smaller_ones_come_all_the_time() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_minute(100));
    let small = throttle.clone();
    let small = tokio::spawn(async move {
        let mut calls = 0;
        while small.acquire("up").cost(3).await.is_ok() {
            calls += 1;
            sleep(SECOND / 10).await;
        }
        calls
    });
    sleep(30 * SECOND).await;
    let begin = Instant::now();
    for _ in 0..5 {
        drop(throttle.acquire("up").cost(60).await.unwrap());
    }
    assert!(begin.elapsed() < 6 * 121 * SECOND / 2, "{:?}", begin.elapsed());
    throttle.close().await;
    small.await.unwrap();
}

/// Of ten small calls, of which each comes while the answer to the one before is on its way, so many get through.
async fn one_after_another(ask: fn(&Throttle) -> Acquire) -> usize {
    let store = Counting::answering(|_| Way::slow(SECOND / 50));
    let throttle = store.limited(Limit::per_minute(100));
    drop(throttle.acquire("up").cost(60).await.unwrap());
    let large = throttle.clone();
    tokio::spawn(async move { large.acquire("up").cost(60).await });
    sleep(3 * SECOND).await;
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let call = ask(&throttle).cost(2);
        tasks.spawn(async move { call.await.is_ok() });
        sleep(SECOND / 200).await;
    }
    tasks.join_all().await.into_iter().filter(|is_ok| *is_ok).count()
}

#[tokio::test(start_paused = true)]
async fn small_calls_that_come_while_the_store_is_asked_are_not_refused_for_the_large_one() {
    assert_eq!(one_after_another(|throttle| throttle.acquire("up").max_wait(2 * SECOND)).await, 10);
    assert_eq!(one_after_another(|throttle| throttle.try_acquire("up")).await, 10);
}

#[tokio::test(start_paused = true)]
async fn calls_that_take_less_tokens_are_smaller_whatever_part_of_another_quota_all_take() {
    let throttle =
        Counting::default().process(|up| up.limit(Limit::per_second(2)).limit(Limit::per_minute(100).of("tokens")));
    drop(throttle.acquire("up").cost_of("tokens", 60).await.unwrap());
    let large = throttle.clone();
    tokio::spawn(async move { large.acquire("up").cost_of("tokens", 45).await });
    sleep(3 * SECOND).await;
    for _ in 0..10 {
        let permit = throttle.acquire("up").cost_of("tokens", 2).await.unwrap();
        assert!(permit.waited() < SECOND, "{:?}", permit.waited());
        sleep(2 * SECOND).await;
    }
}

/// More than one message asks for.
#[tokio::test(start_paused = true)]
async fn calls_of_low_priority_do_not_go_before_a_large_one_because_it_is_large() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(20_000).of("tokens")));
    let ask = |tokens, priority| {
        let call = throttle.acquire("up").cost_of("tokens", tokens).priority(priority);
        tokio::spawn(async move { call.await.map(|permit| permit.waited()) })
    };
    let first = ask(1, Priority::High);
    tokio::task::yield_now().await;
    let high = [6_000, 6_000, 6_000].map(|tokens| ask(tokens, Priority::High));
    let _low = [(); 4].map(|()| ask(1_000, Priority::Low));
    first.await.unwrap().unwrap();
    for high in high {
        let waited = high.await.unwrap().unwrap();
        assert!(waited < SECOND, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn small_calls_with_little_time_behind_more_than_one_ask_names_are_refused_before_long() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_minute(100));
    drop(throttle.acquire("up").cost(100).await.unwrap());
    let ask = |cost| throttle.acquire("up").cost(cost);
    let waiting: Vec<_> = (0..1_500).map(|_| tokio::spawn(ask(60).into_future())).collect();
    sleep(SECOND).await;
    let before = store.calls();
    let small: Vec<_> = (0..20).map(|_| tokio::spawn(ask(1).max_wait(20 * SECOND).into_future())).collect();
    sleep(3 * SECOND).await;
    assert!(small.iter().all(JoinHandle::is_finished));
    for small in small {
        assert!(matches!(small.await.unwrap(), Err(Error::Throttled { .. })));
    }
    assert!(store.calls() - before <= 3, "{} store calls", store.calls() - before);
    waiting.iter().for_each(JoinHandle::abort);
}

/// What callers say when they ask.
type Manner = fn(Acquire) -> Acquire;

/// A call of 60 of 100 tokens a minute has gone, one of 45 waits for a minute, and ten of 2 tokens come together, of which two a second may go;
/// and another one later.
async fn together_behind_a_large_one(
    calls: Limit,
    ask: Manner,
) -> (Counting, Throttle, Vec<JoinHandle<Result<Duration, Error>>>) {
    let store = Counting::default();
    let throttle = store.process(|up| up.limit(calls).limit(Limit::per_minute(100).of("tokens")));
    let call = |tokens| throttle.acquire("up").scope("m").cost_of("tokens", tokens);
    drop(call(60).await.unwrap());
    let large = call(45);
    tokio::spawn(async move { large.await.map(drop) });
    sleep(3 * SECOND).await;
    let waits = |call: Acquire| tokio::spawn(async move { call.await.map(|permit| permit.waited()) });
    let mut all: Vec<_> = (0..10).map(|_| waits(ask(call(2)))).collect();
    sleep(SECOND / 2).await;
    all.push(waits(ask(call(2))));
    (store, throttle, all)
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_another_limit_behind_a_large_call_goes_when_that_lets_it() {
    let two_a_second = Limit::per_second(2);
    let asks: [(Manner, &str); 2] =
        [(|call| call, "those that have time"), (|call| call.max_wait(10 * SECOND), "those that have little")];
    for limit in [two_a_second.clone(), two_a_second.each(Scope::header("x-merchant"))] {
        for (ask, calls) in asks {
            let (store, _, small) = together_behind_a_large_one(limit.clone(), ask).await;
            let before = store.calls();
            for small in small {
                let waited = small.await.unwrap().unwrap_or_else(|refused| panic!("{calls}: {refused}"));
                assert!(waited < 8 * SECOND, "{calls}: {waited:?}");
            }
            assert!(store.calls() - before <= 16, "{calls}: {} store calls", store.calls() - before);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_more_than_those_that_go_before_a_large_call_is_refused_at_once_where_it_has_little_time() {
    let (_, throttle, small) = together_behind_a_large_one(Limit::per_second(2), |call| call).await;
    let begin = Instant::now();
    let call = throttle.acquire("up").scope("m").cost_of("tokens", 42).max_wait(10 * SECOND);
    assert!(matches!(call.await, Err(Error::Throttled { .. })));
    assert!(begin.elapsed() < SECOND, "{:?}", begin.elapsed());
    small.iter().for_each(JoinHandle::abort);
}

/// Small calls that one process makes in 20 s behind a large one, and those of another, of 20 a second.
async fn beside_another_process() -> [u32; 2] {
    let store = Counting::default();
    let process = || store.process(|up| up.limit(Limit::per_second(20)).limit(Limit::per_minute(10_000).of("tokens")));
    let (one, other) = (process(), process());
    drop(one.acquire("up").cost_of("tokens", 6_000).await.unwrap());
    let large = one.acquire("up").cost_of("tokens", 4_500);
    tokio::spawn(async move { large.await.map(drop) });
    sleep(SECOND).await;
    let end = Instant::now() + 20 * SECOND;
    let calling = |throttle: &Throttle| {
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let throttle = throttle.clone();
            tasks.spawn(async move {
                let mut calls = 0;
                while Instant::now() < end {
                    calls += u32::from(throttle.acquire("up").cost_of("tokens", 2).await.is_ok());
                }
                calls
            });
        }
        tasks
    };
    let all = [&one, &other].map(calling);
    let mut calls = [0; 2];
    for (calls, tasks) in calls.iter_mut().zip(all) {
        *calls = tasks.join_all().await.into_iter().sum();
    }
    calls
}

/// Chance decides whose turn comes first: of many runs.
#[tokio::test(start_paused = true)]
async fn beside_another_process_small_calls_behind_a_large_one_have_their_share() {
    let mut behind = 0;
    for _ in 0..20 {
        let calls = beside_another_process().await;
        assert!(calls[0] + calls[1] >= 400, "{calls:?}");
        behind += calls[0];
    }
    assert!(behind >= 20 * 100, "{behind}");
}

#[tokio::test(start_paused = true)]
async fn of_many_small_calls_behind_a_large_one_those_are_refused_at_once_whose_turn_comes_too_late() {
    let manner: Manner = |call| call;
    let (_, throttle, small) = together_behind_a_large_one(Limit::per_second(2), manner).await;
    small.iter().for_each(JoinHandle::abort);
    sleep(SECOND).await;
    let ask = || throttle.acquire("up").scope("m").cost_of("tokens", 1).max_wait(10 * SECOND);
    let many: Vec<_> = (0..100).map(|_| tokio::spawn(ask().into_future())).collect();
    sleep(2 * SECOND).await;
    let left = many.iter().filter(|call| !call.is_finished()).count();
    assert!(left <= 20, "{left} of 100 wait for two a second, for 10 s");
    let mut went = 0;
    for call in many {
        went += u32::from(call.await.unwrap().is_ok());
    }
    assert!((16..=24).contains(&went), "{went}");
}

#[tokio::test(start_paused = true)]
async fn a_small_call_that_can_go_between_larger_ones_behind_a_large_one_is_not_refused() {
    let throttle =
        Counting::default().process(|up| up.limit(Limit::per_second(2)).limit(Limit::per_minute(100).of("tokens")));
    let ask = |tokens| throttle.acquire("up").cost_of("tokens", tokens);
    drop(ask(57).await.unwrap());
    let large = tokio::spawn(ask(45).into_future());
    sleep(2 * SECOND).await;
    let tens: Vec<_> = (0..12).map(|_| tokio::spawn(ask(10).into_future())).collect();
    let small = tokio::spawn(ask(1).max_wait(10 * SECOND).into_future());
    let waited = small.await.unwrap().unwrap().waited();
    assert!(waited < 4 * SECOND, "{waited:?}");
    tens.iter().chain([&large]).for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn now_or_never_is_refused_at_once_behind_a_large_call_and_small_ones_that_wait_for_their_share() {
    let store = Counting::default();
    let process = || store.process(|up| up.limit(Limit::per_second(20)).limit(Limit::per_minute(10_000).of("tokens")));
    let (one, other) = (process(), process());
    let ask = |throttle: &Throttle, tokens| throttle.acquire("up").cost_of("tokens", tokens);
    drop(ask(&one, 6_000).await.unwrap());
    for _ in 0..20 {
        let other = other.clone();
        tokio::spawn(async move { while ask(&other, 2).await.is_ok() {} });
    }
    sleep(5 * SECOND).await;
    let waiting = [4_500].into_iter().chain([2; 30]).map(|tokens| tokio::spawn(ask(&one, tokens).into_future()));
    let waiting: Vec<_> = waiting.collect();
    let begin = Instant::now();
    let now_or_never = one.try_acquire("up").cost_of("tokens", 2).await;
    assert!(now_or_never.is_err() && begin.elapsed() < SECOND / 20, "{now_or_never:?} after {:?}", begin.elapsed());
    let soon = ask(&one, 2).max_wait(SECOND / 20).await;
    assert!(soon.is_err() && begin.elapsed() < SECOND / 10, "{soon:?} after {:?}", begin.elapsed());
    waiting.iter().for_each(JoinHandle::abort);
    other.close().await;
}
