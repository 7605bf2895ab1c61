//! What becomes of calls while the store cannot answer, by policy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use outgate::ledger::{Body, Message, ScopeId};
use outgate::store::{Applying, StoreError, StoreErrorKind, WithoutStore};
use outgate::testing::oracle::assert_never_more_than;
use outgate::{Error, Feedback, Limit, MemoryStore, Permit, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::micros_since;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// What an answer takes.
const LATENCY: Duration = MS;

/// What a store does with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Answer,
    /// It cannot be reached, and says so at once.
    Fail,
    /// It acts, and never says so; after four seconds it gives up.
    Stall,
    /// It answers after so long.
    Late(Duration),
    /// It says of every message that somebody else has the sender's name.
    Mistake,
    /// Its answers make no sense.
    Babble,
    /// It refuses what is asked of this scope.
    Refuse(ScopeId),
}

/// A memory store a millisecond away, which does what it is told to.
#[derive(Clone, Debug)]
struct Moody {
    inner: MemoryStore,
    does: Arc<Mutex<Does>>,
    calls: Arc<AtomicU64>,
}

impl Moody {
    fn new() -> Self {
        Self { inner: MemoryStore::new(), does: Arc::new(Mutex::new(Does::Answer)), calls: Arc::default() }
    }

    fn will(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    fn throttle(&self, policy: WithoutStore, up: impl FnOnce(Upstream) -> Upstream) -> Throttle {
        let up = up(Upstream::new("up").limit(Limit::per_second(10)));
        Throttle::builder().store(self.clone()).without_store(policy).upstream(up).build().unwrap()
    }

    /// With a store that has answered, and one call made.
    async fn warm(&self, policy: WithoutStore) -> Throttle {
        let throttle = self.throttle(policy, |up| up);
        assert!(!throttle.acquire("up").await.unwrap().went_without_store());
        throttle
    }
}

impl Store for Moody {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            sleep(LATENCY).await;
            let does = *self.does.lock().unwrap();
            let kind = match does {
                Does::Answer => return self.inner.apply(message).await,
                Does::Stall => {
                    let _answer = self.inner.apply(message).await;
                    sleep(4 * SECOND).await;
                    StoreErrorKind::Unreachable
                }
                Does::Late(after) => {
                    sleep(after).await;
                    return self.inner.apply(message).await;
                }
                Does::Refuse(scope) => match &message.body {
                    Body::Ask(ask) if ask.logs.iter().any(|log| log.scope == Some(scope)) => StoreErrorKind::Refused,
                    _ => return self.inner.apply(message).await,
                },
                Does::Fail => StoreErrorKind::Unreachable,
                Does::Mistake => StoreErrorKind::Duplicate,
                Does::Babble => StoreErrorKind::Malformed,
            };
            Err(StoreError::new(kind, "it is moody"))
        })
    }
}

/// What a call got, and after how many milliseconds.
async fn call(throttle: &Throttle, max_wait: Option<Duration>) -> (&'static str, u128) {
    let (since, acquire) = (Instant::now(), throttle.acquire("up"));
    let outcome = match max_wait {
        Some(max_wait) => acquire.max_wait(max_wait).await,
        None => acquire.await,
    };
    (shown(outcome), since.elapsed().as_millis())
}

