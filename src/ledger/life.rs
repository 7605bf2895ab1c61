//! What a store keeps beside a log that counts for long, or that callers wait for: since when it is there, and until when it must be.
//!
//! A store may lose a log alone, where it evicts. Who was granted something of it misses that; but whoever remembers nothing would take it
//! for a new one. `lua/life.lua` says the same in Redis.

use super::loss::{BEYOND, SHORT};
use super::{Ask, Ledger, Stamp};

/// Since when a log is there, and until when it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// The oldest entry of when this was written first: none that counts and is older was ever in it.
    pub(super) since: Stamp,
    /// For how long its entries count for whoever is most patient.
    pub(super) counts: i64,
    /// Until when any counts.
    until: Stamp,
}

impl Default for Life {
    fn default() -> Self {
        Self::NONE
    }
}

impl Life {
    /// Of a log of which nothing is known.
    pub(super) const NONE: Self = Self { since: Stamp::NEVER, counts: 0, until: Stamp::NEVER };

    /// Whether the log must be there. It is kept for longer than it counts: for 5 s more it must.
    pub(super) fn is_known(self, now: Stamp) -> bool {
        self.until > Stamp::NEVER && !self.is_over(now.plus(-BEYOND))
    }

    /// Whether no entry counts any more of which this says so.
    pub(super) fn is_over(self, now: Stamp) -> bool {
        self.until <= now
    }

    /// That of a log with these entries, of whoever counts them for so long. It need be written anew only when the newest counts for 5 s
    /// longer than it says, or was taken out; or where whoever told a debt knew an earlier time.
    pub(super) fn going_on(self, now: Stamp, counts: i64, newest: Stamp, oldest: Stamp, told: Option<Stamp>) -> Self {
        let known = Some(self).filter(|known| known.is_known(now));
        let counts = known.map_or(counts, |known| known.counts.max(counts));
        let until = newest.plus(counts);
        let since = known.map_or(oldest, |known| known.since);
        let since = told.map_or(since, |told| told.min(since));
        let says_so =
            |of: Self| of.counts == counts && of.until.plus(BEYOND) >= until && of.until <= until && of.since == since;
        if until <= now {
            // Where what counted was taken out nothing need be there any more.
            return if self.until > until { Self::NONE } else { self };
        }
        if known.is_some_and(says_so) { self } else { Self { since, counts, until } }
    }
}

