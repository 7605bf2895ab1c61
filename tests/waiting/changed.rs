//! What goes on when upstreams are changed: calls in flight, seats, pauses. And what is refused.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use outgate::{ConfigError, Error, Feedback, Limit, Throttle, Upstream};
use tokio::time::{Instant, sleep};

use crate::support::Counting;

const SECOND: Duration = Duration::from_secs(1);

fn up() -> Upstream {
    Upstream::new("up")
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_settles_what_it_was_charged() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(100).of("tokens")));
    let used = async || throttle.usage("up").await.unwrap().limits[0].used;
    let call = || throttle.acquire("up").cost_of("tokens", 90);
    let (settled, returned) = (call().await.unwrap(), throttle.acquire("up").cost_of("tokens", 10).await.unwrap());
    let waits = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.acquire("up").cost_of("tokens", 40).await.map(|permit| permit.waited()) }
    });
    sleep(SECOND).await;
    let more = Limit::per_minute(120).of("tokens");
    throttle.update(up().limit(Limit::per_minute(500)).limit(more)).unwrap();
    sleep(SECOND).await;
    settled.settle("tokens", 60);
    returned.hand_back();
    let waited = waits.await.unwrap().unwrap();
    assert!((2_000..2_100).contains(&waited.as_millis()), "as soon as the store knows of the room: {waited:?}");
    assert_eq!(throttle.usage("up").await.unwrap().limits[1].used, 100, "60 and 40");
    drop(settled);
    assert_eq!(used().await, 1, "calls are counted since then");
}

