//! What a store keeps beside a log that counts for long, or that callers wait for: since when it is there, and until when it must be.
//!
//! A store may lose a log alone, where it evicts. Who was granted something of it misses that; but whoever remembers nothing would take it
//! for a new one. `lua/life.lua` says the same in Redis.

use super::loss::{BEYOND, SHORT};
use super::{Ask, Ledger, Stamp};

/// Since when a log is there, and until when it must be. It is kept for longer than it counts, and said to be there for less long than it
/// must be: so seldom is anything written of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// The oldest entry of when this was written first: none that counts and is older was ever in it.
    pub(super) since: Stamp,
    until: Stamp,
}

impl Default for Life {
    fn default() -> Self {
        Self::NONE
    }
}

impl Life {
    /// Of a log of which nothing is known.
    pub(super) const NONE: Self = Self { since: Stamp::NEVER, until: Stamp::NEVER };

    /// Whether the log must be there.
    pub(super) fn is_known(self, now: Stamp) -> bool {
        self.until > Stamp::NEVER && !self.is_over(now.plus(-BEYOND))
    }

    /// Whether an entry that counts now has said so.
    pub(super) fn is_over(self, now: Stamp) -> bool {
        self.until <= now
    }

    /// That of a log with these entries, of whoever counts them for so long.
    pub(super) fn going_on(self, now: Stamp, counts: i64, newest: Stamp, oldest: Stamp) -> Self {
        let until = newest.plus(counts);
        if until <= now || (self.is_known(now) && self.until.plus(BEYOND) >= until) {
            return self;
        }
        Self { since: if self.is_known(now) { self.since } else { oldest }, until }
    }
}

impl Ledger {
    /// Keeps known that the logs of an ask are there: those that count for long, and where callers wait all. Of an empty one nothing any
    /// more.
    pub(super) fn live_on(&mut self, now: Stamp, ask: &Ask) {
        for log in ask.logs.iter() {
            let counts = log.retention();
            let waits = || self.scope(log.scope).is_some_and(|scope| scope.waiting().is_any(now));
            let goes_on = counts > SHORT || (counts > 0 && waits());
            let may_be_empty = goes_on || !ask.back.is_empty();
            let Some(entries) = self.log_mut(log).filter(|_| may_be_empty) else { continue };
            match entries.nth_newest(1) {
                Some(_) if goes_on => entries.live_on(now, counts),
                Some(_) => {}
                None => entries.begin_anew(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Grant, Log, Message, MessageId, Remembered, Reply, Run, Slots, Term};

    const SECOND: i64 = 1_000_000;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(90 * SECOND + micros)
    }

    /// An ask for so many of a hundred a minute.
    fn ask(callers: u32) -> Ask {
        let runs = (callers > 0).then(|| Run::new(callers, [1])).into_iter().collect();
        Ask::new([Log::new("calls", [Term::new(100, 60 * SECOND)])], runs)
    }

    fn remembering(newest: Stamp, ask: Ask) -> Ask {
        Ask { remembered: Remembered::new(0, at(0), [newest]), ..ask }
    }

    fn told(ledger: &mut Ledger, now: i64, (sender, number): (u64, u64), ask: Ask) -> Grant {
        ledger
            .apply(at(now), &Message::new("up", MessageId::new(sender, "", number), ask))
            .ok()
            .and_then(Reply::grant)
            .unwrap()
    }

    /// How many of a hundred are granted, and when a loss is told of.
    fn said(grant: &Grant) -> (u32, Option<Stamp>) {
        let granted = grant.answers(100).filter(|answer| answer.verdict.is_granted());
        (granted.map(|answer| answer.callers).sum(), grant.loss.as_deref().map(|(seen, _)| *seen))
    }

    #[test]
    fn an_empty_log_that_must_be_there_is_lost_whoever_asks() {
        for (now, is_lost) in [(1, true), (64, true), (65, false)] {
            let mut ledger = Ledger::new();
            told(&mut ledger, 0, (1, 1), ask(50));
            ledger.lose_logs(None);
            let expected = if is_lost { (0, Some(at(now * SECOND))) } else { (100, None) };
            assert_eq!(said(&told(&mut ledger, now * SECOND, (2, 1), ask(100))), expected, "after {now} s");
        }
    }

    #[test]
    fn a_log_that_was_handed_back_to_the_last_entry_is_none_that_is_lost() {
        let mut ledger = Ledger::new();
        told(&mut ledger, 0, (1, 1), ask(50));
        told(&mut ledger, SECOND, (1, 2), Ask { back: vec![Slots::new(50, at(0), [1])], ..ask(0) });
        assert_eq!(said(&told(&mut ledger, 2 * SECOND, (2, 1), ask(100))), (100, None));
    }

    #[test]
    fn a_log_that_is_newer_than_what_somebody_was_granted_was_lost_before() {
        let mut ledger = Ledger::new();
        // All is lost, and somebody else begins anew.
        told(&mut ledger, SECOND, (2, 1), ask(1));
        let grant = told(&mut ledger, 2 * SECOND, (1, 2), remembering(at(0), ask(100)));
        assert_eq!(said(&grant), (0, Some(at(2 * SECOND))));
        let mut ledger = Ledger::new();
        told(&mut ledger, 0, (1, 1), ask(1));
        told(&mut ledger, SECOND, (2, 1), ask(1));
        let grant = told(&mut ledger, 2 * SECOND, (1, 2), remembering(at(0), ask(100)));
        assert_eq!(said(&grant), (98, None), "it is there");
    }

    #[test]
    fn what_is_lost_with_the_state_and_a_message_is_said_again_by_all() {
        for is_older in [true, false] {
            let mut ledger = Ledger::new();
            told(&mut ledger, 0, (2, 1), ask(50));
            ledger.lose_logs(None);
            let log = &mut ledger.scope_mut(None).logs;
            log.entry(&"calls".into()).begin_anew();
            let third = if is_older { ask(1) } else { ask(0) };
            told(&mut ledger, SECOND, (3, 1), third);
            if !is_older {
                let log = ledger.scope_mut(None).logs.entry(&"calls".into());
                log.append(at(0), 50, 60 * SECOND);
            }
            // The message of the first is missing; that of the second is there.
            let remembered = Remembered::new(7, at(SECOND / 2), [at(0)]);
            let grant = told(&mut ledger, 2 * SECOND, (1, 8), Ask { remembered, ..ask(9) });
            let seen = at(2 * SECOND);
            assert_eq!(grant.loss, Some(Box::new((seen, 0))), "{is_older}");
            let remembered = Remembered::new(1, at(0), [at(0)]);
            let grant = told(&mut ledger, 3 * SECOND, (2, 2), Ask { remembered, ..ask(9) });
            assert_eq!(grant.loss, Some(Box::new((seen, 0))), "{is_older}: all that it was granted");
        }
    }

    #[test]
    fn who_was_put_off_and_is_not_known_to_wait_any_more_was_put_off_by_what_is_lost() {
        let mut ledger = Ledger::new();
        told(&mut ledger, 0, (1, 1), ask(100));
        let counted = told(&mut ledger, SECOND, (2, 1), ask(9)).counted;
        for (now, is_lost) in [(2 * SECOND, true), (60 * SECOND, false)] {
            let (expected, again) = (is_lost.then_some(at(now)), Ask { counted: counted.clone(), ..ask(9) });
            assert_eq!(said(&told(&mut Ledger::new(), now, (2, 2), again)).1, expected);
        }
        let again = Ask { counted, ..ask(9) };
        assert_eq!(said(&told(&mut ledger, 2 * SECOND, (2, 2), again)), (0, None), "it waits");
    }
}
