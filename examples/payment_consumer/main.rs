//! Consumers of a queue make payments at two gateways: none is lost, made twice or refused, even if consumers are killed.
//!
//! ```text
//! cargo run --release --example payment_consumer
//! cargo run --release --example payment_consumer -- --kill
//! cargo run --release --example payment_consumer -- --payments 2000 --consumers 8
//! ```
//!
//! It starts a Redis, two strict gateways, and several processes of itself that consume a Redis Stream. Each entry is a payment or
//! a refund. A consumer calls the gateway with the entry's id for an `Idempotency-Key`, and acknowledges the entry after success.
//! What a dead consumer left is claimed by others; what fails again and again becomes a dead letter. Gateways limit all
//! calls together, those of each merchant, and calls in flight. Refunds go after payments.
//!
//! The exit code is 0, 1 when a payment was lost, doubled or refused, and 2 when something else failed.

mod args;
mod child;
mod consumer;
#[path = "../common/explain.rs"]
mod explain;
mod gateway;
mod hands;
mod ledger;
mod limits;
mod order;
mod pay;
mod queue;
mod report;
mod run;
#[path = "../cluster/stall.rs"]
mod stall;

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
            eprintln!("payment_consumer: {}", explain(&*error));
            ExitCode::from(2)
        }
    }
}

async fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(Role::Consumer(consumer)) = args.role {
        consumer::run(consumer).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = run::run(&args).await?;
    // Whoever closed our output does not want the table.
    let _ = write!(io::stdout(), "{report}");
    Ok(ExitCode::from(if report.broke_its_promise() { 1 } else { 2 * u8::from(report.failed()) }))
}
