//! What a process has others know of who waits in it.

mod losing;
mod paused;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use outgate::ledger::{Body, Message, Renewal};
use outgate::store::{Applying, StoreErrorKind};
use outgate::testing::{FailingStore, StoreFault};
use outgate::{Acquire, Limit, MemoryStore, Scope, Store, Throttle, Upstream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// A memory store that shows when it is told of processes.
#[derive(Clone, Debug)]
struct Told {
    store: MemoryStore,
    /// Where it keeps which processes there are.
    processes: Arc<Mutex<MemoryStore>>,
    begin: Instant,
    said: Arc<Mutex<Vec<(u64, Renewal)>>>,
    /// It does not answer any more.
    is_silent: Arc<AtomicBool>,
}

impl Told {
    fn new() -> Self {
        let (store, begin) = (MemoryStore::new(), Instant::now());
        let processes = Arc::new(Mutex::new(store.clone()));
        Self { store, processes, begin, said: Arc::default(), is_silent: Arc::default() }
    }

    /// It loses which processes there are, and nothing else.
    fn lose_processes(&self) {
        *self.processes.lock().unwrap() = MemoryStore::new();
    }

    /// In seconds since the beginning: callers that wait, how long the first has, and whether the upstream was described.
    fn said(&self) -> Vec<(u64, u32, u64, bool)> {
        let of = |(at, said): &(u64, Renewal)| {
            (*at, said.presence.callers, said.presence.oldest.as_secs(), said.about.is_some())
        };
        self.said.lock().unwrap().iter().map(of).collect()
    }

    fn process(&self, upstream: Upstream) -> Throttle {
        Throttle::builder().store(self.clone()).upstream(upstream).build().unwrap()
    }
}

impl Store for Told {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            if let Body::Renew(renewal) = &message.body {
                self.said.lock().unwrap().push((self.begin.elapsed().as_secs(), renewal.clone()));
            }
            if self.is_silent.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let is_of_processes = matches!(message.body, Body::Renew(_) | Body::Processes { .. });
            let processes = is_of_processes.then(|| self.processes.lock().unwrap().clone());
            processes.as_ref().unwrap_or(&self.store).apply(message).await
        })
    }
}

fn minutely() -> Upstream {
    Upstream::new("up").limit(Limit::per_minute(1).guard(Duration::from_secs(1)))
}

/// How many callers wait in each process, as the store says.
async fn callers(throttle: &Throttle) -> Vec<u32> {
    let mut callers: Vec<_> =
        throttle.processes("up").await.unwrap().all.iter().map(|process| process.presence.callers).collect();
    callers.sort_unstable();
    callers
}

/// A call that the upstream refuses for so many seconds.
async fn refused(throttle: &Throttle, scope: Option<&str>, seconds: u32) {
    let call = throttle.acquire("up");
    let permit = scope.into_iter().fold(call, Acquire::scope).await.unwrap();
    let headers = HeaderMap::from_iter([(RETRY_AFTER, seconds.into())]);
    throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &headers);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_told_every_fifteen_seconds_while_callers_wait_and_once_when_none_do_any_more() {
    let store = Told::new();
    let throttle = store.process(minutely());
    drop(throttle.acquire("up").await.unwrap());
    drop(throttle.acquire("up").await.unwrap());
    // It waits for a minute and its guard; once a minute the upstream is described.
    let waited = (0..5).map(|turn| (1 + 15 * turn, 1, 1 + 15 * turn, turn % 4 == 0));
    let expected: Vec<_> = waited.chain([(76, 0, 0, false)]).collect();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(store.said(), expected);
}

#[tokio::test(start_paused = true)]
async fn of_shadows_of_calls_that_went_on_it_is_told_nothing() {
    let store = Told::new();
    let throttle = store.process(minutely().observe());
    for _ in 0..3 {
        drop(throttle.acquire("up").await.unwrap());
        sleep(Duration::from_secs(10)).await;
    }
    sleep(Duration::from_secs(600)).await;
    assert_eq!(store.said(), [(10, 0, 0, true)], "that calls come");
}

#[tokio::test(start_paused = true)]
async fn where_nobody_waits_it_is_told_once_a_minute_as_calls_come() {
    let store = Told::new();
    let throttle = store.process(Upstream::new("up").limit(Limit::per_second(100)));
    for _ in 0..100 {
        drop(throttle.acquire("up").await.unwrap());
        sleep(Duration::from_millis(1_500)).await;
    }
    assert_eq!(store.said(), [(1, 0, 0, true), (61, 0, 0, true), (121, 0, 0, true)]);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(store.said().len(), 3, "and not when none come");
}

#[tokio::test(start_paused = true)]
async fn callers_who_wait_for_less_than_a_second_are_worth_no_message() {
    let store = Told::new();
    let throttle = store.process(Upstream::new("up").limit(Limit::new(10, Duration::from_millis(500))));
    let mut calls = JoinSet::new();
    for _ in 0..15 {
        let call = throttle.acquire("up");
        calls.spawn(async move { drop(call.await) });
    }
    calls.join_all().await;
    sleep(Duration::from_secs(90)).await;
    assert_eq!(store.said(), []);
}

