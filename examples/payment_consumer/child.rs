//! A consumer, seen by whoever started it.

use std::process::{ExitStatus, Stdio};
use std::{env, io};

use tokio::process::{Child as Process, Command};

use crate::consumer;

/// A consumer process. It ends when this is dropped, however that comes about: it listens on its stdin.
pub(crate) struct Child(Process);

impl Child {
    /// Starts this very program as a consumer.
    pub(crate) fn start(args: &consumer::Args) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["consumer", "--name", &args.name, "--redis", &args.redis]);
        for gateway in &args.gateways {
            command.args(["--gateway", gateway]);
        }
        command.stdin(Stdio::piped()).kill_on_drop(true).spawn().map(Self)
    }

    /// Kills it (`SIGKILL`): it has no time to do anything more.
    pub(crate) async fn kill(mut self) -> io::Result<()> {
        self.0.kill().await
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }
}
