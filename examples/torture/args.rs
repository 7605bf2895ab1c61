//! The command line.

use clap::Parser;

/// Four processes share the quota of an upstream, whatever happens to them, to Redis and to the connections between.
#[derive(Debug, Parser)]
#[command(name = "torture")]
pub(crate) struct Args {
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,

    /// Which faults: the same seed makes the same ones
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Redis loses its data, too
    #[arg(long)]
    pub(crate) lose: bool,

    /// Each process throttles by itself while Redis cannot be reached
    #[arg(long)]
    pub(crate) locally: bool,
}
