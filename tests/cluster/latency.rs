//! Latency between processes and Redis that steps, jitters and differs: it costs little of the quota, and not one refusal.
//!
//! What is late are replies, unless a case says otherwise. No exchange can tell that from a clock that differs.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::{Mode, Shape, oracle};

use crate::cluster::{Cluster, Place, Plan, micros};
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, demand_unless, undisturbed};
use crate::{Outcome, alone, ms};

type Error = Box<dyn std::error::Error>;

const LIMIT: Limit = Limit::per_second(100);
/// 100 calls come in spans of so long.
const SPAN: Duration = ms(1_050);
/// When latency steps, where it does. Shares are those of the time from a second later on.
const STEP: Duration = ms(4_000);
const RUN: Duration = ms(14_000);
/// What a machine does that is not just busy.
const STANDSTILL: Duration = ms(500);

struct Case {
    name: &'static str,
    /// Calls at once; zero: all that the limit allows.
    burst: u32,
    /// What lies between Redis and each process until the step, and from then on.
    modes: [[Mode; 4]; 2],
    bounds: Figures,
}

/// How a cluster fared, or the worst that it may.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Of the quota.
    share: f64,
    /// By the upstream.
    refused: usize,
    /// The longest time without a call, from the step on.
    gap: Duration,
    /// Jain's index of the calls of the processes.
    jain: f64,
    /// For each call.
    store_calls: f64,
}

/// For every case; some set more.
const BOUNDS: Figures = Figures { share: 0.9, refused: 0, gap: RUN, jain: 0.0, store_calls: 2.0 };

impl Figures {
    /// What must be so even on a busy machine. It costs a few hundredths and may earn a refusal or two; slots at the wrong
    /// times cost much of the quota or earn more. After a refusal, for which everybody pauses, nobody can tell how much.
    fn when_busy(self, refused: usize) -> Self {
        let Self { share, gap, jain, store_calls, .. } = self;
        let (share, gap) = if refused > 0 { (0.0, RUN) } else { (share - 0.2, 3 * gap) };
        Self { share, refused: 2, gap, jain: jain - 0.05, store_calls: 2.0 * store_calls }
    }

    /// Where these miss the bounds.
    fn misses(&self, bounds: &Self) -> Vec<String> {
        let Self { share, refused, gap, jain, store_calls } = bounds;
        let mut misses = Vec::new();
        let mut check = |met: bool, what: String| misses.extend((!met).then_some(what));
        check(self.share >= *share, format!("share {:.3}, less than {share}", self.share));
        check(self.refused <= *refused, format!("{} refusals", self.refused));
        check(self.gap <= *gap, format!("{:.2?} without a call, longer than {gap:?}", self.gap));
        check(self.jain >= *jain, format!("Jain's index {:.3}, less than {jain}", self.jain));
        check(self.store_calls <= *store_calls, format!("{:.2} store calls per call", self.store_calls));
        misses
    }
}

fn started(group: &str, case: &Case) -> Result<Cluster, Error> {
    let (name, limits, insists) = (format!("{group}: {}", case.name), vec![LIMIT], true);
    let (shape, delay, place) = (Shape::SlidingLog, ms(0)..ms(10), Place::Redis);
    let (manner, demands) = (Manner { burst: case.burst, ..Manner::default() }, vec![Demand::Endless { tasks: 16 }; 4]);
    let plan = Plan { name, limits, insists, shape, delay, place, demands, manner };
    Cluster::start_behind(plan, &case.modes[0])
}

/// Runs a cluster for each case, all of them up before any of them calls.
fn run(group: &str, cases: &[Case]) -> Outcome {
    let mut clusters = cases.iter().map(|case| started(group, case)).collect::<Result<Vec<_>, _>>()?;
    thread::sleep(ms(200));
    let parts = u32::try_from(cases.len())?;
    for cluster in &mut clusters {
        cluster.begin()?;
        // Each in its own part of the span, as calls that start together take the processors together.
        thread::sleep(SPAN / parts);
    }
    let step = |(cluster, case): (&Cluster, &Case)| {
        cluster.run_until(STEP);
        cluster.set_modes(&case.modes[1])
    };
    let steps: Vec<_> = clusters.iter().zip(cases).map(step).collect();
    let ends: Vec<_> = clusters.iter().map(|cluster| cluster.run_until(RUN)).collect();
    let outcomes = clusters.into_iter().map(Cluster::finish).collect::<Result<Vec<_>, _>>()?;
    let (mut table, mut missed, mut hopeless) = (Table::new(), Vec::new(), Vec::new());
    for (((outcome, case), step), end) in outcomes.iter().zip(cases).zip(steps).zip(ends) {
        let figures = table.row(outcome, step, end);
        let named = |misses: Vec<String>| misses.into_iter().map(|miss| format!("{}: {miss}", outcome.plan.name));
        missed.extend(named(figures.misses(&case.bounds)));
        hopeless.extend(named(figures.misses(&case.bounds.when_busy(figures.refused))));
    }
    println!("{}", table.text);
    demand_unless(STANDSTILL, hopeless.is_empty(), || missed.join("; "))?;
    demand(missed.is_empty(), || missed.join("; "))
}

