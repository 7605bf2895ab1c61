//! Pauses that the store loses within their first second, before anybody has looked at them, or that it cannot be told at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{HeaderName, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use outgate::error::{StoreError, StoreErrorKind};
use outgate::ledger::{Body, Message};
use outgate::store::{Applying, WithoutStore};
use outgate::{Limit, MemoryStore, Store, Throttle, Upstream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::Counting;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Two processes, of which the first got a 429 that says to wait for ten minutes.
async fn refused(store: &Counting, scope: Option<&'static str>) -> [Throttle; 2] {
    let [one, other] = [(); 2].map(|()| store.limited(Limit::per_second(10)));
    let acquire = one.acquire("up");
    let permit = if let Some(scope) = scope { acquire.scope(scope) } else { acquire }.await.unwrap();
    one.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &HeaderMap::from_iter([(RETRY_AFTER, 600.into())]));
    [one, other]
}

/// A call of the whole upstream or of a scope, from now on.
fn call(throttle: &Throttle, scope: Option<&'static str>) -> JoinHandle<()> {
    let acquire = throttle.acquire("up");
    let acquire = if let Some(scope) = scope { acquire.scope(scope) } else { acquire };
    tokio::spawn(async move { drop(acquire.await.unwrap()) })
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_store_has_lost_before_anybody_looked_is_told_again() {
    for scope in [None, Some("a")] {
        for waits in [true, false] {
            let store = Counting::default();
            let [one, other] = refused(&store, scope).await;
            let paused = waits.then(|| call(&one, scope));
            sleep(secs(1) / 2).await;
            store.lose_data();
            // Where nobody calls the first look comes after 3 s.
            sleep(secs(if waits { 1 } else { 3 })).await;
            let late = call(&other, scope);
            sleep(secs(60)).await;
            assert!(!late.is_finished(), "{scope:?}, waited for: {waits}");
            assert!(paused.is_none_or(|paused| !paused.is_finished()), "{scope:?}");
            assert_eq!(store.told(), 2, "once more");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_was_released_before_anybody_looked_is_over_all_the_same() {
    for scope in [None, Some("a")] {
        for (by_itself, is_lost) in [(true, false), (true, true), (false, false)] {
            let store = Counting::default();
            let [one, other] = refused(&store, scope).await;
            sleep(secs(1) / 4).await;
            if by_itself { &one } else { &other }.release("up").await.unwrap();
            sleep(secs(1) / 4).await;
            if is_lost {
                store.lose_data();
            }
            let calls = [&one, &other].map(|throttle| call(throttle, scope));
            sleep(secs(4)).await;
            let said = format!("{scope:?}, released by itself: {by_itself}, then lost: {is_lost}");
            assert!(calls.iter().all(JoinHandle::is_finished), "{said}");
            let late = call(&store.limited(Limit::per_second(10)), scope);
            sleep(secs(1)).await;
            assert!(late.is_finished(), "{said}");
        }
    }
}

/// The process that knows the pause meets it again in a call that comes after the release, of which it has not heard yet.
#[tokio::test(start_paused = true)]
async fn who_comes_after_a_release_by_another_process_brings_no_pause_back() {
    for after in [100, 400, 1_000, 4_000] {
        let store = Counting::default();
        let [one, other] = refused(&store, None).await;
        sleep(secs(1) / 4).await;
        other.release("up").await.unwrap();
        sleep(Duration::from_millis(after)).await;
        let calls = [&one, &other].map(|throttle| call(throttle, None));
        sleep(secs(4)).await;
        assert!(calls.iter().all(JoinHandle::is_finished), "{after} ms after it");
    }
}

/// A store that cannot be reached, or that writes nothing while it serves who reads, as one that is out of memory.
#[derive(Clone, Debug)]
struct Away {
    store: MemoryStore,
    is_gone: Arc<AtomicBool>,
    serves_readers: bool,
}

impl Store for Away {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let reads = self.serves_readers && matches!(message.body, Body::Look { .. } | Body::Usage { .. });
        if self.is_gone.load(Ordering::Relaxed) && !reads {
            let error = StoreError::new(StoreErrorKind::Unreachable, "it is away, as the test says");
            return Applying::pending(async move { Err(error) });
        }
        self.store.apply(message)
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_store_could_not_be_told_holds_for_as_long_as_it_was_told() {
    let policies = [WithoutStore::Wait, WithoutStore::Refuse, WithoutStore::SendUnthrottled];
    for (policy, serves_readers) in policies.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let (is_gone, begin) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let store = Away { store: MemoryStore::new(), is_gone: Arc::clone(&is_gone), serves_readers };
        let tokens = Limit::per_second(1_000_000).of("tokens");
        let upstream = Upstream::new("up").limit(Limit::per_second(100)).limit(tokens).learn_from_responses();
        let upstream = upstream.without_store(policy);
        let throttle = Throttle::builder().store(store).upstream(upstream).build().unwrap();
        let permit = throttle.acquire("up").await.unwrap();
        is_gone.store(true, Ordering::Relaxed);
        // What they report of the quotas of two units tells nothing of the pause.
        let name = HeaderName::from_static;
        let remaining = [name("x-ratelimit-remaining-requests"), name("x-ratelimit-remaining-tokens")];
        let headers = remaining.into_iter().map(|name| (name, 5.into())).chain([(RETRY_AFTER, 40.into())]);
        throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &headers.collect());
        drop(permit);
        let first = tokio::spawn(async move {
            while begin.elapsed() < secs(60) {
                if throttle.acquire("up").max_wait(secs(5)).await.is_ok() {
                    return begin.elapsed();
                }
                sleep(Duration::from_millis(100)).await;
            }
            begin.elapsed()
        });
        sleep(secs(10)).await;
        is_gone.store(false, Ordering::Relaxed);
        let first = first.await.unwrap();
        assert!(first >= secs(40) && first < secs(42), "{policy:?}, serves readers: {serves_readers}: {first:?}");
    }
}
