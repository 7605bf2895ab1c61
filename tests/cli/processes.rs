//! Four processes that use upstreams: what the picture shows, and what the command ends a pause of.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, f64};

use outgate::testing::RedisServer;
use outgate::{Limit, RedisStore, Scope, Throttle, Upstream};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{json, outgate};

/// Says to a process where the Redis is, and which number it has.
const WORKER: &str = "OUTGATE_TEST_WORKER";
/// Precedes what it says of a call of GitHub.
const CALLED: &str = "process has called";
const PROCESSES: usize = 4;
/// From the most calls to the fewest, and back.
const WAVE: Duration = Duration::from_secs(24);

/// Processes that make calls until this is dropped.
pub(crate) struct Processes {
    _children: Vec<Child>,
    called: Called,
}

/// When each of them made its last call.
type Called = Arc<Mutex<BTreeMap<usize, Instant>>>;

impl Processes {
    /// Starts them, and waits until each has made a call.
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let called = Called::default();
        let start = |number| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["processes::worker", "--exact", "--ignored", "--nocapture"]);
            command.env(WORKER, format!("{number} {}", server.url())).stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn().unwrap();
            let (output, called) = (child.stdout.take().unwrap(), Arc::clone(&called));
            tokio::spawn(async move {
                let mut lines = BufReader::new(output).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if line.contains(CALLED) {
                        called.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Instant::now());
                    }
                }
            });
            child
        };
        let children = (0..PROCESSES).map(start).collect();
        let processes = Self { _children: children, called };
        let begin = Instant::now();
        processes.until_all_call_after(begin).await;
        // They say that they are there when they have made calls for a second.
        while all_are_seen(server).await.is_none() {
            sleep(Duration::from_millis(100)).await;
        }
        processes
    }

    /// Until each has made a call later than that.
    async fn until_all_call_after(&self, begin: Instant) {
        let have = || self.last().values().filter(|at| **at > begin).count() == PROCESSES;
        while !have() {
            assert!(begin.elapsed() < Duration::from_secs(60), "some make no call");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Until none has made a call for half a second.
    async fn until_none_calls(&self) {
        while self.last().values().any(|at| at.elapsed() < Duration::from_millis(500)) {
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn last(&self) -> BTreeMap<usize, Instant> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn all_are_seen(server: &RedisServer) -> Option<()> {
    let status = json(&outgate(server, &["status", "--json"]).await.well());
    let github = status.as_array()?.iter().find(|seen| seen["upstream"] == "github")?;
    (github["processes"].as_array()?.len() == PROCESSES).then_some(())
}

#[tokio::test]
#[ignore = "a process of its own: tests start it"]
async fn worker() {
    let Ok(told) = env::var(WORKER) else { return };
    let (number, url) = told.split_once(' ').unwrap();
    let store = RedisStore::connect(url).await.unwrap();
    let throttle = Throttle::builder().store(store).upstreams(upstreams()).build().unwrap();
    let mut callers = JoinSet::new();
    for place in 0..12 {
        let token = if place % 3 == 0 { "s3cret" } else { "other" };
        callers.spawn(call(throttle.clone(), "github", token, 500.0, true));
    }
    for _ in 0..2 {
        callers.spawn(call(throttle.clone(), "language-model", "", 2_000.0, false));
    }
    for merchant in ["m-17", "m-42"] {
        callers.spawn(call(throttle.clone(), "gateway", merchant, 150.0, false));
    }
    if number == "0" {
        let headers = HeaderMap::from_iter([(reqwest::header::RETRY_AFTER, "300".parse().unwrap())]);
        let permit = throttle.acquire("prices").await.unwrap();
        throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &headers);
    }
    callers.spawn(call(throttle.clone(), "prices", "", 100.0, false));
    callers.join_all().await;
}

fn upstreams() -> [Upstream; 4] {
    let token = Scope::bearer_token();
    let github = Upstream::new("github").limit(Limit::per_second(100).burst(20));
    let github = github.limit(Limit::per_hour(5_000).each(token));
    [
        github.name_scope("s3cret", "release-bot").name_scope("other", "ci"),
        Upstream::new("gateway").limit(Limit::per_second(25).each(Scope::header("x-merchant"))),
        Upstream::new("language-model").limit(Limit::per_minute(500)).limit(Limit::per_minute(200_000).of("tokens")),
        Upstream::new("prices").limit(Limit::per_second(25)),
    ]
}

/// Makes calls for ever: more and less in waves, with so many milliseconds between them where they are fewest.
async fn call(throttle: Throttle, upstream: &'static str, scope: &'static str, pause: f64, is_told: bool) {
    let begin = Instant::now();
    loop {
        let call = throttle.acquire(upstream);
        let call = if scope.is_empty() { call } else { call.scope(scope) };
        let call = if upstream == "language-model" { call.cost_of("tokens", 900) } else { call };
        drop(call.await.unwrap());
        if is_told {
            println!("{CALLED}");
        }
        let wave = begin.elapsed().div_duration_f64(WAVE) * f64::consts::TAU;
        sleep(Duration::from_secs_f64(pause * (1.05 - wave.cos()) / 1e3)).await;
    }
}

#[tokio::test]
async fn a_release_ends_a_pause_in_four_processes_within_two_seconds() {
    let server = RedisServer::start().unwrap();
    let processes = Processes::start(&server).await;
    let mut took = Duration::MAX;
    // A busy machine may make one of them late.
    for _ in 0..4 {
        outgate(&server, &["pause", "github", "10m"]).await.well();
        processes.until_none_calls().await;
        outgate(&server, &["release", "github"]).await.well();
        let released = Instant::now();
        processes.until_all_call_after(released).await;
        took = took.min(released.elapsed());
        if took <= Duration::from_secs(2) {
            return;
        }
    }
    panic!("it took {took:?} at best");
}
