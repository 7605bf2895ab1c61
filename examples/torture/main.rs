//! Four processes, a strict upstream, and a random fault every 3 s: of Redis, of connections, of processes.
//!
//! ```text
//! cargo run --release --example torture
//! cargo run --release --example torture -- --seconds 600 --seed 7
//! cargo run --release --example torture -- --lose
//! cargo run --release --example torture -- --locally
//! ```
//!
//! The upstream answers 429 to every call beyond 200 a second. No call may be refused, and four fifths of the quota that the
//! outages leave are to be used. A call that was on its way for longer than the guard, since its process or this machine stood
//! still, is more than any throttle can promise for: what is refused in the window behind one is counted apart. With `--lose`,
//! Redis loses its data, too; with `--locally`, processes throttle by themselves while Redis cannot be reached.
//!
//! The exit code is 0, 1 when a call was refused or too little of the quota used, and 2 when something else failed.

mod args;
mod child;
#[path = "../common/explain.rs"]
mod explain;
mod fault;
mod report;
mod run;
mod scene;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser as _;

use self::args::Args;

fn main() -> ExitCode {
    let outcome = match worker::Args::take() {
        Some(args) => worker::run(&args).map(|()| true),
        None => torture(&Args::parse()),
    };
    match outcome {
        Ok(holds) => ExitCode::from(u8::from(!holds)),
        Err(error) => {
            eprintln!("torture: {}", explain::explain(&*error));
            ExitCode::from(2)
        }
    }
}

/// Says what came of it, and whether it is as it should be.
fn torture(args: &Args) -> Result<bool, Box<dyn Error>> {
    let report = run::run(args)?;
    println!("{report}");
    Ok(report.holds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_refused_and_the_quota_is_used_whatever_happens_for_15_s() -> Result<(), Box<dyn Error>> {
        let args = Args { seconds: 15, seed: Some(4), lose: false, locally: false };
        assert!(torture(&args)?, "see above; --seed makes the same faults again");
        Ok(())
    }

    #[test]
    #[ignore = "a worker process: the test above starts it"]
    fn worker() -> Result<(), Box<dyn Error>> {
        worker::Args::take().map_or(Ok(()), |args| worker::run(&args))
    }
}
