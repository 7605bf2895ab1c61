//! Seats of a process with many queues: they go from queue to queue without the store, which hears little of who waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use outgate::ledger::Message;
use outgate::store::Applying;
use outgate::testing::oracle::jain;
use outgate::{Feedback, Limit, Priority, Scope, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::gauge::Gauge;
use crate::support::{Counting, Way};

const SECOND: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The store as one process sees it: counts what that says.
#[derive(Clone, Debug)]
struct Counted {
    store: Counting,
    messages: Arc<AtomicU64>,
}

impl Counted {
    fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

impl Store for Counted {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.store.apply(message)
    }
}

/// A process whose upstream has so many seats, and so many calls a second for each merchant.
fn process(store: &Counting, seats: Limit, each: u32) -> (Throttle, Counted) {
    let store = Counted { store: store.clone(), messages: Arc::default() };
    let each = Limit::per_second(each).each(Scope::header("x-merchant"));
    let upstream = Upstream::new("up").limit(seats).limit(each);
    (Throttle::builder().store(store.clone()).upstream(upstream).build().unwrap(), store)
}

async fn acquire(throttle: &Throttle, merchant: u32) -> outgate::Permit {
    throttle.acquire("up").scope_of("x-merchant", merchant.to_string()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn merchants_of_a_process_share_its_seats_and_cost_the_store_little() {
    fastrand::seed(11);
    let (store, gauge) = (Counting::default(), Gauge::new());
    let (merchants, secs) = (100, 20);
    let (mut tasks, end) = (JoinSet::new(), Instant::now() + SECOND * secs);
    let processes = [(); 2].map(|()| process(&store, Limit::in_flight(25), 20));
    for (which, (throttle, _)) in processes.iter().enumerate() {
        for merchant in 0..merchants {
            let (throttle, gauge) = (throttle.clone(), gauge.clone());
            tasks.spawn(async move {
                let (mut calls, mut longest) = (0, Duration::ZERO);
                while Instant::now() < end {
                    let permit = acquire(&throttle, merchant).await;
                    longest = longest.max(permit.waited());
                    gauge.call(ms(200).mul_f64(0.5 + fastrand::f64())).await;
                    drop(permit);
                    calls += 1;
                }
                (which, calls, longest)
            });
        }
    }
    sleep_until(end).await;
    let share = gauge.share(25, SECOND * secs);
    let messages = processes.map(|(_, store)| store.messages());
    let all = tasks.join_all().await;
    let calls = |which: usize| all.iter().filter(|of| of.0 == which).map(|of| of.1).sum::<u32>();
    let calls = [calls(0), calls(1)];
    let each: Vec<f64> = all.iter().map(|of| f64::from(of.1)).collect();
    let longest = all.iter().map(|of| of.2).max().unwrap();
    println!(
        "{share:.4} of the seats used; calls {calls:?}, store calls {messages:?} in {secs} s; fairness {:.3}, longest wait {longest:?}",
        jain(&each),
    );
    assert!(gauge.most() <= 25, "{} of 25 in flight", gauge.most());
    assert!(share >= 0.95, "{share}");
    for (calls, messages) in calls.into_iter().zip(messages) {
        let beyond = messages.saturating_sub(calls.into());
        assert!(beyond <= 20 * u64::from(secs), "{beyond} store calls beside those for {calls} calls, in {secs} s");
    }
    // 100 merchants on 12 seats, five calls a second each: 1.6 s.
    assert!(jain(&each) >= 0.95 && longest <= 4 * SECOND, "{:.3} {longest:?}", jain(&each));
}

#[tokio::test(start_paused = true)]
async fn a_seat_goes_to_the_next_merchant_in_the_order_in_which_they_came() {
    let store = Counting::default();
    let (throttle, counted) = process(&store, Limit::in_flight(1), 20);
    let permit = acquire(&throttle, 0).await;
    let mut tasks = JoinSet::new();
    for merchant in 1..=20 {
        let throttle = throttle.clone();
        tasks.spawn(async move { (merchant, acquire(&throttle, merchant).await) });
        sleep(ms(2)).await;
    }
    sleep(SECOND).await;
    let (before, mut order) = (counted.messages(), Vec::new());
    drop(permit);
    for _ in 1..=20 {
        let (merchant, permit) = tasks.join_next().await.unwrap().unwrap();
        order.push(merchant);
        drop(permit);
    }
    assert_eq!(order, (1..=20).collect::<Vec<_>>());
    // Each asks for its slot. Of the line the store hears that nobody waits any more, and where it rested until just then it asks before.
    assert!(counted.messages() - before <= 20 + 2, "{} messages", counted.messages() - before);
}

#[tokio::test(start_paused = true)]
async fn seats_of_many_queues_are_renewed_by_one_message() {
    let store = Counting::default();
    let (throttle, counted) = process(&store, Limit::in_flight(100), 20);
    let mut permits = Vec::new();
    for merchant in 0..100 {
        permits.push(acquire(&throttle, merchant).await);
    }
    sleep(5 * SECOND).await;
    let before = counted.messages();
    sleep(60 * SECOND).await;
    assert!((3..=4).contains(&(counted.messages() - before)), "{} renewals", counted.messages() - before);
    let (other, _) = process(&store, Limit::in_flight(100), 20);
    let refused = other.try_acquire("up").scope_of("x-merchant", "7").await;
    assert!(refused.is_err(), "they are held");
    drop(permits);
    sleep(SECOND).await;
    let before = counted.messages();
    sleep(120 * SECOND).await;
    assert_eq!(counted.messages(), before, "nobody holds any");
    assert!(other.try_acquire("up").scope_of("x-merchant", "7").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_merchant_that_waits_for_its_own_limit_keeps_no_seat_from_others() {
    let store = Counting::default();
    let (throttle, counted) = process(&store, Limit::in_flight(1), 1);
    drop(acquire(&throttle, 1).await);
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let throttle = throttle.clone();
            tokio::spawn(async move { drop(acquire(&throttle, 1).await) })
        })
        .collect();
    sleep(ms(300)).await;
    let before = counted.messages();
    for merchant in 100..110 {
        let begin = Instant::now();
        let permit = acquire(&throttle, merchant).await;
        assert!(begin.elapsed() <= ms(5), "{:?}", begin.elapsed());
        drop(permit);
    }
    assert!(counted.messages() - before <= 25, "{}", counted.messages() - before);
    sleep(10 * SECOND).await;
    let served = waiting.iter().filter(|waiting| waiting.is_finished()).count();
    assert!((9..=10).contains(&served), "{served} of its calls in ten seconds, at one a second");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(SECOND).await;
    let (other, _) = process(&store, Limit::in_flight(1), 1);
    assert!(other.try_acquire("up").scope_of("x-merchant", "5").await.is_ok(), "its seat is free");
}

fn refused() -> Feedback {
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("1"))]);
    Feedback::read(StatusCode::TOO_MANY_REQUESTS, &headers, std::time::SystemTime::now())
}

