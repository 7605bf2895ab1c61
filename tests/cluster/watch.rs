//! Whether the machine left a run alone: where it stands still itself, calls are late whoever throttles them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Outcome, ms};

/// How often a run is made again that failed while the machine disturbed it.
const ATTEMPTS: u32 = 5;

/// What the machine may do in a run that has to succeed: wake a sleeping thread later than this, so many times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    pub(crate) late: Duration,
    pub(crate) times: usize,
}

impl Quiet {
    /// For calls that a guard of 50 ms protects: half of it is for slots that are used late.
    pub(crate) const FOR_50_MS: Self = Self { late: ms(10), times: 0 };
}

/// What a machine that stands still may have done as well.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Excusable(String);

/// Fails, but not for good where the machine was not quiet.
pub(crate) fn demand(met: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if met { Ok(()) } else { Err(Box::new(Excusable(otherwise()))) }
}

/// The same, of what fails by a panic.
pub(crate) fn demand_no_panic(what: impl FnOnce()) -> Outcome {
    demand(catch_unwind(AssertUnwindSafe(what)).is_ok(), || "see above".to_owned())
}

/// Makes a run. One that fails excusably while the machine was not quiet shows nothing, and is made again. Where the machine is
/// never quiet it cannot be shown, and the output says so; what no machine excuses fails even then.
pub(crate) fn undisturbed(quiet: Quiet, run: impl Fn() -> Outcome) -> Outcome {
    for attempt in 1..=ATTEMPTS {
        let (outcome, late) = watched(quiet.late, &run);
        match outcome {
            Err(error) if error.is::<Excusable>() && late > quiet.times => {
                println!("attempt {attempt}: {error}; a thread was woken more than {:?} late {late} times", quiet.late);
            }
            outcome => return outcome,
        }
    }
    println!("NOT SHOWN: the machine was not quiet in any of {ATTEMPTS} attempts");
    Ok(())
}

/// What a run comes to, and how often the machine meanwhile woke a thread late that did nothing but sleep.
fn watched<T>(tolerated: Duration, run: impl FnOnce() -> T) -> (T, usize) {
    let (over, late) = (AtomicBool::new(false), AtomicUsize::new(0));
    let watch = || {
        while !over.load(Ordering::Relaxed) {
            let asleep = Instant::now();
            thread::sleep(ms(1));
            late.fetch_add(usize::from(asleep.elapsed() > tolerated), Ordering::Relaxed);
        }
    };
    let outcome = thread::scope(|scope| {
        scope.spawn(watch);
        let outcome = catch_unwind(AssertUnwindSafe(run));
        over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    });
    (outcome, late.into_inner())
}
