//! How long a Redis is busy with a call, its share in the network's work included.
//!
//! The defaults are what `--measure` found for Redis 7.0.15 on one of two cores of an AMD EPYC, to about a tenth.

use std::fmt;
use std::time::Duration;

use outgate::ledger::{Ask, Grant};

/// Service times, in microseconds of the server's CPU time.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Service times of Redis, as --measure finds them")]
pub(crate) struct Service {
    /// An ask of one caller that gets its slot
    #[arg(long = "service-us", value_name = "US", default_value = "20.4", value_parser = crate::args::amount)]
    pub(crate) ask: f64,

    /// Each further caller that has its answer in the same ask
    #[arg(long = "caller-us", value_name = "US", default_value = "0.1", value_parser = crate::args::amount)]
    pub(crate) further: f64,

    /// An ask after which somebody has to wait, among many processes that do
    #[arg(long = "waiting-us", value_name = "US", default_value = "24.6", value_parser = crate::args::amount)]
    pub(crate) waiting: f64,

    /// Slots handed back with an ask
    #[arg(long = "hand-back-us", value_name = "US", default_value = "55.7", value_parser = crate::args::amount)]
    pub(crate) hand_back: f64,
}

impl Service {
    /// An ask, whoever it is for.
    pub(crate) fn of(&self, ask: &Ask, grant: &Grant) -> Duration {
        let answered = grant.answered(callers(ask));
        let first = if answered < callers(ask) { self.waiting } else { self.ask };
        let back = if ask.back.is_empty() { 0.0 } else { self.hand_back };
        micros(first + back + self.further * f64::from(answered.saturating_sub(1)))
    }

    /// An ask of one caller that gets its slot.
    pub(crate) fn alone(&self) -> Duration {
        micros(self.ask)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ask, further, waiting, hand_back } = self;
        write!(f, "{ask} µs for an ask, {further} µs for each further caller, ")?;
        write!(f, "{waiting} µs where somebody has to wait, {hand_back} µs more where slots are handed back")
    }
}

/// Callers that an ask is for.
pub(crate) fn callers(ask: &Ask) -> u32 {
    ask.runs.iter().map(|run| run.callers).sum()
}

fn micros(micros: f64) -> Duration {
    Duration::from_secs_f64(micros / 1e6)
}
