//! How many decisions a second 256 callers get out of one process, and what each costs the server; and the latter for one caller.

use crate::contender::{Contender, LIMITERS, NOTHING, SORTED_SET};
use crate::page::{Page, Target};
use crate::race::{Pace, Threads, race};
use crate::server::{Failure, Server};
use crate::spread::Versus;

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    let mut server = Server::start()?;
    page.section("256 callers, quota not used up");
    page.text(
        "Tasks of one process who do nothing but ask, over one connection, with an empty log at the beginning of each round. \
         *Executing* is the time that the server takes for the commands, by `INFO commandstats`; *server* is all the processor time \
         of its process, with sockets and parsing, and *client* that of the callers' process. The ratios are to the log in a sorted set in the same round. The hybrid limiter of trypema decides in its own process and \
         tells Redis every 10 ms, so that several processes may exceed the quota together; the crate asks for Redis 7.2, and what \
         is called here runs on 7.0.",
    );
    for threads in [Threads::Two, Threads::One] {
        let rounds = Rounds::of(page, &mut server, threads, &LIMITERS, 256)?;
        rounds.report(page, threads);
        let ours = rounds.versus(Contender::Outgate, |pace| pace.per_second);
        let what = format!("decisions/s ÷ sorted-set log, 256 callers, {}", threads.name());
        page.target(&what, ours.ratio, "", Target::AtLeast(8.0));
        if threads == Threads::Two {
            let ours = rounds.versus(Contender::Outgate, |pace| pace.server_us);
            page.target("server µs per decision ÷ sorted-set log, 256 callers", ours.ratio, "", Target::AtMost(0.1));
        }
    }
    page.section("One caller: what the server pays");
    page.text("The same for one task, and beside it a script that does nothing.");
    let contenders: Vec<_> = LIMITERS.into_iter().chain([NOTHING]).collect();
    let rounds = Rounds::of(page, &mut server, Threads::Two, &contenders, 1)?;
    rounds.report(page, Threads::Two);
    let ours = rounds.versus(Contender::Outgate, |pace| pace.server_us);
    page.target("server µs per decision ÷ sorted-set log, 1 caller", ours.ratio, "", Target::AtMost(1.55));
    Ok(())
}

/// Of each round the paces of all contenders, in their order.
struct Rounds {
    contenders: Vec<Contender>,
    paces: Vec<Vec<Pace>>,
}

impl Rounds {
    fn of(
        page: &Page,
        server: &mut Server,
        threads: Threads,
        contenders: &[Contender],
        callers: usize,
    ) -> Result<Self, Failure> {
        let runtime = threads.runtime()?;
        let paces: Result<_, Failure> =
            (0..page.rounds(9)).map(|_| race(&runtime, server, contenders, callers, 8)).collect();
        Ok(Self { contenders: contenders.to_vec(), paces: paces? })
    }

    /// A contender beside the log in a sorted set.
    fn versus(&self, contender: Contender, figure: fn(&Pace) -> f64) -> Versus {
        let of = |round: &[Pace], wanted: Contender| {
            let found = self.contenders.iter().zip(round).find(|(contender, _)| **contender == wanted);
            found.map_or(f64::NAN, |(_, pace)| figure(pace))
        };
        let pairs: Vec<_> = self.paces.iter().map(|round| (of(round, contender), of(round, SORTED_SET))).collect();
        Versus::of(&pairs)
    }

    fn report(&self, page: &mut Page, threads: Threads) {
        let row = |&contender: &Contender| {
            let versus = |figure| self.versus(contender, figure);
            let (speed, executing) = (versus(|pace| pace.per_second), versus(|pace| pace.server_us));
            let median = |figure, digits: usize| format!("{:.digits$}", versus(figure).ours.median);
            vec![
                contender.name().to_owned(),
                speed.ours.cell(0),
                speed.ratio.cell(2),
                executing.ours.cell(2),
                executing.ratio.cell(3),
                median(|pace| pace.cpu_us, 2),
                median(|pace| pace.client_us, 2),
                median(|pace| pace.wire, 0),
            ]
        };
        page.text(&format!("In {}, for each decision:", threads.name()));
        let head = ["", "decisions/s", "÷", "executing, µs", "÷", "server, µs", "client, µs", "bytes on the wire"];
        page.table(&head, &self.contenders.iter().map(row).collect::<Vec<_>>());
    }
}
