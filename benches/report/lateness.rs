//! How late a caller wakes after its slot, in real time.

use std::thread;
use std::time::Duration;

use outgate::{Limit, Upstream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::page::{Page, Target};
use crate::spread::Spread;
use crate::throttles::{UP, throttle};
use crate::turns::{Result, cell, expect, runtime};

const ROUNDS: usize = 5;

const PROSE: &str = "Every caller is a task in one queue of a `MemoryStore`, on a runtime of one thread. The quota is used up \
    by a call whose moment is known, and so is the earliest at which each caller may go by the rule: what is shown is how \
    much later it went, in milliseconds. The timer itself counts whole ones. Callers are served in their order, or the \
    measurement fails.";

/// Callers that wait for slots.
struct Case {
    name: &'static str,
    waiters: u32,
    limit: Limit,
    /// So many slots at once …
    batch: u32,
    /// … this long after those before.
    span: Duration,
    rounds: usize,
}

/// The middle and the last of those who wait.
pub(crate) fn run(page: &mut Page) -> Result {
    page.section("Waking up");
    page.text(PROSE);
    let second = Limit::per_second(1_000);
    // The span of a burst is its part of window and guard.
    let even = Limit::new(10_000, Duration::from_secs(10)).burst(1);
    let cases = [
        Case {
            name: "1,000 waiters, a slot each millisecond",
            waiters: 1_000,
            limit: even.clone(),
            batch: 1,
            span: (even.window() + even.guard_or_default()) / 10_000,
            rounds: ROUNDS,
        },
        Case {
            name: "1,000 waiters, all slots at once",
            waiters: 1_000,
            limit: Limit::new(1_000, Duration::from_millis(300)).guard(Duration::from_millis(100)),
            batch: 1_000,
            span: Duration::from_millis(400),
            rounds: ROUNDS,
        },
        Case {
            name: "10,000 waiters, 1,000 slots at once each second",
            waiters: 10_000,
            limit: second.clone(),
            batch: 1_000,
            span: second.window() + second.guard_or_default(),
            rounds: 1,
        },
    ];
    let mut rows = Vec::new();
    for case in &cases {
        let parts = (0..case.rounds).map(|round| late(case, round)).collect::<Result<Vec<_>>>()?;
        let [half, most, last] = [0, 1, 2].map(|part| Spread::of(parts.iter().map(|parts| parts[part]).collect()));
        if case.waiters == 1_000 {
            page.target(&format!("late after the slot, {}: p50", case.name), half, " ms", Target::AtMost(1.5));
            page.target(&format!("late after the slot, {}: p99", case.name), most, " ms", Target::AtMost(5.0));
        }
        rows.push(vec![case.name.to_owned(), cell(half, 2), cell(most, 2), cell(last, 2)]);
    }
    page.table(&["milliseconds late", "p50", "p99", "last"], &rows);
    Ok(())
}

/// Milliseconds after their slots at which the median caller, 99 of 100, and the latest went.
fn late(case: &Case, round: usize) -> Result<[f64; 3]> {
    let mut late = runtime()?.block_on(wait(case, round))?;
    late.sort_by(f64::total_cmp);
    let part = |parts: usize| late.get(late.len() * parts / 1_000).copied();
    Ok([part(500), part(990), late.last().copied()].map(|part| part.unwrap_or(f64::NAN)))
}

async fn wait(case: &Case, round: usize) -> Result<Vec<f64>> {
    let throttle = throttle(Upstream::new(UP).limit(case.limit.clone()))?;
    // Each round begins in another part of the timer's milliseconds.
    thread::sleep(Duration::from_micros(200 * round as u64));
    let begin = Instant::now();
    drop(throttle.acquire(UP).cost(case.batch).await?);
    let (mut tasks, mut late) = (JoinSet::new(), Vec::new());
    for caller in 0..case.waiters {
        let (throttle, start) = (throttle.clone(), begin + case.span * (1 + caller / case.batch));
        tasks.spawn(async move {
            let permit = throttle.acquire(UP).await;
            let gone = Instant::now();
            permit.map(|_| (caller, gone.duration_since(start).as_secs_f64() * 1e3))
        });
    }
    let mut order = Vec::new();
    while let Some(told) = tasks.join_next().await {
        let (caller, lateness) = told??;
        order.push(caller);
        late.push(lateness);
    }
    let in_order = order.iter().zip(0..).filter(|&(&caller, place)| caller == place).count();
    expect(in_order, order.len(), "served in their order")?;
    Ok(late)
}
