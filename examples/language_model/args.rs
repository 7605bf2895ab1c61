//! The command line.

use std::time::Duration;

use clap::Parser;

/// Tasks ask a language model that allows so many calls and tokens a minute.
#[derive(Debug, Parser)]
#[command(name = "language_model")]
pub(crate) struct Args {
    /// How long a minute lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    minute: u32,

    /// For how many minutes, and their guards, they ask
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) minutes: u32,

    /// How many tasks ask each model
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub(crate) tasks: u32,
}

impl Args {
    /// How long a minute lasts here.
    pub(crate) fn minute(&self) -> Duration {
        Duration::from_secs(self.minute.into())
    }
}
