//! What a process knows of the difference between the store's clock and its own. Pure: time is an argument.
//!
//! A stamp was taken after its message left and before its reply arrived, so each exchange bounds the difference from both sides,
//! and the bounds of all exchanges together are narrow as soon as one of them was quick. A late reply then delays nothing but
//! itself: starts do not move with the latency.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::MAX_SILENCE;
use crate::ledger::Stamp;
use crate::ledger::micros;

/// Exchanges before which wide bounds do not do, and after which what is known has to.
const ENOUGH: usize = 4;
pub(crate) const MOST_EXCHANGES: usize = RECENT;
/// After enough exchanges bounds do that are so many times as wide as narrow ones: what their middle may be wrong by is taken from how late
/// a slot may be used, and leaves something of that.
const WIDE: u32 = 3;
/// Exchanges that lie so close together always take about as long, if chance would bring that more rarely.
const CHANCE: f64 = 1e-5;
/// One that took so small a part of the slowest was hardly held up.
const QUICK: i64 = 4;
/// How many exchanges say what the next may take, and for how long, in microseconds.
const RECENT: usize = 16;
const MEMORY: i64 = 10_000_000;
/// A clock that is ahead of what is known by more than this, in microseconds, has leapt.
const LEAP: i64 = 5_000;
/// One that stays ahead for so long is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// So is one that leaps again so soon after it was taken back: two processes that disagree must not contend for ever.
const YIELDING: Duration = Duration::from_secs(10);
/// No slot is asked for further ahead than this, however late a reply was seen.
pub(crate) const MOST_AHEAD: Duration = Duration::from_secs(1);
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
#[derive(Debug)]
pub(crate) struct Bounds {
    epoch: Instant,
    lo: i64,
    hi: i64,
    /// The own time of the last exchange.
    at: i64,
    exchanges: usize,
    /// What stamps are placed by, once the bounds are known.
    offset: Option<i64>,
    recent: VecDeque<Recent>,
    /// When a reply was first seen that lay ahead of all that is known: the store's clock has leapt.
    leapt_at: Option<Instant>,
    /// When the store had last taken such a leap back.
    taken_back_at: Option<Instant>,
}

/// One exchange, in microseconds: every ask looks at all of them.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// The own time when the reply arrived.
    arrived: i64,
    /// The stamp less that.
    lowest: i64,
    round_trip: i64,
}

impl Recent {
    /// How long the reply was on its way, by what is known of the difference now.
    fn back(&self, offset: i64) -> i64 {
        offset.saturating_sub(self.lowest).clamp(0, self.round_trip)
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
        Self {
            epoch,
            lo: 0,
            hi: 0,
            at: 0,
            exchanges: 0,
            offset: None,
            recent: VecDeque::new(),
            leapt_at: None,
            taken_back_at: None,
        }
    }

