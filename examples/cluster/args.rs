//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::worker;

/// Several processes call one upstream and share its quota of 100 calls a second.
#[derive(Clone, Debug, Parser)]
#[command(name = "cluster", args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(override_usage = "cluster [OPTIONS]")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,

    /// How many processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,

    /// For how long they call
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub(crate) seconds: u32,

    /// The Redis to share the quota through; without it, one is started
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// Let each process keep to the limit by itself, and see what comes of it
    #[arg(long, conflicts_with = "redis")]
    pub(crate) unshared: bool,

    /// Run both, and draw into this file what came of it
    #[arg(long, value_name = "FILE", conflicts_with = "unshared")]
    pub(crate) chart: Option<PathBuf>,
}

/// What a process of the cluster does, where it is not the one that starts the others.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Role {
    #[command(hide = true)]
    Worker(worker::Args),
}
