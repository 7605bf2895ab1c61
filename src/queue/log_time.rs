//! What a process knows of the log time of an upstream.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::bounds::{Bounds, Exchange, Placing};
use super::pacing::late_at_most;
use super::suspension::{Clocks, Suspended};
use crate::ledger::Stamp;

/// The log time of one upstream, as far as its replies tell.
#[derive(Debug)]
pub(crate) struct LogTime {
    bounds: Mutex<Bounds>,
    /// The newest that any reply told; the least number where none has.
    known: AtomicI64,
    noticed: Mutex<Noticed>,
}

/// What was noticed of the machine's own clocks.
#[derive(Debug, Default)]
struct Noticed {
    clocks: Clocks,
    /// How often time passed in which this process did not run.
    times: u32,
    /// When that was noticed last, of a machine that was certainly suspended.
    suspended_at: Option<Instant>,
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
        Self { bounds: Mutex::new(Bounds::since(epoch)), known: AtomicI64::new(i64::MIN), noticed: Mutex::default() }
    }

    /// Takes note of an exchange with the store, and says where the stamps of its reply lie. `None`: the store's clock has leapt, and
    /// the next ask says so; or the machine was suspended meanwhile, and nobody knows how old the reply is.
    pub(crate) fn exchanged(&self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Option<Placing> {
        if self.look().suspended_at.is_some_and(|at| exchange.sent < at) {
            return None;
        }
        let placing = self.bounds().exchanged(exchange, stamp, fine)?;
        self.known.fetch_max(stamp.as_micros(), Ordering::Relaxed);
        Some(placing)
    }

    /// How often time is known to have passed in which this process did not run: each time all slots of before are too late.
    pub(crate) fn suspensions(&self) -> u32 {
        self.look().times
    }

    /// Looks at the machine's clocks. Where it was suspended nothing is known of the store's any more: seen from here it has leapt.
    fn look(&self) -> MutexGuard<'_, Noticed> {
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        let suspended = noticed.clocks.look();
        if suspended > Suspended::No {
            noticed.times = noticed.times.wrapping_add(1);
        }
        if suspended == Suspended::Certainly {
            noticed.suspended_at = Some(Instant::now());
            self.bounds().forget();
        }
        noticed
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

    /// As if the machine had been suspended just now, for so long.
    #[cfg(test)]
    pub(crate) fn pretend_to_be_suspended(&self, slept: Duration) {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner).clocks.pretend_to_be_suspended(slept);
    }

    fn bounds(&self) -> MutexGuard<'_, Bounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_said_before_a_machine_was_suspended_says_nothing_of_the_time_after() {
        let epoch = Instant::now();
        let time = LogTime::since(epoch);
        let at = |ms: u64| epoch + Duration::from_millis(ms);
        let fine = Duration::from_millis(10);
        let exchanged = |sent, arrived, stamp: i64| {
            let exchange = Exchange { sent: at(sent), arrived: at(arrived) };
            let placing = time.exchanged(exchange, Stamp::from_micros(stamp), fine);
            placing.map(|placing| placing.place(Stamp::from_micros(stamp)).duration_since(epoch).as_millis())
        };
        assert_eq!(exchanged(0, 1, 500), Some(0));
        assert_eq!(exchanged(1, 2, 1_500), Some(1));
        let times = time.suspensions();
        // For a second, in which the reply to a message lay here.
        time.pretend_to_be_suspended(Duration::from_secs(1));
        assert_eq!(exchanged(0, 3, 2_500), None, "nobody knows how old it is");
        assert_eq!((time.suspensions(), time.suspensions()), (times + 1, times + 1));
        assert_eq!(time.outlook(Duration::ZERO, at(3)).latest, None, "the store's clock has not leapt");
        // Where time is not paused some of it has passed.
        let sent = u64::try_from(Instant::now().duration_since(epoch).as_millis()).unwrap() + 1;
        assert_eq!(exchanged(sent, sent + 1, 1_004_500), Some(u128::from(sent)));
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
