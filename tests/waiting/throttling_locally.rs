//! Processes that throttle by themselves while the store cannot answer: no window of the upstream holds too much, from before an outage until
//! after it.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use http::{HeaderMap, StatusCode, header};
use outgate::ledger::Message;
use outgate::store::{Applying, StoreError, StoreErrorKind, WithoutStore};
use outgate::testing::oracle::assert_never_more_than;
use outgate::{Error, Feedback, Limit, MemoryStore, Permit, Scope, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::support::micros_since;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LATENCY: Duration = MS;
/// So long a client waits for an answer; one that is patient waits longer.
const PATIENCE: Duration = SECOND;
const LONG_PATIENCE: Duration = Duration::from_secs(10);

/// Two outages of which one process is told by a message of before, and one that processes find seconds apart; then others.
const SEEDS: [u64; 12] = [315, 786, 90, 230, 1, 2, 3, 4, 5, 6, 7, 8];

/// A time in which nobody reaches the store, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Outage {
    from: u32,
    to: u32,
    fault: Fault,
}

/// What becomes of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Refused,
    Swallowed,
    /// They act, and their answers are lost.
    Unanswered,
    /// The store says that it serves nobody for now.
    Starts,
    /// It refuses them, as a replica does.
    Refuses,
    /// They are swallowed, and their client waits for long.
    Hangs,
}

/// How one process reaches a store in memory: it may find a little later than others that the store is lost, or back.
#[derive(Clone, Debug)]
struct Link {
    inner: MemoryStore,
    begin: Instant,
    outages: Arc<[Outage]>,
    late: Duration,
}

impl Link {
    /// One that is lost from 2 s until then.
    fn lost_until_ms(to: u32, is_silent: bool) -> Self {
        let fault = if is_silent { Fault::Swallowed } else { Fault::Refused };
        let outages = [outage(2_000, to, fault)].into();
        Self { inner: MemoryStore::new(), begin: Instant::now(), outages, late: Duration::ZERO }
    }

    /// A process that is counted, when the store has just been lost.
    async fn counted(&self, up: Upstream) -> Throttle {
        let throttle = self.throttle(WithoutStore::ThrottleLocally, up);
        drop(throttle.acquire("up").await.unwrap());
        sleep_until(self.begin + 2_001 * MS).await;
        throttle
    }
    /// Until when the store cannot be reached.
    fn lost_until(&self) -> Option<(Instant, Fault)> {
        let now = Instant::now();
        let spans = self.outages.iter().map(|outage| {
            let at = |millis: u32| self.begin + millis * MS + self.late;
            (at(outage.from), at(outage.to), outage.fault)
        });
        spans.filter(|(from, to, _)| *from <= now && now < *to).map(|(_, to, fault)| (to, fault)).next()
    }

    fn throttle(&self, policy: WithoutStore, up: Upstream) -> Throttle {
        Throttle::builder().store(self.clone()).without_store(policy).upstream(up).build().unwrap()
    }
}

impl Store for Link {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            let sent = Instant::now();
            sleep(LATENCY).await;
            let lost = || Err(StoreError::new(StoreErrorKind::Unreachable, "it is away"));
            while let Some((until, fault)) = self.lost_until() {
                if fault == Fault::Starts {
                    return Err(StoreError::new(StoreErrorKind::Unavailable, "it starts"));
                }
                if fault == Fault::Refuses {
                    return Err(StoreError::new(StoreErrorKind::Refused, "it is a replica"));
                }
                if fault == Fault::Unanswered {
                    drop(self.inner.apply(message).await);
                }
                let patience = if fault == Fault::Hangs { LONG_PATIENCE } else { PATIENCE };
                let is_swallowed = matches!(fault, Fault::Swallowed | Fault::Hangs);
                if !is_swallowed || timeout_at(sent + patience, sleep_until(until)).await.is_err() {
                    return lost();
                }
            }
            self.inner.apply(message).await
        })
    }
}

