//! What a worker process is told when it starts, and what it tells when it ends.

use std::env;
use std::fmt::{self, Display};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use outgate::Limit;

const UPSTREAM: &str = "OUTGATE_WORKER_UPSTREAM";
const REDIS: &str = "OUTGATE_WORKER_REDIS";
const LIMITS: &str = "OUTGATE_WORKER_LIMITS";
const CALLER: &str = "OUTGATE_WORKER_CALLER";
const DEMAND: &str = "OUTGATE_WORKER_DEMAND";
const MANNER: &str = "OUTGATE_WORKER_MANNER";

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The URL to call.
    pub(crate) upstream: String,
    /// Where the log is kept; `None`: in the worker's memory.
    pub(crate) redis: Option<String>,
    pub(crate) limits: Vec<Limit>,
    /// How calls are labelled.
    pub(crate) caller: String,
    pub(crate) demand: Demand,
    pub(crate) manner: Manner,
}

/// How a worker calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// No more calls at once than this, by each limit; zero: as many as the limits allow.
    pub(crate) burst: u32,
    /// Learns from responses.
    pub(crate) learns: bool,
    /// Recovers so fast after a hold; zero: as by default.
    pub(crate) recovery: Duration,
    /// No more calls in flight than this, of all workers together; zero: as many as the limits allow.
    pub(crate) seats: u32,
    /// For how long a worker's seats are its own that says nothing.
    pub(crate) lease: Duration,
    /// How long a call takes, where calls in flight are limited.
    pub(crate) call: Duration,
    /// Calls cost from one unit to so many, each as often as any other; zero: one.
    pub(crate) largest: u32,
}

/// How much a worker wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// So many tasks that call one time after another.
    Endless { tasks: u32 },
    /// One call every so often, whose wait is bounded.
    Paced { every: Duration, max_wait: Duration },
}

/// What became of a worker's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    /// Calls with a response.
    pub(crate) answered: u64,
    /// Calls that the throttle refused.
    pub(crate) refused: u64,
    /// Calls that failed in any other way.
    pub(crate) failed: u64,
    /// The longest that an answered call had waited for its slot.
    pub(crate) longest_wait: Duration,
}

impl Settings {
    pub(crate) fn put(&self, command: &mut Command) {
        let limits: Vec<_> = self.limits.iter().map(Limit::to_string).collect();
        command.env(UPSTREAM, &self.upstream).env(LIMITS, limits.join(",")).env(CALLER, &self.caller);
        command.env(DEMAND, words_of_demand(self.demand)).env(MANNER, words_of_manner(self.manner));
        match &self.redis {
            Some(redis) => command.env(REDIS, redis),
            None => command.env_remove(REDIS),
        };
    }

    /// `None` in a process that nobody told anything.
    pub(crate) fn take() -> Option<Self> {
        Some(Self {
            upstream: env::var(UPSTREAM).ok()?,
            redis: env::var(REDIS).ok(),
            limits: env::var(LIMITS)
                .ok()?
                .split(',')
                .filter(|words| !words.is_empty())
                .map(|words| words.parse().ok())
                .collect::<Option<_>>()?,
            caller: env::var(CALLER).ok()?,
            demand: demand(&env::var(DEMAND).ok()?)?,
            manner: manner(&env::var(MANNER).ok()?)?,
        })
    }
}

fn words_of_demand(demand: Demand) -> String {
    match demand {
        Demand::Endless { tasks } => format!("{tasks}:0:0"),
        Demand::Paced { every, max_wait } => format!("0:{}:{}", every.as_micros(), max_wait.as_micros()),
    }
}

fn demand(words: &str) -> Option<Demand> {
    let [tasks, every, max_wait] = numbers(words)?;
    Some(match u32::try_from(tasks).ok()? {
        0 => Demand::Paced { every: Duration::from_micros(every), max_wait: Duration::from_micros(max_wait) },
        tasks => Demand::Endless { tasks },
    })
}

fn words_of_manner(manner: Manner) -> String {
    let Manner { burst, learns, recovery, seats, lease, call, largest } = manner;
    let [recovery, lease, call] = [recovery, lease, call].map(|time| time.as_micros());
    format!("{burst}:{}:{recovery}:{seats}:{lease}:{call}:{largest}", u8::from(learns))
}

fn manner(words: &str) -> Option<Manner> {
    let [burst, learns, recovery, seats, lease, call, largest] = numbers(words)?;
    let [burst, seats] = [u32::try_from(burst).ok()?, u32::try_from(seats).ok()?];
    let largest = u32::try_from(largest).ok()?;
    let [recovery, lease, call] = [recovery, lease, call].map(Duration::from_micros);
    Some(Manner { burst, learns: learns == 1, recovery, seats, lease, call, largest })
}

impl Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.answered, self.refused, self.failed, self.longest_wait.as_micros())
    }
}

impl FromStr for Results {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let [answered, refused, failed, longest] = numbers(words).ok_or_else(|| format!("no results: {words:?}"))?;
        Ok(Self { answered, refused, failed, longest_wait: Duration::from_micros(longest) })
    }
}

fn numbers<const N: usize>(words: &str) -> Option<[u64; N]> {
    let numbers = words.trim().split(':').map(|word| word.parse().ok()).collect::<Option<Vec<_>>>()?;
    numbers.try_into().ok()
}
