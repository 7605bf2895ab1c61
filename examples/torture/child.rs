//! A worker, seen by whoever started it.

use std::env;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Child as Process, Command, Stdio};

use crate::worker::{Args, READY};

/// A worker process. It ends when this is dropped, however that comes about: it listens on its stdin.
pub(crate) struct Child {
    process: Process,
}

impl Child {
    /// Starts this very program as a worker, be it an example or a test. It calls at once.
    pub(crate) fn start(args: &Args) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["tests::worker", "--exact", "--ignored", "--nocapture"]);
        args.put(&mut command);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let child = Self { process };
        // A test harness says something of its own before.
        let is_ready = BufReader::new(output).lines().map_while(Result::ok).any(|line| line.contains(READY));
        if is_ready { Ok(child) } else { Err(io::Error::other("a worker ended early")) }
    }

    /// Sends it a signal by name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) -> io::Result<()> {
        let status = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("kill -{name}: {status}"))) }
    }
}

impl Drop for Child {
    /// Kills it as it stands (`SIGKILL`): it hands nothing back.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
