//! The store's clock, which steps now and then, and what messages say of it.

use fastrand::Rng;

use super::record::Record;
use crate::ledger::{Message, Stamp};

const SECOND: i64 = 1_000_000;
/// A store may forget what lies so far behind its clock: as far as a clock may leap ahead.
const FORGOTTEN: i64 = 10_500_000;

/// The store's clock, and the log time that follows from what messages say.
#[derive(Debug)]
pub(super) struct Times {
    epoch: Stamp,
    clock: i64,
    /// Log time less the clock.
    correction: i64,
    /// By how much the clock has leapt ahead of all that processes know.
    leapt: i64,
    /// The newest log time that anybody was told, and the highest that it ever was.
    newest: i64,
    highest: i64,
}

impl Times {
    /// Far from zero, so that no digit of a real stamp is spared.
    pub(super) const EPOCH: Stamp = Stamp::from_micros(1_795_170_949_790_213);

    pub(super) const fn new() -> Self {
        let start = Self::EPOCH.as_micros();
        Self { epoch: Self::EPOCH, clock: start, correction: 0, leapt: 0, newest: start, highest: start }
    }

    pub(super) const fn shift(&mut self, micros: i64) {
        self.epoch = self.epoch.plus(micros);
        (self.clock, self.newest, self.highest) = (self.clock + micros, self.newest + micros, self.highest + micros);
    }

    pub(super) const fn epoch(&self) -> Stamp {
        self.epoch
    }

    pub(super) const fn clock(&self) -> Stamp {
        Stamp::from_micros(self.clock)
    }

    /// By how much log time is ahead of the clock.
    pub(super) const fn correction(&self) -> i64 {
        self.correction
    }

    /// The log time.
    pub(super) const fn now(&self) -> Stamp {
        Stamp::from_micros(self.clock + self.correction)
    }

    /// Time passes, and sometimes the clock steps.
    pub(super) fn pass(&mut self, rng: &mut Rng, is_steady: bool, record: &Record) {
        match rng.u8(0..40) {
            0..18 => self.clock += rng.i64(0..60_000),
            18..22 => self.clock += rng.i64(0..3 * SECOND / 2),
            22 if rng.u8(0..4) == 0 => self.clock += 100 * SECOND,
            // To the moment when a slot counts no more, or beside it.
            23..26 => {
                let ends = record.some_end(rng).map_or(0, |end| end.plus(rng.i64(-1..2)).as_micros());
                self.clock += (ends - self.now().as_micros()).max(0);
            }
            26 => self.clock -= [50_000, 200_000, 10 * SECOND, 3_600 * SECOND][rng.usize(0..4)],
            27 if !is_steady => {
                self.leapt = [200_000, 10 * SECOND][rng.usize(0..2)];
                self.clock += self.leapt;
            }
            _ => {}
        }
    }

    /// Has a message say what its sender knows of log time.
    pub(super) fn tell(&mut self, rng: &mut Rng, is_steady: bool, is_copy: bool, message: &mut Message) {
        let newest = Stamp::from_micros(self.newest);
        if is_steady {
            message.known = Some(newest);
        } else if !is_copy {
            message.known = [message.known, Some(newest), None][rng.usize(0..3)];
        }
        if !is_copy {
            message.latest = self.latest(rng, is_steady, &mut message.known);
        }
        // What is forgotten after so long is no concern of the laws.
        if self.after(message).as_micros() < self.highest - FORGOTTEN {
            message.known = Some(Stamp::from_micros(self.highest - FORGOTTEN));
        }
    }

    fn latest(&mut self, rng: &mut Rng, is_steady: bool, known: &mut Option<Stamp>) -> Option<Stamp> {
        let now = self.now().as_micros();
        let latest = match rng.u8(0..20) {
            0 if is_steady => now.max(self.newest) + rng.i64(0..100_000),
            0 => now + rng.i64(-3 * SECOND..100_000),
            1..5 if self.leapt > 0 => {
                *known = known.map(|known| known.plus(-self.leapt));
                now - std::mem::take(&mut self.leapt) + rng.i64(0..3_000)
            }
            _ => return None,
        };
        Some(Stamp::from_micros(latest))
    }

    /// Log time after a message: law 13.
    fn after(&self, message: &Message) -> Stamp {
        let now = message.latest.map_or(self.now(), |latest| latest.min(self.now()));
        message.known.map_or(now, |known| known.max(now))
    }

    /// What the store makes of a message.
    pub(super) fn hear(&mut self, message: &Message) {
        self.newest = self.after(message).as_micros();
        self.highest = self.highest.max(self.newest);
        self.correction = self.newest - self.clock;
    }
}