#[tokio::test(start_paused = true)]
async fn each_process_sees_who_waits_in_all_of_them_until_they_close_or_fall_silent() {
    let store = Told::new();
    let [here, there, dies] = [(); 3].map(|()| store.process(minutely()));
    drop(here.acquire("up").await.unwrap());
    let mut waiting = JoinSet::new();
    for (throttle, count) in [(&there, 2), (&dies, 3)] {
        for _ in 0..count {
            let call = throttle.acquire("up");
            waiting.spawn(async move { drop(call.await) });
        }
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!(callers(&here).await, [0, 2, 3]);
    there.close().await;
    assert_eq!(callers(&here).await, [0, 3], "who closes is gone");
    drop((waiting, dies));
    sleep(Duration::from_secs(40)).await;
    assert_eq!(callers(&here).await, [0, 3]);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(callers(&here).await, [0], "who says nothing any more is forgotten");
}

#[tokio::test(start_paused = true)]
async fn scopes_in_use_are_told_as_hashes_and_by_the_names_that_the_program_gives() {
    let store = Told::new();
    let up = || {
        let up = Upstream::new("up").limit(Limit::per_minute(1).each(Scope::bearer_token()));
        up.limit(Limit::per_second(100)).name_scope("token-b", "release-bot")
    };
    let [here, there] = [(); 2].map(|()| store.process(up()));
    for token in ["token-a", "token-b"] {
        drop(here.acquire("up").scope(token).await.unwrap());
    }
    let waits = tokio::spawn({
        let call = there.acquire("up").scope("token-b");
        async move { drop(call.await) }
    });
    sleep(Duration::from_secs(17)).await;
    let seen = here.scopes("up").await.unwrap();
    let seen: Vec<_> = seen
        .iter()
        .map(|scope| (scope.name.as_deref(), &*scope.kind, scope.processes, scope.callers, scope.oldest.as_secs()))
        .collect();
    assert_eq!(seen, [(Some("release-bot"), "bearer_token", 2, 1, 16), (None, "bearer_token", 1, 0, 0)]);
    let all = format!("{:?}", store.said.lock().unwrap());
    assert!(!all.contains("token-a") && !all.contains("token-b"), "{all}");
    waits.abort();
    sleep(Duration::from_secs(200)).await;
    assert_eq!(here.scopes("up").await.unwrap(), [], "those of before");
}

#[tokio::test(start_paused = true)]
async fn processes_of_upstreams_that_share_limits_are_told_apart() {
    let account = [Limit::per_minute(1)];
    let up = |name: &'static str| Upstream::new(name).shares("account", account.clone());
    let throttle = Throttle::builder().store(Told::new()).upstream(up("files")).upstream(up("mail")).build().unwrap();
    drop(throttle.acquire("files").await.unwrap());
    let count = async |name| throttle.processes(name).await.unwrap().all.len();
    assert_eq!((count("files").await, count("mail").await), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn closing_waits_no_longer_where_many_upstreams_have_to_be_told() {
    let store = Told::new();
    let names: Vec<_> = (0..20).map(|number| format!("up-{number}")).collect();
    let upstreams = names.iter().map(|name| Upstream::new(&**name).limit(Limit::per_second(100)));
    let throttle = Throttle::builder().store(store.clone()).upstreams(upstreams).build().unwrap();
    for _ in 0..2 {
        for name in &names {
            drop(throttle.acquire(name).await.unwrap());
        }
        sleep(Duration::from_millis(1_500)).await;
    }
    assert_eq!(store.said().len(), names.len());
    store.is_silent.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    throttle.close().await;
    assert!(begun.elapsed() <= Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(store.said().len(), 2 * names.len(), "each is told all the same");
}

#[test]
fn closing_outside_of_a_runtime_waits_for_nobody() {
    let throttle = Told::new().process(Upstream::new("up").limit(Limit::per_second(100)));
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
        for _ in 0..2 {
            drop(throttle.acquire("up").await.unwrap());
            sleep(Duration::from_millis(1_500)).await;
        }
    });
    assert!(pin!(throttle.close()).poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_description_that_did_not_reach_the_store_is_told_again() {
    let store = FailingStore::new(MemoryStore::new());
    let throttle = Throttle::builder().store(store.clone()).upstream(minutely()).build().unwrap();
    drop(throttle.acquire("up").await.unwrap());
    store.fail(StoreFault::Error(StoreErrorKind::Unreachable));
    let waits = tokio::spawn(throttle.acquire("up").into_future());
    sleep(Duration::from_millis(1_500)).await;
    store.heal();
    let seen = throttle.processes("up").await.unwrap();
    assert_eq!(seen.descriptions.len(), 1);
    waits.abort();
}
