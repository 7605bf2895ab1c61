//! The command line.

use std::time::Duration;

use clap::{Parser, value_parser};
use outgate::Limit;

use crate::service::Service;

/// A fleet of processes before a model of Redis, in virtual time: how much it can carry, and who waits how long.
#[derive(Clone, Debug, Parser)]
#[command(name = "fleet")]
pub(crate) struct Args {
    /// How many processes
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=20_000))]
    pub(crate) processes: u32,

    /// How many scopes, each with a quota of its own
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) scopes: u32,

    /// Calls that a scope may make in any second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) quota: u32,

    /// Calls that the whole fleet wants to make in a second
    #[arg(long, value_name = "N", default_value = "10000", value_parser = rate)]
    pub(crate) demand: f64,

    /// How unequally the scopes are wanted: the n-th one time in n to the power of this
    #[arg(long, value_name = "S", default_value = "1", value_parser = exponent)]
    pub(crate) zipf: f64,

    /// Every tenth process wants so many times as much as the others
    #[arg(long, value_name = "N", default_value = "5", value_parser = rate)]
    pub(crate) greedy: f64,

    /// How long a call waits for its slot at the most, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = value_parser!(u32).range(1..=60_000))]
    pub(crate) max_wait_ms: u32,

    /// Virtual seconds that are counted, after two that are not; of several numbers of nodes, after one
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..=3_600))]
    pub(crate) seconds: u32,

    /// Where all randomness comes from: the same seed gives the same report
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Redis nodes, over which an upstream's shards are spread, eight for each where there is more than one; of several numbers, as 1,3,10,30, what each carries
    #[arg(long, value_name = "N,…", default_value = "1", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) nodes: Vec<u32>,

    /// The network's part of a store call, there and back, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1_000, value_parser = value_parser!(u32).range(0..=1_000_000))]
    pub(crate) network_us: u32,

    /// A call takes 0 to this many milliseconds to the upstream; the guard of a second leaves 25
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = value_parser!(u32).range(0..=25))]
    pub(crate) spread_ms: u32,

    /// Leave out the search for the load that is too much
    #[arg(long)]
    pub(crate) no_sweep: bool,

    /// Measure the service times on a redis-server started for it, instead of taking those below
    #[arg(long, conflicts_with_all = ["ask", "further", "waiting", "hand_back"])]
    pub(crate) measure: bool,

    #[command(flatten)]
    pub(crate) service: Service,

    /// How many scopes are wanted equally
    #[arg(skip = 1_u32)]
    pub(crate) alike: u32,

    /// Nothing is counted before: at first every quota is unused, and every process a stranger
    #[arg(skip = Duration::from_secs(2))]
    pub(crate) warm_up: Duration,
}

impl Args {
    /// The limit of every scope.
    pub(crate) const fn limit(&self) -> Limit {
        Limit::per_second(self.quota)
    }

    /// Redis nodes of this run.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes.first().copied().unwrap_or(1)
    }

    /// A fleet of the same processes that calls as many times as much as there are nodes: each brings scopes of its own.
    pub(crate) fn on(&self, nodes: u32, demand_each: f64) -> Self {
        let (scopes, demand) = (self.scopes.saturating_mul(nodes), demand_each * f64::from(nodes));
        Self { nodes: vec![nodes], scopes, demand, alike: nodes, warm_up: Duration::from_secs(1), ..self.clone() }
    }

    pub(crate) fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait_ms.into())
    }

    pub(crate) fn network(&self) -> Duration {
        Duration::from_micros(self.network_us.into())
    }
}

/// More than nothing.
fn rate(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number <= 1e7, "more than 0, and at most 10,000,000")
}

/// Nothing or more.
pub(crate) fn amount(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=1e6).contains(&number), "0 to 1,000,000")
}

fn exponent(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=5.0).contains(&number), "0 to 5")
}

fn number(text: &str, fits: impl Fn(f64) -> bool, words: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&number| fits(number)).ok_or_else(|| format!("this must be a number, {words}"))
}