fn shown(outcome: Result<Permit, Error>) -> &'static str {
    match outcome {
        Ok(permit) if permit.went_without_store() => "goes unthrottled",
        Ok(_) => "goes",
        Err(Error::StoreUnavailable { .. }) => "refused",
        Err(Error::Throttled { .. }) => "throttled",
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_hangs_longer_than_its_policy_says_whatever_the_store_does() {
    use WithoutStore::{Refuse, SendUnthrottled, Wait};
    let late = Does::Late(1_500 * MS);
    let moods = [Does::Fail, Does::Stall, late, Does::Mistake, Does::Babble];
    for mood in moods {
        for policy in [Wait, Refuse, SendUnthrottled] {
            let store = Moody::new();
            let throttle = store.warm(policy).await;
            store.will(mood);
            let first = call(&throttle, None).await;
            let then = [call(&throttle, None).await, call(&throttle, Some(3 * SECOND)).await];
            // What is not answered at all takes a second to be believed; a name that is doubted is changed once, and asked for again.
            let after = match mood {
                Does::Fail | Does::Babble => 1,
                Does::Mistake => 2,
                _ => 1_000,
            };
            let renamed = u128::from(mood == Does::Mistake);
            let expected = match policy {
                Wait if mood == late => (("goes", 1_501), [("goes", 1_501), ("goes", 1_501)]),
                Wait => (("refused", 5_000 + renamed), [("refused", 5_000), ("refused", 3_000)]),
                Refuse => (("refused", after), [("refused", 0), ("refused", 0)]),
                _ => (("goes unthrottled", after), [("goes unthrottled", 0); 2]),
            };
            assert_eq!((first, then), expected, "{mood:?}, {policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_before_it_is_known_that_the_store_stalls() {
    for (policy, expected) in [(WithoutStore::Refuse, "refused"), (WithoutStore::SendUnthrottled, "goes unthrottled")] {
        let store = Moody::new();
        let throttle = store.warm(policy).await;
        store.will(Does::Stall);
        assert_eq!(call(&throttle, Some(200 * MS)).await, (expected, 200));
        let since = Instant::now();
        assert_eq!(shown(throttle.try_acquire("up").await), expected);
        assert_eq!(since.elapsed(), 800 * MS, "the message has been under way for a second by then");
        assert_eq!(shown(throttle.try_acquire("up").await), expected);
        assert_eq!(since.elapsed(), 800 * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_never_reached_the_store_keeps_to_its_policy_too() {
    for (policy, expected) in [(WithoutStore::Refuse, "refused"), (WithoutStore::SendUnthrottled, "goes unthrottled")] {
        let store = Moody::new();
        store.will(Does::Stall);
        let throttle = store.throttle(policy, |up| up);
        assert_eq!(call(&throttle, None).await, (expected, 1_000));
        assert_eq!(call(&throttle, None).await, (expected, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_far_away_is_not_taken_for_one_that_stalls() {
    // Five exchanges of 400 ms each, until the first slot.
    let store = Moody::new();
    store.will(Does::Late(400 * MS));
    let throttle = store.throttle(WithoutStore::Refuse, |up| up);
    assert_eq!(call(&throttle, None).await.0, "goes");
}

#[tokio::test(start_paused = true)]
async fn all_queues_of_an_upstream_know_that_the_store_cannot_be_reached_and_that_it_is_back() {
    let store = Moody::new();
    let throttle = store.warm(WithoutStore::Refuse).await;
    store.will(Does::Stall);
    assert_eq!(call(&throttle, None).await, ("refused", 1_000));
    let since = Instant::now();
    let of = |scope: u32| throttle.acquire("up").scope(scope.to_be_bytes());
    for scope in 0..1_000 {
        assert_eq!(shown(of(scope).await), "refused");
    }
    assert_eq!(since.elapsed(), Duration::ZERO);
    store.will(Does::Answer);
    sleep(60 * SECOND).await;
    assert_eq!(shown(of(0).await), "goes");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_store_refuses_concerns_its_logs_alone() {
    let store = Moody::new();
    let throttle = store.warm(WithoutStore::SendUnthrottled).await;
    store.will(Does::Refuse(ScopeId::of(b"bad")));
    for _ in 0..3 {
        assert_eq!(shown(throttle.acquire("up").scope("bad").await), "goes unthrottled");
        assert_eq!(shown(throttle.acquire("up").scope("good").await), "goes");
    }
    store.will(Does::Answer);
    sleep(3 * SECOND).await;
    assert_eq!(shown(throttle.acquire("up").scope("bad").await), "goes");
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_it_is_tried_no_more_often_than_calls_come_nor_than_every_50_ms() {
    let store = Moody::new();
    let throttle = store.warm(WithoutStore::Refuse).await;
    store.will(Does::Fail);
    let before = store.calls.load(Ordering::Relaxed);
    for _ in 0..10_000 {
        drop(throttle.acquire("up").await.unwrap_err());
        sleep(MS).await;
    }
    let tried = store.calls.load(Ordering::Relaxed) - before;
    assert!((150..=201).contains(&tried), "{tried} in 10 s");
    store.will(Does::Answer);
    let since = Instant::now();
    while throttle.acquire("up").await.is_err() {
        sleep(MS).await;
    }
    assert!(since.elapsed() <= 55 * MS, "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn each_caller_is_told_five_seconds_after_it_came_however_long_the_store_is_away() {
    let store = Moody::new();
    let throttle = store.warm(WithoutStore::Wait).await;
    store.will(Does::Fail);
    let mut callers = JoinSet::new();
    for _ in 0..25 {
        let throttle = throttle.clone();
        callers.spawn(async move { call(&throttle, None).await });
        sleep(3 * SECOND).await;
    }
    for (outcome, after) in callers.join_all().await {
        assert_eq!((outcome, after / 10), ("refused", 500), "{after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_called_for_a_minute_is_asked_again() {
    for policy in [WithoutStore::Refuse, WithoutStore::SendUnthrottled] {
        let store = Moody::new();
        let throttle = store.warm(policy).await;
        store.will(Does::Fail);
        assert_ne!(call(&throttle, None).await.0, "goes");
        sleep(60 * SECOND).await;
        store.will(Does::Answer);
        assert_eq!(call(&throttle, None).await, ("goes", 1), "nobody refuses it for what happened then");
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_store_is_back_nobody_goes_beyond_the_quota_of_the_shared_log() {
    for policy in [WithoutStore::Wait, WithoutStore::Refuse] {
        let store = Moody::new();
        let (begin, mut tasks) = (Instant::now(), JoinSet::new());
        for _process in 0..4 {
            let throttle = store.throttle(policy, |up| up.max_wait(2 * SECOND));
            for _ in 0..4 {
                let throttle = throttle.clone();
                tasks.spawn(async move {
                    let mut went = Vec::new();
                    while begin.elapsed() < 40 * SECOND {
                        match throttle.acquire("up").await {
                            Ok(_permit) => went.push(micros_since(begin)),
                            Err(_) => sleep(20 * MS).await,
                        }
                    }
                    went
                });
            }
        }
        for does in [Does::Fail, Does::Answer, Does::Stall, Does::Answer, Does::Late(1_200 * MS), Does::Answer] {
            sleep(5 * SECOND).await;
            store.will(does);
        }
        let went = tasks.join_all().await.concat();
        assert_never_more_than(10, 1_000_000, &went);
        assert!(went.len() > 80, "{policy:?}: {}", went.len());
        let last = went.iter().filter(|&&at| at > 32_000_000).count();
        assert!(last >= 70, "{policy:?}: calls go on: {last} in the last 8 s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_booked_is_used_though_the_store_is_away() {
    let store = Moody::new();
    let throttle = store.throttle(WithoutStore::Refuse, |up| up);
    for _ in 0..10 {
        drop(throttle.acquire("up").await.unwrap());
    }
    sleep(850 * MS).await;
    let booked = throttle.clone();
    let booked = tokio::spawn(async move { shown(booked.acquire("up").await) });
    sleep(10 * MS).await;
    store.will(Does::Fail);
    assert_eq!(call(&throttle, None).await.0, "refused");
    assert_eq!(booked.await.unwrap(), "goes");
}

#[tokio::test(start_paused = true)]
async fn whoever_goes_without_the_store_sits_out_a_pause() {
    let store = Moody::new();
    let throttle = store.warm(WithoutStore::SendUnthrottled).await;
    store.will(Does::Fail);
    assert_eq!(call(&throttle, None).await, ("goes unthrottled", 1));
    let told = HeaderMap::from_iter([(header::RETRY_AFTER, "7".parse().unwrap())]);
    let refusal = Feedback::read(StatusCode::TOO_MANY_REQUESTS, &told, SystemTime::now());
    assert!(throttle.report("up", &refusal).await.is_err(), "the store is not told, but this process knows");
    let since = Instant::now();
    assert_eq!(call(&throttle, Some(2 * SECOND)).await, ("throttled", 0));
    assert_eq!(shown(throttle.try_acquire("up").await), "throttled");
    let mut callers = JoinSet::new();
    for max_wait in [None, Some(10 * SECOND), Some(60 * SECOND)] {
        let throttle = throttle.clone();
        callers.spawn(async move { call(&throttle, max_wait).await });
    }
    for (outcome, after) in callers.join_all().await {
        assert_eq!(outcome, "goes unthrottled");
        assert!((6_999..7_100).contains(&after), "{after}");
    }
    assert!(since.elapsed() < 7_100 * MS);
    assert_eq!(call(&throttle, None).await, ("goes unthrottled", 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_without_the_stores_word_owes_nothing() {
    let store = Moody::new();
    let throttle = store.throttle(WithoutStore::SendUnthrottled, |up| up.limit(Limit::in_flight(100)));
    let seated = throttle.acquire("up").await.unwrap();
    store.will(Does::Fail);
    for end in 0..4 {
        let permit = throttle.acquire("up").await.unwrap();
        assert!(permit.went_without_store() && permit.passage().without_store);
        assert_eq!(permit.passage(), permit.passage());
        match end {
            0 => permit.hand_back(),
            1 => permit.served(),
            2 => permit.settle("calls", 7),
            _ => drop(permit),
        }
    }
    assert!(!seated.passage().without_store);
    store.will(Does::Answer);
    sleep(2 * SECOND).await;
    assert!(!throttle.acquire("up").await.unwrap().went_without_store());
    let usage = throttle.usage("up").await.unwrap();
    assert_eq!(usage.limits[0].used, 1, "the last call alone: {usage:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_policy_wins_over_that_of_its_throttle() {
    let store = Moody::new();
    let up = |name: &'static str| Upstream::new(name).limit(Limit::per_second(10)).max_wait(2 * SECOND);
    let throttle = Throttle::builder()
        .store(store.clone())
        .without_store(WithoutStore::SendUnthrottled)
        .upstream(up("metrics"))
        .upstream(up("bank").without_store(WithoutStore::Refuse))
        .upstream(up("mail").without_store(WithoutStore::Wait))
        .build()
        .unwrap();
    store.will(Does::Fail);
    for (name, expected) in
        [("metrics", ("goes unthrottled", 1)), ("bank", ("refused", 1)), ("mail", ("refused", 2_000))]
    {
        let since = Instant::now();
        assert_eq!((shown(throttle.acquire(name).await), since.elapsed().as_millis()), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn closed_nobody_goes_without_the_store_either() {
    let store = Moody::new();
    let throttle = store.warm(WithoutStore::SendUnthrottled).await;
    store.will(Does::Stall);
    assert_eq!(call(&throttle, None).await.0, "goes unthrottled");
    let since = Instant::now();
    throttle.close().await;
    assert!(since.elapsed() <= 5 * SECOND);
    assert!(matches!(throttle.acquire("up").await, Err(Error::Closed)));
}
