//! What counting costs a call: with a recorder, and without.

use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use outgate::{Limit, RedisStore, Throttle, Upstream};
use tokio::runtime::Runtime;

use crate::page::{Page, Target};
use crate::server::Server;
use crate::spread::{Spread, Versus};
use crate::throttles::{AMPLE, UP, throttle};
use crate::turns::{Result, nanos_each, runtime};

const ROUNDS: usize = 9;

const PROSE: &str = "`acquire`, a slot being free, by a throttle that was built while the recorder of metrics-exporter-prometheus was \
    installed, and by one that was built while none was: both with the feature `metrics`. They take turns, and a figure of a round is \
    the median of its turns. In memory a call is counted once; in Redis so are its message, its wait, and that it came and went. \
    Without the feature nothing of it is compiled.";

/// The time of an `acquire`, with a recorder and without.
pub(crate) fn run(page: &mut Page) -> Result {
    page.section("Metrics");
    page.text(PROSE);
    let (recorder, runtime) = (PrometheusBuilder::new().build_recorder(), runtime()?);
    let (with, without) = (metrics::with_local_recorder(&recorder, || throttle(ample()))?, throttle(ample())?);
    let in_memory = Pair { with, without, batch: 1_000, turns: 300 };

    let server = Server::start()?;
    let connected = || runtime.block_on(RedisStore::connect(&server.url()));
    let on = |store| Throttle::builder().store(store).upstream(ample()).build();
    let (first, second) = (connected()?, connected()?);
    let (with, without) = (metrics::with_local_recorder(&recorder, || on(first))?, on(second)?);
    let in_redis = Pair { with, without, batch: 16, turns: 200 };

    let mut rows = Vec::new();
    for (store, pair) in [("in memory", in_memory), ("in Redis, one caller", in_redis)] {
        let mut rounds = Vec::new();
        for round in 0..=page.rounds(ROUNDS) {
            let of_round = pair.round(&runtime)?;
            rounds.extend((round > 0).then_some(of_round));
            // Who serves metrics does so every five seconds.
            recorder.handle().run_upkeep();
        }
        let Versus { ours, theirs, ratio } = Versus::of(&rounds);
        page.target(&format!("`acquire` with a recorder ÷ without, {store}"), ratio, "", Target::AtMost(1.05));
        rows.push(vec![store.to_owned(), ours.cell(0), theirs.cell(0), ratio.cell(3)]);
    }
    page.table(&["", "with a recorder, ns", "without, ns", "ratio"], &rows);
    Ok(())
}

/// More calls than either makes.
fn ample() -> Upstream {
    Upstream::new(UP).limit(Limit::new(AMPLE, Duration::from_millis(100)))
}

/// Two throttles that differ in nothing else.
struct Pair {
    with: Throttle,
    without: Throttle,
    /// Calls in a row before it is the other's turn.
    batch: usize,
    /// Of each in a round.
    turns: usize,
}

impl Pair {
    /// Nanoseconds of a call with and without.
    fn round(&self, runtime: &Runtime) -> Result<(f64, f64)> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for turn in 0..self.turns {
            // Neither is always the one that comes behind the other.
            let first = turn % 2 == 0;
            for is_with in [first, !first] {
                let (throttle, times) = if is_with { (&self.with, &mut with) } else { (&self.without, &mut without) };
                let begin = Instant::now();
                runtime.block_on(call(throttle, self.batch))?;
                times.push(nanos_each(begin.elapsed(), self.batch));
            }
        }
        Ok((Spread::of(with).median, Spread::of(without).median))
    }
}

async fn call(throttle: &Throttle, times: usize) -> Result {
    for _ in 0..times {
        drop(throttle.acquire(UP).await?);
    }
    Ok(())
}
