//! A connection that is opened takes its time: the calls that wait for it arrive later than others, and nobody is refused for that.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use outgate::testing::{Judge, Shape};
use outgate::{Limit, Throttle};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::support::{Counting, micros_since};

/// How many milliseconds it takes to open a connection.
const OPENING: Range<u64> = 60..120;
/// How often scenes are played; some take ten times as long as others.
const SEEDS: u64 = 100;
const FEW_SEEDS: u64 = 10;

thread_local! {
    /// Never used itself: to make one takes longer than all of a play.
    static CLIENT: reqwest::Client = reqwest::Client::new();
}

/// A strict upstream on tokio's clock, without the network before it.
#[derive(Debug)]
struct Strict {
    judge: Mutex<Judge>,
    begin: Instant,
    /// Milliseconds until a response comes, from the arrival.
    responds: Range<u64>,
    /// When calls arrived, and whether they were admitted.
    arrivals: Mutex<Vec<(i64, bool)>>,
}

/// The way of one process there, with its connections that are open and idle.
#[derive(Clone, Debug)]
struct Network {
    strict: Arc<Strict>,
    idle: Arc<Semaphore>,
}

impl Network {
    /// A connection: one that is idle or, whichever comes first, is done with before another is open.
    async fn connection(&self) {
        if let Ok(idle) = self.idle.try_acquire() {
            return idle.forget();
        }
        let (idle, opening) = (Arc::clone(&self.idle), Duration::from_millis(fastrand::u64(OPENING)));
        drop(tokio::spawn(async move {
            sleep(opening).await;
            idle.add_permits(1);
        }));
        self.idle.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl Middleware for Network {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        self.connection().await;
        sleep(Duration::from_millis(fastrand::u64(0..10))).await;
        let verdict = {
            let now = micros_since(self.strict.begin);
            let verdict = self.strict.judge.lock().unwrap().admit(now, 1);
            self.strict.arrivals.lock().unwrap().push((now, verdict.admitted));
            verdict
        };
        sleep(Duration::from_millis(fastrand::u64(self.strict.responds.clone()))).await;
        self.idle.add_permits(1);
        let mut response = http::Response::builder().status(if verdict.admitted { 200 } else { 429 });
        if let Some(wait) = verdict.retry_after {
            response = response.header("retry-after", wait.unsigned_abs().div_ceil(1_000_000));
        }
        Ok(response.body("").unwrap().into())
    }
}

/// A process of so many tasks, which call from some time on, and think for some milliseconds between two calls.
#[derive(Clone, Debug)]
struct Process {
    from: Duration,
    tasks: usize,
    thinks: Range<u64>,
}

/// Who calls, and whom.
#[derive(Clone, Debug)]
struct Scene {
    quota: u32,
    processes: Vec<Process>,
    responds: Range<u64>,
    /// How long it goes on; what arrives before `from` is not counted.
    from: Duration,
    until: Duration,
}

/// How many calls were refused, and what part of the quota was used.
struct Outcome {
    refused: usize,
    share: f64,
    messages: u64,
}

impl Scene {
    fn new(quota: u32, processes: &[(u64, usize)]) -> Self {
        let process = |&(from, tasks): &_| Process { from: Duration::from_millis(from), tasks, thinks: 0..1 };
        let processes = processes.iter().map(process).collect();
        let (from, until) = (Duration::from_millis(1_050), Duration::from_millis(1_050 * 11));
        Self { quota, processes, responds: 5..25, from, until }
    }

    async fn play(&self, seed: u64) -> Outcome {
        fastrand::seed(seed);
        let (store, begin) = (Counting::default(), Instant::now());
        let judge = Mutex::new(Judge::new().limit(self.quota.into(), 1_000_000, Shape::SlidingLog));
        let strict = Strict { judge, begin, responds: self.responds.clone(), arrivals: Mutex::default() };
        let (strict, mut calls) = (Arc::new(strict), JoinSet::new());
        for Process { from, tasks, thinks } in &self.processes {
            let throttle: Throttle = store.process(|up| up.matching(|_| true).limit(Limit::per_second(self.quota)));
            let client = client(&throttle, &strict);
            let (from, until) = (begin + *from, begin + self.until);
            for _ in 0..*tasks {
                let (client, thinks) = (client.clone(), thinks.clone());
                calls.spawn(async move {
                    sleep_until(from).await;
                    while timeout_at(until, client.get("http://up/").send()).await.is_ok() {
                        let thought = fastrand::u64(thinks.clone());
                        if thought > 0 {
                            let _ = timeout_at(until, sleep(Duration::from_millis(thought))).await;
                        }
                    }
                });
            }
        }
        calls.join_all().await;
        let arrivals = strict.arrivals.lock().unwrap();
        let counted = arrivals.iter().filter(|(at, admitted)| *admitted && *at >= micros(self.from)).count();
        let spans = self.until.saturating_sub(self.from).as_secs_f64() / 1.05;
        Outcome {
            refused: arrivals.iter().filter(|(_, admitted)| !admitted).count(),
            share: f64::from(u32::try_from(counted).unwrap()) / (f64::from(self.quota) * spans),
            messages: store.calls(),
        }
    }

