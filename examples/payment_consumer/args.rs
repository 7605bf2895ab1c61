//! The command line.

use clap::{Parser, Subcommand};

use crate::consumer;

/// Several processes consume a queue of payments, and make each once at gateways that limit them.
#[derive(Debug, Parser)]
#[command(name = "payment_consumer", args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(override_usage = "payment_consumer [OPTIONS]")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,

    /// How many payments and refunds there are to make
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) payments: u32,

    /// How many processes consume the queue
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) consumers: u32,

    /// Kill three consumers with calls in flight, and start others
    #[arg(long)]
    pub(crate) kill: bool,
}

/// What a process does, where it is not the one that starts the others.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    #[command(hide = true)]
    Consumer(consumer::Args),
}
