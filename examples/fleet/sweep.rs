//! More and more load, until it is too much for the Redis of the model.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use indicatif::HumanCount;

use crate::args::Args;
use crate::fleet;
use crate::quantiles::{Quantiles, millis};
use crate::summary::{Summary, ratio};

/// Doublings, or halvings, until the search is given up.
const DOUBLINGS: usize = 7;
/// How often the gap between enough and too much is halved.
const HALVINGS: usize = 4;
/// The model is full when less than this share of the calls that could start do.
const ENOUGH: f64 = 0.99;

/// What came of ever more load.
pub(crate) struct Sweep {
    /// By load.
    steps: Vec<Step>,
    /// How long a store call takes while nothing else goes on.
    alone: Duration,
    seconds: u32,
}

/// One load.
struct Step {
    demand: f64,
    summary: Summary,
}

impl Sweep {
    /// Finds the load at which calls that could start no longer do.
    pub(crate) fn run(args: &Args) -> Result<Self, Box<dyn Error>> {
        let alone = args.network() + args.service.alone();
        let mut sweep = Self { steps: Vec::new(), alone, seconds: args.seconds.min(5) };
        let (mut enough, mut too_much) = (None, None);
        let mut demand = args.demand / 4.0;
        for _ in 0..=DOUBLINGS {
            let is_enough = sweep.step(args, demand)?;
            *(if is_enough { &mut enough } else { &mut too_much }) = Some(demand);
            if enough.is_some() && too_much.is_some() {
                break;
            }
            demand *= if is_enough { 2.0 } else { 0.5 };
        }
        if let Some((mut enough, mut too_much)) = enough.zip(too_much) {
            for _ in 0..HALVINGS {
                let demand = f64::midpoint(enough, too_much);
                *(if sweep.step(args, demand)? { &mut enough } else { &mut too_much }) = demand;
            }
        }
        sweep.steps.sort_by(|one, other| one.demand.total_cmp(&other.demand));
        Ok(sweep)
    }

    fn step(&mut self, args: &Args, demand: f64) -> Result<bool, Box<dyn Error>> {
        let args = Args { demand, seconds: self.seconds, ..args.clone() };
        let step = Step { demand, summary: Summary::new(&args, fleet::run(&args)?) };
        let is_enough = step.is_enough();
        self.steps.push(step);
        Ok(is_enough)
    }

    /// Limits broken at any load.
    pub(crate) fn violations(&self) -> usize {
        self.steps.iter().map(|step| step.summary.violations()).sum()
    }

    /// The greatest load below which each was good.
    fn last(&self, good: impl Fn(&Step) -> bool) -> Option<&Step> {
        self.steps.iter().take_while(|step| good(step)).last()
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, Step { demand, summary }: &Step) -> fmt::Result {
        let (started, calls) = self.per_second(summary);
        let p99 = |times: &Quantiles| times.at(990).map_or("none".to_owned(), |time| format!("{} ms", millis(time)));
        let (round_trip, wait) = (p99(&summary.round_trips), p99(&summary.room));
        let (busy, share) = (100.0 * summary.busy, 100.0 * ratio(summary.started, summary.possible));
        writeln!(
            f,
            "{demand:>9.0}/s {started:>10} {share:>10.1} % {calls:>12} {busy:>9.1} % {round_trip:>15} {wait:>13}"
        )
    }

    /// Calls started, and store calls.
    fn per_second(&self, summary: &Summary) -> (String, String) {
        let per_second = |calls: u32| format!("{}/s", HumanCount((calls / self.seconds.max(1)).into()));
        (per_second(summary.started), per_second(summary.tally.asks))
    }

    fn verdict(&self, f: &mut fmt::Formatter<'_>, words: &str, step: Option<&Step>) -> fmt::Result {
        let Some(Step { summary, .. }) = step else {
            return writeln!(f, "{words}: no load that was tried.");
        };
        let ((started, calls), busy) = (self.per_second(summary), 100.0 * summary.busy);
        writeln!(f, "{words}: {started} started by {calls} store calls, {busy:.0} % busy.")
    }
}

impl Step {
    fn is_enough(&self) -> bool {
        ratio(self.summary.started, self.summary.possible) >= ENOUGH
    }

    fn is_calm(&self, alone: Duration) -> bool {
        self.summary.round_trips.at(990).is_none_or(|most| most <= 2 * alone)
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "     wanted    started  of possible  store calls        busy  round trip p99    waits p99, room")?;
        for step in &self.steps {
            self.row(f, step)?;
        }
        let calm = format!("\nUp to here 99 % of the store calls take less than {} ms", millis(2 * self.alone));
        self.verdict(f, &calm, self.last(|step| step.is_calm(self.alone)))?;
        let enough = format!("The knee, up to where {:.0} % of the calls that could start do", 100.0 * ENOUGH);
        self.verdict(f, &enough, self.last(Step::is_enough))?;
        writeln!(f, "Violations at all loads: {}.", self.violations())
    }
}
