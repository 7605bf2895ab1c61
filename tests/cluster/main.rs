//! Clusters of real processes against upstreams that insist on their limits.
//!
//! `cargo test --test cluster -- --nocapture` shows what each sent.

mod approximating;
mod cluster;
mod cold;
mod costs;
mod crowds;
mod evidence;
mod fleet;
mod foreign;
mod hiccups;
mod latency;
mod lowered;
mod narrow;
mod outcome;
mod seats;
mod settings;
mod shapes;
mod table;
mod together;
mod travel;
mod watch;
mod worker;

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Outcome = Result<(), Box<dyn Error>>;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Held while a test has the machine to itself: processes that start elsewhere would make its calls late.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
#[ignore = "a worker process: the cluster tests start it"]
fn worker() -> Outcome {
    settings::Settings::take().map_or(Ok(()), worker::run)
}