    /// Takes note of an exchange, and says where its stamps lie. Bounds no wider than `fine` are narrow.
    ///
    /// `None`: the store's clock has leapt ahead of what is known, and nothing is learned of that. Where it does not come back it is
    /// believed in the end.
    pub(crate) fn exchanged(&mut self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Option<Placing> {
        if self.offset.is_some() && stamp > self.latest(exchange.arrived).plus(LEAP) {
            let leapt_at = *self.leapt_at.get_or_insert(exchange.sent);
            let within = |at: Instant, time| exchange.sent.saturating_duration_since(at) < time;
            // Where it was taken back and comes again, others know better.
            let insists = self.taken_back_at.is_some_and(|at| within(at, YIELDING));
            if within(leapt_at, BELIEVED) && !insists {
                return None;
            }
            self.forget();
            return Some(self.learn(exchange, stamp, fine));
        }
        if self.leapt_at.take().is_some() {
            self.taken_back_at = Some(exchange.arrived);
        }
        Some(self.learn(exchange, stamp, fine))
    }

    /// Forgets all before the next exchange.
    pub(crate) const fn forget(&mut self) {
        (self.exchanges, self.offset, self.leapt_at) = (0, None, None);
    }

    /// What the store's clock shows at `now` at the latest, by all that is known.
    pub(crate) fn latest(&self, now: Instant) -> Stamp {
        let own = self.own(now);
        let drift = (own - self.at).max(0) / DRIFT;
        Stamp::from_micros(own.saturating_add(self.hi).saturating_add(drift))
    }

    /// What the store's clock shows at `now` at least, by all that is known: it goes on while nobody asks, for a while. A clock
    /// of our own that is fast must not take log time with it.
    pub(crate) fn earliest(&self, now: Instant) -> Option<Stamp> {
        let own = self.own(now).min(self.at.saturating_add(MAX_SILENCE));
        let drift = (own - self.at).max(0) / DRIFT;
        let earliest = own.saturating_add(self.lo).saturating_sub(drift);
        (self.exchanges > 0).then(|| Stamp::from_micros(earliest))
    }

    /// The own time, in microseconds.
    fn own(&self, at: Instant) -> i64 {
        micros(at.saturating_duration_since(self.epoch))
    }

    /// The same, where the clock has leapt ahead of it.
    pub(crate) fn latest_before_leap(&self, now: Instant) -> Option<Stamp> {
        self.leapt_at.map(|_| self.latest(now))
    }

    fn learn(&mut self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Placing {
        let (left, arrived, stamped) = (self.own(exchange.sent), self.own(exchange.arrived), stamp.as_micros());
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
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(Recent { arrived, lowest, round_trip: (arrived - left).max(0) });
        self.follow(elapsed, fine);
        self.placing(fine)
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
    fn placing(&self, fine: Duration) -> Placing {
        let epoch = self.epoch;
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

    /// Narrow bounds do. So do wide ones where every exchange takes about as long; where some are held up, the next may be quicker. The first
    /// may have been longer, as it had to connect.
    fn is_known(&self, fine: Duration) -> bool {
        if self.width() <= fine || self.exchanges >= MOST_EXCHANGES {
            return true;
        }
        let taken: Vec<i64> = self.recent.iter().take(self.exchanges).map(|one| one.round_trip).collect();
        let but_first = taken.split_last().map_or(&[][..], |(_, later)| later);
        self.exchanges >= ENOUGH
            && (self.width() <= WIDE * fine
                || extremes(&taken).0 <= extremes(but_first).1 / QUICK
                || is_steady(&taken)
                || is_steady(but_first))
    }

    /// Whether another exchange is due before slots can be placed; not before the first, which may do.
    pub(crate) fn is_vague(&self, fine: Duration) -> bool {
        self.exchanges > 0 && !self.is_known(fine)
    }

    /// How far ahead of now to ask for slots that may be late by `tolerated`: as long as replies were on their way lately, the
    /// last one and the slowest but one. A process whose replies are quick asks from now on.
    pub(crate) fn ahead(&self, tolerated: Duration, now: Instant) -> Duration {
        let left = tolerated.saturating_sub(self.error(tolerated));
        let near = micros(left / 2);
        // No reply was on its way for longer than its round trip.
        if self.recent.iter().all(|one| one.round_trip <= near) {
            return Duration::ZERO;
        }
        let (since, offset) = (self.own(now) - MEMORY, self.offset.unwrap_or(self.hi));
        let (mut slowest, mut second, mut last) = (0, 0, None);
        for one in self.recent.iter().take_while(|one| one.arrived > since) {
            let back = one.back(offset);
            second = second.max(back.min(slowest));
            slowest = slowest.max(back);
            last = last.or(Some(back));
        }
        let back = second.max(last.unwrap_or(0));
        let ahead = || Duration::from_micros(back.unsigned_abs()).saturating_sub(left / 4).min(MOST_AHEAD);
        if back <= near { Duration::ZERO } else { ahead() }
    }

    /// What an exchange takes when nothing holds it up: the quicker of the last two, as all may take longer from now on.
    pub(crate) fn round_trip(&self) -> Duration {
        let round_trip = self.recent.iter().take(2).map(|one| one.round_trip).min();
        Duration::from_micros(round_trip.unwrap_or(0).unsigned_abs())
    }
}

/// The shortest and the longest.
fn extremes(taken: &[i64]) -> (i64, i64) {
    (taken.iter().copied().min().unwrap_or(0), taken.iter().copied().max().unwrap_or(0))
}

/// Whether enough exchanges lie so close together as they seldom would by chance, if they took anything up to the longest.
fn is_steady(taken: &[i64]) -> bool {
    let (quickest, slowest) = extremes(taken);
    let [between, longest] = [slowest - quickest, slowest.max(1)].map(|of| Duration::from_micros(of.unsigned_abs()));
    let close = between.div_duration_f64(longest);
    // Any of them may be the longest.
    let chance = taken.iter().skip(1).fold(1.0, |chance, _| chance * close)
        * f64::from(u32::try_from(taken.len()).unwrap_or(u32::MAX));
    taken.len() >= ENOUGH && chance <= CHANCE
}
