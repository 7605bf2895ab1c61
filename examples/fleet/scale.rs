//! More and more nodes, each as busy as it may be: what they carry together.

use std::error::Error;
use std::fmt;

use indicatif::HumanCount;

use crate::args::Args;
use crate::fleet;
use crate::quantiles::millis;
use crate::summary::Summary;

/// How busy the busiest node may be: beyond that answers take longer than when nothing else goes on, see the sweep.
const BUSY: f64 = 0.9;
/// Calls that are wanted for each node at first, in a second: far less than it carries.
const FEW: f64 = 5_000.0;
/// So many calls one wants to make.
const MANY: f64 = 1e6;

/// What came of each number of nodes.
pub(crate) struct Scale {
    steps: Vec<Step>,
    seconds: u32,
}

struct Step {
    nodes: u32,
    summary: Summary,
}

impl Scale {
    /// Finds what each number of nodes carries: by how busy the busiest is with far less.
    pub(crate) fn run(args: &Args) -> Result<Self, Box<dyn Error>> {
        let mut steps = Vec::new();
        for &nodes in &args.nodes {
            let at = |demand| {
                let args = args.on(nodes, demand);
                Ok::<_, Box<dyn Error>>(Summary::new(&args, fleet::run(&args)?))
            };
            let demand = FEW * BUSY / at(FEW)?.busy;
            steps.push(Step { nodes, summary: at(demand)? });
        }
        Ok(Self { steps, seconds: args.seconds })
    }

    /// Limits broken by any number of nodes.
    pub(crate) fn violations(&self) -> usize {
        self.steps.iter().map(|step| step.summary.violations()).sum()
    }

    fn per_second(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.seconds)
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, Step { nodes, summary }: &Step) -> fmt::Result {
        let calls = |number: f64| format!("{}/s", whole(number));
        let (started, asks) = (self.per_second(summary.started), self.per_second(summary.tally.asks));
        let each = started / f64::from(*nodes);
        let of_node = |asks: Option<&u32>| calls(self.per_second(asks.copied().unwrap_or_default()));
        let (least, most) = (of_node(summary.tally.asks_of.iter().min()), of_node(summary.tally.asks_of.iter().max()));
        let p99 = summary.round_trips.at(990).map_or_else(String::new, |time| format!("{} ms", millis(time)));
        writeln!(
            f,
            "{nodes:>5} {:>12} {:>11} {:>12} {least:>11} {most:>11} {:>7.1} % {p99:>15}",
            calls(started),
            calls(each),
            calls(asks),
            100.0 * summary.busy
        )
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "                                             store calls of a node    busiest")?;
        writeln!(f, "nodes      started   each node  store calls       least        most      node  round trip p99")?;
        for step in &self.steps {
            self.row(f, step)?;
        }
        if let Some(Step { nodes, summary }) = self.steps.last() {
            let each = self.per_second(summary.started) / f64::from(*nodes);
            let enough = (MANY / each).ceil();
            writeln!(f, "\nAs {nodes} nodes are used, a million calls/s take {}.", whole(enough))?;
        }
        writeln!(f, "Violations at all loads: {}.", self.violations())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
fn whole(number: f64) -> String {
    HumanCount(number as u64).to_string()
}