struct Table {
    text: String,
}

impl Table {
    fn new() -> Self {
        let (share, store_calls) = ("share", "store calls");
        let text = format!(
            "\n{:<56} {share:>6} {:>4} {:>9} {:>5} {store_calls:>11} {:>6}  calls of each process",
            "case", "429s", "gap", "Jain", "failed"
        );
        Self { text }
    }

    /// Adds a row with what happened from the step on; refusals, failures and store calls are those of the whole run.
    fn row(&mut self, outcome: &crate::outcome::Outcome, step: i64, end: i64) -> Figures {
        let calls = outcome.shares_between(step, end);
        let figures = Figures {
            share: outcome.share_between(&LIMIT, step + micros(ms(1_000)), end),
            refused: outcome.refused(),
            gap: outcome.longest_gap(step, end),
            jain: oracle::jain(&calls),
            store_calls: outcome.store_calls_per_call().unwrap_or(0.0),
        };
        let Figures { share, refused, gap, jain, store_calls } = figures;
        let failed: u64 = outcome.results.iter().map(|results| results.refused + results.failed).sum();
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "\n{:<56} {share:>6.3} {refused:>4} {:>6} ms {jain:>5.3} {store_calls:>11.3} {failed:>6}  {calls:?}",
            outcome.plan.name,
            gap.as_millis()
        );
        figures
    }
}

const fn late(delay: u64) -> [Mode; 4] {
    [Mode::Delay(ms(delay)); 4]
}

const fn jitter(to: u64) -> [Mode; 4] {
    [Mode::Jitter { from: ms(0), to: ms(to) }; 4]
}

/// Two near processes and two that are far away.
const fn two(far: Mode) -> [[Mode; 4]; 2] {
    [[Mode::Pass, Mode::Pass, far, far]; 2]
}

#[test]
fn after_a_step_calls_go_on_within_a_second() -> Outcome {
    let _alone = alone();
    let step = |name, from, to| {
        let modes = [late(from), late(to)];
        Case { name, burst: 10, modes, bounds: Figures { gap: ms(1_000), ..BOUNDS } }
    };
    let cases = [step("+40 ms", 0, 40), step("+60 ms", 0, 60), step("+300 ms", 0, 300), step("-200 ms", 200, 0)];
    undisturbed(Quiet::FOR_50_MS, || run("a step", &cases))
}

#[test]
fn jitter_costs_little_of_the_quota() -> Outcome {
    let _alone = alone();
    let jitter = |name, to, share| {
        let modes = [jitter(to); 2];
        Case { name, burst: 10, modes, bounds: Figures { share, ..BOUNDS } }
    };
    let cases = [jitter("0 to 60 ms", 60, 0.95), jitter("0 to 200 ms", 200, 0.8)];
    undisturbed(Quiet::FOR_50_MS, || run("jitter", &cases))
}

#[test]
fn processes_at_different_distances_get_equal_shares() -> Outcome {
    const REPLIES: Mode = Mode::Delay(ms(80));
    const BOTH_WAYS: Mode = Mode::DelayBothWays { request: ms(100), reply: ms(100) };
    let _alone = alone();
    let distance = |name, burst, far| Case { name, burst, modes: two(far), bounds: Figures { jain: 0.9, ..BOUNDS } };
    let cases = [
        distance("80 ms, burst 10", 10, REPLIES),
        distance("80 ms", 0, REPLIES),
        distance("200 ms, half each way, burst 10", 10, BOTH_WAYS),
        distance("200 ms, half each way", 0, BOTH_WAYS),
    ];
    undisturbed(Quiet::FOR_50_MS, || run("two of four away", &cases))
}

#[test]
fn a_slow_store_silences_nobody_for_long() -> Outcome {
    let _alone = alone();
    let cases = [
        Case { name: "always 300 ms", burst: 10, modes: [late(300); 2], bounds: Figures { share: 0.95, ..BOUNDS } },
        // Slow from a moment on, as a store that is so slow from the start is hardly connected to.
        Case {
            name: "600 ms",
            burst: 10,
            modes: [late(0), late(600)],
            bounds: Figures { share: 0.0, gap: ms(2_000), ..BOUNDS },
        },
    ];
    undisturbed(Quiet::FOR_50_MS, || run("slow replies", &cases))
}
