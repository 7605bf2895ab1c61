//! What a process knows of the difference between the store's clock and its own. Pure: time is an argument.
//!
//! A stamp was taken after its message left and before its reply arrived, so each exchange bounds the difference from both sides,
//! and the bounds of all exchanges together are narrow as soon as one of them was quick. A late reply then delays nothing but
//! itself: starts do not move with the latency.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::limit::micros;
use crate::log::Stamp;

/// Exchanges after which what is known has to do.
const ENOUGH: u32 = 4;
/// How many exchanges say what the next may take, and for how long.
const RECENT: usize = 16;
const MEMORY: Duration = Duration::from_secs(10);
/// A clock that is ahead of what is known by more than this, in microseconds, has leapt.
const LEAP: i64 = 5_000;
/// One that stays ahead for so long is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// So is one that leaps again so soon after it was taken back: two processes that disagree must not contend for ever.
const YIELDING: Duration = Duration::from_secs(10);
/// No slot is asked for further ahead than this, however late a reply was seen.
const MOST_AHEAD: Duration = Duration::from_secs(1);
/// Timers are late by up to a millisecond: so much is left for that.
const LEAST_LATE: Duration = Duration::from_millis(2);
/// Clocks drift and are slewed by 1 µs in so many at most.
const DRIFT: i64 = 2_000;
/// Starts move towards earlier by 1 µs in so many at most: whoever moves faster comes too close to what it has just sent, and to
/// what others still place late.
const CREEP: i64 = 50;

/// When a message left, and when its reply arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) sent: Instant,
    pub(crate) arrived: Instant,
}

/// The store's clock less the own lies between `lo` and `hi`, in microseconds; the own counts from `epoch`.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    epoch: Option<Instant>,
    lo: i64,
    hi: i64,
    /// The own time of the last exchange.
    at: i64,
    exchanges: u32,
    /// What stamps are placed by, once the bounds are known.
    offset: Option<i64>,
    recent: VecDeque<Recent>,
    /// When a reply was first seen that lay ahead of all that is known: the store's clock has leapt.
    leapt_at: Option<Instant>,
    /// When the store had last taken such a leap back.
    taken_back_at: Option<Instant>,
}

/// One exchange.
#[derive(Clone, Copy, Debug)]
struct Recent {
    arrived: Instant,
    /// The stamp less the own time when the reply arrived.
    lowest: i64,
    round_trip: Duration,
}

impl Recent {
    /// How long the reply was on its way, by what is known of the difference now.
    fn back(&self, offset: i64) -> Duration {
        Duration::from_micros(u64::try_from(offset.saturating_sub(self.lowest)).unwrap_or(0)).min(self.round_trip)
    }
}

/// Where the stamps of one reply lie on the own clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placing {
    epoch: Instant,
    offset: i64,
    /// By how much a stamp may lie earlier.
    pub(crate) excess: Duration,
}

impl Placing {
    pub(crate) fn place(&self, stamp: Stamp) -> Instant {
        let own = stamp.as_micros().saturating_sub(self.offset);
        let by = Duration::from_micros(own.unsigned_abs());
        let placed = if own >= 0 { self.epoch.checked_add(by) } else { self.epoch.checked_sub(by) };
        placed.unwrap_or(self.epoch)
    }
}

impl Bounds {
    /// Of a process whose own time counts from `epoch`.
    pub(crate) fn since(epoch: Instant) -> Self {
        Self { epoch: Some(epoch), ..Self::default() }
    }

