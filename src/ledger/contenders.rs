//! How many queues have callers that wait for a scope: counted by periods, so that who crashed is forgotten.

use super::{MAX_SILENCE, Stamp};

/// Queues whose callers wait: those that asked in this period, and those of the one before that have not come back yet.
///
/// A queue is told the end of the period that it was counted in, and says it with its next ask; who says nothing for two
/// periods is counted no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contenders {
    ends: Stamp,
    count: u32,
    ended: Stamp,
    count_before: u32,
    length: i64,
}

impl Contenders {
    /// Nobody waits, in a period that begins now.
    pub(super) fn none(now: Stamp, length: i64) -> Self {
        Self { ends: now.plus(length), count: 0, ended: Stamp::NEVER, count_before: 0, length }
    }

    /// How long a period is: nobody who waits is silent for as long.
    pub(super) fn period(retention: i64, horizon: i64) -> i64 {
        retention.max(horizon.saturating_mul(8)).min(MAX_SILENCE).saturating_add(horizon.saturating_mul(2))
    }

    /// Who waits at `now`, in the next period where this one has ended.
    pub(super) fn at(self, now: Stamp, length: i64) -> Self {
        let began = self.ends.plus(-self.length);
        if began <= now && now < self.ends {
            return self;
        }
        let next = Self::none(now, length);
        // One that has not begun is of a leap of the clock that was taken back.
        let over = self.ends.plus(self.length) <= now || now < began;
        if over { next } else { Self { ended: self.ends, count_before: self.count, ..next } }
    }

    /// All of them, but for one that was counted in the period that ended, or ends, then.
    pub(super) fn others(self, counted: Stamp) -> u32 {
        let all = self.count.saturating_add(self.count_before);
        all.saturating_sub(u32::from(self.counts(counted)))
    }

    /// Whether one is counted that was told of the period that ended, or ends, then.
    pub(super) fn counts(self, counted: Stamp) -> bool {
        counted != Stamp::NEVER
            && ((counted == self.ends && self.count > 0) || (counted == self.ended && self.count_before > 0))
    }

    /// Counts one in this period, or no more, and says what it is told.
    pub(super) fn count(&mut self, counted: Stamp, waits: bool) -> Stamp {
        if self.counts(counted) {
            if counted == self.ends {
                self.count -= 1;
            } else {
                self.count_before -= 1;
            }
        }
        self.count += u32::from(waits);
        if waits { self.ends } else { Stamp::NEVER }
    }

    /// Whether nobody waits.
    pub(super) fn is_nobody(self) -> bool {
        self.count == 0 && self.count_before == 0
    }

    /// When all of them are forgotten, unless they come back.
    pub(super) fn lapse(self) -> Stamp {
        self.ends.plus(if self.count > 0 { self.length } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    #[test]
    fn who_waits_is_counted_once_in_each_period() {
        let mut contenders = Contenders::none(at(0), 100);
        let first = contenders.count(Stamp::NEVER, true);
        let second = contenders.count(Stamp::NEVER, true);
        assert_eq!(
            (first, second, contenders.others(Stamp::NEVER), contenders.others(first)),
            (at(100), at(100), 2, 1)
        );
        assert_eq!(contenders.count(first, true), at(100), "it comes again");
        assert_eq!(contenders.others(Stamp::NEVER), 2);
        let mut contenders = contenders.at(at(120), 100);
        assert_eq!(contenders.others(first), 1, "they have not come back yet, and are counted");
        assert_eq!(contenders.count(first, true), at(220));
        assert_eq!(
            (contenders.others(Stamp::NEVER), contenders.others(at(220)), contenders.others(at(100))),
            (2, 1, 1)
        );
        assert_eq!(contenders.count(at(220), false), Stamp::NEVER, "it waits no more");
        assert_eq!(contenders.at(at(219), 100).others(Stamp::NEVER), 1);
        assert!(contenders.at(at(220), 100).is_nobody(), "who has not come back for a period is forgotten");
    }

    #[test]
    fn who_was_counted_while_the_clock_had_leapt_is_forgotten_when_it_is_set_back() {
        let mut contenders = Contenders::none(at(1_000_000), 100);
        let counted = contenders.count(Stamp::NEVER, true);
        assert_eq!(contenders.at(at(1_000_050), 100).others(counted), 0);
        assert!(contenders.at(at(10), 100).is_nobody(), "and not for as long as the leap was");
    }

    #[test]
    fn after_a_silence_nobody_is_counted() {
        let mut contenders = Contenders::none(at(0), 100);
        let counted = contenders.count(Stamp::NEVER, true);
        assert_eq!(contenders.lapse(), at(200));
        assert!(contenders.at(at(200), 100).is_nobody());
        assert!(!contenders.at(at(200), 100).counts(counted));
        assert_eq!(Contenders::period(1_000_000, 250_000), 2_500_000);
        assert_eq!(Contenders::period(3_600_000_000, 250_000), 30_500_000);
    }
}
