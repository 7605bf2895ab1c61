//! Several callers who do nothing but ask, for a while.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::sleep;

use crate::contender::Contender;
use crate::server::{Failure, Server, count};

/// How many threads a runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    One,
    Two,
}

impl Threads {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::One => "a runtime of one thread",
            Self::Two => "a runtime of two threads",
        }
    }

    pub(crate) fn runtime(self) -> io::Result<Runtime> {
        match self {
            Self::One => Builder::new_current_thread().enable_all().build(),
            Self::Two => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        }
    }
}

/// What a race gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Decisions in a second.
    pub(crate) per_second: f64,
    /// For each decision: µs that the server executed commands.
    pub(crate) server_us: f64,
    /// For each decision: µs of the server's processor time, with sockets and parsing.
    pub(crate) cpu_us: f64,
    /// For each decision: bytes on the wire, there and back.
    pub(crate) wire: f64,
}

/// Lets so many callers ask for so long, under a quota that is not used up, with an empty log.
pub(crate) fn race(
    runtime: &Runtime,
    server: &mut Server,
    contender: Contender,
    callers: usize,
    length: Duration,
) -> Result<Pace, Failure> {
    server.clear()?;
    runtime.block_on(async {
        let mut first = contender.open(&server.url(), "up", contender.ample()).await?;
        for _ in 0..10 {
            first.decide().await?;
        }
        let before = server.counters()?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let begin = Instant::now();
        for _ in 0..callers {
            let (mut decider, stop) = (first.clone(), Arc::clone(&stop));
            tasks.spawn(async move {
                let mut decisions = 0_i64;
                while !stop.load(Ordering::Relaxed) {
                    if !decider.decide().await? {
                        return Err::<_, Failure>(format!("{} used up its quota", contender.name()).into());
                    }
                    decisions += 1;
                    // Who decides without a round trip never lets anybody else run.
                    consume_budget().await;
                }
                Ok(decisions)
            });
        }
        sleep(length).await;
        stop.store(true, Ordering::Relaxed);
        let mut decisions = 0;
        while let Some(task) = tasks.join_next().await {
            decisions += task??;
        }
        let (decisions, took) = (count(decisions), begin.elapsed());
        let work = server.work_since(&before, contender.commands())?;
        Ok(Pace {
            per_second: decisions / took.as_secs_f64(),
            server_us: work.us / decisions,
            cpu_us: work.cpu_us / decisions,
            wire: work.wire / decisions,
        })
    })
}
