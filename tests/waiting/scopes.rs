//! Limits for whom: several scopes in one call, all or none.

use std::time::Duration;

use outgate::testing::oracle::assert_never_more_units_than;
use outgate::{Call, Error, Feedback, Limit, Scope, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::{Counting, micros_since};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Everybody together 20/s, each merchant 5/s.
fn gateway(up: Upstream) -> Upstream {
    up.limit(Limit::per_second(20)).limit(Limit::per_second(5).each(Scope::header("x-merchant")))
}

/// A merchant, and when one of its calls went.
type Start = (u32, i64);

/// One caller after another for a merchant, as soon as it is served, until `end`.
async fn endless(throttle: Throttle, merchant: u32, begin: Instant, end: Instant) -> Vec<Start> {
    let mut starts = Vec::new();
    let call = || throttle.acquire("up").scope_of("x-merchant", merchant.to_be_bytes());
    while let Ok(permit) = timeout_at(end, async { call().await }).await {
        drop(permit.unwrap());
        starts.push((merchant, micros_since(begin)));
    }
    starts
}

/// Callers of each of some merchants, in so many processes.
async fn demand(processes: usize, callers: &[(u32, usize)], seconds: u64) -> Vec<Start> {
    let (store, begin) = (Counting::default(), Instant::now());
    let end = begin + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..processes {
        let throttle = store.process(gateway);
        for &(merchant, callers) in callers {
            (0..callers).for_each(|_| _ = tasks.spawn(endless(throttle.clone(), merchant, begin, end)));
        }
    }
    let starts = tasks.join_all().await.concat();
    let entries = |of: Option<u32>| {
        let of = starts.iter().filter(|(merchant, _)| of.is_none_or(|of| *merchant == of));
        of.map(|&(_, at)| (at, 1)).collect::<Vec<_>>()
    };
    // A call may go late by half the guard.
    assert_never_more_units_than(20, 1_023_000, &entries(None));
    for &(merchant, _) in callers {
        assert_never_more_units_than(5, 1_023_000, &entries(Some(merchant)));
    }
    starts
}

fn count(starts: &[Start], merchant: u32) -> usize {
    starts.iter().filter(|start| start.0 == merchant).count()
}

#[tokio::test(start_paused = true)]
async fn each_merchant_and_all_together_keep_to_their_limits_and_use_them() {
    for processes in [1, 4] {
        let all: Vec<_> = (0..8).map(|merchant| (merchant, 4)).collect();
        let starts = demand(processes, &all, 60).await;
        // 20 of a second and its guard.
        assert!(starts.len() >= 1_085, "{} by {processes}", starts.len());
        let few: Vec<_> = (0..2).map(|merchant| (merchant, 4)).collect();
        let starts = demand(processes, &few, 60).await;
        assert!(starts.len() >= 540, "two merchants may have 10 of them: {} by {processes}", starts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_merchant_with_a_single_call_gets_its_share_beside_one_with_a_thousand() {
    for processes in [1, 4] {
        let greedy = (0..4).map(|merchant| (merchant, 1_000 / processes));
        let all: Vec<_> = greedy.chain([(9, 1)]).collect();
        let starts = demand(processes, &all, 60).await;
        // An equal share is 228; it waits for each of its calls before it comes with the next.
        assert!(count(&starts, 9) >= 170, "{} by {processes}", count(&starts, 9));
    }
}

#[tokio::test(start_paused = true)]
async fn a_merchant_that_waits_for_an_hour_does_not_hold_up_the_others() {
    let (store, begin) = (Counting::default(), Instant::now());
    let hourly =
        |up: Upstream| up.limit(Limit::per_second(20)).limit(Limit::per_hour(20).each(Scope::header("x-merchant")));
    let throttle = store.process(hourly);
    let call = |merchant: &'static str| throttle.acquire("up").scope_of("x-merchant", merchant);
    for _ in 0..20 {
        drop(call("spent").await.unwrap());
    }
    let (of_spent, other) = (throttle.clone(), store.process(hourly));
    let waiting = tokio::spawn(async move { of_spent.acquire("up").scope_of("x-merchant", "spent").await.map(drop) });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let went = Instant::now();
    for throttle in [&throttle, &other] {
        for _ in 0..10 {
            drop(throttle.acquire("up").scope_of("x-merchant", "fresh").await.unwrap());
        }
    }
    assert!(went.elapsed() < Duration::from_millis(100), "{:?}", went.elapsed());
    waiting.await.unwrap().unwrap();
    assert!(begin.elapsed() > Duration::from_secs(3_600) && begin.elapsed() < Duration::from_secs(3_603));
}

#[tokio::test(start_paused = true)]
async fn values_that_are_alike_share_nothing_in_different_scopes() {
    let merchant = Scope::header("x-merchant");
    let limits = |up: Upstream| {
        let up = up.limit(Limit::per_hour(1).each(Scope::bearer_token()));
        up.limit(Limit::per_hour(1).each(merchant.clone())).max_wait(Duration::ZERO)
    };
    let throttle = Counting::default().process(limits);
    let call = |token: &str, merchant: &str| {
        let call = throttle.acquire("up").scope_of("bearer_token", token).scope_of("x-merchant", merchant);
        async { call.await.map(drop) }
    };
    call("a", "b").await.unwrap();
    call("b", "a").await.unwrap();
    for (token, merchant) in [("a", "c"), ("c", "a")] {
        assert!(matches!(call(token, merchant).await, Err(Error::Throttled { .. })), "{token} {merchant}");
    }
    call("c", "c").await.unwrap();
    call("", "").await.unwrap();
    let no_value = async { throttle.acquire("up").await.map(drop) };
    no_value.await.unwrap();
    let again = async { throttle.acquire("up").await.map(drop) };
    assert!(again.await.is_err(), "calls without a value share one log");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_scopes_are_both_contended_by_others_does_not_starve() {
    let (store, begin) = (Counting::default(), Instant::now());
    let (end, mut tasks) = (begin + Duration::from_secs(120), JoinSet::new());
    for process in 0..4 {
        let throttle = store.process(|up| {
            let up = up.limit(Limit::per_second(100)).limit(Limit::per_second(10).each(Scope::bearer_token()));
            up.limit(Limit::per_second(10).each(Scope::header("x-merchant")))
        });
        let mut call_for = |token: String, merchant: String, callers: usize| {
            for _ in 0..callers {
                let (throttle, token, merchant) = (throttle.clone(), token.clone(), merchant.clone());
                tasks.spawn(async move {
                    let call =
                        || throttle.acquire("up").scope_of("bearer_token", &token).scope_of("x-merchant", &merchant);
                    let mut went = 0;
                    while let Ok(permit) = timeout_at(end, async { call().await }).await {
                        drop(permit.unwrap());
                        went += 1;
                    }
                    if token == merchant { went } else { 0 }
                });
            }
        };
        call_for("both".to_owned(), format!("merchant {process}"), 4);
        call_for(format!("token {process}"), "both".to_owned(), 4);
        call_for("both".to_owned(), "both".to_owned(), usize::from(process == 0));
    }
    let went: u32 = tasks.join_all().await.into_iter().sum();
    // Of each of its logs an equal share is 230.
    assert!(went >= 100, "{went}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_charged_nowhere() {
    let throttle = Counting::default().process(|up| gateway(up).max_wait(Duration::ZERO));
    let call = |merchant: &str| throttle.acquire("up").scope_of("x-merchant", merchant);
    for merchant in ["a", "b", "c"] {
        for _ in 0..5 {
            drop(call(merchant).await.unwrap());
        }
        for _ in 0..100 {
            assert!(call(merchant).await.is_err());
        }
    }
    for _ in 0..5 {
        drop(call("d").await.unwrap());
    }
    assert!(call("e").await.is_err(), "20 of everybody are spent by now");
    let used = async |merchant: &str| {
        let usage = throttle.usage_of("up", &Call::new().scope_of("x-merchant", merchant)).await.unwrap();
        usage.limits.iter().map(|limit| limit.used).collect::<Vec<_>>()
    };
    assert_eq!([used("a").await, used("e").await], [[20, 5], [20, 0]]);
}

#[tokio::test(start_paused = true)]
async fn upstreams_that_share_a_limit_keep_to_it_together() {
    let (store, begin) = (Counting::default(), Instant::now());
    let account = [Limit::per_second(10)];
    let throttle = Throttle::builder()
        .store(store)
        .upstream(Upstream::new("files").limit(Limit::per_second(4)).shares("account", account.clone()))
        .upstream(Upstream::new("mail").shares("account", account.clone()))
        .upstream(Upstream::new("free").limit(Limit::per_second(4)))
        .build()
        .unwrap();
    let (mut tasks, end) = (JoinSet::new(), begin + Duration::from_secs(30));
    for upstream in ["files", "mail"] {
        for _ in 0..8 {
            let throttle = throttle.clone();
            tasks.spawn(async move {
                let mut starts = Vec::new();
                while let Ok(permit) = timeout_at(end, async { throttle.acquire(upstream).await }).await {
                    drop(permit.unwrap());
                    starts.push((upstream, micros_since(begin)));
                }
                starts
            });
        }
    }
    let starts = tasks.join_all().await.concat();
    let of = |name: Option<&str>| {
        let of = starts.iter().filter(|(upstream, _)| name.is_none_or(|name| *upstream == name));
        of.map(|&(_, at)| (at, 1)).collect::<Vec<_>>()
    };
    assert_never_more_units_than(10, 1_023_000, &of(None));
    assert_never_more_units_than(4, 1_023_000, &of(Some("files")));
    assert!(of(None).len() >= 270, "{}", of(None).len());
    // Its own limit leaves it 117 at most, of a common limit that is used up at any time.
    assert!(of(Some("files")).len() >= 85, "{}", of(Some("files")).len());

    let wrong = |one: Upstream, other: Upstream| {
        let error = Throttle::builder().upstream(one).upstream(other).build().unwrap_err();
        (error.upstream().to_owned(), error.field())
    };
    let sharing = |name: &str, limit: Limit| Upstream::new(name.to_owned()).shares("account", [limit]);
    let other = wrong(sharing("a", Limit::per_second(1)), sharing("b", Limit::per_second(2)));
    assert_eq!(other, ("b".to_owned(), "shares"));
    let same_name = wrong(sharing("a", Limit::per_second(1)), Upstream::new("account").limit(Limit::per_second(1)));
    assert_eq!(same_name, ("a".to_owned(), "shares"));
}

/// Beside limits that it shares an upstream has one for each merchant, and one of calls in flight, or of all its calls: in any order.
#[tokio::test(start_paused = true)]
async fn of_an_upstream_that_shares_limits_a_value_is_said_of_the_scope_that_a_limit_names() {
    let merchant = || Scope::header("x-merchant");
    let each = || Limit::per_second(5).each(merchant());
    let files = || Upstream::new("files");
    let account = || Limit::per_second(1_000);
    let with_own = |limits: [Limit; 2]| {
        let up = limits.into_iter().fold(files(), Upstream::limit);
        up.shares("account", [account()])
    };
    let ups = [
        with_own([each(), Limit::in_flight(12)]),
        with_own([Limit::in_flight(12), each()]),
        with_own([each(), Limit::per_second(12)]),
        with_own([Limit::per_second(12), each()]),
        files().limit(Limit::per_second(12)).shares("account", [account(), each()]),
    ];
    for (at, up) in ups.into_iter().enumerate() {
        let throttle = Throttle::builder().store(Counting::default()).upstream(up).build().unwrap();
        let mut went = Vec::new();
        for name in ["a", "b", "c"] {
            let mut permits = Vec::new();
            while let Ok(permit) = throttle.acquire("files").scope(name).max_wait(MS * 10).await {
                permits.push(permit);
            }
            went.push(permits);
        }
        let counts: Vec<_> = went.iter().map(Vec::len).collect();
        assert_eq!(counts, [5, 5, 2], "{at}: five of each, and twelve of all");
        drop(went);
        sleep(SECOND * 2).await;
        let refusal = Feedback::refused(SECOND * 60);
        throttle.report_in("files", "a", &refusal).await.unwrap();
        let goes = async |name: &str| throttle.acquire("files").scope(name).max_wait(MS * 10).await.is_ok();
        assert_eq!((goes("a").await, goes("b").await), (false, true), "{at}: it is about one");
        throttle.release_in("files", "a").await.unwrap();
        assert!(goes("a").await, "{at}");
    }
}
