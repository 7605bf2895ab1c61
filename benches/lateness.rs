//! How late a caller wakes after its slot: 10,000 waiters in one line at 1,000 calls per second, in real time.
//!
//! `cargo bench --bench lateness`

use std::process::ExitCode;
use std::time::{Duration, Instant};

use outgate::{Limit, Throttle, Upstream};

const WAITERS: usize = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let upstream = Upstream::new("up").limit(Limit::per_second(1_000));
    let Ok(throttle) = Throttle::builder().upstream(upstream).build() else { return ExitCode::FAILURE };
    let begin = Instant::now();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for caller in 0..WAITERS {
        let (throttle, tell) = (throttle.clone(), tell.clone());
        tokio::spawn(async move {
            if let Ok(permit) = throttle.acquire("up").await {
                let _ = tell.send((caller, permit.late()));
            }
        });
    }
    drop(tell);
    let (mut order, mut late) = (Vec::with_capacity(WAITERS), Vec::with_capacity(WAITERS));
    while let Some((caller, lateness)) = told.recv().await {
        order.push(caller);
        late.push(lateness);
    }
    late.sort_unstable();
    let part = |parts: usize| late.get(late.len() * parts / 1_000).copied().unwrap_or(Duration::MAX);
    println!("{} served in {:.2?}, in order: {}", order.len(), begin.elapsed(), order.is_sorted());
    println!("late after the slot: p50 {:.2?}, p99 {:.2?}, max {:.2?}", part(500), part(990), part(1_000 - 1));
    ExitCode::SUCCESS
}
