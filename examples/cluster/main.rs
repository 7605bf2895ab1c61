//! A cluster of processes that share one quota: who gets how much, and what the upstream says to it.
//!
//! ```text
//! cargo run --release --example cluster
//! cargo run --release --example cluster -- --unshared
//! cargo run --release --example cluster -- --chart examples/cluster/effect.svg
//! cargo run --release --example cluster -- --processes 8 --seconds 30 --redis redis://127.0.0.1
//! ```
//!
//! It starts an upstream that answers 429 to every call beyond 100 a second, and several processes that each want to
//! call it all the time. They share the quota through a Redis: the one of `--redis`, or one that is started for them.
//! With `--unshared` each keeps to the same limit by itself, which is not enough. With `--chart` it does both, one after the other, and
//! draws what arrived.
//!
//! The exit code is 0, 1 when the upstream answered 429 although the quota was shared, and 2 when something else failed.

mod args;
mod chart;
mod child;
mod cluster;
#[path = "../common/explain.rs"]
mod explain;
mod report;
mod shared;
mod stall;
mod tally;
mod worker;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use self::args::{Args, Role};
use self::explain::explain;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster: {}", explain(&*error));
            ExitCode::from(2)
        }
    }
}

async fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(Role::Worker(worker)) = args.role {
        worker::run(worker).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let (report, arrivals) = cluster::run(&args).await?;
    // Whoever closed our output does not want the table.
    let _ = write!(io::stdout(), "{report}");
    if let Some(file) = &args.chart {
        let (report, unshared) = cluster::run(&Args { unshared: true, ..args.clone() }).await?;
        let _ = write!(io::stdout(), "\nWith a limiter in each process:\n{report}");
        std::fs::write(file, chart::svg(&unshared, &arrivals, args.processes, args.seconds))?;
    }
    Ok(ExitCode::from(if report.broke_its_promise() { 1 } else { 2 * u8::from(report.failed()) }))
}