/// Calls of many merchants, of which many give up, end badly or come too late, while the store's answers are late and lost.
async fn confusion(seed: u64) {
    fastrand::seed(seed);
    let fate = std::sync::Mutex::new(fastrand::Rng::with_seed(seed));
    let store = Counting::answering(move |_| {
        let mut rng = fate.lock().unwrap();
        let delay = ms(if rng.u8(0..4) == 0 { rng.u64(0..40) } else { 0 });
        Way { delay, lost: rng.u8(0..25) == 0 }
    });
    let gauges = [Gauge::new(), Gauge::new(), Gauge::new()];
    let processes = [(); 3].map(|()| {
        store.process(|up| {
            let merchant = || Scope::header("x-merchant");
            let seats = up.limit(Limit::in_flight(4)).limit(Limit::in_flight(2).each(merchant()));
            seats.limit(Limit::per_second(8).each(merchant())).max_wait(30 * SECOND)
        })
    });
    let mut tasks = JoinSet::new();
    for _ in 0..400 {
        let (throttle, gauges) = (processes[fastrand::usize(0..3)].clone(), gauges.clone());
        tasks.spawn(async move {
            sleep(ms(fastrand::u64(0..10_000))).await;
            let merchant = fastrand::usize(0..6);
            let call = async {
                let acquire = throttle.acquire("up").scope_of("x-merchant", merchant.to_string());
                let acquire = match fastrand::u8(0..4) {
                    0 => acquire.max_wait(Duration::ZERO),
                    1 => acquire.max_wait(ms(fastrand::u64(1..500))),
                    _ => acquire,
                };
                let Ok(permit) = acquire.await else { return };
                match fastrand::u8(0..40) {
                    0..5 => return permit.hand_back(),
                    5 => _ = throttle.report("up", &refused()).await,
                    _ => {}
                }
                let length = ms(fastrand::u64(0..80));
                // Two merchants have a gauge of their own.
                let alone = async {
                    if merchant < 2 {
                        gauges[1 + merchant].call(length).await;
                    } else {
                        sleep(length).await;
                    }
                };
                tokio::join!(gauges[0].call(length), alone);
                drop(permit);
            };
            let _ = timeout(ms(fastrand::u64(20..3_000)), call).await;
        });
    }
    tasks.join_all().await;
    assert!(gauges[0].most() <= 4, "{} of 4 in flight, seed {seed}", gauges[0].most());
    assert!(gauges[1].most() <= 2 && gauges[2].most() <= 2, "of one merchant, seed {seed}");
    sleep(5 * SECOND).await;
    let mut permits = Vec::new();
    for merchant in [1, 1, 2, 2] {
        let acquire = processes[0].acquire("up").scope_of("x-merchant", merchant.to_string()).max_wait(20 * SECOND);
        permits.push(acquire.await.unwrap_or_else(|error| panic!("no seat is lost, seed {seed}: {error}")));
    }
    drop(permits);
    for throttle in &processes {
        let begin = Instant::now();
        throttle.close().await;
        assert!(begin.elapsed() < 4 * SECOND, "{:?}", begin.elapsed());
    }
    let told = store.calls();
    sleep(200 * SECOND).await;
    assert_eq!(store.calls(), told, "there is nothing left to tell, seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_no_more_are_in_flight_than_seats_and_none_is_lost() {
    for seed in 0..6 {
        confusion(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_seat_goes_on_when_a_pause_ends_though_nobody_else_comes() {
    for elsewhere in [false, true] {
        let store = Counting::default();
        let (own, _) = process(&store, Limit::in_flight(1), 10);
        let (other, _) = process(&store, Limit::in_flight(1), 10);
        let first = acquire(&own, 1).await;
        let waits = tokio::spawn({
            let own = own.clone();
            async move { acquire(&own, 1).await.waited() }
        });
        sleep(ms(300)).await;
        let refused = Feedback::refused(2 * SECOND);
        let who = if elsewhere { &other } else { &own };
        who.report_in("up", "1", &refused).await.unwrap();
        drop(first);
        let waited = timeout(10 * SECOND, waits).await.unwrap_or_else(|_| panic!("elsewhere {elsewhere}")).unwrap();
        assert!(waited >= 2 * SECOND && waited < 4 * SECOND, "{waited:?}, elsewhere {elsewhere}");
    }
}

/// How many of so many who come at the same time have a call.
async fn served_at_once(throttle: &Throttle, callers: usize) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let throttle = throttle.clone();
        tasks.spawn(async move { throttle.try_acquire("up").scope_of("x-merchant", "1").await });
    }
    tasks.join_all().await.iter().filter(|served| served.is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn of_those_who_want_a_seat_now_or_never_as_many_are_served_as_are_free() {
    for seats in 1..4 {
        let store = Counting::default();
        let (throttle, _) = process(&store, Limit::in_flight(seats), 20);
        let mut permits = Vec::new();
        for _ in 0..seats {
            permits.push(acquire(&throttle, 2).await);
        }
        assert_eq!(served_at_once(&throttle, 2).await, 0);
        drop(permits);
        let begin = Instant::now();
        assert_eq!(
            served_at_once(&throttle, 4).await,
            seats as usize,
            "the line knew that none was free until just now"
        );
        assert!(begin.elapsed() < ms(10), "{:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_a_seat_is_not_refused_with_those_who_have_none() {
    for slow in 0..12 {
        let delay = move |number| if number == slow { ms(5) } else { Duration::ZERO };
        let store = Counting::answering(move |number| Way::slow(delay(number)));
        let (throttle, _) = process(&store, Limit::in_flight(2), 20);
        let one = tokio::spawn({
            let throttle = throttle.clone();
            async move { throttle.try_acquire("up").scope_of("x-merchant", "1").await }
        });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let others = served_at_once(&throttle, 2).await;
        let one = one.await.unwrap();
        assert_eq!(others + usize::from(one.is_ok()), 2, "message {slow} is slow");
    }
}

#[tokio::test(start_paused = true)]
async fn who_wants_a_seat_now_or_never_waits_for_no_second_answer() {
    for of_merchants in [false, true] {
        let store = Counting::answering(|_| Way::slow(ms(10)));
        let seats = Limit::in_flight(1);
        let [throttle, other] = [(); 2]
            .map(|()| if of_merchants { process(&store, seats.clone(), 20).0 } else { store.limited(seats.clone()) });
        let of = move |call: outgate::Acquire| if of_merchants { call.scope_of("x-merchant", "1") } else { call };
        drop(of(throttle.acquire("up")).await.unwrap());
        sleep(SECOND).await;
        let _permit = of(other.acquire("up")).await.unwrap();
        let mut tasks = JoinSet::new();
        for late in 0..3 {
            let throttle = throttle.clone();
            tasks.spawn(async move {
                sleep(ms(5 * late)).await;
                let begin = Instant::now();
                let refused = of(throttle.try_acquire("up")).await;
                (refused.is_err(), begin.elapsed())
            });
        }
        for (is_refused, after) in tasks.join_all().await {
            assert!(is_refused && after <= ms(12), "{after:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_first_as_it_waited_for_long_goes_first_in_the_line_for_seats_too() {
    let each = Limit::new(1, 3 * SECOND).each(Scope::header("x-merchant"));
    let up = |up: Upstream| up.limit(Limit::in_flight(1)).limit(each).promote_low_after(2 * SECOND);
    let throttle = Counting::default().process(up);
    let (mut others, end) = (JoinSet::new(), Instant::now() + 12 * SECOND);
    for merchant in 1..60 {
        let throttle = throttle.clone();
        others.spawn(async move {
            while Instant::now() < end {
                let permit = acquire(&throttle, merchant).await;
                sleep(ms(200)).await;
                drop(permit);
            }
        });
    }
    let low = || throttle.acquire("up").scope_of("x-merchant", "0").priority(Priority::Low);
    drop(low().await.unwrap());
    let permit = low().await.unwrap();
    let waited = permit.waited();
    assert!((2 * SECOND..4 * SECOND).contains(&waited), "{waited:?}");
}
