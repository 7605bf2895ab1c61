//! A worker, seen by whoever started it.

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;
use std::{env, io};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::tally::Tally;
use crate::worker;

/// How long a worker may take for what ought to be done at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker process. It ends when this is dropped, however that comes about.
pub(crate) struct Child {
    name: String,
    seconds: u64,
    process: Process,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts this very program as a worker.
    pub(crate) fn start(args: worker::Args) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["worker", "--name", &args.name, "--upstream", &args.upstream]);
        command.args(["--seconds", &args.seconds.to_string()]);
        if let (Some(redis), Some(prefix)) = (&args.redis, &args.prefix) {
            command.args(["--redis", redis, "--prefix", prefix]);
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("a process without stdin or stdout"));
        };
        let stdout = BufReader::new(stdout).lines();
        Ok(Self { name: args.name, seconds: args.seconds, process, stdin, stdout })
    }

    /// Waits until it is ready to call.
    pub(crate) async fn ready(&mut self) -> Result<(), Box<dyn Error>> {
        self.line(PATIENCE).await.map(drop)
    }

    /// Lets it call.
    pub(crate) async fn go(&mut self) -> io::Result<()> {
        self.stdin.write_all(b"go\n").await?;
        self.stdin.flush().await
    }

    /// Waits until it has called for as long as it should, and has ended.
    pub(crate) async fn tally(&mut self) -> Result<Tally, Box<dyn Error>> {
        let tally = self.line(Duration::from_secs(self.seconds) + PATIENCE).await?.parse()?;
        timeout(PATIENCE, self.process.wait()).await.map_err(|_| self.failed("does not end"))??;
        Ok(tally)
    }

    async fn line(&mut self, patience: Duration) -> Result<String, Box<dyn Error>> {
        match timeout(patience, self.stdout.next_line()).await {
            Ok(line) => line?.ok_or_else(|| self.failed("ended early").into()),
            Err(_) => Err(self.failed("says nothing").into()),
        }
    }

    fn failed(&self, how: &str) -> String {
        format!("process {} {how}", self.name)
    }
}
