//! Several processes who want more than the quota: how often they call the store, and how much of the quota they use.

use std::time::{Duration, Instant};

use outgate::{Limit, Throttle};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::baselines::Quota;
use crate::contender::outgate;
use crate::page::{Page, Target};
use crate::race::Threads;
use crate::server::{Failure, Server, count};
use crate::spread::Spread;

const WAITERS: usize = 64;
/// The first quota goes at once, and the next when window and guard are over; what comes after that is steady.
const FIRST: Duration = Duration::from_millis(1_300);
/// Twice window and guard.
const LENGTH: Duration = Duration::from_millis(2_100);
const SPANS: usize = 5;

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    page.section("Saturated: store calls, and the share of the quota");
    page.text(
        "Processes are throttles with connections of their own, each with 64 tasks who ask again as soon as they have a permit. \
         Calls of the store are counted by the server, hand-backs and all, from the second window on.",
    );
    let (mut server, runtime) = (Server::start()?, Threads::Two.runtime()?);
    let mut rows = Vec::new();
    for processes in [1, 2, 4, 8, 16] {
        let rounds = page.rounds(if processes == 8 { 5 } else { 1 });
        let rounds: Result<Vec<_>, _> =
            (0..rounds).map(|_| runtime.block_on(store_calls(&mut server, processes))).collect();
        let calls = Spread::of(rounds?);
        rows.push(vec![processes.to_string(), calls.cell(4)]);
        if processes == 8 {
            let what = "store calls per granted call, 8 processes × 64 waiters at 1,000/s";
            page.target(what, calls, "", Target::AtMost(0.05));
        }
    }
    page.table(&["processes, at 1,000/s", "store calls per granted call"], &rows);

    let limit = Limit::per_second(200);
    let span = limit.window() + limit.guard_or_default();
    page.text(&format!(
        "The share of the quota is taken from the permits of 4 processes at 200/s: {SPANS} times the quota could take {SPANS} times \
         window and guard, {:?}; measured is how much longer it took, from the first permit to the one after that many.",
        span * u32::try_from(SPANS)?,
    ));
    let shares: Result<Vec<_>, _> =
        (0..page.rounds(3)).map(|_| runtime.block_on(share(&mut server, limit.quota(), span))).collect();
    page.target("share of the quota used, 4 processes, saturated", Spread::of(shares?), "", Target::AtLeast(0.99));
    Ok(())
}

async fn store_calls(server: &mut Server, processes: usize) -> Result<f64, Failure> {
    let mut cluster = Cluster::start(server, processes, 1_000).await?;
    cluster.permits_until(Instant::now() + FIRST).await;
    let before = server.counters()?;
    let permits = cluster.permits_until(Instant::now() + LENGTH).await.len();
    let work = server.work_since(&before, &["evalsha", "eval"])?;
    cluster.stop().await;
    if permits == 0 {
        return Err("nobody got a permit".into());
    }
    Ok(work.calls / count(i64::try_from(permits)?))
}

async fn share(server: &mut Server, quota: u32, span: Duration) -> Result<f64, Failure> {
    let mut cluster = Cluster::start(server, 4, quota).await?;
    let spans = span * u32::try_from(SPANS)?;
    let mut permits = cluster.permits_until(Instant::now() + spans + span / 2).await;
    cluster.stop().await;
    permits.sort_unstable();
    let (first, last) = (permits.first(), permits.get(SPANS * quota as usize));
    let (Some(first), Some(last)) = (first, last) else {
        return Err(format!("{} permits in {SPANS} spans: too few to measure", permits.len()).into());
    };
    Ok(spans.as_secs_f64() / (*last - *first).as_secs_f64())
}

/// Throttles that share a limit, each with tasks who never have enough.
struct Cluster {
    throttles: Vec<Throttle>,
    tasks: JoinSet<()>,
    permits: UnboundedReceiver<Instant>,
}

impl Cluster {
    async fn start(server: &mut Server, processes: usize, per_second: u32) -> Result<Self, Failure> {
        server.clear()?;
        let quota = Quota { quota: per_second, window: Duration::from_secs(1) };
        let mut throttles = Vec::new();
        for _ in 0..processes {
            throttles.push(outgate(&server.url(), "up", &[quota]).await?);
        }
        let (tell, permits) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for throttle in throttles.iter().flat_map(|throttle| std::iter::repeat_n(throttle, WAITERS)) {
            let (throttle, tell) = (throttle.clone(), tell.clone());
            tasks.spawn(
                async move { while throttle.acquire("up").await.is_ok() && tell.send(Instant::now()).is_ok() {} },
            );
        }
        Ok(Self { throttles, tasks, permits })
    }

    /// When permits were given, from now to then.
    async fn permits_until(&mut self, end: Instant) -> Vec<Instant> {
        let mut permits = Vec::new();
        while let Ok(Some(permit)) = timeout_at(end.into(), self.permits.recv()).await {
            permits.push(permit);
        }
        permits
    }

    async fn stop(mut self) {
        for throttle in &self.throttles {
            throttle.close().await;
        }
        self.tasks.shutdown().await;
    }
}
