//! Whether the machine left a run alone: where it stands still itself, calls are late whoever throttles them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Outcome, ms};

/// How often a run is made again that failed while the machine disturbed it.
const ATTEMPTS: u32 = 5;

/// How much of a run others on the same host may take from the machine's processors where it counts as quiet: it is taken from
/// one in pieces of 5 ms and more, which the thread that watches does not see on another.
const MOST_STOLEN: f64 = 0.01;

/// Some virtual machines lose memory that nobody touches, page by page, within a second: a process that rests then needs many
/// milliseconds to wake, though a thread that sleeps for a millisecond is woken on time.
const PAGES: usize = 1_024;
const STRIDE: usize = 3 * 4_096;

/// What the machine may do in a run that has to succeed: wake a sleeping thread later than this, so many times. To be late for
/// many times as long counts as often: all that was due meanwhile is late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    pub(crate) late: Duration,
    pub(crate) times: u128,
}

impl Quiet {
    /// For calls that a guard of 50 ms protects: half of it is for slots that are used late.
    pub(crate) const FOR_50_MS: Self = Self { late: ms(10), times: 0 };
}

/// What a machine that stands still may have done as well.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Excusable {
    what: String,
    /// If it stood still for so long.
    standstill: Duration,
}

/// Fails, but not for good where the machine was not quiet.
pub(crate) fn demand(met: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    demand_unless(Duration::ZERO, met, otherwise)
}

/// Fails, but not for good where the machine stood still for so long and was not quiet.
pub(crate) fn demand_unless(standstill: Duration, met: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if met { Ok(()) } else { Err(Box::new(Excusable { what: otherwise(), standstill })) }
}

/// The same, of what fails by a panic.
pub(crate) fn demand_no_panic(what: impl FnOnce()) -> Outcome {
    demand(catch_unwind(AssertUnwindSafe(what)).is_ok(), || "see above".to_owned())
}

/// Makes a run. One that fails excusably while the machine was not quiet shows nothing, and is made again. Where the machine is
/// never quiet it cannot be shown, and the output says so; what no machine excuses fails even then.
pub(crate) fn undisturbed(quiet: Quiet, run: impl Fn() -> Outcome) -> Outcome {
    for attempt in 1..=ATTEMPTS {
        let (begun, stolen_before) = (Instant::now(), stolen());
        let (outcome, late, slow_memory) = watched(quiet.late, &run);
        let stolen = stolen().saturating_sub(stolen_before);
        let is_stolen = stolen > begun.elapsed().mul_f64(MOST_STOLEN);
        let (times, longest) = (late.len(), late.iter().max().copied().unwrap_or_default());
        let is_late = late.iter().map(|slept| slept.as_micros() / quiet.late.as_micros()).sum::<u128>() > quiet.times;
        let is_cold = slow_memory.len() as u128 > quiet.times;
        let slowest = slow_memory.iter().max().copied().unwrap_or_default();
        let is_excused = |error: &Excusable| (is_late || is_stolen || is_cold) && longest >= error.standstill;
        let Err(error) = outcome else { return Ok(()) };
        let how_late = format!("more than {:?} late {times} times, by {longest:.2?} at most", quiet.late);
        println!(
            "attempt {attempt}: {error}; a thread was woken {how_late}; {stolen:?} were taken from the processors; memory that \
             nobody touched for a second took longer {} times, {slowest:.2?} at most",
            slow_memory.len()
        );
        if !error.downcast_ref().is_some_and(is_excused) {
            return Err(error);
        }
    }
    println!("NOT SHOWN: the machine was not quiet in any of {ATTEMPTS} attempts");
    Ok(())
}

/// For how long others on the same host have had this machine's processors while something here was ready to run. Zero where the
/// system does not say.
fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|all| all.split_whitespace().nth(8)).and_then(|ticks| ticks.parse().ok());
    // Linux counts in hundredths of a second for programs, however fast it ticks.
    ms(10) * ticks.unwrap_or(0)
}

/// What a run comes to, and how late the machine meanwhile woke a thread that did nothing but sleep, each time that was more than
/// tolerated; and how long memory took which nobody had touched for a second, each time the same.
fn watched<T>(tolerated: Duration, run: impl FnOnce() -> T) -> (T, Vec<Duration>, Vec<Duration>) {
    let over = AtomicBool::new(false);
    let watch = || {
        let mut late = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let asleep = Instant::now();
            thread::sleep(ms(1));
            late.extend(Some(asleep.elapsed()).filter(|&slept| slept > tolerated));
        }
        late
    };
    let touch = || {
        let (mut memory, mut slow) = (vec![0_u8; PAGES * STRIDE], Vec::new());
        touch_all(&mut memory);
        while !over.load(Ordering::Relaxed) {
            let rests = Instant::now();
            while rests.elapsed() < Duration::from_secs(1) && !over.load(Ordering::Relaxed) {
                thread::sleep(ms(50));
            }
            slow.extend(Some(touch_all(&mut memory)).filter(|&took| took > tolerated));
        }
        slow
    };
    thread::scope(|scope| {
        let (watch, touch) = (scope.spawn(watch), scope.spawn(touch));
        let outcome = catch_unwind(AssertUnwindSafe(run));
        over.store(true, Ordering::Relaxed);
        let late = watch.join().unwrap_or_else(|panic| resume_unwind(panic));
        let slow_memory = touch.join().unwrap_or_else(|panic| resume_unwind(panic));
        (outcome.unwrap_or_else(|panic| resume_unwind(panic)), late, slow_memory)
    })
}

/// How long it takes to touch as many pages as a process with a client for HTTP does when it wakes, far apart.
fn touch_all(memory: &mut [u8]) -> Duration {
    let begun = Instant::now();
    memory.iter_mut().step_by(STRIDE).for_each(|byte| *byte = byte.wrapping_add(1));
    std::hint::black_box(memory);
    begun.elapsed()
}
