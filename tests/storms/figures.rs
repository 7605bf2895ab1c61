//! What a storm of refusals costs in time, over Redis.
//!
//! `cargo test --release --test storms figures -- --nocapture` shows the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outgate::testing::RedisServer;
use outgate::{RedisStore, Throttle};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scene::{About, Counting, storm, throttle};

/// Scopes that are in use.
const SCOPES: u32 = 100_000;
/// How many callers measure what an acquire takes.
const PROBES: u32 = 4;
/// How long is measured: the storm, and what comes after.
const MEASURED: Duration = Duration::from_millis(600);

/// Callers who have nothing to do with the storm.
pub(crate) async fn probe(throttle: &Throttle, upstream: &'static str, until: Arc<AtomicBool>) -> Vec<Duration> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut probes = JoinSet::new();
    for _ in 0..PROBES {
        let (throttle, until) = (throttle.clone(), Arc::clone(&until));
        probes.spawn(async move {
            let mut took = Vec::new();
            while !until.load(Ordering::Relaxed) {
                let scope = (NEXT.fetch_add(7, Ordering::Relaxed) % SCOPES).to_string();
                let begin = Instant::now();
                drop(throttle.acquire(upstream).scope(scope).await);
                took.push(begin.elapsed());
                sleep(Duration::from_micros(500)).await;
            }
            took
        });
    }
    let mut took = probes.join_all().await.concat();
    took.sort_unstable();
    took
}

/// The most tasks that there are at any time.
async fn most_tasks(until: Arc<AtomicBool>) -> usize {
    let most = AtomicUsize::new(0);
    while !until.load(Ordering::Relaxed) {
        most.fetch_max(Handle::current().metrics().num_alive_tasks(), Ordering::Relaxed);
        sleep(Duration::from_millis(1)).await;
    }
    most.into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_while_a_thousand_calls_are_refused_among_a_hundred_thousand_scopes() {
    let server = RedisServer::start().unwrap();
    let (store, counts) = Counting::new(RedisStore::connect(&server.url()).await.unwrap(), Duration::ZERO);
    let throttle = throttle(store);
    let mut filling = JoinSet::new();
    for part in 0..100 {
        let throttle = throttle.clone();
        filling.spawn(async move {
            for scope in (part..SCOPES).step_by(100) {
                drop(throttle.acquire("up").scope(scope.to_string()).await.unwrap());
            }
        });
    }
    filling.join_all().await;
    // Each storm after as many calls that are served. That of the whole upstream comes last: it stops its scopes, so callers of
    // another upstream measure.
    let cases = [
        (About::One, false, "up"),
        (About::One, true, "up"),
        (About::Each, false, "up"),
        (About::Each, true, "up"),
        (About::All, false, "other"),
        (About::All, true, "other"),
    ];
    println!(
        "\n{:>12} {:>8} {:>8} {:>8} {:>10} {:>10} {:>10}",
        "calls", "pauses", "asks", "tasks", "p50", "p99", "worst"
    );
    for (about, refuses, upstream) in cases {
        let before = [&counts.pauses, &counts.asks].map(|count| count.load(Ordering::Relaxed));
        let end = Arc::new(AtomicBool::new(false));
        let storming = async {
            let begin = Instant::now();
            storm(&throttle, about, refuses).await;
            sleep(MEASURED.saturating_sub(begin.elapsed())).await;
            end.store(true, Ordering::Relaxed);
        };
        let ((), took, tasks) =
            tokio::join!(storming, probe(&throttle, upstream, Arc::clone(&end)), most_tasks(Arc::clone(&end)));
        let after = [&counts.pauses, &counts.asks].map(|count| count.load(Ordering::Relaxed));
        let at = |share: usize| took[(took.len() - 1) * share / 100];
        let name = format!("{about:?} {}", if refuses { "429" } else { "200" });
        let [pauses, asks] = [after[0] - before[0], after[1] - before[1]];
        println!("{name:>12} {pauses:>8} {asks:>8} {tasks:>8} {:>10.2?} {:>10.2?} {:>10.2?}", at(50), at(99), at(100));
    }
}