#[tokio::test(start_paused = true)]
async fn seats_of_calls_in_flight_count_on() {
    let throttle = Counting::default().limited(Limit::in_flight(2));
    let mut held = vec![throttle.acquire("up").await.unwrap(), throttle.acquire("up").await.unwrap()];
    let gone = Arc::new(Mutex::new(Vec::new()));
    let waiting = |number: usize| {
        let (throttle, gone) = (throttle.clone(), Arc::clone(&gone));
        tokio::spawn(async move {
            let permit = throttle.acquire("up").await.unwrap();
            gone.lock().unwrap().push(number);
            permit
        })
    };
    let mut tasks = Vec::new();
    for number in 0..3 {
        tasks.push(waiting(number));
        sleep(SECOND).await;
    }
    let went = || gone.lock().unwrap().clone();
    assert!(went().is_empty());
    throttle.update(up().limit(Limit::in_flight(4))).unwrap();
    sleep(SECOND).await;
    assert_eq!(went(), [0, 1], "two more");
    throttle.update(up().limit(Limit::in_flight(1))).unwrap();
    held.pop();
    sleep(SECOND).await;
    held.push(tasks.remove(0).await.unwrap());
    held.push(tasks.remove(0).await.unwrap());
    drop(held.remove(0));
    sleep(SECOND).await;
    held.pop();
    sleep(SECOND).await;
    assert_eq!(went(), [0, 1], "one is in flight still");
    held.clear();
    drop(tasks.remove(0).await.unwrap());
    assert_eq!(went(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn more_seats_are_there_for_all_though_calls_of_before_go_on() {
    let store = Counting::default();
    let both = [(); 2].map(|()| store.limited(Limit::in_flight(2)));
    let mut held = Vec::new();
    for throttle in &both {
        held.push(throttle.acquire("up").await.unwrap());
    }
    for throttle in &both {
        throttle.update(up().limit(Limit::in_flight(4))).unwrap();
    }
    // By then the store was told of the calls of before by closed queues.
    sleep(25 * SECOND).await;
    for throttle in &both {
        held.push(throttle.acquire("up").max_wait(SECOND).await.unwrap());
    }
    assert!(both[0].try_acquire("up").await.is_err(), "four are in flight");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_upstream_that_is_removed_is_told_so_and_calls_in_flight_end_as_ever() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_minute(2));
    let (kept, returned) = (throttle.acquire("up").await.unwrap(), throttle.acquire("up").await.unwrap());
    let waits = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.acquire("up").await.map(drop) }
    });
    sleep(SECOND).await;
    throttle.remove("up").unwrap();
    let is_unknown = |error: &Error| matches!(error, Error::UnknownUpstream { name, .. } if **name == *"up");
    assert!(is_unknown(&waits.await.unwrap().unwrap_err()));
    assert!(is_unknown(&throttle.acquire("up").await.unwrap_err()));
    assert!(is_unknown(&throttle.remove("up").unwrap_err()));
    returned.hand_back();
    kept.settle("calls", 0);
    sleep(SECOND).await;
    throttle.add(up().limit(Limit::per_minute(2))).unwrap();
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 0, "both went back to the log, which is the same");
    drop(throttle.try_acquire("up").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_pause_goes_on() {
    let throttle = Counting::default().limited(Limit::per_second(10));
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("60"))]);
    let pause = Feedback::read(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now());
    drop(throttle.acquire("up").await.unwrap());
    throttle.report("up", &pause).await.unwrap();
    let begin = Instant::now();
    let waits = tokio::spawn({
        let throttle = throttle.clone();
        async move { throttle.acquire("up").await.map(drop) }
    });
    sleep(SECOND).await;
    for quota in [20, 30] {
        throttle.update(up().limit(Limit::per_second(quota))).unwrap();
        assert!(matches!(throttle.try_acquire("up").await, Err(Error::Throttled { paused: Some(_), .. })), "{quota}");
    }
    waits.await.unwrap().unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(59), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_told_as_when_the_throttle_is_built_and_changes_nothing() {
    let account = || [Limit::per_second(10)];
    let throttle = Throttle::builder()
        .upstream(up().limit(Limit::per_second(5)))
        .upstream(Upstream::new("files").shares("account", account()))
        .upstream(Upstream::new("mail").shares("account", account()))
        .build()
        .unwrap();
    let told = |error: ConfigError| (error.upstream().to_owned(), error.field());
    let wrong = |upstream: Upstream| told(throttle.update(upstream).unwrap_err());
    let named = |field| ("up".to_owned(), field);
    let one = || Limit::per_second(1);
    assert_eq!(wrong(up()), named("limit"));
    assert_eq!(wrong(up().limit(Limit::per_second(0))), named("limit.quota"));
    assert_eq!(wrong(up().limit(one()).max_waiting(0)), named("max_waiting"));
    assert_eq!(wrong(up().limit(one()).host("a b")), named("host"));
    assert_eq!(wrong(Upstream::new("other").limit(one())), ("other".to_owned(), "name"));
    assert_eq!(wrong(Upstream::new("a b").limit(one())), (String::new(), "name"));
    let more = || [Limit::per_second(20)];
    assert_eq!(wrong(Upstream::new("mail").shares("account", more())), ("mail".to_owned(), "shares"));
    let one_wrong = [up().limit(one()), Upstream::new("files").limit(Limit::per_second(0))];
    assert_eq!(told(throttle.update_all(one_wrong).unwrap_err()), ("files".to_owned(), "limit.quota"));
    assert_eq!(told(throttle.update_all([up().limit(one()), up().limit(one())]).unwrap_err()), named("name"));
    assert_eq!(told(throttle.add(up().limit(one())).unwrap_err()), named("name"));
    assert_eq!(told(throttle.add(Upstream::new("account").limit(one())).unwrap_err()).1, "shares");
    assert_eq!(told(throttle.add(Upstream::new("new")).unwrap_err()), ("new".to_owned(), "limit"));
    let quotas = async |name: &str| {
        throttle.usage(name).await.unwrap().limits.iter().map(|of| of.limit.quota()).collect::<Vec<_>>()
    };
    assert_eq!([quotas("up").await, quotas("files").await, quotas("mail").await], [[5], [10], [10]]);
    assert!(throttle.usage("new").await.is_err() && throttle.usage("account").await.is_err());

    let together = ["files", "mail"].map(|name| Upstream::new(name).shares("account", more()));
    throttle.update_all(together).unwrap();
    assert_eq!([quotas("files").await, quotas("mail").await], [[20], [20]]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_new_limits_can_never_admit_is_told_so_and_no_other() {
    let throttle = Counting::default().limited(Limit::per_minute(10));
    let costs = |cost: u32| {
        let throttle = throttle.clone();
        tokio::spawn(async move { throttle.acquire("up").cost(cost).await.map(drop) })
    };
    costs(10).await.unwrap().unwrap();
    let (large, small) = (costs(8), costs(5));
    sleep(SECOND).await;
    throttle.update(up().limit(Limit::new(5, SECOND))).unwrap();
    assert!(matches!(large.await.unwrap(), Err(Error::CostExceedsQuota { cost: 8, most: 5, .. })));
    small.await.unwrap().unwrap();
}

#[test]
fn what_is_changed_together_may_be_made_by_another_change() {
    let up = |name| Upstream::new(name).host(format!("{name}.example.com")).limit(Limit::per_second(1));
    let throttle = Throttle::builder().upstream(up("files")).build().unwrap();
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let made = ["mail"].into_iter().map(|name| throttle.add(up(name)).map(|()| up("files")).unwrap());
        throttle.update_all(made).unwrap();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(10)).expect("it does not wait for itself");
}

/// As where limits follow a configuration, while calls last for minutes: each keeps the queue in which it was booked, and that knows all that took
/// its place.
#[tokio::test(start_paused = true)]
async fn a_call_of_long_ago_ends_at_once_however_often_limits_have_changed() {
    let store = Counting::default();
    let limited = |quota| Upstream::new("up").limit(Limit::per_minute(quota).of("tokens"));
    let throttle = store.process(|_| limited(1_000));
    let mut calls = Vec::new();
    for edition in 1..64 {
        calls.push(throttle.acquire("up").cost_of("tokens", 10).await.unwrap());
        throttle.update(limited(1_000 + edition)).unwrap();
    }
    let waits = tokio::spawn(throttle.acquire("up").cost_of("tokens", 500).into_future());
    sleep(Duration::from_secs(1)).await;
    calls.pop().unwrap().hand_back();
    for call in calls {
        call.settle("tokens", 1);
    }
    sleep(Duration::from_secs(1)).await;
    drop(waits.await.unwrap().unwrap());
    let used = throttle.usage("up").await.unwrap().limits[0].used;
    assert_eq!(used, 62 + 500);
}
