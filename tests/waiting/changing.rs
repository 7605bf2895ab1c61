//! What is throttled changes while calls wait: they are served by the new limits, in their order, and none of the limits is ever exceeded.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use outgate::ledger::Message;
use outgate::store::{Applying, Store};
use outgate::testing::oracle::window_of;
use outgate::{Limit, MemoryStore, Priority, Scope, Throttle, Upstream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{Counting, endless, micros_since};

const SECOND: Duration = Duration::from_secs(1);
/// A second and half its guard: by the other half a call may go late.
const WINDOW: i64 = 1_023_000;

fn up() -> Upstream {
    Upstream::new("up")
}

/// Demands that no call found more than the quota in the window that it ended, of the limit that held when it went: of each limit, since when
/// it held, in microseconds.
#[track_caller]
fn assert_kept(starts: &[i64], limits: &[(i64, u64, i64)]) {
    let entries: Vec<_> = starts.iter().map(|&start| (start, 1)).collect();
    for &start in starts {
        let &(since, quota, window) = limits.iter().rfind(|(since, ..)| *since < start).unwrap();
        let count = window_of(&entries, window, start);
        assert!(count <= quota, "{count} of {quota} at {start} µs, by the limit since {since}");
    }
}

/// Endless demand of two processes, which a second limit replaces the first of after ten seconds of thirty: all starts.
async fn replaced(first: Limit, second: Limit) -> Vec<i64> {
    let (store, begin) = (Counting::default(), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let throttle = store.limited(first.clone());
        let changed = throttle.clone();
        let second = second.clone();
        tasks.spawn(async move {
            sleep(10 * SECOND).await;
            changed.update(up().limit(second)).unwrap();
            Vec::new()
        });
        tasks.spawn(async move { endless(&throttle, 64, begin, begin + 30 * SECOND).await });
    }
    let mut starts = tasks.join_all().await.concat();
    starts.sort_unstable();
    starts
}

fn since(starts: &[i64], seconds: i64) -> usize {
    starts.iter().filter(|&&start| start > seconds * 1_000_000).count()
}

#[tokio::test(start_paused = true)]
async fn a_lowered_quota_holds_from_the_next_call_on() {
    fastrand::seed(1);
    let starts = replaced(Limit::per_second(100), Limit::per_second(20)).await;
    assert_kept(&starts, &[(0, 100, WINDOW), (10_000_000, 20, WINDOW)]);
    // 20 of 1.05 s, from the second when the last of the former 100 counts no more.
    assert!(since(&starts, 11) >= 340, "{}", since(&starts, 11));
}

#[tokio::test(start_paused = true)]
async fn a_raised_quota_is_used_by_who_waits_already() {
    fastrand::seed(2);
    let starts = replaced(Limit::per_second(20), Limit::per_second(100)).await;
    assert_kept(&starts, &[(0, 20, WINDOW), (10_000_000, 100, WINDOW)]);
    assert!(since(&starts, 10) >= 1_850, "{}", since(&starts, 10));
    let soon = starts.iter().filter(|&&start| (10_000_000..10_100_000).contains(&start)).count();
    assert!(soon >= 60, "80 are free at once: {soon}");
}

#[tokio::test(start_paused = true)]
async fn a_window_that_changes_counts_what_the_log_still_knows() {
    fastrand::seed(3);
    let starts = replaced(Limit::new(50, 5 * SECOND), Limit::per_second(25)).await;
    assert_kept(&starts, &[(0, 50, 5_125_000), (10_000_000, 25, WINDOW)]);
    assert!(since(&starts, 11) >= 420, "{}", since(&starts, 11));
    fastrand::seed(4);
    let starts = replaced(Limit::per_second(25), Limit::new(50, 5 * SECOND)).await;
    // What has aged by the former window is forgotten.
    let lately: Vec<_> = starts.iter().copied().filter(|&start| start > 9_000_000).collect();
    assert_kept(&starts[..starts.len() - lately.len()], &[(0, 25, WINDOW)]);
    assert_kept(&lately, &[(0, 25, WINDOW), (10_000_000, 50, 5_125_000)]);
    assert!(since(&starts, 11) >= 150, "{}", since(&starts, 11));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_added_holds_beside_those_of_before_and_one_that_is_removed_no_more() {
    fastrand::seed(5);
    let (store, begin) = (Counting::default(), Instant::now());
    let both =
        |up: Upstream| up.limit(Limit::per_second(50)).limit(Limit::per_second(5).each(Scope::header("x-merchant")));
    let throttle = store.limited(Limit::per_second(50));
    let demand = tokio::spawn({
        let throttle = throttle.clone();
        async move { endless(&throttle, 64, begin, begin + 30 * SECOND).await }
    });
    sleep_until(begin + 10 * SECOND).await;
    throttle.update(both(up())).unwrap();
    sleep_until(begin + 20 * SECOND).await;
    throttle.update(up().limit(Limit::per_second(50))).unwrap();
    let starts = demand.await.unwrap();
    // Calls of no merchant share one log.
    assert_kept(&starts, &[(0, 50, WINDOW)]);
    let between: Vec<_> = starts.iter().copied().filter(|start| (10_000_001..20_000_000).contains(start)).collect();
    assert_kept(&between, &[(0, 5, WINDOW)]);
    assert!(between.len() >= 40, "{}", between.len());
    assert!(since(&starts, 20) >= 455, "{}", since(&starts, 20));
}

#[tokio::test(start_paused = true)]
async fn a_scope_keeps_its_log_where_a_limit_of_another_comes_or_goes() {
    let merchants = || up().scope_by(Scope::header("x-merchant")).limit(Limit::per_hour(3));
    let named = || up().limit(Limit::per_hour(3).each(Scope::header("x-merchant")));
    let of_all = || Limit::per_second(100).each(Scope::upstream());
    let of_tokens = || Limit::per_second(100).each(Scope::bearer_token());
    for alone in [merchants, named] {
        let store = Counting::default();
        let process = |upstream| store.process(|_| upstream);
        let throttle = process(alone());
        let others = [alone().limit(of_all()), alone().limit(of_tokens()).limit(of_all()), merchants(), named()];
        for merchant in [Some("m1"), None] {
            let ask = |throttle: &Throttle| {
                let asks = throttle.try_acquire("up");
                if let Some(merchant) = merchant { asks.scope_of("x-merchant", merchant) } else { asks }
            };
            drop(ask(&throttle).await.unwrap());
            drop(ask(&process(others[0].clone())).await.unwrap());
            drop(ask(&process(others[1].clone())).await.unwrap());
            for other in &others {
                assert!(ask(&process(other.clone())).await.is_err(), "{merchant:?}: {other:?}");
                throttle.update(other.clone()).unwrap();
                assert!(ask(&throttle).await.is_err(), "{merchant:?}, updated: {other:?}");
            }
            throttle.update(alone()).unwrap();
        }
    }
}

/// Callers in the order in which they came: which went, and when, in milliseconds.
type Gone = Arc<Mutex<Vec<(usize, u128)>>>;

fn caller(throttle: &Throttle, gone: &Gone, begin: Instant, number: usize, priority: Priority) -> JoinHandle<()> {
    let (throttle, gone) = (throttle.clone(), Arc::clone(gone));
    tokio::spawn(async move {
        drop(throttle.acquire("up").priority(priority).await.unwrap());
        gone.lock().unwrap().push((number, begin.elapsed().as_millis()));
    })
}

#[tokio::test(start_paused = true)]
async fn who_waits_keeps_its_place_before_who_comes_later() {
    for (store, is_near) in [(Counting::default(), false), (Counting::default(), true)] {
        let (begin, gone) = (Instant::now(), Gone::default());
        let throttle = if is_near {
            Throttle::builder().upstream(up().limit(Limit::per_minute(1))).build().unwrap()
        } else {
            store.limited(Limit::per_minute(1))
        };
        let mut tasks = Vec::new();
        for number in 0..40 {
            tasks.push(caller(&throttle, &gone, begin, number, Priority::Normal));
            sleep(Duration::from_millis(10)).await;
        }
        for (quota, number) in [(1, 41), (5, 42), (20, 43), (60, 44)] {
            throttle.update(up().limit(Limit::new(quota, 10 * SECOND))).unwrap();
            tasks.push(caller(&throttle, &gone, begin, number, Priority::Normal));
            sleep(Duration::from_millis(100)).await;
        }
        for task in tasks {
            task.await.unwrap();
        }
        let gone = gone.lock().unwrap().clone();
        assert!(gone.is_sorted(), "{gone:?}");
        assert!(gone.last().unwrap().1 < 900, "as soon as the quota is large enough: {gone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn places_are_kept_in_whatever_order_callers_hear_of_it() {
    let throttle = Counting::default().limited(Limit::per_minute(1));
    drop(throttle.acquire("up").await.unwrap());
    let (begin, gone) = (Instant::now(), Gone::default());
    let mut callers: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for number in 0..20 {
        let (throttle, gone) = (throttle.clone(), Arc::clone(&gone));
        callers.push(Box::pin(async move {
            drop(throttle.acquire("up").await.unwrap());
            gone.lock().unwrap().push((number, begin.elapsed().as_millis()));
        }));
    }
    // One task polls them all: in the order in which they came at first, and ever after the last first.
    let mut come = false;
    let all = tokio::spawn(poll_fn(move |cx| {
        if come {
            callers.reverse();
        }
        callers.retain_mut(|caller| caller.as_mut().poll(cx).is_pending());
        if std::mem::replace(&mut come, true) {
            callers.reverse();
        }
        if callers.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    sleep(SECOND).await;
    throttle.update(up().limit(Limit::new(1, SECOND))).unwrap();
    all.await.unwrap();
    assert!(gone.lock().unwrap().is_sorted(), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn who_has_a_higher_priority_goes_first_by_the_new_limits_too() {
    let (begin, gone) = (Instant::now(), Gone::default());
    let throttle = Counting::default().limited(Limit::per_minute(1));
    let mut tasks = vec![caller(&throttle, &gone, begin, 0, Priority::Normal)];
    sleep(SECOND).await;
    for (number, priority) in [(3, Priority::Low), (2, Priority::Normal), (1, Priority::High)] {
        tasks.push(caller(&throttle, &gone, begin, number, priority));
        sleep(SECOND).await;
    }
    throttle.update(up().limit(Limit::new(1, SECOND))).unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order: Vec<_> = gone.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn limits_that_change_again_and_again_are_kept_and_nobody_is_lost() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        fastrand::seed(seed);
        let (store, begin) = (Counting::default(), Instant::now());
        let (throttle, gone) = (store.limited(Limit::per_second(10)), Gone::default());
        let mut limits = vec![(-1, 10, WINDOW)];
        let mut tasks = Vec::new();
        for number in 0..300 {
            tasks.push(caller(&throttle, &gone, begin, number, Priority::Normal));
            if number % 3 == 0 {
                tasks.push(caller(&throttle, &Gone::default(), begin, number, Priority::Normal));
                tasks.pop().unwrap().abort();
            }
            sleep(Duration::from_millis(random.u64(0..40))).await;
            if random.u8(0..6) == 0 {
                let quota = random.u32(1..60);
                throttle.update(up().limit(Limit::per_second(quota))).unwrap();
                limits.push((micros_since(begin), quota.into(), WINDOW));
            }
        }
        throttle.update(up().limit(Limit::per_second(60))).unwrap();
        limits.push((micros_since(begin), 60, WINDOW));
        for task in tasks {
            task.await.unwrap();
        }
        let gone = gone.lock().unwrap().clone();
        assert_eq!(gone.len(), 300);
        assert!(gone.is_sorted(), "seed {seed}: {gone:?}");
        let starts: Vec<_> = gone.iter().map(|&(_, at)| i64::try_from(at).unwrap() * 1_000).collect();
        assert_kept(&starts, &limits);
    }
}

/// A store 300 ms away.
#[derive(Clone, Debug, Default)]
struct Far(MemoryStore);

impl Store for Far {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            sleep(Duration::from_millis(300)).await;
            let answer = self.0.apply(message).await;
            sleep(Duration::from_millis(300)).await;
            answer
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_far_store_books_while_limits_change_goes_to_who_waits_by_the_new_ones() {
    for delay in 0..30 {
        let up = || up().limit(Limit::new(1, 20 * SECOND));
        let throttle = Throttle::builder().store(Far::default()).upstream(up()).build().unwrap();
        let begin = Instant::now();
        let waits = tokio::spawn(throttle.acquire("up").into_future());
        sleep(Duration::from_millis(100 * delay)).await;
        throttle.update(up()).unwrap();
        drop(waits.await.unwrap().unwrap());
        assert!(begin.elapsed() < 6 * SECOND, "changed after {delay}00 ms: {:?}", begin.elapsed());
    }
}
