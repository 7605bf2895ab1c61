//! A fleet of processes and a model of the Redis between them, in virtual time: how much one node carries, who waits how long,
//! and whether it is fair.
//!
//! ```text
//! cargo run --release --example fleet
//! cargo run --release --example fleet -- --nodes 4 --demand 40000
//! cargo run --release --example fleet -- --nodes 1,3,10,30
//! cargo run --release --example fleet -- --measure
//! ```
//!
//! Every process is a throttle of the library with queues of its own. They share one store, which decides as a store in
//! memory does, but is as far away as a Redis and as busy with each call as a real one was measured to be. No socket is
//! opened, and no time passes but virtual time, so that the same seed gives the same report.
//!
//! The exit code is 0, 1 when a limit was broken, and 2 when something else failed.

mod agenda;
mod args;
mod call;
mod demand;
#[path = "../common/explain.rs"]
mod explain;
mod fair;
mod fleet;
mod full;
mod ledger;
mod measure;
mod modelled;
mod quantiles;
mod report;
mod scale;
mod service;
mod summary;
mod sweep;
mod tally;
mod upstream;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser as _;

use self::args::Args;
use self::explain::explain;
use self::report::Report;
use self::scale::Scale;
use self::summary::Summary;
use self::sweep::Sweep;

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fleet: {}", explain(&*error));
            ExitCode::from(2)
        }
    }
}

fn run(mut args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let begin = Instant::now();
    // Whoever closed our output does not want the report.
    let mut out = io::stdout();
    if args.measure {
        let measured = measure::run()?;
        let _ = writeln!(out, "{measured}");
        args.service = measured.service();
    }
    if args.nodes.len() > 1 {
        let scale = Scale::run(&args)?;
        let _ = write!(out, "{scale}");
        eprintln!("({:.1?} of real time)", begin.elapsed());
        return Ok(ExitCode::from(u8::from(scale.violations() > 0)));
    }
    let summary = Summary::new(&args, fleet::run(&args)?);
    let _ = writeln!(out, "{}", Report { args: &args, summary: &summary });
    let mut violations = summary.violations();
    if !args.no_sweep {
        let sweep = Sweep::run(&args)?;
        let _ = write!(out, "{sweep}");
        violations += sweep.violations();
    }
    eprintln!("({:.1?} of real time)", begin.elapsed());
    Ok(ExitCode::from(u8::from(violations > 0)))
}
