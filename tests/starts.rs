//! Processes that start at one moment, and the names by which their store knows them: two of one name get each other's slots.
//!
//! `OUTGATE_STARTS=24000 cargo test --test starts -- --nocapture` starts as many.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Lines, PipeReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use outgate::ledger::{Message, NOBODY};
use outgate::store::Applying;
use outgate::{Limit, MemoryStore, Store, Throttle, Upstream};

const STARTS: usize = 2_000;
const AT_ONCE: usize = 4;
/// How many processes start, where that is said.
const MORE_STARTS: &str = "OUTGATE_STARTS";
/// Set for a process that is started to say its name.
const NAMED: &str = "OUTGATE_STARTS_NAMED";

/// Precede what a process says, so that it is told from what the test harness prints.
const READY: &str = "process is ready";
const NAME: &str = "process is named: ";

type Outcome = Result<(), Box<dyn Error>>;

/// A store that says who asks it.
#[derive(Debug, Default)]
struct Aloud(MemoryStore);

impl Store for Aloud {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        // Nobody's messages ask for the time.
        if message.id.sender != NOBODY {
            println!("{NAME}{}", message.id.sender);
        }
        // An answer that is there at once needs no name.
        Applying::pending(self.0.apply(message))
    }
}

#[tokio::test]
#[ignore = "a process of its own: the test below starts it"]
async fn process() -> Outcome {
    if env::var_os(NAMED).is_none() {
        return Ok(());
    }
    println!("{READY}");
    // Its end comes for all of them at once.
    io::stdin().read_line(&mut String::new())?;
    let up = Upstream::new("up").limit(Limit::per_second(1));
    let throttle = Throttle::builder().store(Aloud::default()).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    Ok(())
}

/// A process that does nothing before the end of what it reads.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(input: PipeReader) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["process", "--exact", "--ignored", "--nocapture"]).env(NAMED, "");
        let mut child = command.stdin(input).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, lines: BufReader::new(output).lines() })
    }

    /// Waits for a line that holds `words`, and returns what follows them.
    fn hear(&mut self, words: &str) -> io::Result<String> {
        for line in &mut self.lines {
            // The test harness may have begun the line.
            if let Some((_, rest)) = line?.split_once(words) {
                return Ok(rest.to_owned());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// What its store calls it.
    fn name(mut self) -> Result<u64, Box<dyn Error>> {
        let name = self.hear(NAME)?.parse()?;
        // What it still says, it says to somebody.
        self.lines.by_ref().for_each(drop);
        let status = self.child.wait()?;
        if status.success() { Ok(name) } else { Err(format!("a process ended with {status}").into()) }
    }
}

/// The names of as many processes as start at once.
fn names() -> Result<Vec<u64>, Box<dyn Error>> {
    let (input, begin) = io::pipe()?;
    let mut processes =
        (0..AT_ONCE).map(|_| Process::start(input.try_clone()?)).collect::<io::Result<Vec<Process>>>()?;
    for process in &mut processes {
        process.hear(READY)?;
    }
    drop(begin);
    processes.into_iter().map(Process::name).collect()
}

#[test]
fn no_two_of_thousands_of_processes_that_start_at_once_have_one_name() -> Outcome {
    let starts = env::var(MORE_STARTS).map_or(Ok(STARTS), |starts| starts.parse())?;
    let (begin, mut starts_by_name) = (Instant::now(), HashMap::<u64, usize>::new());
    for _ in 0..starts.div_ceil(AT_ONCE) {
        for name in names()? {
            *starts_by_name.entry(name).or_default() += 1;
        }
    }
    let starts: usize = starts_by_name.values().sum();
    let shared: Vec<_> = starts_by_name.iter().filter(|(_, starts)| **starts > 1).collect();
    let (names, again, took) = (starts_by_name.len(), shared.len(), begin.elapsed());
    println!("\n{starts} starts, {AT_ONCE} at once, in {took:.0?}: {names} names, of which {again} came up again");
    assert!(shared.is_empty(), "names and their starts: {shared:?}");
    Ok(())
}
