//! A store whose clock steps while calls run: nobody is silent for longer than the step was unknown, and no window is too full.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::ledger::{Message, Stamp};
use outgate::store::Applying;
use outgate::testing::ManualClock;
use outgate::testing::oracle::assert_never_more_than;
use outgate::{Limit, MemoryStore, Reset, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::micros_since;

const EPOCH: i64 = 1_795_170_949_790_213;
const WAY: Duration = Duration::from_millis(1);
const RUN: Duration = Duration::from_secs(12);
const STEP_AT: Duration = Duration::from_secs(5);

/// A store in memory, a millisecond away each way, on a clock that can be stepped.
#[derive(Clone, Debug)]
struct Stepping {
    inner: MemoryStore,
    clock: ManualClock,
    began: Instant,
    step: Arc<AtomicI64>,
}

impl Stepping {
    fn new() -> Self {
        let clock = ManualClock::new(Stamp::from_micros(EPOCH));
        Self { inner: MemoryStore::with_clock(clock.clone()), clock, began: Instant::now(), step: Arc::default() }
    }

    fn store(&self) -> &MemoryStore {
        self.clock.set(Stamp::from_micros(EPOCH + micros_since(self.began) + self.step.load(Ordering::Relaxed)));
        &self.inner
    }

    fn process(&self, limit: Limit) -> Throttle {
        let up = Upstream::new("up").limit(limit);
        Throttle::builder().store(self.clone()).upstream(up).build().unwrap()
    }
}

impl Store for Stepping {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            sleep(WAY).await;
            let answer = self.store().apply(message).await;
            sleep(WAY).await;
            answer
        })
    }
}

/// Four processes of sixteen callers: when each call went, where the clock steps by so many microseconds.
async fn calls(limit: Limit, step: i64) -> Vec<i64> {
    let store = Stepping::new();
    let (began, mut callers) = (Instant::now(), JoinSet::new());
    for throttle in (0..4).map(|_| store.process(limit.clone())) {
        for _ in 0..16 {
            let throttle = throttle.clone();
            callers.spawn(async move {
                let mut went = Vec::new();
                while began.elapsed() < RUN {
                    drop(throttle.acquire("up").await.unwrap());
                    went.push(micros_since(began));
                }
                went
            });
        }
    }
    sleep(STEP_AT).await;
    store.step.store(step, Ordering::Relaxed);
    let mut went = callers.join_all().await.concat();
    went.sort_unstable();
    went
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_silences_nobody_and_fills_no_window() {
    let (second, minute) = (Limit::per_second(100), Limit::per_minute(6_000));
    // This store forgets a log after its window: a leap that is longer than that takes it away.
    let steps = [-50_000, -200_000, -10_000_000, -3_600_000_000, 200_000].map(|step| (second.clone(), step));
    for (limit, step) in steps.into_iter().chain([(minute, 10_000_000)]) {
        let went = calls(limit.clone().burst(10), step).await;
        assert_never_more_than(10, 100_000, &went);
        assert_never_more_than(100, 1_000_000, &went);
        let gap = went.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(gap <= Some(500_000), "{step}: nobody went for {gap:?} µs");
        let used = went.iter().filter(|&&at| at < 12_000_000).count();
        assert!(used >= 1_100, "{step}: {used} calls in 12 s");
        println!("{step}: {used} calls, the longest gap {gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_leaps_by_more_than_anything_is_remembered_for_silences_nobody() {
    // By these seeds a process asks between two others that know by then that the clock has leapt, and have told so, and taken back what they
    // booked by it: the first, but not the second.
    let seeds = [18, 23, 0].map(|seed| (seed, 3_600_000_000));
    for (seed, step) in seeds.into_iter().chain([(0, 20_000_000)]) {
        fastrand::seed(seed);
        let went = calls(Limit::per_second(100), step).await;
        // Nobody may have gone for a while before as well: slots of a window come in bursts.
        let since_step = |at: i64| at.max(STEP_AT.as_micros().try_into().unwrap());
        let gap = went.windows(2).map(|pair| since_step(pair[1]) - since_step(pair[0])).max();
        // What is forgotten then may be taken for lost.
        assert!(gap <= Some(1_500_000), "{step}: nobody went for {gap:?} µs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_by_many_calendar_windows_silences_nobody() {
    // By three hours, as where it showed some local time. Whoever has named other boundaries is told so, and asks again.
    let hour = 3_600_000_000;
    for step in [-3, 3, -24, 1_000].map(|hours| hours * hour) {
        let store = Stepping::new();
        let throttle = store.process(Limit::per_hour(1_000).resets(Reset::hourly()));
        for step in [0, step, step] {
            store.step.store(step, Ordering::Relaxed);
            let asked = Instant::now();
            drop(throttle.acquire("up").max_wait(Duration::from_millis(500)).await.unwrap());
            assert!(asked.elapsed() < Duration::from_millis(50), "{step}: {:?}", asked.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_such_a_step_who_wants_to_go_at_once_does() {
    let store = Stepping::new();
    let throttle = store.process(Limit::per_hour(1_000).resets(Reset::hourly()));
    drop(throttle.try_acquire("up").await.unwrap());
    store.step.store(-3 * 3_600_000_000, Ordering::Relaxed);
    drop(throttle.try_acquire("up").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_was_told_while_the_clock_had_leapt_is_none_when_that_is_taken_back() {
    for step in [3_600_000_000, 20_000_000] {
        let store = Stepping::new();
        let [one, other] = [(); 2].map(|()| store.process(Limit::per_second(10)));
        for throttle in [&one, &other] {
            drop(throttle.acquire("up").await.unwrap());
        }
        store.step.store(step, Ordering::Relaxed);
        one.report("up", &Feedback::refused(Duration::from_secs(2))).await.unwrap();
        for throttle in [&one, &other] {
            let asked = Instant::now();
            drop(throttle.acquire("up").await.unwrap());
            let most = Duration::from_secs(if step > 60_000_000 { 3 } else { 23 });
            assert!(asked.elapsed() < most, "{step}: {:?}", asked.elapsed());
        }
        // Nor is another mistaken for the second in a row.
        sleep(Duration::from_secs(30)).await;
        one.report("up", &Feedback::refused(Duration::from_secs(2))).await.unwrap();
        let left = other.usage("up").await.unwrap().paused.unwrap().left;
        assert!(left <= Duration::from_secs(3), "{step}: {left:?}");
    }
}
