//! A foreign client that spends the same quota.
//!
//! `OUTGATE_RUNS=3 cargo test --test cluster foreign -- --nocapture` makes three runs of each kind, a minute each.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, thread};

use outgate::Limit;
use outgate::testing::{Arrival, Shape};

use crate::cluster::{Cluster, Place, Plan, micros};
use crate::outcome::ratio;
use crate::settings::{Demand, Manner};
use crate::watch::{Quiet, demand, undisturbed};
use crate::{Outcome, alone, ms, table};

const LIMIT: Limit = Limit::new(400, Duration::from_secs(10));
/// It calls so often: three tenths of the quota.
const EVERY: Duration = Duration::from_micros(10_000_000 / 120);
const LEFT: usize = 280;
/// Windows until everybody knows of the others, and calls have recovered where the first wave was refused; and after that.
const SETTLED: u32 = 2;
const WINDOWS: u32 = 4;
const PROCESSES: usize = 4;
const FOREIGN: &str = "foreign";

/// Calls an upstream until it is told to stop.
fn call(url: &str, stop: &AtomicBool) -> Result<(), Box<dyn Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let mut ticks = tokio::time::interval(EVERY);
        while !stop.load(Ordering::Relaxed) {
            ticks.tick().await;
            client.get(url).header("x-caller", FOREIGN).send().await?;
        }
        Ok(())
    })
}

fn beside(name: &str, shape: Shape) -> Outcome {
    let manner = Manner { learns: true, ..Manner::default() };
    let demands = vec![Demand::Endless { tasks: 8 }; PROCESSES];
    let (limits, delay) = (vec![LIMIT], ms(5)..ms(25));
    let plan =
        Plan { name: name.to_owned(), limits, insists: true, shape, delay, place: Place::Redis, demands, manner };
    let mut cluster = Cluster::start(plan)?;
    let (url, stop) = (cluster.url(), AtomicBool::new(false));
    let (calm, end) = (LIMIT.window() * SETTLED, LIMIT.window() * (SETTLED + WINDOWS));
    thread::scope(|scope| {
        let foreign = scope.spawn(|| call(&url, &stop));
        let begun = cluster.begin();
        cluster.run_until(end);
        stop.store(true, Ordering::Relaxed);
        begun?;
        foreign.join().map_err(|_| "the foreign client panicked")?.map_err(|error| error.to_string())?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    let outcome = cluster.finish()?;
    table::print(&[&outcome], end);
    let first = outcome.arrivals[0].at;
    let is_ours = |arrival: &&Arrival| arrival.caller.as_deref() != Some(FOREIGN);
    let count = |ours: bool, admitted: bool, from: Duration, to: Duration| {
        let all = outcome.between(first + micros(from), first + micros(to));
        all.filter(|arrival| is_ours(arrival) == ours && arrival.admitted == admitted).count()
    };
    let used = ratio(count(true, true, calm, end), LEFT * usize::try_from(WINDOWS)?);
    let at_first = count(true, false, Duration::ZERO, calm);
    let refusals = ratio(count(true, false, calm, end), PROCESSES) * 60.0 / (LIMIT.window() * WINDOWS).as_secs_f64();
    let others = ratio(count(false, true, calm, end), count(false, true, calm, end) + count(false, false, calm, end));
    println!(
        "{name}: used {used:.3} of what others leave; refused a minute and process {refusals:.2}, and at first {at_first}; others got {others:.3}"
    );
    demand(used >= 0.85 && refusals <= 1.0, || format!("{name}: {used:.3}, {refusals:.2}"))
}

/// Runs of each kind.
fn runs() -> u32 {
    env::var("OUTGATE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

#[test]
fn what_a_foreign_client_leaves_is_used() -> Outcome {
    let _alone = alone();
    let shapes = [
        ("sliding log", Shape::SlidingLog),
        ("fixed window", Shape::FixedWindow { phase: 3_700_000 }),
        ("window from the first call", Shape::FixedWindowFromFirstCall),
    ];
    for _ in 0..runs() {
        // Side by side, as each is a minute of 40 calls a second: nothing of the first seconds, while others start, is counted.
        thread::scope(|scope| {
            let begun = shapes.map(|(name, shape)| {
                let run = move || undisturbed(Quiet::FOR_50_MS, || beside(name, shape));
                scope.spawn(move || run().map_err(|error| error.to_string()))
            });
            begun.into_iter().try_for_each(|run| run.join().map_err(|_| "a run panicked".to_owned())?)
        })?;
    }
    Ok(())
}
