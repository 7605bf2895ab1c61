//! Several callers who do nothing but ask, for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::sleep;

use crate::contender::{Contender, Decider};
use crate::server::{Failure, Server, Work, count};

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
    /// For each decision: µs of processor time of the callers' own process.
    pub(crate) client_us: f64,
    /// For each decision: bytes on the wire, there and back.
    pub(crate) wire: f64,
}

/// Lets so many callers ask, contender after contender in short turns, under quotas that are not used up. Whatever else the
/// machine does meanwhile falls on all of them alike.
pub(crate) fn race(
    runtime: &Runtime,
    server: &mut Server,
    contenders: &[Contender],
    callers: usize,
    turns: usize,
) -> Result<Vec<Pace>, Failure> {
    server.clear()?;
    // Long enough for every caller to get its answers.
    let length = Duration::from_millis(25) + Duration::from_micros(20) * u32::try_from(callers)?;
    runtime.block_on(async {
        let mut racers = Vec::new();
        for (number, &contender) in contenders.iter().enumerate() {
            let mut decider = contender.open(&server.url(), &format!("up{number}"), contender.ample()).await?;
            for _ in 0..10 {
                decider.decide().await?;
            }
            racers.push((contender, decider, Turn::default()));
        }
        for _ in 0..turns {
            for (contender, decider, sum) in &mut racers {
                let (before, own) = (server.counters()?, own_us());
                let (decisions, took) = turn(decider, callers, length)
                    .await
                    .map_err(|failure| format!("{}: {failure}", contender.name()))?;
                sum.client_us += own_us() - own;
                sum.add(decisions, took, server.work_since(&before, contender.commands())?);
            }
        }
        Ok(racers.into_iter().map(|(.., sum)| sum.pace()).collect())
    })
}

/// The decisions that so many callers got in about so long, and how long it really was.
async fn turn(decider: &Decider, callers: usize, length: Duration) -> Result<(i64, Duration), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let begin = Instant::now();
    for _ in 0..callers {
        let (mut decider, stop) = (decider.clone(), Arc::clone(&stop));
        tasks.spawn(async move {
            let mut decisions = 0_i64;
            while !stop.load(Ordering::Relaxed) {
                if !decider.decide().await? {
                    return Err::<_, Failure>("the quota is used up".into());
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
    Ok((decisions, begin.elapsed()))
}

/// What the turns of one contender add up to.
#[derive(Default)]
struct Turn {
    decisions: f64,
    seconds: f64,
    client_us: f64,
    work: Work,
}

impl Turn {
    fn add(&mut self, decisions: i64, took: Duration, work: Work) {
        self.decisions += count(decisions);
        self.seconds += took.as_secs_f64();
        self.work.add(work);
    }

    fn pace(&self) -> Pace {
        Pace {
            per_second: self.decisions / self.seconds,
            server_us: self.work.us / self.decisions,
            cpu_us: self.work.cpu_us / self.decisions,
            client_us: self.client_us / self.decisions,
            wire: self.work.wire / self.decisions,
        }
    }
}

/// µs of processor time that this process has taken so far, by what Linux says of each of its threads.
fn own_us() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    stats.filter_map(|stat| stat.split_whitespace().next()?.parse::<f64>().ok()).sum::<f64>() / 1e3
}

/// Lets some callers make so many calls together.
pub(crate) async fn spend(url: &str, contender: Contender, callers: usize, calls: i64) -> Result<(), Failure> {
    let first = contender.open(url, "up", contender.ample()).await?;
    let left = Arc::new(AtomicI64::new(calls));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (mut decider, left) = (first.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                if !decider.decide().await? {
                    return Err::<_, Failure>(format!("{} used up its quota", contender.name()).into());
                }
            }
            Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}
