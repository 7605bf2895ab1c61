//! Calls that reserve what others of their kind used: how much of the quota is used, and by how much true tokens overrun it.

use std::time::Duration;

use outgate::testing::oracle::{assert_never_more_units_than, worst_window_of_units};
use outgate::{Limit, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::{Counting, micros_since};

const QUOTA: u32 = 200_000;
const LARGEST: u32 = 1_000;
/// In place of for how many of a thousand calls an estimate is enough, where nothing is said of that.
const BY_DEFAULT: u16 = 0;
const WINDOW: i64 = 60_000_000;
/// How long the load lasts.
const LASTS: Duration = Duration::from_secs(900);

/// When a call started, when it ended, and what it used.
type Call = (i64, i64, u64);

/// What calls use, of the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// 10 to 100 %, each as often as any other.
    Even,
    /// 10 to 30 %, but one in ten up to 100 %.
    Tailed,
    /// 10 to 30 %, and from one moment on 10 to 100 %.
    Rising,
    /// 10 to 100 % of a fortieth of the quota: ten or so are in flight at once.
    Large,
}

impl Load {
    const fn largest(self) -> u32 {
        match self {
            Self::Even => LARGEST,
            Self::Tailed | Self::Rising => 2_500,
            Self::Large => QUOTA / 40,
        }
    }

    fn used(self, rng: &mut fastrand::Rng, start: i64) -> u64 {
        let is_large = match self {
            Self::Even | Self::Large => true,
            Self::Tailed => rng.u32(..10) == 0,
            Self::Rising => start > 450_000_000,
        };
        let most = if is_large { self.largest() } else { self.largest() * 3 / 10 };
        u64::from(rng.u32(self.largest() / 10..=most))
    }
}

/// What a load is run with.
#[derive(Clone, Copy)]
struct Run {
    load: Load,
    /// For how many of a thousand calls the estimate is enough; without, each reserves the largest.
    estimates: Option<u16>,
    settles: bool,
    at_end: bool,
}

/// What came of it: shares and overruns are parts of the quota.
#[derive(Debug)]
struct Outcome {
    share: f64,
    /// By how much the worst window holds more.
    overrun: f64,
}

impl Run {
    fn process(self, store: &Counting) -> Throttle {
        let tokens = Limit::per_minute(QUOTA).of("tokens");
        let tokens = if self.at_end { tokens.counted_at_end() } else { tokens };
        store.process(|up| {
            let up = up.limit(Limit::per_minute(500)).limit(tokens);
            match self.estimates {
                Some(BY_DEFAULT) => up.estimate("tokens", self.load.largest()),
                Some(of_thousand) => up.estimate("tokens", self.load.largest()).estimates_per_thousand(of_thousand),
                None => up,
            }
        })
    }

    /// Four processes of 40 tasks that call as often as they may, and know 0.1 to 20 s later what a call used.
    async fn calls(self) -> Vec<Call> {
        // What calls use beyond their estimates is a matter of chance: the same in every run.
        fastrand::seed(1);
        let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
        let processes = [(); 4].map(|()| self.process(&store));
        for (seed, throttle) in (0_u64..).zip(processes.iter().cycle().take(160)) {
            let throttle = throttle.clone();
            tasks.spawn(async move {
                let (mut rng, mut calls) = (fastrand::Rng::with_seed(seed), Vec::new());
                loop {
                    let mut acquire = throttle.acquire("up");
                    if self.estimates.is_none() {
                        acquire = acquire.cost_of("tokens", self.load.largest());
                    }
                    let Ok(permit) = timeout_at(begin + LASTS, acquire.into_future()).await else { return calls };
                    let (permit, start) = (permit.unwrap(), micros_since(begin));
                    let used = self.load.used(&mut rng, start);
                    sleep(Duration::from_millis(rng.u64(100..20_000))).await;
                    if self.settles {
                        permit.settle("tokens", used);
                    }
                    calls.push((start, micros_since(begin), used));
                }
            });
        }
        tasks.join_all().await.concat()
    }

    async fn outcome(self) -> Outcome {
        let calls = self.calls().await;
        let seen = |&(start, end, used): &Call| (if self.at_end { end } else { start }, used);
        let entries: Vec<(i64, u64)> = calls.iter().map(seen).collect();
        if self.estimates.is_none() && self.settles {
            assert_never_more_units_than(QUOTA.into(), WINDOW, &entries);
        }
        let real = |units: u64| f64::from(u32::try_from(units).unwrap());
        // Windows and guards follow each other.
        let quota = f64::from(QUOTA) * LASTS.as_secs_f64() / 61.0;
        let worst = worst_window_of_units(&entries, WINDOW).count;
        let outcome = Outcome {
            share: real(calls.iter().map(|(_, _, used)| used).sum()) / quota,
            overrun: real(worst.saturating_sub(QUOTA.into())) / f64::from(QUOTA),
        };
        let (counted, settled) = (if self.at_end { "ends" } else { "starts" }, if self.settles { "" } else { "not " });
        println!(
            "{:?} load, estimates for {:?} of 1,000, {settled}settled, counted when a call {counted}: share {:.3}, overrun {:.2} %",
            self.load,
            self.estimates,
            outcome.share,
            outcome.overrun * 100.0
        );
        outcome
    }
}