/// Some processes of some callers each, which call as often as they may.
struct World {
    quota: u32,
    window: Duration,
    processes: u32,
    callers: u32,
    /// The longest pause that a caller makes between two calls.
    idle_ms: u64,
    outages: Vec<Outage>,
    /// By how much processes notice later than others.
    late_ms: u64,
    lasts: Duration,
}

/// What went when, and whether without the store.
#[derive(Debug, Default)]
struct Went(Vec<(i64, bool)>);

impl Went {
    fn between(&self, from: Duration, to: Duration) -> usize {
        let micros = |at: Duration| i64::try_from(at.as_micros()).unwrap();
        self.0.iter().filter(|(at, _)| (micros(from)..micros(to)).contains(at)).count()
    }

    fn starts(&self) -> Vec<i64> {
        self.0.iter().map(|(at, _)| *at).collect()
    }

    fn without_store(&self) -> usize {
        self.0.iter().filter(|(_, without)| *without).count()
    }
}

impl World {
    async fn went(&self, rng: &mut Rng) -> Went {
        let (inner, begin, mut tasks) = (MemoryStore::new(), Instant::now(), JoinSet::new());
        let outages: Arc<[Outage]> = self.outages.clone().into();
        for _ in 0..self.processes {
            let late = Duration::from_millis(rng.u64(0..=self.late_ms));
            let link = Link { inner: inner.clone(), begin, outages: Arc::clone(&outages), late };
            // Of everybody, and of each of two scopes.
            let limit = || Limit::new(self.quota, self.window);
            let up = Upstream::new("up").limit(limit()).limit(limit().each(Scope::header("x-merchant")));
            let throttle = link.throttle(WithoutStore::ThrottleLocally, up);
            for _ in 0..self.callers {
                let (throttle, mut rng, lasts, idle) = (throttle.clone(), rng.fork(), self.lasts, self.idle_ms);
                tasks.spawn(async move {
                    let mut went = Vec::new();
                    while begin.elapsed() < lasts {
                        match throttle.acquire("up").scope([rng.u8(0..2)]).await {
                            Ok(permit) => went.push((micros_since(begin), permit.went_without_store())),
                            Err(Error::StoreUnavailable { .. }) => sleep(20 * MS).await,
                            Err(error) => panic!("{error}"),
                        }
                        sleep(Duration::from_millis(rng.u64(0..=idle))).await;
                    }
                    went
                });
            }
        }
        Went(tasks.join_all().await.concat())
    }
}

const fn outage(from: u32, to: u32, fault: Fault) -> Outage {
    Outage { from, to, fault }
}

