//! What counted is forgotten by hand.

use std::time::{Duration, SystemTime};

use outgate::feedback::Feedback;
use outgate::{Error, Limit, Scope, Throttle, Upstream};
use reqwest::StatusCode;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{Counting, Way};

const SECOND: Duration = Duration::from_secs(1);
/// So short that lost data would be waited for, so long that nobody waits for it by chance.
const WINDOW: Duration = Duration::from_secs(8);

fn upstream(up: Upstream) -> Upstream {
    up.limit(Limit::new(4, WINDOW).guard(Duration::ZERO))
}

/// A call that begins now, and how long it waits.
fn call(throttle: &Throttle) -> JoinHandle<Duration> {
    let (throttle, begin) = (throttle.clone(), Instant::now());
    tokio::spawn(async move {
        drop(throttle.acquire("up").await.unwrap());
        begin.elapsed()
    })
}

/// How many units are used of the whole upstream, or in a scope.
async fn used(throttle: &Throttle, scope: Option<&str>) -> Vec<u32> {
    let usage = match scope {
        None => throttle.usage("up").await,
        Some(scope) => throttle.usage_in("up", scope).await,
    };
    usage.unwrap().limits.iter().map(|limit| limit.used).collect()
}

#[tokio::test(start_paused = true)]
async fn after_a_reset_calls_of_all_processes_start_at_once_and_nobody_takes_it_for_lost_data() {
    let store = Counting::default();
    let processes: Vec<Throttle> = (0..2).map(|_| store.process(upstream)).collect();
    for _ in 0..2 {
        for process in &processes {
            assert!(call(process).await.unwrap() < SECOND, "the log fills");
        }
    }
    sleep(SECOND).await;
    assert!(matches!(processes[1].try_acquire("up").await, Err(Error::Throttled { .. })));
    for round in 0..3 {
        processes[round % 2].reset("up").await.unwrap();
        for process in [0, 1, 1, 0] {
            let waited = call(&processes[process]).await.unwrap();
            assert!(waited < SECOND / 10, "round {round}: {waited:?}");
        }
        let refused = processes[0].try_acquire("up").await;
        assert!(matches!(refused, Err(Error::Throttled { retry_after, .. }) if retry_after > 7 * SECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_the_process_asks_again_at_once_and_in_another_when_it_would_anyhow() {
    let store = Counting::default();
    let hourly = |up: Upstream| up.limit(Limit::per_hour(4).guard(Duration::ZERO));
    let processes: Vec<Throttle> = (0..2).map(|_| store.process(hourly)).collect();
    for _ in 0..4 {
        call(&processes[0]).await.unwrap();
    }
    let waiting = [&processes[0], &processes[1]].map(call);
    sleep(100 * SECOND).await;
    assert!(waiting.iter().all(|call| !call.is_finished()));
    processes[0].reset("up").await.unwrap();
    let [here, there] = waiting;
    let (here, there) = (here.await.unwrap(), there.await.unwrap());
    assert!(here < 101 * SECOND, "{here:?}");
    assert!(there <= 130 * SECOND, "{there:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_under_way_when_all_was_forgotten_keeps_nobody_waiting() {
    // Answers to all asks but the first are on their way for a tenth of a second, and that to a reset is not.
    let store = Counting::answering(|before| if before > 0 { Way::slow(SECOND / 10) } else { Way::default() });
    let throttle = store.process(|up| up.limit(Limit::per_hour(1)));
    call(&throttle).await.unwrap();
    let waits = call(&throttle);
    sleep(SECOND / 20).await;
    throttle.reset("up").await.unwrap();
    assert!(waits.await.unwrap() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn with_the_whole_upstream_callers_without_a_value_begin_anew_and_no_other() {
    let throttle = Throttle::builder()
        .upstream(Upstream::new("up").limit(Limit::per_day(1).each(Scope::bearer_token())).learn_from_responses());
    let throttle = throttle.build().unwrap();
    drop(throttle.try_acquire("up").await.unwrap());
    drop(throttle.try_acquire("up").scope("token").await.unwrap());
    throttle.reset("up").await.unwrap();
    assert!(throttle.try_acquire("up").scope("token").await.is_err());
    // What is told of nobody's calls is about those as well.
    let headers = [("x-ratelimit-limit", "1"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "3600")];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).into_iter().collect();
    let feedback = Feedback::read(StatusCode::OK, &headers, SystemTime::now());
    throttle.report("up", &feedback).await.unwrap();
    assert!(throttle.try_acquire("up").await.is_err());
    throttle.reset("up").await.unwrap();
    assert!(throttle.try_acquire("up").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_scope_is_reset_and_no_other_nor_what_it_shares() {
    let store = Counting::default();
    let throttle = store.process(|up| {
        let each = Scope::header("x-merchant");
        up.limit(Limit::per_hour(9))
            .limit(Limit::per_hour(2).each(each.clone()))
            .limit(Limit::per_hour(70).of("bytes").each(each))
    });
    for scope in ["a", "a", "b"] {
        drop(throttle.acquire("up").scope(scope).cost_of("bytes", 7).await.unwrap());
    }
    throttle.reset_in("up", "a").await.unwrap();
    assert_eq!((used(&throttle, Some("a")).await, used(&throttle, Some("b")).await), (vec![3, 0, 0], vec![3, 1, 7]));
    throttle.reset("up").await.unwrap();
    assert_eq!(used(&throttle, Some("b")).await, [0, 1, 7]);
    assert!(matches!(throttle.reset("no").await, Err(Error::UnknownUpstream { .. })));
}

#[tokio::test(start_paused = true)]
async fn limits_that_upstreams_share_begin_anew_with_those_of_the_one_alone() {
    let store = Counting::default();
    let shared = Limit::per_hour(9);
    let up = |name| Upstream::new(name).limit(Limit::per_hour(5)).shares("both", [shared.clone()]);
    let throttle = Throttle::builder().store(store).upstream(up("up")).upstream(up("other")).build().unwrap();
    for name in ["up", "other", "other"] {
        drop(throttle.acquire(name).await.unwrap());
    }
    assert_eq!(used(&throttle, None).await, [1, 3]);
    throttle.reset("up").await.unwrap();
    assert_eq!(used(&throttle, None).await, [0, 0]);
    let other = throttle.usage("other").await.unwrap();
    assert_eq!(other.limits.iter().map(|limit| limit.used).collect::<Vec<_>>(), [2, 0]);
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_and_pauses_stay() {
    let store = Counting::default();
    let throttle = store.process(|up| up.limit(Limit::per_hour(2)).limit(Limit::in_flight(1)));
    let permit = throttle.acquire("up").await.unwrap();
    throttle.reset("up").await.unwrap();
    assert_eq!(used(&throttle, None).await, [0, 1]);
    assert!(throttle.try_acquire("up").await.is_err(), "its seat is taken");
    drop(permit);
    throttle.report("up", &Feedback::refused(60 * SECOND)).await.unwrap();
    throttle.reset("up").await.unwrap();
    let refused = throttle.try_acquire("up").await;
    assert!(matches!(refused, Err(Error::Throttled { retry_after, .. }) if retry_after > 50 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_what_upstreams_share_asks_again_whichever_of_them_is_reset() {
    let sharing = |name| Upstream::new(name).shares("account", [Limit::per_hour(4).guard(Duration::ZERO)]);
    let throttle = Throttle::builder().store(Counting::default()).upstreams([sharing("files"), sharing("up")]);
    let throttle = throttle.build().unwrap();
    for _ in 0..4 {
        call(&throttle).await.unwrap();
    }
    let waiting = call(&throttle);
    sleep(100 * SECOND).await;
    throttle.reset("files").await.unwrap();
    let waited = waiting.await.unwrap();
    assert!(waited < 101 * SECOND, "{waited:?}");
}
