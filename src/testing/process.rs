//! A child process that never outlives its parent.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

/// Killed when dropped, and also when this process is killed before it could drop anything.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watch: Child,
}

pub(super) const OUTPUT: &str = "output";

/// Waits for a line, or for the death of the process that would have written it: then it kills
/// `$1` and removes `$2`. The signals of a terminal are meant for the test, not for what cleans
/// up behind it.
const WATCH: &str = r#"trap '' HUP INT QUIT TERM; read -r _ || { kill -KILL "$1"; rm -rf -- "$2"; }"#;

impl Process {
    /// Starts `program`, whose output goes to the file [`OUTPUT`] in `dir`. Should this process
    /// die without dropping it, `dir` is removed.
    pub(super) fn start<S: AsRef<OsStr>>(program: &str, args: &[S], dir: &Path) -> io::Result<Self> {
        let output = File::create(dir.join(OUTPUT))?;
        let errors = output.try_clone()?;
        let mut child = Command::new(program).args(args).stdin(Stdio::null()).stdout(output).stderr(errors).spawn()?;
        let watch =
            quiet("sh").args(["-c", WATCH, "sh", &child.id().to_string()]).arg(dir).stdin(Stdio::piped()).spawn();
        match watch {
            Ok(watch) => Ok(Self { child, watch }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                // Not to be taken for a missing `program`.
                Err(io::Error::other(format!("sh did not start: {error}")))
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends it a signal by name, such as `STOP`.
    pub(super) fn signal(&self, name: &str) -> io::Result<()> {
        let id = self.id().to_string();
        let status = quiet("kill").args([&format!("-{name}"), &id]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("kill -{name} {id}: {status}"))) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watch goes first: once the child has been waited for, its id may belong to somebody
        // else.
        if let Some(mut stdin) = self.watch.stdin.take() {
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.watch.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child that held on to our output would keep whoever reads it waiting.
fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    #[test]
    fn the_watch_kills_and_cleans_up_when_the_parent_dies() -> io::Result<()> {
        let dir = env::temp_dir().join(format!("outgate-watch-{:016x}", fastrand::u64(..)));
        fs::create_dir(&dir)?;
        let mut process = Process::start("sleep", &["600"], &dir)?;
        assert_eq!(process.ended()?, None);
        // What the system does to the pipes of a process that dies.
        drop(process.watch.stdin.take());
        assert!(!process.child.wait()?.success());
        process.watch.wait()?;
        assert!(!dir.exists());
        Ok(())
    }
}