impl Ledger {
    /// Keeps known that the logs of an ask are there: those that count for long, and where callers wait all. Where slots were taken out, an
    /// empty one need not be there any more, and another not for so long.
    ///
    /// Whoever tells debts remembers them as of the log time that it `knew`, however often the message came.
    pub(super) fn logs_go_on(&mut self, now: Stamp, knew: Option<Stamp>, ask: &Ask) {
        // Lua is told 0 where nothing is known.
        let knew = knew.filter(|knew| *knew != Stamp::from_micros(0));
        for (place, log) in ask.logs.iter().enumerate() {
            let told = knew.filter(|_| ask.debts.get(place).is_some_and(|units| *units > 0));
            let counts = log.retention();
            let waits = || self.scope(log.scope).is_some_and(|scope| scope.waiting().is_any(now));
            let goes_on = counts > SHORT || (counts > 0 && waits());
            let takes_out = !ask.back.is_empty();
            let Some(entries) = self.log_mut(log).filter(|_| goes_on || takes_out) else { continue };
            if goes_on || entries.life().is_known(now) || entries.nth_newest(1).is_none() {
                entries.live_on(now, counts, told);
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
    fn a_log_that_a_debt_began_is_there_since_the_log_time_that_its_sender_knew() {
        let (mut ledger, owing) = (Ledger::new(), Ask { debts: vec![60], ..ask(0) });
        let message = Message::new("up", MessageId::new(1, "", 1), owing);
        ledger.apply(at(0), &Message { known: Some(at(-5_000)), ..message }).unwrap();
        for (newest, sender, is_lost) in [(-5_000, 1, false), (-5_001, 2, true)] {
            let grant = told(&mut ledger, SECOND, (sender, 2), remembering(at(newest), ask(100)));
            let expected = if is_lost { (0, Some(at(SECOND))) } else { (40, None) };
            assert_eq!(said(&grant), expected, "by one that remembers what was entered at {newest}");
        }
    }

    #[test]
    fn a_log_that_others_began_meanwhile_is_there_since_the_log_time_that_who_owes_knew() {
        let (mut ledger, owing) = (Ledger::new(), Ask { debts: vec![60], ..ask(0) });
        told(&mut ledger, -SECOND, (2, 1), ask(1));
        let message = Message::new("up", MessageId::new(1, "", 1), owing);
        ledger.apply(at(0), &Message { known: Some(at(-5 * SECOND)), ..message }).unwrap();
        let grant = told(&mut ledger, SECOND, (1, 2), remembering(at(-5 * SECOND), ask(100)));
        assert_eq!(said(&grant), (39, None));
    }

    #[test]
    fn a_log_that_was_handed_back_to_the_last_entry_is_none_that_is_lost() {
        let mut ledger = Ledger::new();
        told(&mut ledger, 0, (1, 1), ask(50));
        told(&mut ledger, SECOND, (1, 2), Ask { back: vec![Slots::new(50, at(0), [1])], ..ask(0) });
        assert_eq!(said(&told(&mut ledger, 2 * SECOND, (2, 1), ask(100))), (100, None));
    }

    #[test]
    fn a_log_whose_newest_entry_was_handed_back_need_not_be_there_for_so_long() {
        for (back, is_lost) in [(false, true), (true, false)] {
            let mut ledger = Ledger::new();
            told(&mut ledger, 0, (1, 1), ask(50));
            told(&mut ledger, 20 * SECOND, (1, 2), ask(50));
            let slots = back.then(|| Slots::new(50, at(20 * SECOND), [1]));
            told(&mut ledger, 21 * SECOND, (1, 3), Ask { back: slots.into_iter().collect(), ..ask(0) });
            ledger.lose_logs(None);
            assert_eq!(said(&told(&mut ledger, 66 * SECOND, (2, 1), ask(100))).1.is_some(), is_lost);
        }
    }

    #[test]
    fn a_log_of_which_nothing_counts_any_more_as_slots_were_handed_back_is_none_that_is_lost() {
        let mut ledger = Ledger::new();
        told(&mut ledger, 0, (1, 1), ask(1));
        told(&mut ledger, 65 * SECOND, (1, 2), ask(1));
        told(&mut ledger, 66 * SECOND, (1, 3), Ask { back: vec![Slots::new(1, at(65 * SECOND), [1])], ..ask(0) });
        // It expires.
        ledger.lose_logs(None);
        assert_eq!(said(&told(&mut ledger, 80 * SECOND, (2, 1), ask(100))), (100, None));
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
    fn what_is_trimmed_was_there_and_is_not_lost_where_the_clock_is_set_back() {
        let (mut ledger, log) = (Ledger::new(), Log::new("calls", [Term::new(40, SECOND)]));
        let ask = |callers| Ask { logs: [log.clone()].into(), ..ask(callers) };
        for (number, callers) in (1..).zip([40, 40, 40, 1, 1]) {
            told(&mut ledger, 2 * SECOND * (number - 1), (1, number.unsigned_abs()), ask(callers));
        }
        // All but the last is trimmed, and it is known only now that the log is there: callers wait.
        told(&mut ledger, 8_200_000, (2, 1), Ask { debts: vec![40], ..ask(9) });
        let again = remembering(at(6 * SECOND), ask(1));
        let message = Message::new("up", MessageId::new(1, "", 6), again);
        let set_back = Message { latest: Some(at(6_500_000)), ..message };
        let grant = ledger.apply(at(8_300_000), &set_back).ok().and_then(Reply::grant).unwrap();
        assert!(!grant.lost && grant.now == at(6_500_000));
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
