//! One upstream in several shards, each with a store of its own, whose clock is another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use outgate::feedback::Reach;
use outgate::ledger::{Body, Message, Stamp};
use outgate::store::{Applying, StoreError, StoreErrorKind, WithoutStore};
use outgate::testing::oracle;
use outgate::{Error, Feedback, Limit, MemoryStore, Priority, Scope, Store, Throttle, Upstream};
use reqwest::StatusCode;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::micros_since;

const SECOND: Duration = Duration::from_secs(1);
const HORIZON: Duration = Duration::from_millis(250);
const SHARDS: u32 = 5;

/// A millisecond away, with a server for each shard.
#[derive(Clone, Debug, Default)]
struct Servers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    servers: BTreeMap<Arc<str>, MemoryStore>,
    /// Which shard was told, and what.
    told: Vec<(Arc<str>, &'static str)>,
    down: Option<Arc<str>>,
}

impl Servers {
    fn server(&self, shard: &Arc<str>, what: &'static str) -> Option<MemoryStore> {
        let mut state = self.0.lock().unwrap();
        state.told.push((Arc::clone(shard), what));
        // Clocks differ by ten minutes.
        let began =
            Stamp::from_micros(1_000_000_000_000_000 + i64::try_from(state.servers.len()).unwrap() * 600_000_000);
        let server = state.servers.entry(Arc::clone(shard)).or_insert_with(|| MemoryStore::beginning_at(began)).clone();
        (state.down.as_ref() != Some(shard)).then_some(server)
    }

    fn process(&self, more: impl FnOnce(Upstream) -> Upstream) -> Throttle {
        let up = Upstream::new("up").scope_by(Scope::bearer_token()).limit(Limit::per_second(10)).shards(SHARDS);
        Throttle::builder().store(self.clone()).upstream(more(up)).build().unwrap()
    }

    /// How many messages of a kind each shard was told since this was asked last.
    fn told(&self, what: &str) -> Vec<usize> {
        let told = std::mem::take(&mut self.0.lock().unwrap().told);
        let mut counts = BTreeMap::new();
        told.iter().filter(|(_, other)| *other == what).for_each(|(shard, _)| *counts.entry(shard).or_default() += 1);
        counts.into_values().collect()
    }
}

impl Store for Servers {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            let what = match &message.body {
                Body::Ask(_) => "ask",
                Body::Pause { .. } => "pause",
                Body::Release { .. } => "release",
                Body::SlowDown { .. } => "slow_down",
                Body::Reset { .. } => "reset",
                Body::Look { .. } => "look",
                _ => "other",
            };
            let server = self.server(&message.upstream, what);
            sleep(Duration::from_millis(1)).await;
            match server {
                Some(server) => server.apply(message).await,
                None => Err(StoreError::new(StoreErrorKind::Unreachable, "down")),
            }
        })
    }
}

/// Scopes that lie in all shards.
fn scopes() -> impl Iterator<Item = String> {
    (0..30).map(|n| format!("token-{n}"))
}

async fn call(throttle: &Throttle, scope: &str) {
    drop(throttle.acquire("up").scope(scope).await.unwrap());
}

/// Which scope's calls went, and when.
type Starts = Arc<Mutex<Vec<(String, i64)>>>;

/// Callers of all scopes, and when each of their calls went.
fn callers(throttle: &Throttle, begin: Instant) -> (JoinSet<()>, Starts) {
    let (mut tasks, starts) = (JoinSet::new(), Starts::default());
    for scope in scopes() {
        let (throttle, starts) = (throttle.clone(), Arc::clone(&starts));
        tasks.spawn(async move {
            loop {
                call(&throttle, &scope).await;
                starts.lock().unwrap().push((scope.clone(), micros_since(begin)));
            }
        });
    }
    (tasks, starts)
}

