//! How long one caller waits for a decision while slots are free, beside what a round trip takes.

use std::time::Instant;

use crate::contender::{Contender, Decider, LIMITERS, NOTHING, PING, SET};
use crate::cores::Cores;
use crate::page::{Page, Target};
use crate::server::{Failure, Server};
use crate::spread::{Spread, Versus};

/// Decisions in a row before it is the next one's turn.
const BATCH: usize = 16;
const TURNS: usize = 100;

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    page.section("One caller, slot free: latency");
    page.text(
        "One task asks again and again, 16 times in a row each in turns, and each over a connection of its own. \
         The median of a round's decisions, in µs, and its ratio to the median of `SET` in the same round. \
         Whoever decides by a script cannot be faster than one that does nothing; the bare rule, which \
         knows nothing of lost replies, pauses, shares and releases with other limits, is what a sliding log takes at least as \
         a script of this kind. \
         Where the two processes run decides what a round trip takes: caller and server have a core each, or share one, or go \
         where the system sends the two threads of a runtime, which is now this and now that, and says little.",
    );
    let mut contenders = vec![SET, PING, NOTHING];
    contenders.extend(LIMITERS);
    let mut server = Server::start()?;
    for cores in Cores::ALL {
        let runtime = cores.runtime()?;
        let mut rounds = Vec::new();
        cores.hold(server.pid()?)?;
        for _ in 0..page.rounds(7) {
            server.clear()?;
            let round = round(server.url(), contenders.clone());
            // As a task: whoever blocks on a runtime of several threads is not one of them.
            rounds.push(runtime.block_on(async { tokio::spawn(round).await })??);
        }
        Cores::Any.hold(server.pid()?)?;
        report(page, cores, &contenders, &rounds);
    }
    Ok(())
}

/// The median of each contender's decisions, in µs.
async fn round(url: String, contenders: Vec<Contender>) -> Result<Vec<f64>, Failure> {
    let mut deciders: Vec<(Decider, Vec<f64>)> = Vec::new();
    for (number, contender) in contenders.into_iter().enumerate() {
        let name = format!("up{number}");
        deciders.push((contender.open(&url, &name, contender.ample()).await?, Vec::with_capacity(BATCH * TURNS)));
    }
    for turn in 0..TURNS {
        // Nobody has always the same one before it.
        let count = deciders.len();
        deciders.rotate_left(turn % count);
        for (decider, took) in &mut deciders {
            for _ in 0..BATCH {
                let begin = Instant::now();
                if !decider.decide().await? {
                    return Err("a quota is used up".into());
                }
                took.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        deciders.rotate_right(turn % count);
    }
    Ok(deciders.into_iter().map(|(_, took)| Spread::of(took).median).collect())
}

fn report(page: &mut Page, cores: Cores, contenders: &[Contender], rounds: &[Vec<f64>]) {
    let against_set = |index: usize| {
        let pairs: Vec<_> = rounds.iter().map(|round| (round[index], round[0])).collect();
        Versus::of(&pairs)
    };
    let rows: Vec<_> = contenders
        .iter()
        .enumerate()
        .map(|(index, contender)| {
            let Versus { ours, ratio, .. } = against_set(index);
            vec![contender.name().to_owned(), ours.cell(1), ratio.cell(2)]
        })
        .collect();
    page.text(&format!("With {}:", cores.name()));
    page.table(&["one caller", "µs", "÷ `SET`"], &rows);
    if let Some(ours) = contenders.iter().position(|&contender| contender == Contender::Outgate) {
        let target = match cores {
            Cores::OneEach => Target::AtMost(1.3),
            Cores::Shared => Target::AtMost(1.55),
            Cores::Any => return,
        };
        let what = format!("latency of `acquire` ÷ `SET`, one caller, {}", cores.name());
        page.target(&what, against_set(ours).ratio, "", target);
    }
}
