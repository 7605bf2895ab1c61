//! What a process knows of the log time of an upstream.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::bounds::{Bounds, Exchange, Placing};
use super::pacing::late_at_most;
use crate::ledger::Stamp;

/// A machine was suspended when the time since it booted is ahead of the time that it ran by so much more than before.
const SUSPENDED: Duration = Duration::from_millis(100);

/// The log time of one upstream, as far as its replies tell.
#[derive(Debug)]
pub(crate) struct LogTime {
    bounds: Mutex<Bounds>,
    /// The newest that any reply told; the least number where none has.
    known: AtomicI64,
    slept: Mutex<Slept>,
}

/// What is known of log time at some moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outlook {
    /// What it is at least: it goes on since the newest that any reply told.
    pub(crate) known: Option<Stamp>,
    /// What it is at the latest, where the store's clock has leapt ahead of that.
    pub(crate) latest: Option<Stamp>,
    /// How far ahead of now a start has to be, so that it has not passed when the answer is here.
    pub(crate) ahead: Duration,
    /// What an answer takes where nothing holds it up.
    pub(crate) round_trip: Duration,
}

impl LogTime {
    pub(crate) fn new() -> Self {
        Self::since(Instant::now())
    }

    /// Of a process whose own time counts from `epoch`.
    pub(crate) fn since(epoch: Instant) -> Self {
        Self {
            bounds: Mutex::new(Bounds::since(epoch)),
            known: AtomicI64::new(i64::MIN),
            slept: Mutex::new(Slept::default()),
        }
    }

    /// Takes note of an exchange with the store, and says where the stamps of its reply lie. `None`: the store's clock has leapt, and
    /// the next ask says so.
    pub(crate) fn exchanged(&self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Option<Placing> {
        let mut bounds = self.bounds();
        let placing = bounds.exchanged(exchange, stamp, fine).or_else(|| {
            // Seen from a machine that was suspended everybody else's clock has leapt.
            let slept = self.slept.lock().unwrap_or_else(PoisonError::into_inner).has_slept();
            slept.then(|| bounds.begin_anew(exchange, stamp, fine))
        })?;
        drop(bounds);
        self.known.fetch_max(stamp.as_micros(), Ordering::Relaxed);
        Some(placing)
    }

    /// What is known at `now`, for slots that are stale so long after their start.
    pub(crate) fn outlook(&self, stale_after: Duration, now: Instant) -> Outlook {
        let bounds = self.bounds();
        let ahead = bounds.ahead(late_at_most(stale_after), now);
        let (latest, round_trip) = (bounds.latest_before_leap(now), bounds.round_trip());
        let known = self.known().max(bounds.earliest(now));
        drop(bounds);
        Outlook { known, latest, ahead, round_trip }
    }

    /// What log time is at `now` at the earliest and at the latest.
    pub(crate) fn bounds_at(&self, now: Instant) -> Option<(Stamp, Stamp)> {
        let bounds = self.bounds();
        Some((bounds.earliest(now)?, bounds.latest(now)))
    }

    /// What another log time was at the earliest when this one was `stamp`, by what is known at `now` of both.
    pub(crate) fn of_other(&self, other: &Self, stamp: Stamp, now: Instant) -> Option<Stamp> {
        let ((_, latest), (earliest, _)) = (self.bounds_at(now)?, other.bounds_at(now)?);
        Some(earliest.plus(stamp.as_micros() - latest.as_micros()))
    }

    /// The newest log time that is known.
    pub(crate) fn known(&self) -> Option<Stamp> {
        let known = self.known.load(Ordering::Relaxed);
        (known > i64::MIN).then(|| Stamp::from_micros(known))
    }

    /// Whether another exchange is due before slots can be placed.
    pub(crate) fn is_vague(&self, fine: Duration) -> bool {
        self.bounds().is_vague(fine)
    }

    /// How far ahead of now to ask for slots that are stale so long after their start.
    pub(crate) fn ahead(&self, stale_after: Duration, now: Instant) -> Duration {
        self.bounds().ahead(late_at_most(stale_after), now)
    }

    fn bounds(&self) -> MutexGuard<'_, Bounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long the machine has been suspended in all, by Linux, which counts both the time since it booted and the time that it ran.
#[derive(Debug)]
struct Slept {
    began: std::time::Instant,
    /// Since the machine booted, when this began, less what it has slept since.
    uptime: Option<Duration>,
}

impl Default for Slept {
    fn default() -> Self {
        Self { began: std::time::Instant::now(), uptime: uptime() }
    }
}

impl Slept {
    /// Whether it has slept since this was asked last.
    fn has_slept(&mut self) -> bool {
        let (Some(before), Some(now)) = (self.uptime, uptime()) else { return false };
        let slept = now.saturating_sub(before + self.began.elapsed());
        self.uptime = Some(before + slept);
        slept > SUSPENDED
    }
}

/// How long ago the machine booted.
fn uptime() -> Option<Duration> {
    let words = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(words.split_whitespace().next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_runs_has_not_slept_and_one_that_did_has_once() {
        let mut slept = Slept::default();
        assert!(!slept.has_slept());
        slept.uptime = slept.uptime.map(|uptime| uptime.saturating_sub(Duration::from_secs(1)));
        assert_eq!(slept.has_slept(), slept.uptime.is_some());
        assert!(!slept.has_slept());
    }

    #[test]
    fn log_time_goes_on_while_nobody_asks_as_far_as_clocks_agree() {
        let (time, now) = (LogTime::new(), Instant::now());
        let known = |after: u64| time.outlook(Duration::ZERO, now + Duration::from_millis(after)).known;
        assert_eq!(known(0), None);
        let exchange = Exchange { sent: now, arrived: now + Duration::from_millis(3) };
        time.exchanged(exchange, Stamp::from_micros(1_000_000), Duration::from_millis(10));
        // Clocks drift by 1 µs in 2,000.
        let expected = [(3, 1_000_000), (4, 1_001_000), (23, 1_019_990), (2_003, 2_999_000)];
        for (after, micros) in expected {
            assert_eq!(known(after), Some(Stamp::from_micros(micros)), "{after} ms");
        }
    }

    #[test]
    fn what_is_known_only_grows() {
        let (time, now) = (LogTime::new(), Instant::now());
        assert_eq!(time.known(), None);
        let exchange = |stamp| {
            let exchange = Exchange { sent: now, arrived: now };
            time.exchanged(exchange, Stamp::from_micros(stamp), Duration::ZERO);
            time.known().map(Stamp::as_micros)
        };
        assert_eq!([exchange(50), exchange(40), exchange(50)], [Some(50); 3]);
    }
}
