//! On which cores a caller and the server run.

use std::process::{Command, Stdio};
use std::{fs, io, process};

use tokio::runtime::Runtime;

use crate::race::Threads;
use crate::server::Failure;

/// Where the caller's process and the server's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Each on a core of its own.
    OneEach,
    /// Both on the same one.
    Shared,
    /// Wherever the system likes.
    Any,
}

impl Cores {
    pub(crate) const ALL: [Self; 3] = [Self::OneEach, Self::Shared, Self::Any];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OneEach => "a core for each process",
            Self::Shared => "both processes on one core",
            Self::Any => "wherever the system sends two threads",
        }
    }

    pub(crate) fn runtime(self) -> io::Result<Runtime> {
        match self {
            Self::OneEach | Self::Shared => Threads::One.runtime(),
            Self::Any => Threads::Two.runtime(),
        }
    }

    /// Keeps this process and the server on their cores until the next call.
    pub(crate) fn hold(self, server: u32) -> Result<(), Failure> {
        let all = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let (ours, theirs) = match self {
            Self::OneEach => ("0", "1"),
            Self::Shared => ("0", "0"),
            Self::Any => (all.trim(), all.trim()),
        };
        pin(process::id(), ours)?;
        pin(server, theirs)
    }
}

/// By the program `taskset`, which every Linux brings.
fn pin(process: u32, cores: &str) -> Result<(), Failure> {
    let words = ["--all-tasks", "--cpu-list", "--pid", cores, &process.to_string()];
    let status = Command::new("taskset").args(words).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("taskset {}: {status}", words.join(" ")).into()),
        Err(error) => Err(format!("taskset: {error}").into()),
    }
}
