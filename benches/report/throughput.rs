//! How many decisions a second 256 callers get out of one process, and what each costs the server; and the latter for one caller.

use std::time::Duration;

use crate::contender::{Contender, LIMITERS, SORTED_SET};
use crate::page::{Page, Target};
use crate::race::{Pace, Threads, race};
use crate::server::{Failure, Server};
use crate::spread::Versus;

/// Short, and as many rounds: whatever else the machine does then falls on neighbours alike.
const LENGTH: Duration = Duration::from_millis(150);

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    let mut server = Server::start()?;
    page.section("256 callers, quota not used up");
    page.text(
        "Tasks of one process who do nothing but ask, over one connection, with an empty log at the beginning of each round. \
         *Executing* is the time that the server takes for the commands, by `INFO commandstats`; *processor* is all that its \
         process takes, with sockets and parsing. The ratios are to the log in a sorted set in the same round.",
    );
    for threads in [Threads::Two, Threads::One] {
        let rounds = rounds(page, &mut server, threads, 256)?;
        report(page, threads, &rounds);
        let ours = versus(&rounds, Contender::Outgate, |pace| pace.per_second);
        let what = format!("decisions/s ÷ sorted-set log, 256 callers, {}", threads.name());
        page.target(&what, ours.ratio, "", Target::AtLeast(10.0));
        if threads == Threads::Two {
            let ours = versus(&rounds, Contender::Outgate, |pace| pace.server_us);
            page.target("server µs per decision ÷ sorted-set log, 256 callers", ours.ratio, "", Target::AtMost(0.1));
        }
    }
    page.section("One caller: what the server pays");
    let rounds = rounds(page, &mut server, Threads::Two, 1)?;
    report(page, Threads::Two, &rounds);
    let ours = versus(&rounds, Contender::Outgate, |pace| pace.server_us);
    page.target("server µs per decision ÷ sorted-set log, 1 caller", ours.ratio, "", Target::AtMost(1.0));
    Ok(())
}

/// Of each round the paces of all limiters, in their order.
fn rounds(page: &Page, server: &mut Server, threads: Threads, callers: usize) -> Result<Vec<Vec<Pace>>, Failure> {
    let runtime = threads.runtime()?;
    let round = |_| LIMITERS.iter().map(|&limiter| race(&runtime, server, limiter, callers, LENGTH)).collect();
    (0..page.rounds(15)).map(round).collect()
}

fn versus(rounds: &[Vec<Pace>], limiter: Contender, figure: fn(&Pace) -> f64) -> Versus {
    let of = |round: &[Pace], limiter: Contender| {
        LIMITERS.iter().zip(round).find(|(other, _)| **other == limiter).map_or(f64::NAN, |(_, pace)| figure(pace))
    };
    let pairs: Vec<_> = rounds.iter().map(|round| (of(round, limiter), of(round, SORTED_SET))).collect();
    Versus::of(&pairs)
}

fn report(page: &mut Page, threads: Threads, rounds: &[Vec<Pace>]) {
    let rows: Vec<_> = LIMITERS
        .iter()
        .map(|&limiter| {
            let versus = |figure| versus(rounds, limiter, figure);
            let (speed, server) = (versus(|pace| pace.per_second), versus(|pace| pace.server_us));
            let cpu = versus(|pace| pace.cpu_us).ours;
            let wire = versus(|pace| pace.wire).ours;
            vec![
                limiter.name().to_owned(),
                speed.ours.cell(0),
                speed.ratio.cell(2),
                server.ours.cell(2),
                server.ratio.cell(3),
                format!("{:.2}", cpu.median),
                format!("{:.0}", wire.median),
            ]
        })
        .collect();
    page.text(&format!("In {}, for each decision:", threads.name()));
    let head = ["", "decisions/s", "÷", "executing, µs", "÷", "processor, µs", "bytes on the wire"];
    page.table(&head, &rows);
}
