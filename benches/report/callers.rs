//! What a decision costs as callers become more.

use crate::chart::{Chart, Line};
use crate::contender::{Contender, SORTED_SET};
use crate::page::Page;
use crate::race::{Pace, Threads, race};
use crate::server::{Failure, Server, count};
use crate::spread::{Spread, Versus};

const CALLERS: [usize; 7] = [1, 4, 16, 64, 256, 1_024, 4_096];

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    page.section("Growth: callers");
    page.text("Of one process, over one connection, on a runtime of two threads, with a quota that is not used up.");
    let (mut server, runtime) = (Server::start()?, Threads::Two.runtime()?);
    let mut rounds = Vec::new();
    for _ in 0..page.rounds(5) {
        let mut round = Vec::new();
        for callers in CALLERS {
            round.push(race(&runtime, &mut server, &[Contender::Outgate, SORTED_SET], callers, 4)?);
        }
        rounds.push(round);
    }
    let versus = |at: usize, figure: fn(&Pace) -> f64| {
        Versus::of(&rounds.iter().map(|round| (figure(&round[at][0]), figure(&round[at][1]))).collect::<Vec<_>>())
    };
    let speeds: Vec<_> = (0..CALLERS.len()).map(|at| versus(at, |pace| pace.per_second)).collect();
    let costs: Vec<_> = (0..CALLERS.len()).map(|at| versus(at, |pace| pace.server_us)).collect();
    let rows: Vec<_> = CALLERS
        .iter()
        .zip(speeds.iter().zip(&costs))
        .map(|(callers, (speed, cost))| {
            let cell = |spread: Spread, digits: usize| spread.cell(digits);
            vec![
                callers.to_string(),
                cell(speed.ours, 0),
                cell(speed.theirs, 0),
                cell(speed.ratio, 2),
                cell(cost.ours, 2),
                cell(cost.theirs, 2),
                cell(cost.ratio, 3),
            ]
        })
        .collect();
    let head = ["callers", "decisions/s", "sorted-set log", "÷", "server µs per decision", "sorted-set log", "÷"];
    page.table(&head, &rows);
    let chart = |title, y, figures: &[Versus]| {
        let points = |part: fn(&Versus) -> Spread| {
            let at = |(&callers, versus): (&usize, &Versus)| {
                (count(i64::try_from(callers).unwrap_or(i64::MAX)), part(versus).median)
            };
            CALLERS.iter().zip(figures).map(at).collect()
        };
        let ours = Line::new(Contender::Outgate.plain(), points(|versus| versus.ours));
        let theirs = Line::new(SORTED_SET.plain(), points(|versus| versus.theirs));
        Chart { title, x: "callers", y, lines: vec![ours, theirs] }
    };
    let speed = chart("Decisions in a second", "decisions/s", &speeds);
    page.chart("decisions.svg", "Decisions in a second against callers", &speed);
    let cost = chart("Redis time for each decision", "µs", &costs);
    page.chart("server.svg", "Redis time for each decision against callers", &cost);
    Ok(())
}
