//! What features do where they meet: seats and settling, limits for scopes and reports, shared limits and pauses.

use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::{Error, Limit, Priority, Scope, Throttle, Upstream};
use tokio::time::{Instant, sleep};

use crate::support::Counting;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_settled_and_handed_back_leaves_its_seat() {
    let up = |up: Upstream| up.limit(Limit::in_flight(1)).limit(Limit::per_minute(10_000).of("tokens"));
    let throttle = Counting::default().process(up);
    for used in [0, 30, 60] {
        let permit = throttle.acquire("up").cost_of("tokens", 40).max_wait(SECOND).await.unwrap();
        permit.settle("tokens", used);
        permit.hand_back();
    }
    throttle.acquire("up").max_wait(SECOND).await.unwrap().hand_back();
}

#[tokio::test(start_paused = true)]
async fn where_only_calls_in_flight_are_limited_a_call_may_cost_nothing_and_anything() {
    let throttle = Counting::default().process(|up| up.limit(Limit::in_flight(2)));
    let one = throttle.acquire("up").cost(0).await.unwrap();
    let other = throttle.acquire("up").cost(u32::MAX).await.unwrap();
    assert!(throttle.try_acquire("up").await.is_err(), "both seats are taken");
    drop((one, other));
}

#[tokio::test(start_paused = true)]
async fn a_report_of_nobody_in_particular_pauses_every_scope() {
    let limits =
        |up: Upstream| up.limit(Limit::per_second(100)).limit(Limit::per_second(10).each(Scope::header("x-merchant")));
    let store = Counting::default();
    let (one, other) = (store.process(limits), store.process(limits));
    one.report("up", &Feedback::refused(30 * SECOND)).await.unwrap();
    for throttle in [&one, &other] {
        let refused = throttle.acquire("up").scope_of("x-merchant", "m").max_wait(SECOND).await.map(drop);
        assert!(matches!(refused, Err(Error::Throttled { paused: Some(_), .. })), "{refused:?}");
    }
    one.report_in("up", "n", &Feedback::refused(90 * SECOND)).await.unwrap();
    sleep(40 * SECOND).await;
    drop(other.acquire("up").scope_of("x-merchant", "m").max_wait(SECOND).await.unwrap());
    assert!(other.acquire("up").scope("n").max_wait(SECOND).await.is_err(), "the last scope that a limit names");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_call_looked_at_ends_where_limits_are_shared() {
    let store = Counting::default();
    let process = || {
        let up = Upstream::new("files").max_pause(2 * SECOND).shares("account", [Limit::per_second(10)]);
        Throttle::builder().store(store.clone()).upstream(up).build().unwrap()
    };
    let (one, other) = (process(), process());
    one.report("files", &Feedback::refused(600 * SECOND)).await.unwrap();
    let begin = Instant::now();
    one.acquire("files").await.unwrap().served();
    let looked = begin.elapsed();
    assert!(looked >= 2 * SECOND && looked < 3 * SECOND, "{looked:?}");
    drop(other.acquire("files").max_wait(SECOND).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn callers_that_go_first_as_they_waited_long_keep_no_seat() {
    let up = |up: Upstream| up.limit(Limit::in_flight(3)).promote_low_after(Duration::from_millis(100));
    let throttle = Counting::default().process(up);
    let call = |priority, wait: u64, lasts: u64| {
        let throttle = throttle.clone();
        tokio::spawn(async move {
            let permit = throttle.acquire("up").priority(priority).max_wait(Duration::from_millis(wait)).await;
            sleep(Duration::from_millis(lasts)).await;
            drop(permit);
        })
    };
    let calls: Vec<_> = (0..200)
        .map(|at| call(if at % 2 == 0 { Priority::Low } else { Priority::High }, 50 + at * 7 % 400, 1 + at % 13))
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    let all = [throttle.acquire("up"), throttle.acquire("up"), throttle.acquire("up")];
    let mut permits = Vec::new();
    for acquire in all {
        permits.push(acquire.max_wait(5 * SECOND).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_large_units_keeps_its_pace() {
    let limit = Limit::per_minute(100_000_000).of("tokens").burst(16_000);
    let throttle = Counting::default().process(|up| up.limit(limit));
    let (begin, mut used) = (Instant::now(), 0_u64);
    while begin.elapsed() < 20 * SECOND {
        drop(throttle.acquire("up").cost_of("tokens", 8_192).await.unwrap());
        used += 8_192;
    }
    // A third of a minute and its guard.
    let share = used * 1_000 * 61 / 20 / 100_000_000;
    assert!((970..=1_010).contains(&share), "{share} thousandths");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_a_secret_is_not_shown_as_the_name_of_a_scope_or_unit() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_second(1)));
    let error = throttle.acquire("up").scope_of("Bearer s3cret/+", "token").await.map(drop).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    let error = throttle.acquire("up").cost_of("s3cret token", 1).await.map(drop).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
}
