//! How the cost of a decision in memory grows: with callers, limits, units, and logs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outgate::ledger::{Ask, Log, Message, MessageId, Run, Term};
use outgate::{Limit, MemoryStore, Store as _, Throttle, Upstream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::page::Page;
use crate::throttles::{AMPLE, UP, ample, throttle};
use crate::turns::{Result, cell, expect, nanos_each, runtime, side_by_side};

const ROUNDS: usize = 5;
/// Of all callers of one round.
const CALLS: u32 = 1 << 16;
/// Of all calls of one round, where each may take many.
const UNITS: u32 = AMPLE - AMPLE / 10;

const PROSE: &str = "Nanoseconds for each decision on a `MemoryStore` whose quota is not used up; all columns of a table in \
    turns. Callers are tasks on a runtime with two threads, in one queue, each asking again as soon as it is served. Several logs \
    for a call are booked through the `Store` trait.";

/// One table for each dimension.
pub(crate) fn run(page: &mut Page) -> Result {
    page.section("How the cost of a decision grows, in memory");
    page.text(PROSE);
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let one = runtime()?;
    let callers = [1, 4, 16, 64, 256, 1_024, 4_096];
    table(page, "callers", &callers, |callers| many_callers(&two, callers))?;
    table(page, "limits of a log", &[1, 2, 3, 4], |limits| many_limits(&one, limits))?;
    table(page, "cost of a call", &[1, 10, 100, 1_000], |cost| costly(&one, cost))?;
    table(page, "logs of a call", &[1, 2, 3, 4], |logs| many_logs(&one, logs))
}

fn table(page: &mut Page, what: &str, sizes: &[u32], work: impl FnMut(u32) -> Result<f64>) -> Result {
    let figures = side_by_side(ROUNDS, sizes, work)?;
    let mut head = vec![what.to_owned()];
    head.extend(sizes.iter().map(ToString::to_string));
    let head: Vec<_> = head.iter().map(String::as_str).collect();
    let first = figures.first().map_or(f64::NAN, |figure| figure.median);
    let nanos = figures.iter().map(|&figure| cell(figure, 0));
    let times = figures.iter().map(|figure| format!("{:.2}", figure.median / first));
    let row = |name: &str, cells: &mut dyn Iterator<Item = String>| {
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let rows = [row("ns", &mut { nanos }), row("times the first", &mut { times })];
    page.table(&head, &rows);
    Ok(())
}

fn many_callers(runtime: &Runtime, callers: u32) -> Result<f64> {
    let throttle = ample()?;
    let begin = Instant::now();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let throttle = throttle.clone();
            tasks.spawn(async move {
                for _ in 0..CALLS / callers {
                    drop(throttle.acquire(UP).await?);
                }
                Result::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Result::Ok(())
    })?;
    Ok(nanos_each(begin.elapsed(), CALLS as usize))
}

/// None of the limits is the one that governs.
fn many_limits(runtime: &Runtime, limits: u32) -> Result<f64> {
    let windows = [1, 60, 3_600, 86_400].map(Duration::from_secs);
    let limit = |upstream: Upstream, window| upstream.limit(Limit::new(AMPLE, window));
    let throttle = throttle(windows.into_iter().take(limits as usize).fold(Upstream::new(UP), limit))?;
    calls(runtime, &throttle, CALLS, 1)
}

fn costly(runtime: &Runtime, cost: u32) -> Result<f64> {
    calls(runtime, &ample()?, (UNITS / cost).min(CALLS / 4), cost)
}

fn calls(runtime: &Runtime, throttle: &Throttle, times: u32, cost: u32) -> Result<f64> {
    let begin = Instant::now();
    runtime.block_on(async {
        for _ in 0..times {
            drop(throttle.try_acquire(UP).cost(cost).await?);
        }
        Result::Ok(())
    })?;
    Ok(nanos_each(begin.elapsed(), times as usize))
}

fn many_logs(runtime: &Runtime, logs: u32) -> Result<f64> {
    let store = MemoryStore::new();
    let names = ["calls", "tokens", "points", "bytes"].into_iter().take(logs as usize);
    let logs: Arc<[Log]> = names.map(|name| Log::new(name, [Term::new(AMPLE, 1_050_000)])).collect();
    let charges: Arc<[u32]> = logs.iter().map(|_| 1).collect();
    let ask = Ask::new(logs, vec![Run::new(1, charges)]);
    let mut message = Message::new(UP, MessageId::new(1, "", 0), ask);
    let begin = Instant::now();
    let granted = runtime.block_on(async {
        let mut granted = 0;
        for number in 1..=u64::from(CALLS) {
            message.id.number = number;
            granted += usize::from(store.apply(&message).await?.grant().is_some_and(|grant| grant.all_now));
        }
        Result::Ok(granted)
    })?;
    let elapsed = begin.elapsed();
    expect(granted, CALLS as usize, "granted")?;
    Ok(nanos_each(elapsed, CALLS as usize))
}
