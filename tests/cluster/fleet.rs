//! Worker processes: this very program, started again.

use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::settings::{Results, Settings};
use crate::worker::{DONE, READY};

/// How long a worker may take to get ready, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Worker {
    /// Starts one. It calls nobody before it is told to.
    pub(crate) fn start(settings: &Settings) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["worker", "--exact", "--ignored", "--nocapture"]);
        settings.put(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (tell, lines) = mpsc::channel();
        let worker = Self { child, input, lines };
        let output = output.ok_or(io::ErrorKind::BrokenPipe)?;
        thread::spawn(move || {
            // Ends with the worker, or when nobody listens any more.
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| tell.send(line).is_ok()) {}
        });
        Ok(worker)
    }

    /// Waits until it is connected to all that it needs.
    pub(crate) fn ready(&self) -> io::Result<()> {
        self.hear(READY).map(drop)
    }

    /// Has it call.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(b"begin\n")
    }

    /// Has it stop.
    pub(crate) fn end(&mut self) {
        drop(self.input.take());
    }

    /// What it tells after its end.
    pub(crate) fn results(mut self) -> io::Result<Results> {
        self.end();
        let results = self.hear(DONE)?.parse().map_err(io::Error::other)?;
        let status = self.child.wait()?;
        if status.success() { Ok(results) } else { Err(io::Error::other(format!("a worker ended with {status}"))) }
    }

    /// Kills it as it stands: no destructor runs, nothing is handed back.
    pub(crate) fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Sends it a signal by name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) -> io::Result<()> {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &id]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("kill -{name} {id}: {status}"))) }
    }

    /// Waits for a line that holds `words`, and returns what follows them.
    fn hear(&self, words: &str) -> io::Result<String> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).map_err(io::Error::other)?;
            // The test harness may have begun the line.
            if let Some((_, rest)) = line.split_once(words) {
                return Ok(rest.to_owned());
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended, and been waited for, already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
