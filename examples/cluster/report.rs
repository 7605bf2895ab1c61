//! The table at the end.

use std::fmt;

use outgate::Limit;
use outgate::testing::{Arrival, oracle};

use crate::args::Args;
use crate::cluster::QUOTA;
use crate::tally::Tally;

/// What came of a cluster.
pub(crate) struct Report {
    tallies: Vec<Tally>,
    /// Calls of each process that the upstream admitted.
    admitted: Vec<u32>,
    /// Calls that the upstream refused.
    refused: u32,
    fullest_second: u64,
    seconds: u32,
    shared: bool,
    /// Where Redis could be asked.
    script_calls: Option<u64>,
    /// In milliseconds.
    longest_stall: u64,
}

impl Report {
    pub(crate) fn new(
        args: &Args,
        tallies: Vec<Tally>,
        script_calls: Option<u64>,
        longest_stall: u64,
        arrivals: &[Arrival],
    ) -> Self {
        let is_of = |arrival: &&Arrival, name: &str| arrival.admitted && arrival.caller.as_deref() == Some(name);
        let admitted_of = |name: &str| count(arrivals.iter().filter(|arrival| is_of(arrival, name)).count());
        let stamps: Vec<_> = arrivals.iter().map(|arrival| arrival.at).collect();
        Self {
            tallies,
            admitted: (1..=args.processes).map(|number| admitted_of(&number.to_string())).collect(),
            refused: count(arrivals.iter().filter(|arrival| !arrival.admitted).count()),
            fullest_second: oracle::worst_window(&stamps, 1_000_000).count,
            seconds: args.seconds,
            shared: !args.unshared,
            script_calls,
            longest_stall,
        }
    }

    /// The upstream refused a call although the quota was shared.
    pub(crate) fn broke_its_promise(&self) -> bool {
        self.refused > 0 && self.shared
    }

    /// No call was made, or some failed for another reason: that shows nothing.
    pub(crate) fn failed(&self) -> bool {
        self.admitted.iter().sum::<u32>() == 0 || self.tallies.iter().any(|tally| tally.failed > 0)
    }

    fn processes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u32 = self.admitted.iter().sum();
        let share = |admitted| 100.0 * f64::from(admitted) / f64::from(total.max(1));
        writeln!(f, "process     calls    429s   failed    share")?;
        for (number, (tally, &admitted)) in (1..).zip(self.tallies.iter().zip(&self.admitted)) {
            let (Tally { calls, refused, failed }, share) = (tally, share(admitted));
            writeln!(f, "{number:<7} {calls:>9} {refused:>7} {failed:>8} {share:>6.1} %")?;
        }
        let sum = |of: fn(&Tally) -> u32| self.tallies.iter().map(of).sum::<u32>();
        let (calls, refused, failed) =
            (sum(|tally| tally.calls), sum(|tally| tally.refused), sum(|tally| tally.failed));
        writeln!(f, "{:<7} {calls:>9} {refused:>7} {failed:>8} {:>6.1} %", "all", share(total))
    }

    fn rows(&self) -> Vec<(&'static str, String, String)> {
        let admitted: u32 = self.admitted.iter().sum();
        let shares: Vec<f64> = self.admitted.iter().map(|&admitted| admitted.into()).collect();
        let sustained = sustained(self.seconds);
        let share = format!("{:.1} %", 100.0 * f64::from(admitted) / sustained);
        let (store_calls, store_note) = match self.script_calls {
            Some(calls) => {
                (format!("{:.3}", ratio(calls, admitted)), format!("per call admitted; Redis ran {calls} scripts"))
            }
            None if self.shared => ("unknown".to_owned(), "Redis went away meanwhile".to_owned()),
            None => ("none".to_owned(), "each process keeps to the limit by itself".to_owned()),
        };
        vec![
            ("Jain's index", format!("{:.3}", oracle::jain(&shares)), "1 when all get the same".to_owned()),
            ("429s", self.refused.to_string(), "as the upstream counted them".to_owned()),
            ("fullest second", self.fullest_second.to_string(), format!("the upstream allows {QUOTA}")),
            ("quota used", share, quota_note(admitted, sustained, self.seconds)),
            ("store calls", store_calls, store_note),
            ("longest stall", format!("{} ms", self.longest_stall), stall_note()),
        ]
    }
}

fn quota_note(admitted: u32, sustained: f64, seconds: u32) -> String {
    let note = format!("{admitted} of {sustained:.1} that {QUOTA}/s sustains in {seconds} s");
    if f64::from(admitted) > sustained { format!("{note}; the first {QUOTA} go at once") } else { note }
}

/// Calls that arrive later than others by more than the guard are more than any throttle can promise for.
fn stall_note() -> String {
    let guard = Limit::per_second(QUOTA).guard_or_default().as_millis();
    format!("of this machine; above the guard, {guard} ms, it alone may cause 429s")
}

/// What the limit sustains in some time: N·T/(W + guard), and N in any shorter time than that.
fn sustained(seconds: u32) -> f64 {
    let limit = Limit::per_second(QUOTA);
    let span = limit.window() + limit.guard_or_default();
    f64::from(QUOTA) * (f64::from(seconds) / span.as_secs_f64()).max(1.0)
}

fn ratio(calls: u64, per: u32) -> f64 {
    f64::from(u32::try_from(calls).unwrap_or(u32::MAX)) / f64::from(per.max(1))
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.processes(f)?;
        writeln!(f)?;
        for (what, value, note) in self.rows() {
            writeln!(f, "{what:<14}{value:>11}  {note}")?;
        }
        Ok(())
    }
}
