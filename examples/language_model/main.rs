//! Tasks ask a language model that limits calls and tokens, and nobody knows what an answer costs before it is over.
//!
//! ```text
//! cargo run --release --example language_model
//! cargo run --release --example language_model -- --minute 60 --minutes 3
//! ```
//!
//! It starts three strict models, which allow 500 calls and 200,000 tokens a minute, and sends each as many questions as it answers.
//! Answers are streamed, and say at their end how many tokens they used. One client reserves for each call as many as it can use at
//! most, and leaves it at that. The second settles each call once its answer was read. The third settles as well, and reserves what
//! others of its kind used. The models count true tokens, and answer 429 to each call that does not fit.
//!
//! A minute lasts two seconds, so that one sees something soon.
//!
//! The exit code is 0, 1 when a call was refused for which as much was reserved as it can use, and 2 when something else failed.

mod answer;
mod args;
mod client;
#[path = "../common/explain.rs"]
mod explain;
mod limits;
mod manner;
mod model;
mod report;
mod run;
#[path = "../cluster/stall.rs"]
mod stall;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use self::args::Args;
use self::explain::explain;

#[tokio::main]
async fn main() -> ExitCode {
    match run::run(&Args::parse()).await {
        Ok(report) => {
            // Whoever closed our output does not want the table.
            let _ = write!(io::stdout(), "{report}");
            ExitCode::from(if report.broke_its_promise() { 1 } else { 2 * u8::from(report.failed()) })
        }
        Err(error) => {
            eprintln!("language_model: {}", explain(&*error));
            ExitCode::from(2)
        }
    }
}