#[tokio::test(start_paused = true)]
async fn each_scope_lies_in_one_shard_and_keeps_its_limit_over_all_processes() {
    let servers = Servers::default();
    let (begin, processes) = (Instant::now(), [(); 3].map(|()| servers.process(|up| up)));
    let all: Vec<_> = processes.iter().map(|process| callers(process, begin)).collect();
    sleep(5 * SECOND).await;
    let mut by_scope: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (_, starts) in &all {
        for (scope, start) in starts.lock().unwrap().iter() {
            by_scope.entry(scope.clone()).or_default().push(*start);
        }
    }
    for (scope, starts) in &by_scope {
        oracle::assert_never_more_than(10, 1_000_000, starts);
        assert!(starts.len() >= 45, "{scope}: {}", starts.len());
    }
    assert_eq!(by_scope.len(), 30);
    assert_eq!(servers.0.lock().unwrap().servers.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_whole_upstream_holds_in_all_shards_within_a_horizon_and_a_release_lifts_it() {
    let servers = Servers::default();
    let (one, other) = (servers.process(|up| up), servers.process(|up| up));
    let begin = Instant::now();
    let (_tasks, starts) = callers(&other, begin);
    sleep(2 * SECOND).await;
    one.report("up", &Feedback::refused(600 * SECOND)).await.unwrap();
    sleep(HORIZON).await;
    let before = starts.lock().unwrap().len();
    sleep(60 * SECOND).await;
    assert_eq!(starts.lock().unwrap().len(), before, "nobody starts");
    let usage = other.usage_in("up", "token-7").await.unwrap();
    assert!(usage.paused.is_some_and(|paused| paused.left > 530 * SECOND), "{usage:?}");
    let queues = other.snapshot().upstream("up").unwrap().queues.clone();
    assert_eq!(queues.iter().filter(|queue| queue.paused.is_some()).count(), 30);
    servers.told("");
    one.release("up").await.unwrap();
    assert_eq!(servers.told("release"), [1; 5], "one message for each shard");
    sleep(3 * SECOND).await;
    let scopes: BTreeSet<String> = starts.lock().unwrap()[before..].iter().map(|(scope, _)| scope.clone()).collect();
    assert_eq!(scopes.len(), 30, "all go on");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_refusals_is_one_message_for_each_shard_and_looks_are_one_a_second() {
    let servers = Servers::default();
    let throttle = servers.process(|up| up);
    let (_tasks, _) = callers(&throttle, Instant::now());
    sleep(SECOND).await;
    servers.told("");
    let mut reports = JoinSet::new();
    for n in 0..1_000 {
        let throttle = throttle.clone();
        let all = Feedback::refused(600 * SECOND).with_reach(Reach::Upstream);
        reports.spawn(async move { throttle.report_in("up", format!("token-{n}"), &all).await });
    }
    while let Some(told) = reports.join_next().await {
        told.unwrap().unwrap();
    }
    assert_eq!(servers.told("pause"), [1; 5]);
    sleep(20 * SECOND).await;
    let looks = servers.told("look");
    assert!(looks.len() == 5 && looks.iter().all(|count| (19..=20).contains(count)), "{looks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_one_scope_and_its_release_concern_its_shard_alone() {
    let servers = Servers::default();
    let (one, other) = (servers.process(|up| up), servers.process(|up| up));
    one.report_in("up", "token-1", &Feedback::refused(600 * SECOND)).await.unwrap();
    assert_eq!(servers.told("pause"), [1]);
    let refused = other.try_acquire("up").scope("token-1").await;
    assert!(matches!(refused, Err(Error::Throttled { retry_after, .. }) if retry_after > 590 * SECOND));
    for scope in scopes().filter(|scope| scope != "token-1") {
        drop(other.try_acquire("up").scope(scope).await.unwrap());
    }
    servers.told("");
    one.release_in("up", "token-1").await.unwrap();
    assert_eq!(servers.told("release"), [1]);
    drop(one.try_acquire("up").scope("token-1").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn slowed_down_every_shard_sends_less() {
    let servers = Servers::default();
    let (one, other) = (servers.process(|up| up), servers.process(|up| up));
    one.slow_down("up", 0.5, 60 * SECOND).await.unwrap();
    assert_eq!(servers.told("slow_down"), [1; 5]);
    for scope in scopes() {
        let usage = other.usage_in("up", &scope).await.unwrap();
        assert_eq!((usage.limits[0].free, usage.rate), (5, 0.5), "{scope}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_of_one_scope_concerns_its_shard_alone_and_one_of_the_upstream_all() {
    let servers = Servers::default();
    let throttle = servers.process(|up| up);
    for scope in ["token-1", "token-2"] {
        drop(throttle.try_acquire("up").scope(scope).await.unwrap());
    }
    throttle.reset_in("up", "token-1").await.unwrap();
    assert_eq!(servers.told("reset"), [1]);
    let used = async |scope| throttle.usage_in("up", scope).await.unwrap().limits[0].used;
    assert_eq!((used("token-1").await, used("token-2").await), (0, 1));
    throttle.reset("up").await.unwrap();
    // And one of them of callers without a value.
    let told = servers.told("reset");
    assert!(told.iter().all(|told| *told >= 1) && told.iter().sum::<usize>() == 6, "{told:?}");
    assert_eq!(used("token-2").await, 1, "the logs of scopes stay");
}

#[tokio::test(start_paused = true)]
async fn what_is_told_of_nobody_in_particular_is_about_callers_without_a_value() {
    let servers = Servers::default();
    let throttle = servers.process(Upstream::learn_from_responses);
    drop(throttle.try_acquire("up").await.unwrap());
    let headers = [("x-ratelimit-limit", "10"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "1")];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).into_iter().collect();
    throttle.report("up", &Feedback::read(StatusCode::OK, &headers, SystemTime::now())).await.unwrap();
    assert!(throttle.try_acquire("up").await.is_err());
    assert!(throttle.try_acquire("up").scope("token-1").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_refused_a_call_from_before_a_release_says_nothing_in_any_shard() {
    let servers = Servers::default();
    let throttle = servers.process(|up| up);
    let client =
        reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(Late).build();
    for scope in scopes() {
        call(&throttle, &scope).await;
    }
    let call =
        client.get("http://up.example/").bearer_auth("token-1").with_extension(outgate::Call::new().upstream("up"));
    let call = tokio::spawn(call.send());
    sleep(SECOND).await;
    throttle.release("up").await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().status(), 429);
    sleep(SECOND).await;
    assert_eq!(servers.told("pause"), [1; 5], "all shards were told");
    for scope in scopes() {
        let usage = throttle.usage_in("up", &scope).await.unwrap();
        assert_eq!(usage.paused, None, "{scope}");
    }
}

/// Refuses everybody after three seconds.
struct Late;

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Late {
    async fn handle(
        &self,
        _: reqwest::Request,
        _: &mut http::Extensions,
        _: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        sleep(3 * SECOND).await;
        let response = http::Response::builder().status(429).header("retry-after", "600");
        let response = response.header("ratelimit-reason", "jira-quota-global-based");
        Ok(response.body(reqwest::Body::default()).unwrap().into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_down_holds_up_no_other_and_learns_of_a_pause_when_it_is_back() {
    let servers = Servers::default();
    let throttle = servers.process(|up| up.without_store(WithoutStore::Refuse));
    for scope in scopes() {
        call(&throttle, &scope).await;
    }
    {
        let mut state = servers.0.lock().unwrap();
        state.down = state.servers.keys().nth(1).cloned();
    }
    let mut refused = 0;
    for scope in scopes() {
        match throttle.acquire("up").scope(&scope).await {
            Ok(permit) => drop(permit),
            Err(Error::StoreUnavailable { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((3..10).contains(&refused), "those of one shard of five: {refused}");
    let report = throttle.report("up", &Feedback::refused(600 * SECOND)).await;
    assert!(matches!(report, Err(Error::StoreUnavailable { .. })), "one shard does not know yet");
    servers.0.lock().unwrap().down = None;
    sleep(5 * SECOND).await;
    let other = servers.process(|up| up);
    for scope in scopes() {
        assert!(other.usage_in("up", &scope).await.unwrap().paused.is_some(), "{scope}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_shards_are_added_the_scopes_that_stay_keep_their_logs_and_the_others_begin_anew() {
    let servers = Servers::default();
    let before = servers.process(|up| up);
    for scope in scopes() {
        call(&before, &scope).await;
    }
    before.update(Upstream::new("up").scope_by(Scope::bearer_token()).limit(Limit::per_second(10)).shards(8)).unwrap();
    let mut used = [0; 2];
    for scope in scopes() {
        used[before.usage_in("up", &scope).await.unwrap().limits[0].used as usize] += 1;
    }
    // Three of eight.
    assert!((7..=15).contains(&used[0]) && used.iter().sum::<usize>() == 30, "{used:?}");
}

#[tokio::test(start_paused = true)]
async fn seats_priorities_estimates_and_what_is_kept_hold_in_every_shard() {
    let servers = Servers::default();
    let up = |up: Upstream| {
        up.limit(Limit::in_flight(2))
            .limit(Limit::per_minute(1_000).of("tokens"))
            .estimate("tokens", 100)
            .reserve(Priority::High, 20)
    };
    let (one, other) = (servers.process(up), servers.process(up));
    for scope in scopes() {
        let seats = [&one, &other].map(|throttle| throttle.try_acquire("up").scope(&scope).into_future());
        let mut seated = Vec::new();
        for seat in seats {
            seated.push(seat.await.unwrap());
        }
        let third = one.try_acquire("up").scope(&scope).await;
        assert!(matches!(third, Err(Error::Throttled { .. })), "{scope}: both seats are taken");
        seated[0].settle("tokens", 10);
        sleep(SECOND / 2).await;
        let usage = other.usage_in("up", &scope).await.unwrap();
        let used: Vec<u32> = usage.limits.iter().map(|limit| limit.used).collect();
        assert_eq!(used, [2, 110, 2], "{scope}: calls, tokens, seats");
        drop(seated);
        sleep(2 * SECOND).await;
        let mut went = [0; 2];
        for (went, priority) in went.iter_mut().zip([Priority::Normal, Priority::High]) {
            while one.try_acquire("up").scope(&scope).priority(priority).await.is_ok() {
                *went += 1;
            }
        }
        // Of tokens 800 are for all, of which 110 were used; of calls 8.
        assert_eq!(went, [6, 2], "{scope}");
    }
}

/// Who comes while one shard is away is counted where processes are, and each goes by its part of all; whenever it comes, between two messages by which
/// the others hear of it.
#[tokio::test(start_paused = true)]
async fn where_a_shard_is_away_parts_grow_smaller_as_processes_come() {
    for comes_at in [1_500, 2_500, 3_500, 4_500, 5_500, 25_000, 26_000, 27_000, 27_500, 28_000, 29_000] {
        let starts = starts_where_another_comes(Duration::from_millis(comes_at)).await;
        oracle::assert_never_more_than(10, 1_000_000, &starts);
        let late = starts.iter().filter(|start| **start >= 35_000_000).count();
        assert!(late >= 80, "{late} of 100, as one comes after {comes_at} ms");
    }
}

/// When calls of one scope start, whose shard is away after 5 s, and where another process comes after so long.
async fn starts_where_another_comes(after: Duration) -> Vec<i64> {
    let (servers, begin) = (Servers::default(), Instant::now());
    let process = || servers.process(|up| up.without_store(WithoutStore::ThrottleLocally));
    let shard_of = async |throttle: &Throttle, scope: &str| {
        servers.told("ask");
        call(throttle, scope).await;
        let state = servers.0.lock().unwrap();
        state.told.iter().find(|(_, what)| *what == "ask").map(|(shard, _)| Arc::clone(shard)).unwrap()
    };
    let one = process();
    let mut scopes = scopes();
    let (scope, shard) = loop {
        let scope = scopes.next().unwrap();
        let shard = shard_of(&one, &scope).await;
        if &*shard != "up" {
            break (scope, shard);
        }
    };
    let starts = Starts::default();
    let mut tasks = JoinSet::new();
    let mut calls = |throttle: &Throttle| {
        for _ in 0..4 {
            let (throttle, scope, starts) = (throttle.clone(), scope.clone(), Arc::clone(&starts));
            tasks.spawn(async move {
                loop {
                    if throttle.acquire("up").scope(&scope).await.map(drop).is_ok() {
                        starts.lock().unwrap().push((scope.clone(), micros_since(begin)));
                    } else {
                        sleep(SECOND / 10).await;
                    }
                }
            });
        }
    };
    calls(&one);
    let comes = async {
        sleep_until(begin + after).await;
        let other = process();
        calls(&other);
        other
    };
    let goes = async {
        sleep_until(begin + 5 * SECOND).await;
        servers.0.lock().unwrap().down = Some(shard);
        sleep_until(begin + 45 * SECOND).await;
    };
    let (_other, ()) = tokio::join!(comes, goes);
    tasks.abort_all();
    let starts = starts.lock().unwrap();
    starts.iter().map(|(_, at)| *at).collect()
}