#[tokio::test(start_paused = true)]
async fn calls_go_on_by_equal_parts_through_an_outage_and_no_window_holds_more_than_the_quota() {
    for (window, fault) in [(1, Fault::Refused), (1, Fault::Swallowed), (1, Fault::Unanswered), (3, Fault::Refused)] {
        let world = World {
            quota: 40,
            window: window * SECOND,
            processes: 4,
            callers: 12,
            idle_ms: 0,
            outages: vec![outage(10_000, 25_000, fault)],
            late_ms: 0,
            lasts: 40 * SECOND,
        };
        let went = world.went(&mut Rng::with_seed(7)).await;
        assert_never_more_than(40, i64::from(window) * 1_000_000, &went.starts());
        // Of a window of 3 s whole ones come and go: six tenths of what the limit allows, and eight tenths meanwhile.
        let of = |from: u32, to: u32| went.between(from * SECOND, to * SECOND);
        let least = |tenths: u32, seconds: u32| usize::try_from(40 * seconds * tenths / (10 * window)).unwrap();
        assert!(of(3, 9) >= least(6, 6), "before: {}", of(3, 9));
        let (opens, back) = (12 + 2 * window, 27 + 2 * window);
        assert!(of(opens, 25) >= least(8, 25 - opens), "without the store, {fault:?}: {}", of(opens, 25));
        assert!(of(back, 40) >= least(6, 40 - back), "after, {window} s, {fault:?}: {}", of(back, 40));
        assert_eq!(went.without_store(), of(11, 26), "{fault:?}: they say so");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_outages_no_window_of_the_upstream_holds_more_than_the_quota() {
    let mut gone_without = 0;
    for seed in SEEDS {
        let mut rng = Rng::with_seed(seed);
        // The library's own choices.
        fastrand::seed(seed);
        let mut outages = Vec::new();
        let mut at = 8_000;
        for _ in 0..rng.u32(1..4) {
            let from = at + rng.u32(0..4_000);
            let to = from + rng.u32(50..9_000);
            let faults = [Fault::Refused, Fault::Swallowed, Fault::Unanswered];
            outages.push(outage(from, to, faults[rng.usize(0..3)]));
            at = to + rng.u32(100..8_000);
        }
        let window_ms = rng.u64(100..3_000);
        let world = World {
            quota: rng.u32(2..40),
            window: Duration::from_millis(window_ms),
            processes: rng.u32(1..5),
            callers: rng.u32(1..10),
            idle_ms: [0, 50, 800, 3_000][rng.usize(0..4)],
            outages,
            late_ms: rng.u64(0..300),
            lasts: Duration::from_millis(u64::from(at) + 6_000),
        };
        let went = world.went(&mut rng).await;
        assert_never_more_than(world.quota.into(), i64::try_from(window_ms * 1_000).unwrap(), &went.starts());
        gone_without += went.without_store();
    }
    assert!(gone_without > 120, "{gone_without}");
}

fn up() -> Upstream {
    Upstream::new("up").limit(Limit::per_second(10))
}

/// What a call gets, and after how many milliseconds.
async fn call(throttle: &Throttle, max_wait: Option<Duration>) -> (&'static str, u128) {
    let (since, acquire) = (Instant::now(), throttle.acquire("up"));
    let outcome = match max_wait {
        Some(max_wait) => acquire.max_wait(max_wait).await,
        None => acquire.await,
    };
    let what = match outcome {
        Ok(permit) if permit.went_without_store() && permit.passage().without_store => "goes by its part",
        Ok(_) => "goes",
        Err(Error::StoreUnavailable { .. }) => "unavailable",
        Err(Error::Throttled { .. }) => "throttled",
        Err(error) => panic!("{error}"),
    };
    (what, since.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn no_call_hangs_longer_than_its_longest_wait_and_the_first_go_when_a_window_has_run_out() {
    // 250 ms ahead, a window of 1,050 ms, a second more for the store, and one until all have noticed; silence is noticed after a second.
    for (is_silent, noticed) in [(false, 1), (true, 1_000)] {
        let link = Link::lost_until_ms(60_000, is_silent);
        let throttle = link.counted(up()).await;
        assert_eq!(call(&throttle, Some(200 * MS)).await, ("unavailable", 200), "{is_silent}");
        assert_eq!(call(&throttle, Some(SECOND / 2)).await, ("unavailable", 500), "{is_silent}");
        let opens = noticed + 250 + 1_050 + 2_000 - 700;
        assert_eq!(call(&throttle, None).await, ("goes by its part", opens), "{is_silent}");
        for _ in 0..9 {
            assert_eq!(call(&throttle, None).await, ("goes by its part", 0), "{is_silent}");
        }
        assert_eq!(call(&throttle, Some(SECOND)).await, ("throttled", 0), "{is_silent}");
        assert_eq!(call(&throttle, Some(Duration::ZERO)).await, ("throttled", 0), "{is_silent}");
        assert_eq!(call(&throttle, None).await, ("goes by its part", 1_050), "{is_silent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_never_counted_waits_for_the_store_and_so_does_one_whose_part_is_too_small() {
    for is_silent in [false, true] {
        let link = Link::lost_until_ms(60_000, is_silent);
        let counted = [link.counted(up()).await, link.throttle(WithoutStore::ThrottleLocally, up())];
        assert_eq!(call(&counted[1], None).await, ("unavailable", 5_000), "{is_silent}");
        assert_eq!(call(&counted[1], Some(SECOND)).await, ("unavailable", 1_000), "{is_silent}");
    }
    let link = Link::lost_until_ms(60_000, false);
    let small = || Upstream::new("up").limit(Limit::per_second(1));
    let other = link.throttle(WithoutStore::ThrottleLocally, small());
    drop(other.acquire("up").await.unwrap());
    let throttle = link.counted(small()).await;
    assert_eq!(call(&throttle, None).await, ("unavailable", 5_000), "a half of one call is none");
    let large = Link::lost_until_ms(60_000, false);
    let [first, second] =
        [large.throttle(WithoutStore::ThrottleLocally, up()), large.throttle(WithoutStore::ThrottleLocally, up())];
    for throttle in [&first, &second] {
        drop(throttle.acquire("up").await.unwrap());
    }
    sleep(2_100 * MS).await;
    assert_eq!(call(&first, None).await.0, "goes by its part");
    let large = first.acquire("up").cost(6).max_wait(SECOND).await.unwrap_err();
    assert!(matches!(large, Error::StoreUnavailable { .. }), "six of ten are more than a half: {large}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_over_before_anybody_could_go_by_its_part_costs_nothing_more() {
    let link = Link::lost_until_ms(2_300, false);
    let throttle = link.throttle(WithoutStore::ThrottleLocally, up());
    while link.begin.elapsed() < 1_900 * MS {
        assert_eq!(call(&throttle, None).await.0, "goes");
        sleep(200 * MS).await;
    }
    sleep_until(link.begin + 2_001 * MS).await;
    let (what, after) = call(&throttle, None).await;
    assert!(what == "goes" && after < 1_000, "{what} after {after} ms");
    assert_eq!(call(&throttle, None).await, ("goes", 1));
}

#[tokio::test(start_paused = true)]
async fn who_has_not_heard_of_the_store_for_a_window_does_not_know_how_long_it_was_lost() {
    let link = Link::lost_until_ms(2_500, false);
    let throttle = link.counted(up()).await;
    let (what, after) = call(&throttle, None).await;
    assert!(what == "goes" && (1_500..4_000).contains(&after), "{what} after {after} ms");
}

#[tokio::test(start_paused = true)]
async fn who_calls_seldom_silences_nobody_by_a_hiccup_of_its_own() {
    let busy = Link::lost_until_ms(2_000, false);
    let hiccups = [10_000, 13_000, 16_000].map(|at| outage(at, at + 100, Fault::Refused));
    let seldom = Link { outages: hiccups.into(), ..busy.clone() };
    let [busy, seldom] = [busy, seldom].map(|link| (link.begin, link.throttle(WithoutStore::ThrottleLocally, up())));
    drop(seldom.1.acquire("up").await.unwrap());
    let (begin, throttle) = busy;
    let calls = tokio::spawn(async move {
        let mut went = Vec::new();
        while begin.elapsed() < 20 * SECOND {
            drop(throttle.acquire("up").await.unwrap());
            went.push(begin.elapsed());
        }
        went
    });
    // The rest of its hiccup, a second, and a window of others.
    for at in [10, 13, 16] {
        sleep_until(begin + at * SECOND + 50 * MS).await;
        let (what, after) = call(&seldom.1, None).await;
        assert!(what == "goes" && after < 2_200, "{what} after {after} ms");
    }
    let after = calls.await.unwrap().into_iter().filter(|at| *at > 10 * SECOND).count();
    assert!(after > 85, "{after} of 95");
}

#[tokio::test(start_paused = true)]
async fn who_has_not_tried_the_store_for_long_tries_it_before_it_goes_by_its_part() {
    let link = Link::lost_until_ms(45_000, false);
    let throttle = link.counted(up()).await;
    assert_eq!(call(&throttle, Some(SECOND)).await.0, "unavailable");
    sleep_until(link.begin + 60 * SECOND).await;
    let (what, after) = call(&throttle, None).await;
    assert!(what == "goes" && after < 200, "{what} after {after} ms");
}

#[tokio::test(start_paused = true)]
async fn what_a_process_has_sent_by_itself_it_tells_the_store_though_nobody_calls_there_any_more() {
    let up = || Upstream::new("up").limit(Limit::new(10, 3 * SECOND));
    // For longer than the message is sent again that asked for the first of its callers.
    let link = Link::lost_until_ms(47_000, false);
    let throttle = link.counted(up()).await;
    let mut starts = Vec::new();
    while link.begin.elapsed() < 46_500 * MS {
        match throttle.acquire("up").max_wait(100 * MS).await {
            Ok(_) => starts.push(micros_since(link.begin)),
            Err(_) => sleep(50 * MS).await,
        }
    }
    assert!(*starts.last().unwrap() > 45_150_000, "{starts:?}");
    sleep_until(link.begin + 48_100 * MS).await;
    let other = link.throttle(WithoutStore::ThrottleLocally, up());
    for _ in 0..10 {
        drop(other.acquire("up").await.unwrap());
        starts.push(micros_since(link.begin));
    }
    assert_never_more_than(10, 3_000_000, &starts);
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_back_goes_to_the_next_and_a_pause_holds() {
    let link = Link::lost_until_ms(60_000, false);
    let throttle = link.counted(up()).await;
    let permits: Vec<_> = [throttle.acquire("up").await.unwrap()].into();
    for _ in 0..9 {
        assert_eq!(call(&throttle, None).await, ("goes by its part", 0));
    }
    permits.into_iter().for_each(Permit::hand_back);
    assert_eq!(call(&throttle, None).await, ("goes by its part", 0));
    let told = HeaderMap::from_iter([(header::RETRY_AFTER, "7".parse().unwrap())]);
    let refusal = Feedback::read(StatusCode::TOO_MANY_REQUESTS, &told, SystemTime::now());
    assert!(throttle.report("up", &refusal).await.is_err(), "the store is not told, but this process knows");
    let since = Instant::now();
    assert_eq!(call(&throttle, Some(2 * SECOND)).await.0, "throttled");
    assert_eq!(call(&throttle, None).await.0, "goes by its part");
    assert!((6_999..7_200).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
}

/// One scope asks, and is told; the others have not asked by then.
#[tokio::test(start_paused = true)]
async fn a_pause_of_the_whole_upstream_holds_without_the_store_in_scopes_that_have_not_asked() {
    let link = Link::lost_until_ms(60_000, false);
    let up = || up().scope_by(Scope::bearer_token());
    let [throttle, other] =
        [link.throttle(WithoutStore::ThrottleLocally, up()), link.throttle(WithoutStore::ThrottleLocally, up())];
    for throttle in [&throttle, &other] {
        drop(throttle.acquire("up").scope("asks").await.unwrap());
    }
    sleep(100 * MS).await;
    other.report("up", &Feedback::refused(30 * SECOND)).await.unwrap();
    let waits = throttle.acquire("up").scope("asks").max_wait(SECOND);
    assert!(matches!(waits.await, Err(Error::Throttled { .. })));
    sleep_until(link.begin + 500 * MS).await;
    other.release_in("up", "was paused by itself").await.unwrap();
    sleep_until(link.begin + 10 * SECOND).await;
    let goes = throttle.acquire("up").scope("has not asked").await.unwrap();
    assert!(goes.went_without_store());
    let went_after = link.begin.elapsed();
    assert!((30 * SECOND..33 * SECOND).contains(&went_after), "{went_after:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_by_a_part_goes_no_more_once_the_upstream_is_removed_or_changed() {
    for removes in [true, false] {
        let link = Link::lost_until_ms(60_000, false);
        let throttle = link.counted(up()).await;
        let mut callers = JoinSet::new();
        for caller in 0..40 {
            let throttle = throttle.clone();
            callers.spawn(async move {
                sleep(7 * caller * MS).await;
                throttle.acquire("up").await.map(|permit| (Instant::now(), permit))
            });
        }
        let (first, _) = callers.join_next().await.unwrap().unwrap().unwrap();
        // The first ten have gone, and the next go within a few milliseconds.
        sleep_until(first + SECOND + 45 * MS).await;
        let changed = Instant::now();
        if removes {
            throttle.remove("up").unwrap();
        } else {
            throttle.update(Upstream::new("up").limit(Limit::new(1, 5 * SECOND))).unwrap();
        }
        sleep(SECOND).await;
        let mut late = 0;
        while let Some(outcome) = callers.try_join_next() {
            late += usize::from(outcome.unwrap().is_ok_and(|(at, _)| at > changed));
        }
        assert_eq!(late, 0, "removed: {removes}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_call_used_beyond_its_charge_counts_in_the_shared_log_too_when_the_store_is_back() {
    let link = Link::lost_until_ms(12_000, false);
    let throttle = link.counted(Upstream::new("up").limit(Limit::new(100, 5 * SECOND).of("tokens"))).await;
    let ask = || throttle.acquire("up").cost_of("tokens", 10);
    let permit = loop {
        match ask().await {
            Ok(permit) if permit.went_without_store() => break permit,
            _ => sleep(10 * MS).await,
        }
    };
    while ask().await.map_or(true, |permit| permit.went_without_store()) {
        sleep(10 * MS).await;
    }
    permit.settle("tokens", 60);
    sleep(SECOND).await;
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 60, "ten of the call that went last, and fifty");
}

#[test]
fn what_no_process_throttles_by_itself_is_said_when_it_is_built() {
    let built = |up: Upstream| Throttle::builder().without_store(WithoutStore::ThrottleLocally).upstream(up).build();
    let error = |up: Upstream| built(up).unwrap_err().to_string();
    assert!(built(up()).is_ok() && built(up().limit(Limit::new(50, 9 * SECOND))).is_ok());
    let shared = up().shares("account", [Limit::per_second(100)]);
    for (up, part) in [
        (up().limit(Limit::per_minute(100)), "more than 10 s"),
        (up().limit(Limit::in_flight(5)), "calls in flight"),
        (shared, "limits that upstreams share"),
    ] {
        let error = error(up);
        assert!(error.contains("up") && error.contains("without_store") && error.contains(part), "{error}");
    }
    assert!(built(up().limit(Limit::per_minute(100)).without_store(WithoutStore::Wait)).is_ok());
}

/// What the store told last is believed for as long as it has failed ever since: a process that calls seldom has its part as well.
#[tokio::test(start_paused = true)]
async fn a_process_that_makes_its_first_call_long_after_the_store_was_lost_goes_by_its_part() {
    let link = Link::lost_until_ms(400_000, false);
    let throttle = link.counted(Upstream::new("up").limit(Limit::per_second(10))).await;
    // Its first call, and then others after it had made none for a while.
    for idle in [16, 40, 55] {
        sleep(idle * SECOND).await;
        let permit = throttle.acquire("up").max_wait(9 * SECOND).await.unwrap();
        assert!(permit.went_without_store());
    }
    // Who has not called for over a minute is not counted any more by anybody.
    sleep(80 * SECOND).await;
    let refused = throttle.acquire("up").max_wait(9 * SECOND).await;
    assert!(matches!(refused, Err(Error::StoreUnavailable { .. })), "{refused:?}");
}

/// As it is restarted: it is away, and then reads its data.
#[tokio::test(start_paused = true)]
async fn a_store_that_serves_nobody_for_now_is_as_lost_as_one_that_is_away() {
    let mut link = Link::lost_until_ms(8_000, false);
    link.outages = [outage(2_000, 8_000, Fault::Refused), outage(8_000, 60_000, Fault::Starts)].into();
    let throttle = link.counted(up()).await;
    let mut went = 0;
    while link.begin.elapsed() < 50 * SECOND {
        went += usize::from(call(&throttle, None).await.0 == "goes by its part");
    }
    // Ten in a second and its guard, but for the first seconds.
    assert!(went > 400, "{went}");
}

/// When calls of both go, of which the first has gone by its part while the store was away: as they are made by this policy, from 100 ms before
/// it is back.
async fn gone_after_a_change(policy: WithoutStore, window: u32, back_ms: u32, is_alone: bool) -> Vec<i64> {
    let up = || Upstream::new("up").limit(Limit::new(10, window * SECOND));
    let link = Link::lost_until_ms(back_ms, false);
    let processes: Vec<_> =
        (0..2 - u8::from(is_alone)).map(|_| link.throttle(WithoutStore::ThrottleLocally, up())).collect();
    for throttle in &processes {
        drop(throttle.acquire("up").await.unwrap());
    }
    sleep_until(link.begin + 2_001 * MS).await;
    for throttle in &processes {
        assert_eq!(call(throttle, Some(200 * MS)).await.0, "unavailable");
    }
    sleep_until(link.begin + 12_000 * MS).await;
    let mut starts = Vec::new();
    for _ in 0..10 / processes.len() {
        assert_eq!(call(&processes[0], None).await, ("goes by its part", 0));
        starts.push(micros_since(link.begin));
    }
    sleep_until(link.begin + 12_100 * MS).await;
    for throttle in &processes {
        throttle.update(up().without_store(policy)).unwrap();
    }
    sleep_until(link.begin + (back_ms - 100) * MS).await;
    let last = processes.last().unwrap();
    let end = Instant::now() + (2 * window + 3) * SECOND;
    while let Ok(outcome) = timeout_at(end, last.acquire("up").into_future()).await {
        match outcome {
            Ok(permit) if !permit.went_without_store() => starts.push(micros_since(link.begin)),
            _ => sleep(10 * MS).await,
        }
    }
    starts
}

/// A window of a second that is over soon after the change, and one of six in which nobody tries the store for longer than it is believed.
#[tokio::test(start_paused = true)]
async fn what_was_sent_by_parts_counts_though_the_policy_is_another_when_the_store_is_back() {
    use WithoutStore::{Refuse, SendUnthrottled, ThrottleLocally, Wait};
    for policy in [Wait, Refuse, SendUnthrottled, ThrottleLocally] {
        for (window, back_ms) in [(1, 12_200), (6, 17_500)] {
            for is_alone in [true, false] {
                let starts = gone_after_a_change(policy, window, back_ms, is_alone).await;
                println!("{policy:?}, {window} s, alone {is_alone}: {starts:?}");
                assert_never_more_than(10, i64::from(window) * 1_000_000, &starts);
                assert!(starts.len() >= 15, "calls go on: {starts:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_by_another_policy_silences_nobody_when_it_is_over() {
    let link = Link::lost_until_ms(8_000, false);
    let throttle = link.throttle(WithoutStore::Refuse, up());
    drop(throttle.acquire("up").await.unwrap());
    sleep_until(link.begin + 2_001 * MS).await;
    while link.begin.elapsed() < 8_000 * MS {
        assert_eq!(call(&throttle, None).await.0, "unavailable");
        sleep(10 * MS).await;
    }
    sleep(60 * MS).await;
    assert_eq!(call(&throttle, None).await, ("goes", 1));
}

#[tokio::test(start_paused = true)]
async fn who_waited_longest_when_the_store_was_lost_goes_by_its_part_too() {
    let link = Link { outages: [outage(7_000, 60_000, Fault::Refused)].into(), ..Link::lost_until_ms(0, false) };
    let throttle = link.throttle(WithoutStore::ThrottleLocally, up());
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        let throttle = throttle.clone();
        callers.spawn(async move { call(&throttle, None).await.0 });
    }
    let outcomes = callers.join_all().await;
    let of = |what: &str| outcomes.iter().filter(|outcome| **outcome == what).count();
    let (by_store, by_part) = (of("goes"), of("goes by its part"));
    assert!(by_store >= 60 && by_store + by_part == 100, "{by_store} by the store, {by_part} by its part");
}

#[tokio::test(start_paused = true)]
async fn where_the_store_is_reached_and_refuses_nobody_goes_by_its_part_any_more() {
    let mut link = Link::lost_until_ms(0, false);
    link.outages = [outage(2_000, 6_000, Fault::Refused), outage(6_000, 20_000, Fault::Refuses)].into();
    let throttle = link.counted(up()).await;
    assert_eq!(call(&throttle, None).await, ("goes by its part", 1 + 250 + 1_050 + 2_000));
    let waits = tokio::spawn({
        let throttle = throttle.clone();
        async move {
            sleep_until(link.begin + 5_900 * MS).await;
            for _ in 0..9 {
                assert_eq!(call(&throttle, None).await, ("goes by its part", 0));
            }
            call(&throttle, None).await.0
        }
    });
    sleep_until(link.begin + 6_300 * MS).await;
    while link.begin.elapsed() < 20 * SECOND {
        assert_eq!(call(&throttle, None).await, ("unavailable", 0), "{:?}", link.begin.elapsed());
        sleep(20 * MS).await;
    }
    sleep(60 * MS).await;
    assert_eq!(waits.await.unwrap(), "unavailable");
    assert_eq!(call(&throttle, None).await.0, "goes");
}

/// One reaches a server that refuses, while the other goes by its part. Then both have the store back, and the former is the first to ask.
#[tokio::test(start_paused = true)]
async fn who_was_refused_in_an_outage_tells_all_the_same_that_others_may_have_sent() {
    let away = Link::lost_until_ms(15_000, false);
    let refused = [outage(2_000, 6_000, Fault::Refused), outage(6_000, 15_000, Fault::Refuses)].into();
    let refused = Link { outages: refused, ..away.clone() };
    let begin = away.begin;
    let [away, refused] = [away, refused].map(|link| link.throttle(WithoutStore::ThrottleLocally, up()));
    for throttle in [&away, &refused] {
        drop(throttle.acquire("up").await.unwrap());
    }
    sleep_until(begin + 2_001 * MS).await;
    for throttle in [&away, &refused] {
        assert_eq!(call(throttle, Some(200 * MS)).await.0, "unavailable");
    }
    sleep_until(begin + 14_900 * MS).await;
    assert_eq!(call(&refused, None).await.0, "unavailable");
    let mut starts = Vec::new();
    for _ in 0..5 {
        assert_eq!(call(&away, None).await, ("goes by its part", 0));
        starts.push(micros_since(begin));
    }
    while begin.elapsed() < 20 * SECOND {
        match refused.acquire("up").await {
            Ok(_) => starts.push(micros_since(begin)),
            Err(_) => sleep(10 * MS).await,
        }
    }
    assert_never_more_than(10, 1_000_000, &starts);
    assert!(starts.len() > 20, "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_go_by_their_part_though_a_client_waits_long_for_an_answer() {
    let link = Link { outages: [outage(2_000, 60_000, Fault::Hangs)].into(), ..Link::lost_until_ms(0, false) };
    let throttle = link.counted(up()).await;
    assert_eq!(call(&throttle, None).await, ("goes by its part", 1_000 + 250 + 1_050 + 2_000));
    while link.begin.elapsed() < 30 * SECOND {
        sleep(500 * MS).await;
        assert_eq!(call(&throttle, Some(200 * MS)).await, ("goes by its part", 0), "{:?}", link.begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_throttle_locally_soon_knows_how_many_processes_there_are() {
    let outages = [outage(20_000, 60_000, Fault::Refused)].into();
    let link = Link { inner: MemoryStore::new(), begin: Instant::now(), outages, late: Duration::ZERO };
    let up = |policy| up().without_store(policy);
    let throttle = link.throttle(WithoutStore::Wait, up(WithoutStore::Wait));
    let called_at = |seconds: u32, half: u32| link.begin + seconds * SECOND + half * SECOND / 2;
    for (seconds, half) in [(0, 0), (1, 1)] {
        sleep_until(called_at(seconds, half)).await;
        drop(throttle.acquire("up").await.unwrap());
    }
    sleep_until(called_at(2, 0)).await;
    throttle.update(up(WithoutStore::ThrottleLocally)).unwrap();
    for half in 5..40 {
        sleep_until(called_at(0, half)).await;
        drop(throttle.acquire("up").await.unwrap());
    }
    sleep_until(called_at(20, 0) + MS).await;
    call(&throttle, Some(SECOND)).await;
    sleep_until(called_at(30, 0)).await;
    assert_eq!(call(&throttle, None).await, ("goes by its part", 0));
}