    /// Plays it with many seeds: nobody is ever refused, and the quota is used.
    async fn hold(&self, name: &str, seeds: u64) {
        let (mut refused, mut shares, mut messages) = (Vec::new(), Vec::new(), 0);
        for seed in 0..seeds {
            let outcome = self.play(seed).await;
            refused.push(outcome.refused);
            shares.push(outcome.share);
            messages += outcome.messages;
        }
        let (most, least) = (refused.iter().max().unwrap(), shares.iter().copied().fold(f64::INFINITY, f64::min));
        let mean = shares.iter().sum::<f64>() / f64::from(u32::try_from(shares.len()).unwrap());
        let all: usize = refused.iter().sum();
        println!(
            "{name}: {all} refused in {seeds} runs, {most} at most; share {mean:.3}, {least:.3} at least; {} messages",
            messages / seeds
        );
        assert_eq!(all, 0, "{name}: refused in each run: {refused:?}");
        assert!(least >= 0.9, "{name}: {shares:.3?}");
    }
}

fn client(throttle: &Throttle, strict: &Arc<Strict>) -> ClientWithMiddleware {
    let network = Network { strict: Arc::clone(strict), idle: Arc::new(Semaphore::new(0)) };
    ClientBuilder::new(CLIENT.with(reqwest::Client::clone)).with(throttle.middleware()).with(network).build()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_process_that_opens_its_connections_at_once_is_not_refused() {
    Scene::new(100, &[(0, 512)]).hold("one process, 100/s", FEW_SEEDS).await;
    Scene::new(100, &[(0, 100)]).hold("one process of 100 tasks, 100/s", SEEDS).await;
}

#[tokio::test(start_paused = true)]
async fn one_process_of_a_thousand_calls_a_second_is_not_refused() {
    let scene = Scene::new(1_000, &[(0, 512)]);
    scene.hold("one process, 1,000/s", FEW_SEEDS).await;
}

#[tokio::test(start_paused = true)]
async fn four_processes_that_start_together_are_not_refused() {
    for (tasks, seeds) in [(8, FEW_SEEDS), (32, SEEDS), (128, FEW_SEEDS)] {
        Scene::new(100, &[(0, tasks); 4]).hold(&format!("four processes of {tasks} tasks"), seeds).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_joins_three_is_not_refused() {
    for (tasks, joins, seeds) in [(32, 3_000, SEEDS), (32, 3_700, FEW_SEEDS), (128, 3_300, FEW_SEEDS)] {
        let mut scene = Scene::new(100, &[(0, tasks), (0, tasks), (0, tasks), (joins, tasks)]);
        scene.until = Duration::from_millis(1_050 * 14);
        scene.hold(&format!("one of {tasks} tasks that joins three after {joins} ms"), seeds).await;
    }
}

#[tokio::test(start_paused = true)]
async fn responses_that_take_their_time_open_more_connections_and_cost_little() {
    for responds in [100..500, 500..1_500] {
        let name = format!("one process, responses of {responds:?} ms");
        Scene { responds, ..Scene::new(100, &[(0, 512)]) }.hold(&name, FEW_SEEDS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn processes_of_one_call_each_cost_those_that_call_all_the_time_little() {
    let mut scene = Scene::new(100, &[(0, 32); 3]);
    for number in 0..40 {
        let from = Duration::from_millis(1_500 + 237 * number);
        scene.processes.push(Process { from, tasks: 1, thinks: 60_000..70_000 });
    }
    scene.hold("forty processes of one call each beside three", FEW_SEEDS).await;
}

#[tokio::test(start_paused = true)]
async fn ever_more_calls_at_once_are_not_refused() {
    let mut scene = Scene::new(100, &[(0, 40), (700, 40), (1_900, 60), (5_000, 100)]);
    for process in &mut scene.processes {
        process.thinks = 0..1_500;
    }
    scene.responds = 5..400;
    scene.hold("four processes whose tasks think", SEEDS).await;
}

/// One process, with the asks that its store has been told, a while after each of these calls at once.
async fn asks_after(limit: Limit, calls: &[usize]) -> Vec<u64> {
    let store = Counting::default();
    let throttle = store.process(|up| up.matching(|_| true).limit(limit));
    let judge = Mutex::new(Judge::new());
    let strict = Strict { judge, begin: Instant::now(), responds: 5..25, arrivals: Mutex::default() };
    let (client, mut asks) = (client(&throttle, &Arc::new(strict)), Vec::new());
    for &calls in calls {
        let mut all = JoinSet::new();
        for _ in 0..calls {
            all.spawn(client.get("http://up/").send());
        }
        all.join_all().await;
        sleep(Duration::from_secs(2)).await;
        asks.push(store.asks());
    }
    asks
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_told_in_one_message_and_calls_on_warm_connections_in_none() {
    assert_eq!(asks_after(Limit::per_second(100), &[1, 1, 1]).await, [2, 3, 4]);
    let asks = asks_after(Limit::per_second(100), &[50, 50, 50, 51]).await;
    let more: Vec<_> = asks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The first caller of a burst asks alone, all others together.
    assert_eq!((asks[0], more), (3, vec![2, 2, 3]));
}

#[tokio::test(start_paused = true)]
async fn where_a_window_is_long_nothing_is_told() {
    assert_eq!(asks_after(Limit::per_minute(100), &[1, 1]).await, [1, 2]);
}
