//! Calls of higher priority go first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::testing::oracle::assert_never_more_than;
use outgate::{Error, Limit, Priority, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Counting, again_and_again, micros_since};

const SECOND: Duration = Duration::from_secs(1);

/// Two calls a second, no guard.
fn upstream(up: Upstream) -> Upstream {
    up.limit(Limit::per_second(2).guard(Duration::ZERO))
}

/// Callers that write down in which order they went.
#[derive(Default)]
struct Callers {
    went: Arc<Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

impl Callers {
    /// A caller comes, and is in the queue before anything else happens.
    async fn come(&mut self, throttle: &Throttle, name: &str, priority: Priority) {
        let (throttle, went, name) = (throttle.clone(), Arc::clone(&self.went), name.to_owned());
        self.tasks.spawn(async move {
            drop(throttle.acquire("up").priority(priority).await.unwrap());
            went.lock().unwrap().push(name);
        });
        tokio::task::yield_now().await;
    }

    async fn all(self) -> String {
        self.tasks.join_all().await;
        self.went.lock().unwrap().join(" ")
    }
}

#[tokio::test(start_paused = true)]
async fn callers_go_by_priority_and_of_one_priority_in_the_order_in_which_they_came() {
    let throttle = Counting::default().process(upstream);
    for _ in 0..2 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let mut callers = Callers::default();
    for name in ["l1", "n1", "h1", "l2", "n2", "h2"] {
        let priority = match &name[..1] {
            "h" => Priority::High,
            "n" => Priority::Normal,
            _ => Priority::Low,
        };
        callers.come(&throttle, name, priority).await;
    }
    assert_eq!(callers.all().await, "h1 h2 n1 n2 l1 l2");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_booked_goes_to_whoever_comes_with_a_higher_priority() {
    let throttle = Counting::default().process(upstream);
    for _ in 0..2 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let mut callers = Callers::default();
    callers.come(&throttle, "n1", Priority::Normal).await;
    // Within the horizon of the slot.
    sleep(SECOND * 9 / 10).await;
    callers.come(&throttle, "h1", Priority::High).await;
    callers.come(&throttle, "n2", Priority::Normal).await;
    assert_eq!(callers.all().await, "h1 n1 n2");
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_with_low_priority_for_long_enough_goes_first() {
    let of = async |up: fn(Upstream) -> Upstream| {
        let throttle = Counting::default().process(up);
        let mut callers = Callers::default();
        callers.come(&throttle, "n0", Priority::Normal).await;
        callers.come(&throttle, "n0", Priority::Normal).await;
        for name in ["l1", "l2"] {
            callers.come(&throttle, name, Priority::Low).await;
        }
        // Two come each second, which is all that there is.
        for second in 1..6 {
            for _ in 0..2 {
                callers.come(&throttle, &format!("n{second}"), Priority::Normal).await;
            }
            sleep(SECOND).await;
        }
        callers.all().await
    };
    assert_eq!(of(upstream).await, "n0 n0 n1 n1 n2 n2 n3 n3 n4 n4 n5 n5 l1 l2");
    let promoting = |up| upstream(up).promote_low_after(5 * SECOND / 2);
    assert_eq!(of(promoting).await, "n0 n0 n1 n1 n2 n2 l1 l2 n3 n3 n4 n4 n5 n5");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_is_judged_by_those_who_go_before() {
    let throttle = Counting::default().process(upstream);
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let throttle = throttle.clone();
        waiting.spawn(async move { throttle.acquire("up").await.map(drop) });
    }
    sleep(SECOND / 10).await;
    let of = async |priority| throttle.acquire("up").priority(priority).max_wait(2 * SECOND).await.map(drop);
    assert!(of(Priority::High).await.is_ok());
    for priority in [Priority::Normal, Priority::Low] {
        let refused = of(priority).await;
        assert!(
            matches!(refused, Err(Error::Throttled { retry_after, .. }) if retry_after > 7 * SECOND),
            "{refused:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_for_long_takes_a_slot_that_is_booked_though_others_have_none() {
    let throttle = Counting::default().process(upstream);
    for _ in 0..2 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let mut callers = Callers::default();
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        callers.come(&throttle, name, Priority::Normal).await;
    }
    // Within the horizon of the slots of two.
    sleep(SECOND * 9 / 10).await;
    let permit = throttle.acquire("up").priority(Priority::High).max_wait(SECOND * 3 / 10).await.unwrap();
    assert!(permit.waited() < SECOND / 4, "{:?}", permit.waited());
    assert_eq!(callers.all().await, "n1 n2 n3 n4 n5");
}

/// 100 calls a second, of which 20 are for high callers.
fn reserving(up: Upstream) -> Upstream {
    up.limit(Limit::per_second(100)).reserve(Priority::High, 20)
}

/// For how long calls are counted: half a minute, after the first seconds.
const BEGIN: i64 = 5_000_000;
const END: Duration = Duration::from_secs(35);

/// Callers of a process that ask again as soon as they are served: when their calls went.
fn saturate(throttle: &Throttle, priority: Priority, begin: Instant, tasks: &mut JoinSet<Vec<i64>>) {
    for _ in 0..32 {
        tasks.spawn(again_and_again(throttle.clone(), priority, begin, begin + END));
    }
}

/// Callers of high priority, 15 a second: how long they waited, ascending, and when they went.
async fn now_and_then(throttle: &Throttle, begin: Instant) -> (Vec<Duration>, Vec<i64>) {
    let mut tasks = JoinSet::new();
    while begin.elapsed() < END {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            let permit = throttle.acquire("up").priority(Priority::High).await.unwrap();
            (permit.waited(), micros_since(begin))
        });
        sleep(SECOND / 15).await;
    }
    let (mut waits, starts): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().unzip();
    waits.sort_unstable();
    (waits, starts)
}

/// The longest wait of 99 % of the high callers, and which part of its 80/s low has, where it saturates from four processes, and
/// those of high priority are in a fifth or among them.
async fn beside_low(is_among_them: bool) -> (Duration, f64) {
    fastrand::seed(81);
    let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
    let processes: Vec<_> = (0..5).map(|_| store.process(reserving)).collect();
    for process in &processes[..4] {
        saturate(process, Priority::Low, begin, &mut tasks);
    }
    let (waits, mut starts) = now_and_then(&processes[if is_among_them { 0 } else { 4 }], begin).await;
    let low = tasks.join_all().await.concat();
    let counted = low.iter().filter(|&&at| at >= BEGIN).count();
    assert_never_more_than(80, 1_025_000, &low);
    starts.extend(low);
    assert_never_more_than(100, 1_025_000, &starts);
    let share = f64::from(u32::try_from(counted).unwrap()) / (80.0 * 30.0 / 1.05);
    let p99 = waits[waits.len() * 99 / 100];
    println!("high waited {p99:?} at p99, {:?} at most; low had {share:.3} of 80/s", waits[waits.len() - 1]);
    (p99, share)
}

#[tokio::test(start_paused = true)]
async fn what_is_reserved_is_there_for_high_callers_of_a_fifth_process_and_low_has_the_rest() {
    let (p99, share) = beside_low(false).await;
    assert!(p99 <= SECOND / 2 && share >= 0.98, "{p99:?} {share}");
}

#[tokio::test(start_paused = true)]
async fn what_is_reserved_is_there_for_high_callers_of_the_same_process() {
    let (p99, share) = beside_low(true).await;
    assert!(p99 <= SECOND / 2 && share >= 0.98, "{p99:?} {share}");
}

#[tokio::test(start_paused = true)]
async fn who_is_spared_settles_in_its_own_log_alone() {
    let limit = Limit::per_minute(100).of("tokens").guard(Duration::ZERO);
    let throttle = Counting::default().process(|up| up.limit(limit).reserve(Priority::High, 50));
    let of = async |priority, tokens| {
        let permit = throttle.acquire("up").priority(priority).cost_of("tokens", tokens).max_wait(Duration::ZERO).await;
        permit.map_err(|error| error.to_string())
    };
    let (high, low) = (of(Priority::High, 10).await.unwrap(), of(Priority::Low, 50).await.unwrap());
    high.settle("tokens", 40);
    sleep(SECOND).await;
    assert!(of(Priority::Low, 1).await.is_err(), "the rest is spent");
    low.settle("tokens", 20);
    sleep(SECOND).await;
    let used = throttle.usage("up").await.unwrap().limits[0].used;
    assert_eq!(used, 60, "of both calls");
    drop(of(Priority::Low, 30).await.unwrap());
    assert!(of(Priority::Low, 1).await.is_err(), "20 and 30 are all of the rest");
    drop(of(Priority::High, 10).await.unwrap());
    assert!(of(Priority::High, 1).await.is_err(), "and 100 are all that there is");
}
