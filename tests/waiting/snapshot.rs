//! What a process sees of its own queues, without a store call.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use outgate::ledger::Cause;
use outgate::snapshot::{QueueSnapshot, WaitsFor};
use outgate::{Feedback, Limit, Scope, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use crate::support::{Counting, Way};

fn throttle(store: &Counting, upstream: Upstream) -> Throttle {
    Throttle::builder().store(store.clone()).upstream(upstream).build().unwrap()
}

fn queues(throttle: &Throttle) -> Vec<QueueSnapshot> {
    throttle.snapshot().upstream("up").unwrap().queues.clone()
}

/// So many callers begin to wait.
async fn callers(throttle: &Throttle, waiting: &mut JoinSet<()>, scope: Option<&str>, count: usize) {
    for _ in 0..count {
        let call = throttle.acquire("up");
        let call = match scope {
            Some(scope) => call.scope(scope),
            None => call,
        };
        waiting.spawn(async move { drop(call.await) });
    }
    sleep(Duration::from_millis(10)).await;
}

fn refused(seconds: &str) -> Feedback {
    let headers: HeaderMap =
        [(http::header::RETRY_AFTER, HeaderValue::from_str(seconds).unwrap())].into_iter().collect();
    Feedback::read(StatusCode::TOO_MANY_REQUESTS, &headers, std::time::SystemTime::now())
}

#[tokio::test(start_paused = true)]
async fn a_queue_shows_who_waits_for_how_long_and_until_when() {
    let store = Counting::default();
    let up = Upstream::new("up").scope_by(Scope::bearer_token()).name_scope("token-b", "release-bot");
    let throttle = throttle(&store, up.limit(Limit::per_minute(1).guard(Duration::from_secs(1))));
    let mut waiting = JoinSet::new();
    let permit = throttle.acquire("up").scope("token-a").await.unwrap();
    callers(&throttle, &mut waiting, Some("token-a"), 3).await;
    advance(Duration::from_secs(5)).await;
    let _other = throttle.acquire("up").scope("token-b").await.unwrap();
    callers(&throttle, &mut waiting, Some("token-b"), 2).await;
    let calls = store.calls();
    let [first, second] = &queues(&throttle)[..] else { panic!("two scopes are in use") };
    assert!(first.scope.is_some() && first.scope_name.is_none() && first.scope != second.scope);
    assert_eq!((first.callers, first.in_flight, first.waits_for), (3, 1, Some(WaitsFor::Limit)));
    assert_eq!(first.oldest.unwrap().as_secs(), 5);
    assert_eq!(first.next.unwrap().as_secs(), 55, "a minute and its guard after the first call");
    assert_eq!((second.callers, second.in_flight), (2, 1));
    assert_eq!(second.scope_name.as_deref(), Some("release-bot"));
    assert_eq!(throttle.snapshot().upstreams[0].callers, 5);
    assert_eq!(store.calls(), calls, "nobody is asked");
    drop(permit);
    assert_eq!(queues(&throttle)[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_shows_with_its_cause_and_its_end_whether_or_not_anybody_waits() {
    let throttle = throttle(&Counting::default(), Upstream::new("up").limit(Limit::per_second(100)));
    assert_eq!(queues(&throttle), [], "nobody has called");
    drop(throttle.acquire("up").await.unwrap());
    throttle.report("up", &refused("30")).await.unwrap();
    let mut waiting = JoinSet::new();
    callers(&throttle, &mut waiting, None, 2).await;
    let [queue] = &queues(&throttle)[..] else { panic!("one queue is in use") };
    let paused = queue.paused.unwrap();
    assert_eq!((paused.cause, paused.left.as_secs()), (Cause::Refusal, 29));
    assert_eq!((queue.waits_for, queue.callers), (Some(WaitsFor::Pause), 2));
    assert!(queue.next.unwrap() >= paused.left, "{queue:?}");
    throttle.release("up").await.unwrap();
    while waiting.join_next().await.is_some() {}
    assert_eq!(queues(&throttle), [], "nobody waits, and nothing is paused");
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_the_store_while_it_does_not_answer() {
    let store = Counting::answering(|_| Way::slow(Duration::from_secs(1)));
    let throttle = throttle(&store, Upstream::new("up").limit(Limit::per_second(100)));
    let mut waiting = JoinSet::new();
    callers(&throttle, &mut waiting, None, 1).await;
    let [queue] = &queues(&throttle)[..] else { panic!("one queue is in use") };
    assert_eq!((queue.waits_for, queue.next), (Some(WaitsFor::Store), None), "the first answer is on its way");
    let lost = Counting::answering(|_| Way { delay: Duration::ZERO, lost: true });
    let throttle = self::throttle(&lost, Upstream::new("up").limit(Limit::per_second(100)));
    callers(&throttle, &mut waiting, None, 1).await;
    assert_eq!(queues(&throttle)[0].waits_for, Some(WaitsFor::Store), "it answers nobody");
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_a_seat_and_seats_in_use_are_calls_in_flight() {
    let throttle = throttle(&Counting::default(), Upstream::new("up").limit(Limit::in_flight(2)));
    let _first = throttle.acquire("up").await.unwrap();
    let second = throttle.acquire("up").await.unwrap();
    let mut waiting = JoinSet::new();
    callers(&throttle, &mut waiting, None, 3).await;
    let seen = || queues(&throttle).remove(0);
    assert_eq!((seen().in_flight, seen().callers, seen().waits_for), (2, 3, Some(WaitsFor::Seat)));
    assert_eq!(seen().next, None, "nobody knows when a call ends");
    drop(second);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(
        (seen().in_flight, seen().callers),
        (1, 0),
        "each left its seat to the next, and the first call goes on"
    );
}

#[tokio::test(start_paused = true)]
async fn queues_that_nobody_uses_are_left_out_and_the_oldest_waiter_comes_first() {
    let mut up = Upstream::new("up").scope_by(Scope::header("x-merchant")).limit(Limit::per_hour(1));
    let oldest = ["seventh", "third", "last"];
    for name in oldest {
        up = up.name_scope(name, name);
    }
    let throttle = throttle(&Counting::default(), up);
    for merchant in 0..1_000_u32 {
        drop(throttle.acquire("up").scope(merchant.to_be_bytes()).await.unwrap());
    }
    let mut waiting = JoinSet::new();
    for merchant in oldest {
        drop(throttle.acquire("up").scope(merchant).await.unwrap());
        let call = throttle.acquire("up").scope(merchant);
        waiting.spawn(async move { drop(call.await) });
        sleep(Duration::from_secs(1)).await;
    }
    let seen: Vec<_> = queues(&throttle).iter().map(|queue| queue.scope_name.clone().unwrap()).collect();
    assert_eq!(seen.iter().map(|name| &**name).collect::<Vec<_>>(), oldest);
}

#[test]
fn a_name_of_a_scope_is_like_that_of_an_upstream() {
    let up = Upstream::new("up").name_scope("s3cret", "two words").limit(Limit::per_second(1));
    let error = Throttle::builder().upstream(up).build().unwrap_err().to_string();
    assert!(error.contains("up") && error.contains("name_scope") && !error.contains("s3cret"), "{error}");
}
