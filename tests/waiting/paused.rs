//! After a refusal: the whole cluster falls silent, and resumes gently.

use std::time::Duration;

use outgate::feedback::{Feedback, Reach, Refusal};
use outgate::testing::oracle::{assert_never_more_than, worst_window};
use outgate::{Backoff, Cause, Error, Limit, Scope, Upstream};
use tokio::time::{Instant, sleep};

use crate::support::{Counting, Way, endless, micros_since};

const SECOND: i64 = 1_000_000;

/// 100 calls per second, a recovery of 10 s, and waits of 1, 2, 4 … s that nobody told.
fn upstream(up: Upstream) -> Upstream {
    up.limit(Limit::per_second(100)).backoff(Backoff::new().jitter(0.0)).recovery(Duration::from_secs(10))
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_nobody_in_the_cluster_sends_until_the_time_told() {
    fastrand::seed(21);
    let store = Counting::default();
    let processes: Vec<_> = (0..4).map(|_| store.process(upstream)).collect();
    let begin = Instant::now();
    let tasks: Vec<_> = processes
        .iter()
        .map(|process| {
            let process = process.clone();
            tokio::spawn(async move { endless(&process, 32, begin, begin + Duration::from_secs(30)).await })
        })
        .collect();
    sleep(Duration::from_millis(3_300)).await;
    let refused_at = micros_since(begin);
    processes[0].report("up", &Feedback::refused(Duration::from_secs(5))).await.unwrap();
    let mut starts = Vec::new();
    for (process, task) in tasks.into_iter().enumerate() {
        let calls = task.await.unwrap();
        // The process that was refused is silent at once; the others when they ask next, a horizon later at most.
        let silent = refused_at + if process == 0 { 0 } else { 250_000 };
        let resumed = refused_at + 5 * SECOND;
        assert!(!calls.iter().any(|&at| at > silent && at < resumed), "process {process}");
        starts.extend(calls);
    }
    assert_never_more_than(100, 1_050_000, &starts);
    let within = |from: i64, to: i64| {
        let (from, to) = (refused_at + from * SECOND, refused_at + to * SECOND);
        starts.iter().filter(|&&at| at >= from && at < to).count()
    };
    // A tenth of 95 a second at first, all of it ten seconds later.
    let seconds: Vec<_> = (5..25).map(|second| within(second, second + 1)).collect();
    assert!((9..=15).contains(&seconds[0]), "{seconds:?}");
    assert!(seconds[..10].is_sorted(), "{seconds:?}");
    assert!(seconds[11..].iter().all(|&calls| calls >= 85), "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_processes_released_from_one_pause_come_at_the_reduced_pace() {
    fastrand::seed(22);
    let store = Counting::default();
    let processes: Vec<_> = (0..1_000).map(|_| store.process(upstream)).collect();
    let begin = Instant::now();
    processes[0].report("up", &Feedback::refused(Duration::from_secs(3))).await.unwrap();
    let tasks: Vec<_> = processes
        .into_iter()
        .map(|process| tokio::spawn(async move { endless(&process, 1, begin, begin + Duration::from_secs(8)).await }))
        .collect();
    let mut starts = Vec::new();
    for task in tasks {
        starts.extend(task.await.unwrap());
    }
    starts.sort_unstable();
    let released = 3 * SECOND;
    assert!(starts[0] >= released, "{}", starts[0]);
    let first: Vec<_> = starts.iter().copied().filter(|&at| at < released + SECOND).collect();
    // A tenth of 100 a second in windows of 1.05 s, growing by nine tenths of it within ten seconds.
    assert!((9..=14).contains(&first.len()), "{first:?}");
    assert!(worst_window(&first, SECOND / 10).count <= 2, "{first:?}");
    assert!(starts.len() > 100, "and nobody is left behind: {}", starts.len());
}

#[tokio::test(start_paused = true)]
async fn waits_that_nobody_told_double_with_each_refusal_in_a_row() {
    let store = Counting::default();
    let throttle = store.process(upstream);
    let refusal = Feedback::default().with_refusal(Refusal::Quota);
    let next = async || throttle.usage("up").await.unwrap().limits[0].next.as_millis();
    let mut waits = Vec::new();
    for _ in 0..4 {
        throttle.report("up", &refusal).await.unwrap();
        // The same incident: another call was under way.
        throttle.report("up", &refusal).await.unwrap();
        waits.push(next().await);
        sleep(Duration::from_millis(u64::try_from(waits[waits.len() - 1]).unwrap() + 1)).await;
    }
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000]);
    sleep(Duration::from_secs(301)).await;
    throttle.report("up", &refusal).await.unwrap();
    assert_eq!(next().await, 1_000, "after as long as the longest wait it begins anew");
}

