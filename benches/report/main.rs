//! What a decision costs, beside what people use today: every figure a ratio against a baseline of the same run.
//!
//! `make bench` writes `benches/REPORT.md` and the charts beside it. For a part of it, name sections:
//! `cargo bench --features metrics --bench report -- latency throughput --quick`.

mod allocations;
mod baselines;
mod bytes;
mod callers;
mod chart;
mod contender;
mod cores;
mod growth;
mod latency;
mod lateness;
mod length;
mod memory;
mod metrics;
mod middleware;
mod page;
mod race;
mod saturated;
mod scopes;
mod server;
mod sizes;
mod slow_paths;
mod spread;
mod throttles;
mod throughput;
mod turns;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use crate::page::Page;
use crate::race::Threads;
use crate::server::{Failure, Server};

type Section = fn(&mut Page) -> Result<(), Failure>;

const SECTIONS: [(&str, Section); 15] = [
    ("latency", latency::run),
    ("throughput", throughput::run),
    ("bytes", bytes::run),
    ("length", length::run),
    ("saturated", saturated::run),
    ("callers", callers::run),
    ("sizes", sizes::run),
    ("slow_paths", slow_paths::run),
    ("memory", memory::run),
    ("middleware", middleware::run),
    ("metrics", metrics::run),
    ("scopes", scopes::run),
    ("allocations", allocations::run),
    ("growth", growth::run),
    ("lateness", lateness::run),
];

/// What the profiles say of the targets that are missed.
const WHY: &str = "\
* One caller: a script that does nothing is the floor, the bare rule on a list the next. Beyond that rule an ask is remembered, so that it acts once; what is in force and who waits is looked for; and once a second the log is kept as long as its most patient writer counts. That is three commands more, or four. A third of the server's time goes into reading the arguments and the clock. On a core that both processes share a `SET` takes a few µs, and the sorted-set log's script by itself takes longer than the target allows.\n\
* 64 callers of whom some are granted: how many can start together, and how many are a process's share, is asked of the log by bisection, a look at an entry each; and an ask that is not answered at a glance is first read by it, then by the rest of the script.\n\
* 256 callers: each costs its process 1 to 2 µs (queue, wake-up, clock), and while a message is under way nobody else's is, so that process and server take turns. The server is hardly busy.\n\
* Beside governor: it keeps one number for each key. Here a call is entered into an exact log under the clock of tokio, some 24 ns, found by the SHA-256 of its scope, some 60 ns. The rule and the log alone, without throttle, scope or future, take twice as long as governor.\n\
* The middleware: reading what a response says of its quota takes most of it where there is something to read. An empty middleware takes a quarter of a microsecond, which is 2 % of a call of 12 µs.\n\
* 100,000 scopes beside ten: three dependent reads from memory that is in no cache. The faster the call the larger the ratio; governor's is larger still.\n\
* All slots at one instant: a thousand tasks are woken one after another.";

fn main() -> ExitCode {
    match report() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn report() -> Result<(), Failure> {
    // Cargo says `--bench`, too.
    let words: Vec<_> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let (options, names): (Vec<_>, Vec<_>) = words.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    let known: Vec<_> = SECTIONS.iter().map(|(name, _)| *name).collect();
    if let Some(word) =
        names.iter().find(|name| !known.contains(name)).or(options.iter().find(|&&word| word != "--quick"))
    {
        return Err(format!("{word}? There are --quick and the sections {}", known.join(", ")).into());
    }
    let mut page = Page::quick(!options.is_empty());
    let head = head()?;
    println!("{head}");
    for (name, section) in SECTIONS {
        if names.is_empty() || names.contains(&name) {
            section(&mut page)?;
        }
    }
    if words.is_empty() {
        page.section("Why targets are missed");
        page.text(WHY);
        write(&page, &head)?;
    }
    Ok(())
}

/// A part of the report, or a hasty one, is for the terminal only.
fn write(page: &Page, head: &str) -> Result<(), Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    for (file, svg) in page.charts() {
        fs::write(folder.join(file), svg)?;
    }
    fs::write(folder.join("REPORT.md"), page.markdown(head))?;
    Ok(())
}

/// On what the figures were measured.
fn head() -> Result<String, Failure> {
    let mut server = Server::start()?;
    Threads::One.runtime()?.block_on(contender::check(&server.url()))?;
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism()?;
    let said = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok();
        let text = output.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
        text.split_whitespace().nth(usize::from(words == ["--version"])).unwrap_or("unknown").to_owned()
    };
    Ok(format!(
        "# What a decision costs\n\n\
         Written by `make bench`. {cores} cores, {}; Redis {}, rustc {}, outgate {} at commit {}.\n\n\
         Ours and others take turns within one run; a figure is the median of several rounds, with the least and the most. \
         The server runs on the same machine, so that both share its cores.\n\n\
         The targets are those that the project has set itself. How low a figure can get is measured beside it: by a script that \
         does nothing, by the bare rule on a list, by one number for each key instead of a log.",
        model.trim_start_matches([' ', '\t', ':']),
        server.version()?,
        said("rustc", &["--version"]),
        env!("CARGO_PKG_VERSION"),
        said("git", &["describe", "--always", "--dirty"]),
    ))
}
