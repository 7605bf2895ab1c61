//! An upstream that is observed: every call goes on at once, and it is known what would have become of it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::ledger::{Body, Message};
use outgate::snapshot::Observed;
use outgate::store::{Applying, StoreError, StoreErrorKind, WithoutStore};
use outgate::{Limit, MemoryStore, Permit, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::Counting;

const CALLS: usize = 100;

fn up() -> Upstream {
    Upstream::new("up").limit(Limit::per_second(10))
}

fn throttle(store: impl Store, up: Upstream) -> Throttle {
    Throttle::builder().store(store).upstream(up).build().unwrap()
}

async fn observed(throttle: &Throttle) -> Observed {
    throttle.usage("up").await.unwrap().observed.unwrap()
}

/// Makes calls that all go on at this very moment.
async fn call(throttle: &Throttle, calls: usize) -> Vec<Permit> {
    let (begin, mut permits) = (Instant::now(), Vec::new());
    for _ in 0..calls {
        permits.push(throttle.acquire("up").await.unwrap());
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(permits.iter().all(|permit| permit.waited().is_zero() && permit.late().is_zero()));
    permits
}

#[tokio::test(start_paused = true)]
async fn calls_go_on_at_once_and_their_waits_are_those_that_they_would_have_had() {
    let waits = {
        let throttle = throttle(MemoryStore::new(), up());
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            let throttle = throttle.clone();
            calls.spawn(async move { throttle.acquire("up").await.unwrap().waited() });
        }
        calls.join_all().await
    };
    let throttle = throttle(MemoryStore::new(), up().observe());
    drop(call(&throttle, CALLS).await);
    let at_once = observed(&throttle).await;
    assert_eq!((at_once.calls, at_once.undecided, at_once.waited), (100, 90, 0));
    assert_eq!(throttle.usage("up").await.unwrap().waiting, 0, "only shadows do");
    sleep(Duration::from_secs(20)).await;
    let observed = observed(&throttle).await;
    assert_eq!((observed.calls, observed.undecided, observed.waited), (100, 0, 90));
    assert_eq!((observed.refused, observed.failed), (0, 0));
    let (in_all, longest): (Duration, _) = (waits.iter().sum(), *waits.iter().max().unwrap());
    assert_eq!((observed.wait, observed.longest_wait), (in_all, longest));
    assert_eq!(longest.as_millis(), 9_450, "nine windows with their guards");
}

/// Callers that wait: by the snapshot, and by its queues, as usage tells, and as other processes are told.
async fn waiting(throttle: &Throttle) -> [usize; 4] {
    sleep(Duration::from_secs(2)).await;
    let snapshot = throttle.snapshot();
    let up = snapshot.upstream("up").unwrap();
    assert!(up.queues.iter().all(|queue| (queue.callers > 0) == queue.oldest.is_some()));
    assert!(up.queues.iter().all(|queue| (queue.callers > 0) == queue.waits_for.is_some()));
    let usage = throttle.usage("up").await.unwrap();
    let processes = throttle.processes("up").await.unwrap().all;
    let told = processes.iter().map(|process| process.presence.callers as usize).sum();
    [up.callers, up.queues.iter().map(|queue| queue.callers).sum(), usage.waiting, told]
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_where_shadows_do_and_callers_do_before_and_after() {
    let hourly = || Upstream::new("up").limit(Limit::per_hour(1));
    let throttle = throttle(MemoryStore::new(), hourly());
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        calls.spawn(throttle.acquire("up").into_future());
    }
    assert_eq!(waiting(&throttle).await, [2; 4]);
    throttle.update(hourly().observe()).unwrap();
    calls.join_all().await;
    drop(call(&throttle, 5).await);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(waiting(&throttle).await, [0; 4]);
    assert_eq!(observed(&throttle).await.undecided, 7, "the shadows");
    throttle.update(hourly()).unwrap();
    let waits = tokio::spawn(throttle.acquire("up").into_future());
    sleep(Duration::from_secs(20)).await;
    assert_eq!(waiting(&throttle).await, [1; 4]);
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_waited_for_holds_nobody_up() {
    let store = Counting::default();
    let throttle = store.process(|_| up().observe());
    drop(call(&throttle, CALLS).await);
    sleep(Duration::from_secs(20)).await;
    let observed = observed(&throttle).await;
    assert_eq!((observed.calls, observed.undecided, observed.waited), (100, 0, 90));
    assert!(store.asks() < 40, "{}", store.asks());
}

#[tokio::test(start_paused = true)]
async fn what_would_have_been_refused_is_counted() {
    let of = async |up: Upstream, cost: u32| {
        let throttle = throttle(MemoryStore::new(), up.observe());
        for _ in 0..CALLS {
            drop(throttle.acquire("up").cost(cost).await.unwrap());
        }
        sleep(Duration::from_secs(20)).await;
        let Observed { calls, undecided, waited, refused, failed, .. } = observed(&throttle).await;
        assert_eq!((calls, undecided, failed), (100, 0, 0));
        [waited, refused]
    };
    assert_eq!(of(up().max_wait(Duration::from_secs(2)), 1).await, [10, 80]);
    assert_eq!(of(up().max_wait(Duration::ZERO), 1).await, [0, 90]);
    assert_eq!(of(up().max_waiting(30), 1).await, [30, 60], "so many shadows at most");
    assert_eq!(of(up(), 11).await, [0, 100], "more than the quota");
}

#[tokio::test(start_paused = true)]
async fn shadows_wait_in_a_pause() {
    let throttle = throttle(MemoryStore::new(), up().observe());
    throttle.report("up", &Feedback::refused(Duration::from_secs(5))).await.unwrap();
    drop(call(&throttle, 1).await);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(observed(&throttle).await.longest_wait, Duration::from_secs(5));
}

/// A store that answers no ask, and says so after a tenth of a second.
#[derive(Debug, Default)]
struct Down(MemoryStore);

impl Store for Down {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            match message.body {
                Body::Ask(_) => {
                    sleep(Duration::from_millis(100)).await;
                    Err(StoreError::new(StoreErrorKind::Unreachable, "down"))
                }
                _ => self.0.apply(message).await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_calls_go_on() {
    let throttle = throttle(Down::default(), up().observe());
    drop(call(&throttle, CALLS).await);
    sleep(Duration::from_secs(20)).await;
    let observed = observed(&throttle).await;
    assert_eq!((observed.calls, observed.undecided, observed.failed, observed.refused), (100, 0, 100, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_that_would_have_gone_without_the_store_have_waited_for_it_and_not_failed() {
    let down = |policy, up: Upstream| throttle(Down::default(), up.without_store(policy));
    let waits = {
        let (throttle, mut calls) = (down(WithoutStore::SendUnthrottled, up()), JoinSet::new());
        for _ in 0..CALLS {
            let throttle = throttle.clone();
            calls.spawn(async move { throttle.acquire("up").await.unwrap().waited() });
        }
        calls.join_all().await
    };
    let throttle = down(WithoutStore::SendUnthrottled, up().observe());
    drop(call(&throttle, CALLS).await);
    sleep(Duration::from_secs(20)).await;
    let Observed { undecided, waited, wait, failed, refused, .. } = observed(&throttle).await;
    assert_eq!((undecided, waited, wait, failed, refused), (0, 100, waits.iter().sum(), 0, 0));
    let throttle = down(WithoutStore::ThrottleLocally, up().observe());
    drop(call(&throttle, CALLS).await);
    sleep(Duration::from_secs(20)).await;
    let Observed { calls, undecided, waited, failed, refused, .. } = observed(&throttle).await;
    assert_eq!((calls, undecided, waited, failed, refused), (100, 0, 0, 0, 0), "nobody knows");
}

#[test]
fn the_shadows_of_a_runtime_that_is_gone_are_undecided_no_more() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let throttle = throttle(MemoryStore::new(), up().observe());
    runtime().block_on(async {
        for _ in 0..CALLS {
            drop(throttle.acquire("up").await.unwrap());
        }
        assert_eq!(observed(&throttle).await.undecided, 90);
    });
    let observed = runtime().block_on(observed(&throttle));
    assert_eq!((observed.calls, observed.undecided, observed.waited, observed.failed), (100, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_handed_back_gives_its_shadows_slot_back_now_or_when_it_comes() {
    let hourly = Upstream::new("up").limit(Limit::per_hour(2)).observe();
    let throttle = throttle(MemoryStore::new(), hourly);
    let used = async || throttle.usage("up").await.unwrap().limits[0].used;
    let permits = call(&throttle, 3).await;
    assert_eq!(used().await, 2);
    let mut permits = permits.into_iter();
    permits.next().unwrap().hand_back();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(observed(&throttle).await.undecided, 0, "the slot is the next shadow's");
    permits.next().unwrap().hand_back();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(used().await, 1);
    let mut more = call(&throttle, 2).await.into_iter();
    drop(more.next());
    more.next().unwrap().hand_back();
    assert_eq!(observed(&throttle).await.undecided, 1);
    sleep(Duration::from_secs(2 * 3_600)).await;
    assert_eq!((observed(&throttle).await.undecided, used().await), (0, 0), "it went back when it came");
}

#[test]
fn outside_of_a_runtime_calls_go_on() {
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("waits"),
        }
    }
    let throttle = throttle(MemoryStore::new(), up().observe());
    for _ in 0..12 {
        drop(at_once(async { throttle.acquire("up").await }).unwrap());
    }
    let observed = at_once(observed(&throttle));
    assert_eq!((observed.calls, observed.undecided, observed.failed), (12, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn the_pause_of_shadows_ends_when_a_call_that_went_on_in_it_was_served() {
    let second = Duration::from_secs(1);
    let throttle = throttle(MemoryStore::new(), up().observe().max_pause(60 * second));
    // It went on before the pause.
    let before = call(&throttle, 11).await.pop().unwrap();
    sleep(second / 100).await;
    throttle.report("up", &Feedback::refused(3_600 * second)).await.unwrap();
    before.served();
    sleep(2 * second).await;
    let served = call(&throttle, 1).await.pop().unwrap();
    sleep(second).await;
    served.served();
    let left = async || throttle.usage("up").await.unwrap().paused.map(|pause| pause.left.as_secs());
    sleep(60 * second).await;
    assert!(left().await.is_some(), "what was sent before it says nothing of it");
    sleep(60 * second).await;
    assert_eq!(left().await, None, "what was sent meanwhile does");
}

#[tokio::test(start_paused = true)]
async fn limits_that_are_observed_hold_for_nobody_who_throttles() {
    let store = Counting::default();
    let canary = throttle(store.clone(), up().observe());
    let fleet = store.limited(Limit::per_second(100));
    let (begin, mut callers) = (Instant::now(), JoinSet::new());
    for _ in 0..16 {
        let fleet = fleet.clone();
        callers.spawn(async move {
            let mut calls = 0;
            while begin.elapsed() < Duration::from_secs(10) {
                drop(fleet.acquire("up").await.unwrap());
                calls += 1;
            }
            calls
        });
    }
    while begin.elapsed() < Duration::from_secs(10) {
        drop(canary.acquire("up").await.unwrap());
        sleep(Duration::from_millis(50)).await;
    }
    let calls: u32 = callers.join_all().await.into_iter().sum();
    // The canary's calls are of the same quota.
    assert!(calls >= 700, "{calls} calls in 10 s");
}
