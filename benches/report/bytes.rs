//! How much memory of the server a logged call takes.

use crate::baselines::Way;
use crate::chart::{Chart, Line};
use crate::contender::{Contender, SORTED_SET};
use crate::page::{Page, Target};
use crate::race::{Threads, spend};
use crate::server::{Failure, Server, count};
use crate::spread::{Spread, Versus};

const STREAM: Contender = Contender::Baseline(Way::Stream);
const COUNTERS: [Contender; 3] =
    [Contender::Baseline(Way::FixedWindow), Contender::Trypema, Contender::Baseline(Way::SubBuckets)];

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    page.section("Bytes in Redis");
    page.text(
        "What all keys take together by `MEMORY USAGE … SAMPLES 0`, after 64 callers have made so many calls, divided by the \
         calls. A fixed window, trypema and sub-buckets keep no log but counts, whatever the calls.",
    );
    let (mut server, runtime) = (Server::start()?, Threads::Two.runtime()?);
    let mut bytes = |contender, calls| -> Result<f64, Failure> {
        server.clear()?;
        runtime.block_on(spend(&server.url(), contender, 64, calls))?;
        Ok(server.bytes()? / count(calls))
    };

    let (mut rows, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..page.rounds(3) {
        pairs.push((bytes(Contender::Outgate, 5_000)?, bytes(SORTED_SET, 5_000)?));
    }
    let Versus { ours, theirs, ratio } = Versus::of(&pairs);
    let mut row = |contender: Contender, bytes: Spread| {
        let ratio = bytes.median / theirs.median;
        rows.push(vec![contender.name().to_owned(), format!("{:.1}", bytes.median), format!("{ratio:.3}")]);
    };
    row(Contender::Outgate, ours);
    row(SORTED_SET, theirs);
    for contender in [STREAM].into_iter().chain(COUNTERS) {
        row(contender, Spread::of(vec![bytes(contender, 5_000)?]));
    }
    page.table(&["5,000 calls", "bytes per call", "÷"], &rows);
    page.target("bytes per logged call ÷ sorted set, 5,000 calls", ratio, "", Target::AtMost(0.1));

    let lengths = [100, 1_000, 5_000, 20_000, 100_000];
    let mut lines = Vec::new();
    for contender in [Contender::Outgate, SORTED_SET, STREAM] {
        let points: Result<Vec<_>, _> =
            lengths.iter().map(|&calls| Ok::<_, Failure>((count(calls), bytes(contender, calls)?))).collect();
        lines.push((contender, points?));
    }
    let rows: Vec<_> = (0..lengths.len())
        .map(|at| {
            let cells = lines.iter().map(|(_, points)| format!("{:.1}", points[at].1));
            [lengths[at].to_string()].into_iter().chain(cells).collect()
        })
        .collect();
    let heads = lines.iter().map(|(contender, _)| contender.name());
    page.table(&["calls logged"].into_iter().chain(heads).collect::<Vec<_>>(), &rows);
    let total = |(contender, points): (Contender, Vec<(f64, f64)>)| {
        Line::new(contender.plain(), points.into_iter().map(|(calls, bytes)| (calls, calls * bytes)).collect())
    };
    let chart = Chart {
        title: "Memory of the log in Redis",
        x: "calls logged",
        y: "bytes",
        lines: lines.into_iter().map(total).collect(),
    };
    page.chart("bytes.svg", "Bytes in Redis against calls logged", &chart);
    Ok(())
}