#[tokio::test(start_paused = true)]
async fn who_calls_seldom_and_is_refused_each_time_waits_longer_and_longer() {
    let throttle = Counting::default().process(upstream);
    let mut waits = Vec::new();
    for _ in 0..7 {
        throttle.report("up", &Feedback::default().with_refusal(Refusal::Quota)).await.unwrap();
        waits.push(throttle.usage("up").await.unwrap().limits[0].next.as_secs());
        sleep(Duration::from_secs(waits[waits.len() - 1] + 50)).await;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64]);
}

/// In four minutes at a hundred a second, 24,000 calls are served.
#[tokio::test(start_paused = true)]
async fn a_refusal_every_four_minutes_is_the_first_of_a_row_each_time() {
    let throttle = Counting::default().process(upstream);
    for _ in 0..12 {
        throttle.report("up", &Feedback::default().with_refusal(Refusal::Quota)).await.unwrap();
        assert_eq!(throttle.usage("up").await.unwrap().limits[0].next, Duration::from_secs(1));
        for _ in 0..100 {
            throttle.acquire("up").await.unwrap().served();
            sleep(Duration::from_millis(2_400)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bans_that_tell_no_end_double_however_seldom_a_call_goes() {
    let throttle = Counting::default().process(upstream);
    for expected in [1, 2, 4, 8, 16] {
        throttle.report("up", &Feedback::default().with_refusal(Refusal::Ban)).await.unwrap();
        assert_eq!(throttle.usage("up").await.unwrap().limits[0].next.as_secs(), expected);
        sleep(Duration::from_secs(240)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_wait_does_not_shorten_the_pause() {
    let throttle = Counting::default().process(upstream);
    throttle.report("up", &Feedback::refused(Duration::from_secs(60))).await.unwrap();
    throttle.report("up", &Feedback::refused(Duration::from_secs(1))).await.unwrap();
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].next, Duration::from_secs(60));
    throttle.report("up", &Feedback::default()).await.unwrap();
    let told = throttle.try_acquire("up").await.unwrap_err();
    assert!(matches!(told, Error::Throttled { retry_after, .. } if retry_after > Duration::from_secs(59)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn bans_and_spending_limits_are_errors_of_their_own_in_every_process() {
    for (refusal, expected) in [(Refusal::Ban, Cause::Ban), (Refusal::Spend, Cause::Spend)] {
        let store = Counting::default();
        let (told, other) = (store.process(upstream), store.process(upstream));
        let waiting = {
            let told = told.clone();
            tokio::spawn(async move { told.acquire("up").cost(100).await.map(drop) })
        };
        drop(told.acquire("up").cost(100).await.unwrap());
        let barred = Feedback::default().with_refusal(refusal).with_wait(Duration::from_secs(600));
        told.report("up", &barred).await.unwrap();
        for outcome in [waiting.await.unwrap(), told.acquire("up").await.map(drop), other.acquire("up").await.map(drop)]
        {
            match outcome {
                Err(Error::Barred { cause, retry_after, .. }) => {
                    assert_eq!(cause, expected);
                    assert!(retry_after > Duration::from_secs(590), "{retry_after:?}");
                }
                outcome => panic!("{outcome:?}"),
            }
        }
        sleep(Duration::from_secs(600)).await;
        other.acquire("up").await.unwrap().hand_back();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_pauses_the_scope_that_it_names() {
    let store = Counting::default();
    let (throttle, other) = (store.process(upstream), store.process(upstream));
    let minute = Feedback::refused(Duration::from_secs(60));
    throttle.report_in("up", "token 1", &minute).await.unwrap();
    assert!(other.try_acquire("up").scope("token 1").await.is_err());
    drop(other.try_acquire("up").scope("token 2").await.unwrap());
    throttle.report_in("up", "token 1", &minute.with_reach(Reach::Upstream)).await.unwrap();
    assert!(other.try_acquire("up").scope("token 2").await.is_err());
    assert!(throttle.try_acquire("up").scope("token 3").await.is_err());
    assert!(throttle.try_acquire("up").await.is_err());
}

/// Gives an upstream its scopes.
type Scoped = fn(Upstream) -> Upstream;

fn route() -> Scope {
    Scope::by(|request| Some(request.url().path().to_owned()))
}

/// Stripe's and Discord's limits are an account's, and a bot's, on all of its routes; Jira's is that of everybody.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_all_calls_of_an_account_pauses_no_other_account() {
    let read = |name: &'static str, value: &'static str| {
        let headers = http::HeaderMap::from_iter([
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)),
            (http::header::RETRY_AFTER, http::HeaderValue::from_static("60")),
        ]);
        Feedback::read(http::StatusCode::TOO_MANY_REQUESTS, &headers, std::time::SystemTime::now())
    };
    let cases: [(&str, Scoped, bool); 10] = [
        ("each token", |up| up.scope_by(Scope::bearer_token()), false),
        ("each token as it is sent", |up| up.scope_by(Scope::header("authorization")), false),
        ("each account", |up| up.scope_by(Scope::header("stripe-account")), false),
        ("each of its hosts", |up| up.host("*.up.example").scope_by(Scope::host()), true),
        ("each key in the query", |up| up.scope_by(Scope::query("key")), true),
        ("each route", |up| up.scope_by(route()), true),
        ("everybody, and each token", |up| up.limit(Limit::per_second(9).each(Scope::bearer_token())), false),
        ("everybody, and each merchant", |up| up.limit(Limit::per_second(9).each(Scope::header("x-merchant"))), true),
        (
            "each token, and each route",
            |up| up.scope_by(Scope::bearer_token()).limit(Limit::per_second(9).each(route())),
            false,
        ),
        (
            "each route, and each merchant",
            |up| up.scope_by(route()).limit(Limit::per_second(9).each(Scope::header("x-merchant"))),
            true,
        ),
    ];
    for (name, upstream, of_all) in cases {
        for (header, value) in [
            ("stripe-rate-limited-reason", "global-rate"),
            ("stripe-rate-limited-reason", "global-concurrency"),
            ("x-ratelimit-scope", "global"),
            ("x-ratelimit-global", "true"),
            ("x-rate-limit-type", "application"),
            ("ratelimit-reason", "jira-quota-global-based"),
        ] {
            let throttle = Counting::default().process(|up| upstream(up.limit(Limit::per_second(100))));
            throttle.report_in("up", "one", &read(header, value)).await.unwrap();
            assert!(throttle.try_acquire("up").scope("one").await.is_err(), "{name}, {value}");
            let other = throttle.try_acquire("up").scope("other").await;
            assert_eq!(other.is_err(), of_all || value.starts_with("jira"), "{name}, {header}: {value}");
        }
    }
}

/// Hosts that nobody named have nothing in common, whatever one of them says.
#[tokio::test(start_paused = true)]
async fn a_site_pauses_no_other_site() {
    let cases = [
        (420, "server", "site"),
        (429, "x-ratelimit-scope", "ip"),
        (429, "x-ratelimit-global", "true"),
        (429, "ratelimit-reason", "jira-quota-global-based"),
        (430, "x-ratelimit-global", "true"),
    ];
    let hosts: [(Scoped, bool); 3] = [
        (|up| up.matching(|_| true).limit(Limit::per_second(1).each(Scope::host())), false),
        (|up| up.matching(|_| true).scope_by(Scope::host()), false),
        (|up| up.host("*.up.example").limit(Limit::per_second(1).each(Scope::host())), true),
    ];
    for ((status, name, value), (upstream, of_all)) in cases.into_iter().flat_map(|said| hosts.map(|of| (said, of))) {
        let response = http::Response::builder().status(status).header(name, value).header("retry-after", "60");
        let throttle = Counting::default().process(|up| upstream(up.limit(Limit::per_second(50))));
        let refused = Feedback::from(&response.body(()).unwrap());
        throttle.report_in("up", "site", &refused).await.unwrap();
        assert!(throttle.try_acquire("up").scope("site").await.is_err(), "{status}, {name}: {value}");
        let other = throttle.try_acquire("up").scope("other").await;
        assert_eq!(other.is_err(), of_all, "{status}, {name}: {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_double_without_a_recovery_too() {
    let throttle = Counting::default().process(|up| upstream(up).recovery(Duration::ZERO));
    let mut waits = Vec::new();
    for _ in 0..4 {
        throttle.report("up", &Feedback::default().with_refusal(Refusal::Quota)).await.unwrap();
        waits.push(throttle.usage("up").await.unwrap().limits[0].next.as_secs());
        // As slow a caller as one in two waits.
        sleep(Duration::from_secs(2 * waits[waits.len() - 1])).await;
    }
    assert_eq!(waits, [1, 2, 4, 8]);
}

#[tokio::test(start_paused = true)]
async fn the_slower_pace_ends_with_the_recovery_however_slow_the_limit() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_hour(60)));
    throttle.report("up", &Feedback::refused(Duration::from_secs(5))).await.unwrap();
    drop(throttle.acquire("up").await.unwrap());
    let second = throttle.acquire("up").max_wait(Duration::from_secs(30)).await.unwrap();
    assert!(second.waited() <= Duration::from_secs(10), "{:?}", second.waited());
}

#[tokio::test(start_paused = true)]
async fn a_permit_handed_back_during_a_pause_goes_to_nobody() {
    let throttle = Counting::default().limited(Limit::per_second(1));
    let permit = throttle.acquire("up").await.unwrap();
    let waiter = {
        let throttle = throttle.clone();
        tokio::spawn(async move { throttle.acquire("up").await.unwrap().waited() })
    };
    sleep(Duration::from_millis(5)).await;
    throttle.report("up", &Feedback::refused(Duration::from_secs(60))).await.unwrap();
    permit.hand_back();
    assert!(waiter.await.unwrap() >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_ban_during_a_longer_pause_is_a_ban() {
    let store = Counting::default();
    let (told, other) = (store.process(upstream), store.process(upstream));
    told.report("up", &Feedback::refused(Duration::from_secs(60))).await.unwrap();
    told.report("up", &Feedback::default().with_refusal(Refusal::Ban)).await.unwrap();
    for throttle in [told, other] {
        let outcome = throttle.try_acquire("up").await;
        assert!(matches!(outcome, Err(Error::Barred { cause: Cause::Ban, .. })), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_quietly_when_answers_take_now_more_now_less() {
    fastrand::seed(23);
    let store = Counting::answering(|_| Way { delay: Duration::from_millis(fastrand::u64(1..4)), lost: false });
    let throttle = store.process(upstream);
    drop(throttle.acquire("up").await.unwrap());
    throttle.report("up", &Feedback::refused(Duration::from_secs(3))).await.unwrap();
    drop(throttle.acquire("up").await.unwrap());
    assert!(store.calls() <= 5, "{} store calls", store.calls());
}

/// A log of a minute at an even pace: whoever waits for it is counted for seconds alone, and a pause is longer than that.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_pause_to_end_finds_no_loss_where_nothing_was_lost() {
    let even = Limit::per_minute(60).burst(1).each(Scope::header("x-merchant"));
    for lasting in [4, 6, 8, 11, 14, 30] {
        let store = Counting::default();
        let [one, other] = [(); 2].map(|()| store.process(|up| up.limit(Limit::per_second(10)).limit(even.clone())));
        one.report("up", &Feedback::refused(Duration::from_secs(lasting))).await.unwrap();
        let begin = Instant::now();
        drop(other.acquire("up").scope("m-1").await.unwrap());
        let late = begin.elapsed().saturating_sub(Duration::from_secs(lasting));
        assert!(late < Duration::from_secs(1), "{late:?} after a pause of {lasting} s");
    }
}