    /// Takes note of an exchange, and says where its stamps lie. Bounds no wider than `fine` are narrow.
    ///
    /// `None`: the store's clock has leapt ahead of what is known, and nothing is learned of that. Where it does not come back it is
    /// believed in the end.
    pub(crate) fn exchanged(&mut self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Option<Placing> {
        if self.offset.is_some() && self.latest(exchange.arrived).is_some_and(|latest| stamp > latest.plus(LEAP)) {
            let leapt_at = *self.leapt_at.get_or_insert(exchange.sent);
            let within = |at: Instant, time| exchange.sent.saturating_duration_since(at) < time;
            // Where it was taken back and comes again, others know better.
            let insists = self.taken_back_at.is_some_and(|at| within(at, YIELDING));
            if within(leapt_at, BELIEVED) && !insists {
                return None;
            }
            return Some(self.begin_anew(exchange, stamp, fine));
        }
        if self.leapt_at.take().is_some() {
            self.taken_back_at = Some(exchange.arrived);
        }
        Some(self.learn(exchange, stamp, fine))
    }

    /// Forgets all before an exchange.
    pub(crate) fn begin_anew(&mut self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Placing {
        (self.exchanges, self.offset, self.leapt_at) = (0, None, None);
        self.learn(exchange, stamp, fine)
    }

    /// What the store's clock shows at `now` at the latest, by all that is known.
    fn latest(&self, now: Instant) -> Option<Stamp> {
        let own = micros(now.saturating_duration_since(self.epoch?));
        let drift = (own - self.at).max(0) / DRIFT;
        Some(Stamp::from_micros(own.saturating_add(self.hi).saturating_add(drift)))
    }

    /// The same, where the clock has leapt ahead of it.
    pub(crate) fn latest_before_leap(&self, now: Instant) -> Option<Stamp> {
        self.leapt_at.and_then(|_| self.latest(now))
    }

    fn learn(&mut self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Placing {
        let epoch = *self.epoch.get_or_insert(exchange.sent);
        let own = |at: Instant| micros(at.saturating_duration_since(epoch));
        let (left, arrived, stamped) = (own(exchange.sent), own(exchange.arrived), stamp.as_micros());
        let (lowest, highest) = (stamped.saturating_sub(arrived), stamped.saturating_sub(left));
        let elapsed = (arrived - self.at).max(0);
        let drift = elapsed / DRIFT;
        let (lo, hi) = (self.lo.saturating_sub(drift).max(lowest), self.hi.saturating_add(drift).min(highest));
        if self.exchanges == 0 || lo > hi {
            if self.exchanges > 0 {
                tracing::debug!(by = lo.saturating_sub(hi), "store clock stepped");
            }
            (self.lo, self.hi, self.exchanges, self.offset) = (lowest, highest, 0, None);
        } else {
            (self.lo, self.hi) = (lo, hi);
        }
        (self.at, self.exchanges) = (self.at.max(arrived), self.exchanges.saturating_add(1));
        self.follow(elapsed, fine);
        let round_trip = exchange.arrived.saturating_duration_since(exchange.sent);
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(Recent { arrived: exchange.arrived, lowest, round_trip });
        self.placing(epoch, fine)
    }

    /// Places stamps by the middle of the bounds, once they are known: wrong by half their width at most. What moves starts towards
    /// later holds at once.
    fn follow(&mut self, elapsed: i64, fine: Duration) {
        let middle = self.lo + self.hi.saturating_sub(self.lo) / 2;
        if let Some(offset) = self.offset {
            self.offset = Some(middle.min(offset.saturating_add(elapsed / CREEP)));
        } else if self.is_known(fine) {
            self.offset = Some(middle);
        }
    }

    /// By the later of the bounds until they are known.
    fn placing(&self, epoch: Instant, fine: Duration) -> Placing {
        match self.offset {
            Some(offset) => Placing { epoch, offset, excess: self.error(2 * fine) },
            None => Placing { epoch, offset: self.lo, excess: self.width() },
        }
    }

    fn width(&self) -> Duration {
        Duration::from_micros(self.hi.saturating_sub(self.lo).unsigned_abs())
    }

    /// By how much the middle may place too late, as far as that leaves something of what may be late.
    fn error(&self, tolerated: Duration) -> Duration {
        (self.width() / 2).min(tolerated.saturating_sub(LEAST_LATE.max(tolerated / 4)))
    }

    fn is_known(&self, fine: Duration) -> bool {
        self.hi.saturating_sub(self.lo) <= micros(fine) || self.exchanges >= ENOUGH
    }

    /// How many more exchanges it takes until slots can be placed; none before the first, which may do.
    pub(crate) fn missing(&self, fine: Duration) -> u32 {
        if self.exchanges == 0 || self.is_known(fine) { 0 } else { ENOUGH - self.exchanges }
    }

    /// How far ahead of now to ask for slots that may be late by `tolerated`: as long as replies were on their way lately, the
    /// last one and the slowest but one. A process whose replies are quick asks from now on.
    pub(crate) fn ahead(&self, tolerated: Duration, now: Instant) -> Duration {
        let recent = |(_, one): &(usize, &Recent)| now.saturating_duration_since(one.arrived) < MEMORY;
        let (mut slowest, mut second, mut last) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for (n, one) in self.recent.iter().enumerate().take_while(recent) {
            let back = one.back(self.offset.unwrap_or(self.hi));
            second = second.max(back.min(slowest));
            slowest = slowest.max(back);
            last = if n == 0 { back } else { last };
        }
        let (back, left) = (last.max(second), tolerated.saturating_sub(self.error(tolerated)));
        if back <= left / 2 { Duration::ZERO } else { back.saturating_sub(left / 4).min(MOST_AHEAD) }
    }

    /// What an exchange takes when nothing holds it up.
    pub(crate) fn round_trip(&self) -> Duration {
        self.recent.iter().take(RECENT / 2).map(|one| one.round_trip).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000;
    const FINE: Duration = Duration::from_millis(12);
    const TOLERATED: Duration = Duration::from_millis(25);
    /// The store's clock less the own, at first.
    const OFFSET: i64 = 1_795_170_949_790_213;

    struct Process {
        bounds: Bounds,
        epoch: Instant,
        now: i64,
        /// The store's clock less the own.
        offset: i64,
    }

    impl Process {
        fn new() -> Self {
            Self { bounds: Bounds::default(), epoch: Instant::now(), now: 0, offset: OFFSET }
        }

        fn own(&self, at: i64) -> Instant {
            self.epoch + Duration::from_micros(at.unsigned_abs())
        }

        /// An exchange whose ways there and back take so long; by how much its stamp is placed too late.
        fn exchange(&mut self, there: i64, back: i64) -> (i64, Placing) {
            let (sent, stamped, arrived) = (self.now, self.now + there, self.now + there + back);
            let exchange = Exchange { sent: self.own(sent), arrived: self.own(arrived) };
            let stamp = Stamp::from_micros(stamped + self.offset);
            let placing = self.bounds.exchanged(exchange, stamp, FINE).expect("no leap");
            let placed = micros(placing.place(stamp).saturating_duration_since(self.epoch));
            self.now = arrived;
            (placed - stamped, placing)
        }

        fn ahead(&self) -> i64 {
            micros(self.bounds.ahead(TOLERATED, self.own(self.now)))
        }
    }

    #[test]
    fn one_quick_exchange_places_all_later_stamps() {
        let mut process = Process::new();
        let (late, placing) = process.exchange(100, 300);
        assert_eq!((late, placing.excess, process.bounds.missing(FINE)), (100, Duration::from_micros(200), 0));
        for back in [40, 300, 5, 200, 0].map(|ms| ms * MS) {
            process.now += 50 * MS;
            let (late, placing) = process.exchange(150, back);
            assert!(late.abs() <= 500, "{late}");
            assert!(placing.excess <= Duration::from_micros(500), "{:?}", placing.excess);
        }
    }

    #[test]
    fn a_first_exchange_that_is_slow_places_late_and_says_by_how_much() {
        let mut process = Process::new();
        let (late, placing) = process.exchange(900 * MS, 100);
        assert_eq!((late, placing.excess), (100, Duration::from_micros(900_100)), "at the latest that it may be");
        assert_eq!(process.bounds.missing(FINE), 3);
        let (late, placing) = process.exchange(100, 100);
        assert_eq!((late, placing.excess), (0, Duration::from_micros(100)));
        assert_eq!(process.bounds.missing(FINE), 0);
    }

    #[test]
    fn a_delay_on_one_way_costs_half_of_itself() {
        let mut process = Process::new();
        for _ in 0..4 {
            process.exchange(0, 80 * MS);
        }
        let (late, placing) = process.exchange(0, 80 * MS);
        assert!((40 * MS..41 * MS).contains(&late), "{late}");
        assert_eq!(placing.excess, 2 * FINE * 3 / 4, "which leaves little time to be late");
        let mut process = Process::new();
        for _ in 0..4 {
            process.exchange(40 * MS, 40 * MS);
        }
        assert!(process.exchange(40 * MS, 40 * MS).0.abs() < MS);
    }

    #[test]
    fn clocks_that_drift_apart_are_followed() {
        for drift in [-1, 1] {
            let mut process = Process::new();
            for second in 0..3_600 {
                // 400 ppm, and a quick exchange now and then.
                process.offset += drift * 400;
                process.now += 1_000 * MS;
                let back = if second % 10 == 0 { 200 } else { 60 * MS };
                let (late, _) = process.exchange(200, back);
                assert!(late.abs() <= 6 * MS, "{drift}: {late} µs late in second {second}");
            }
        }
    }

    #[test]
    fn a_step_back_begins_the_bounds_anew() {
        for step in [-3_600_000 * MS, -200 * MS, -MS] {
            let mut process = Process::new();
            process.exchange(100, 100);
            process.offset += step;
            process.now += 100 * MS;
            let (late, placing) = process.exchange(100, 100);
            assert_eq!((late, placing.excess), (0, Duration::from_micros(100)), "{step}");
        }
    }

    #[test]
    fn a_leap_ahead_is_not_believed_for_a_second_and_told_meanwhile() {
        let mut process = Process::new();
        process.exchange(100, 100);
        let before = process.offset;
        process.offset += 10_000 * MS;
        for (after, believed) in [(100, false), (500, false), (1_099, false), (1_100, true)] {
            let now = process.own(after * MS);
            let stamp = Stamp::from_micros(after * MS + process.offset);
            let placing = process.bounds.exchanged(Exchange { sent: now, arrived: now }, stamp, FINE);
            assert_eq!(placing.is_some(), believed, "{after}");
            let told = process.bounds.latest_before_leap(now).map(|latest| latest.as_micros() - after * MS - before);
            assert!(
                if believed { told.is_none() } else { told.is_some_and(|over| (0..MS).contains(&over)) },
                "{told:?}"
            );
        }
        let mut process = Process::new();
        process.exchange(100, 100);
        process.offset += 10_000 * MS;
        let now = process.own(MS);
        let stamp = Stamp::from_micros(MS + process.offset);
        assert!(process.bounds.exchanged(Exchange { sent: now, arrived: now }, stamp, FINE).is_none());
        process.offset -= 10_000 * MS;
        assert!(process.exchange(100, 100).0.abs() <= 100, "the store was told, and has corrected it");
        assert_eq!(process.bounds.latest_before_leap(now), None);
    }

    #[test]
    fn starts_move_slowly_towards_earlier_and_at_once_towards_later() {
        let mut process = Process::new();
        for _ in 0..4 {
            process.exchange(0, 200 * MS);
        }
        assert!(process.exchange(0, 100).0 > 99 * MS, "what was sent just before was as late");
        for ms in [80, 60, 40, 20, 0] {
            process.now += 1_000 * MS;
            assert_eq!((process.exchange(0, 100).0 + MS / 2) / MS, ms);
        }
        let mut process = Process::new();
        for _ in 0..4 {
            process.exchange(200 * MS, 0);
        }
        let (late, _) = process.exchange(0, 100);
        assert!((0..MS).contains(&late), "{late}");
    }

    #[test]
    fn slots_are_asked_for_as_far_ahead_as_replies_take() {
        let mut process = Process::new();
        process.exchange(100, 100);
        assert_eq!(process.ahead(), 0);
        process.exchange(100, 300 * MS);
        assert_eq!(process.ahead() / MS, 293, "what the last took, less a quarter of what may be late");
        process.exchange(100, 100);
        assert_eq!(process.ahead(), 0, "one slow reply is none that the next is expected to be like");
        for _ in 0..2 {
            process.exchange(100, 60 * MS);
        }
        for _ in 0..14 {
            process.exchange(100, 100);
            assert_eq!(process.ahead() / MS, 53, "but two are");
        }
        process.exchange(100, 100);
        assert_eq!(process.ahead(), 0);
        for _ in 0..2 {
            process.exchange(100, 60 * MS);
        }
        process.exchange(100, 100);
        process.now += 11_000 * MS;
        assert_eq!(process.ahead(), 0, "and not for ever");
    }
}