#[tokio::test(start_paused = true)]
async fn estimates_use_the_quota_and_overrun_it_by_little() {
    for (load, least) in [(Load::Even, 0.85), (Load::Tailed, 0.75), (Load::Rising, 0.85)] {
        let run = Run { load, estimates: Some(950), settles: true, at_end: false };
        let estimated = run.outcome().await;
        let largest = Run { estimates: None, ..run }.outcome().await;
        let unsettled = Run { settles: false, ..run }.outcome().await;
        Run { estimates: Some(500), ..run }.outcome().await;
        assert!(estimated.share >= least && estimated.share > largest.share, "{estimated:?}, {largest:?}");
        let most = if load == Load::Rising { 0.2 } else { 0.01 };
        assert!(estimated.overrun <= most, "{estimated:?}");
        assert!(largest.overrun == 0.0 && unsettled.overrun == 0.0, "{largest:?}, {unsettled:?}");
        assert!(unsettled.share < 0.6, "{unsettled:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn estimates_of_an_upstream_that_counts_when_calls_end() {
    let run = Run { load: Load::Even, estimates: Some(950), settles: true, at_end: true };
    let estimated = run.outcome().await;
    let largest = Run { estimates: None, ..run }.outcome().await;
    assert!(estimated.overrun <= 0.01 && estimated.share > largest.share, "{estimated:?}, {largest:?}");
    assert!(estimated.share > 0.75 && largest.overrun == 0.0, "{estimated:?}, {largest:?}");
    // What is in flight counts as well: of a window of 61 s and calls of 10 s exact estimates leave 61 of 71.
    for (load, least, most) in
        [(Load::Even, 0.85, 0.01), (Load::Tailed, 0.8, 0.01), (Load::Large, 0.8, 0.01), (Load::Rising, 0.85, 0.2)]
    {
        let by_default = Run { load, estimates: Some(BY_DEFAULT), ..run }.outcome().await;
        assert!(by_default.share >= least && by_default.overrun <= most, "{load:?}: {by_default:?}");
    }
}

/// How many calls go at once, of those for which `acquire` asks.
async fn at_once(throttle: &Throttle, of: impl Fn(outgate::Acquire) -> outgate::Acquire) -> u32 {
    let mut calls = 0;
    while of(throttle.try_acquire("up")).await.is_ok() {
        calls += 1;
    }
    calls
}

fn estimating(up: Upstream) -> Upstream {
    up.limit(Limit::per_minute(10_000).of("tokens")).estimate("tokens", LARGEST)
}

#[tokio::test(start_paused = true)]
async fn each_kind_is_estimated_by_itself() {
    for (kind, expected) in [("small", 100), ("large", 10)] {
        let throttle = Counting::default().process(estimating);
        for _ in 0..40 {
            // Said costs win, and such calls teach as well; what used nothing does not.
            let permit = throttle.acquire("up").kind("small").cost_of("tokens", 50).await.unwrap();
            permit.settle("tokens", 100);
            permit.settle("tokens", 0);
            let failed = throttle.acquire("up").kind("large").cost_of("tokens", 1).await.unwrap();
            failed.settle("tokens", 0);
        }
        sleep(Duration::from_secs(70)).await;
        assert_eq!(at_once(&throttle, |acquire| acquire.kind(kind)).await, expected, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_back_teaches_nothing() {
    let throttle = Counting::default().process(estimating);
    for _ in 0..40 {
        let permit = throttle.acquire("up").await.unwrap();
        let passage = permit.passage();
        permit.hand_back();
        passage.settle("tokens", 1);
    }
    sleep(Duration::from_secs(70)).await;
    assert_eq!(at_once(&throttle, |acquire| acquire).await, 10);
}

#[tokio::test(start_paused = true)]
async fn what_calls_used_is_known_by_new_limits_and_how_much_is_enough_follows_from_those() {
    let tokens = || Limit::per_minute(10_000).of("tokens");
    let up = |tokens: Limit| Upstream::new("up").limit(tokens).estimate("tokens", LARGEST);
    let throttle = Counting::default().process(estimating);
    for call in 0..40 {
        let permit = throttle.acquire("up").await.unwrap();
        permit.settle("tokens", if call % 2 == 0 { 100 } else { 200 });
    }
    let in_flight = throttle.acquire("up").await.unwrap();
    for (tokens, expected) in [(tokens(), 50), (tokens().counted_at_end(), 59), (tokens(), 50)] {
        throttle.update(up(tokens)).unwrap();
        sleep(Duration::from_secs(70)).await;
        assert_eq!(at_once(&throttle, |acquire| acquire).await, expected);
    }
    throttle.update(up(tokens()).estimates_per_thousand(500)).unwrap();
    sleep(Duration::from_secs(70)).await;
    assert_eq!(at_once(&throttle, |acquire| acquire).await, 10, "by another rule all is learned anew");
    drop(in_flight);
}

#[test]
fn estimates_that_make_no_sense_are_refused() {
    type Says = fn(Upstream) -> Upstream;
    let wrong: [(Says, &str); 4] = [
        (|up| up.estimate("tokens", 0), "estimate"),
        (|up| up.estimate("points", 5), "estimate"),
        (|up| up.estimate("tokens", QUOTA + 1), "estimate"),
        (|up| up.estimates_per_thousand(1_001), "estimates_per_thousand"),
    ];
    for (says, field) in wrong {
        let up = says(Upstream::new("up").limit(Limit::per_minute(QUOTA).of("tokens")));
        assert_eq!(Throttle::builder().upstream(up).build().unwrap_err().field(), field);
    }
}
