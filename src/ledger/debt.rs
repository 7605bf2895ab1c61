//! True costs: units that calls used beyond what they were charged.
//!
//! `lua/debt.lua` says the same in Redis.

use super::{Ask, Ledger, Log, Stamp};

impl Log {
    /// How many entries of a debt are entered: with as many of one stamp as the largest quota allows everybody waits for a whole span
    /// by every window, and more make nobody wait longer. The level of a bucket takes the rest as well.
    fn entered_of(&self, debt: u32) -> u32 {
        debt.min(self.largest_quota())
    }
}

impl Ledger {
    /// Enters the debts of an ask at the tails of its logs, beyond the quota if need be: later calls wait for them.
    pub(super) fn enter_debts(&mut self, now: Stamp, ask: &Ask) {
        for (log, &debt) in ask.logs.iter().zip(&ask.debts).filter(|(log, debt)| log.entered_of(**debt) > 0) {
            let in_force = self.in_force(now, log.scope);
            let (retention, left): (_, Vec<_>) = (in_force.retention(log), in_force.terms(log).collect());
            let entries = self.scope_mut(log.scope).logs.entry(&log.unit);
            let tail = entries.nth_newest(1).map_or(now, |newest| newest.max(now));
            let entered = log.entered_of(debt);
            entries.fill(&log.terms, &left, &[(tail, entered as usize)], retention);
            if debt > entered {
                entries.owe(&log.terms, &left, debt - entered);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::{Ask, Bucket, Grant, Ledger, Log, Message, MessageId, Reply, Run, ScopeId, Slots, Stamp, Term};

    const SECOND: i64 = 1_000_000;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// Ten units in any second, of which three at once come in any tenth.
    fn log() -> Log {
        Log::new("tokens", [Term::new(10, SECOND), Term::new(3, SECOND / 10)])
    }

    fn apply(ledger: &mut Ledger, now: i64, number: u64, ask: Ask) -> Grant {
        let message = Message::new("up", MessageId::new(1, "", number), ask);
        ledger.apply(at(now), &message).ok().and_then(Reply::grant).unwrap()
    }

    /// When the next unit may start at `now`, once so many were booked at 0 and a debt was entered at `at`.
    fn next(booked: u32, debt: (i64, u32), now: i64) -> i64 {
        let (mut ledger, logs) = (Ledger::new(), [log()]);
        let runs = (booked > 0).then(|| Run::new(1, [booked])).into_iter().collect();
        apply(&mut ledger, 0, 1, Ask::new(logs.clone(), runs));
        let ask = Ask { debts: vec![debt.1], ..Ask::new(logs.clone(), Vec::new()) };
        apply(&mut ledger, debt.0, 2, ask);
        let ask = Ask { horizon: std::time::Duration::ZERO, ..Ask::new(logs, vec![Run::new(1, [1])]) };
        let grant = apply(&mut ledger, now, 3, ask);
        grant.answers(1).next().map_or(grant.next, |answer| answer.start).as_micros()
    }

    #[test]
    fn a_debt_delays_later_calls_by_every_term() {
        let tenth = SECOND / 10;
        assert_eq!(next(0, (500, 2), 500), 500, "there is room beside it");
        assert_eq!(next(0, (500, 3), 500), 500 + tenth);
        assert_eq!(next(3, (500, 6), tenth), tenth + 500, "beyond the quota, by the shorter term");
        assert_eq!(next(3, (500, 7), 2 * tenth), SECOND, "and by the longer: the first three count till then");
        assert_eq!(next(3, (500, 10), 2 * tenth), SECOND + 500);
    }

    #[test]
    fn a_debt_above_the_largest_quota_makes_nobody_wait_longer() {
        let waits = [10, 11, 1_000, u32::MAX].map(|debt| next(0, (500, debt), 500));
        assert_eq!(waits, [500 + SECOND; 4]);
        let mut ledger = Ledger::new();
        apply(&mut ledger, 500, 1, Ask { debts: vec![u32::MAX], ..Ask::new([log()], Vec::new()) });
        let entries = ledger.scope(None).and_then(|scope| scope.logs.get(&"tokens".into())).unwrap();
        assert_eq!(entries.used(at(500), SECOND), 10, "nor does the log grow by it");
    }

    #[test]
    fn a_debt_above_the_capacity_of_a_bucket_is_paid_off_unit_by_unit() {
        let of_ten = Term::bucket(Bucket::new(100_000_000, SECOND * 1_000));
        for (debt, next) in [(9, 0), (10, 1), (11, 2), (25, 16), (1_000, 991)] {
            let (mut ledger, logs) = (Ledger::new(), [Log::new("tokens", [of_ten])]);
            apply(&mut ledger, 0, 1, Ask { debts: vec![debt], ..Ask::new(logs.clone(), Vec::new()) });
            let ask = Ask { horizon: std::time::Duration::ZERO, ..Ask::new(logs, vec![Run::new(2, [1])]) };
            let grant = apply(&mut ledger, 0, 2, ask.clone());
            let first = grant.answers(1).find(|answer| answer.verdict.is_granted());
            assert_eq!(first.map_or(grant.next, |answer| answer.start), at(next * SECOND / 10), "{debt}");
            if next > 0 {
                let later = apply(&mut ledger, next * SECOND / 10, 3, ask);
                assert_eq!(later.next, at((next + 1) * SECOND / 10), "{debt}: one at a time");
            }
        }
    }

    #[test]
    fn what_a_bucket_is_owed_beyond_its_capacity_nobody_hands_back() {
        let of_ten = Term::bucket(Bucket::new(100_000_000, SECOND * 1_000));
        let (mut ledger, logs) = (Ledger::new(), [Log::new("tokens", [of_ten])]);
        apply(&mut ledger, 0, 1, Ask::new(logs.clone(), vec![Run::new(1, [4])]));
        let ask = Ask { debts: vec![30], back: vec![Slots::new(1, at(0), [4])], ..Ask::new(logs.clone(), Vec::new()) };
        apply(&mut ledger, 0, 2, ask);
        apply(&mut ledger, 0, 3, Ask::hand_back(logs.clone(), vec![Slots::new(1, at(0), [9])]));
        let grant = apply(&mut ledger, 0, 4, Ask::new(logs, vec![Run::new(1, [1])]));
        assert_eq!(grant.next, at(21 * SECOND / 10));
    }

    #[test]
    fn a_debt_is_entered_after_what_is_taken_out_and_before_what_is_booked() {
        let (mut ledger, logs) = (Ledger::new(), [log()]);
        apply(&mut ledger, 0, 1, Ask::new(logs.clone(), vec![Run::new(1, [3])]));
        let booked = apply(&mut ledger, 0, 2, Ask::new(logs.clone(), vec![Run::new(1, [3])]));
        assert_eq!(booked.answers(1).next().unwrap().start, at(SECOND / 10));
        let back = vec![Slots::new(1, at(SECOND / 10), [3])];
        let ask = Ask { back, debts: vec![2], ..Ask::new(logs, vec![Run::new(1, [1])]) };
        let grant = apply(&mut ledger, 10, 3, ask);
        assert_eq!(grant.answers(1).next().unwrap().start, at(SECOND / 10), "the debt stands at 10, and three at 0");
        let entries = ledger.scope(None).and_then(|scope| scope.logs.get(&"tokens".into())).unwrap();
        assert_eq!([1, 2, 3, 4].map(|n| entries.nth_newest(n).unwrap().as_micros()), [SECOND / 10, 10, 10, 0]);
    }

    #[test]
    fn a_debt_stands_behind_what_is_booked_ahead_and_keeps_an_idle_log_in_mind() {
        let (mut ledger, scope) = (Ledger::new(), Some(ScopeId::of(b"a")));
        let logs = [log().of(scope)];
        apply(&mut ledger, 0, 1, Ask::new(logs.clone(), vec![Run::new(1, [3]), Run::new(1, [1])]));
        let debt = |units| Ask { debts: vec![units], ..Ask::new(logs.clone(), Vec::new()) };
        apply(&mut ledger, 20, 2, debt(1));
        let entries = |ledger: &Ledger| ledger.scope(scope).and_then(|of| of.logs.get(&logs[0].unit)).cloned().unwrap();
        assert_eq!([1, 2].map(|n| entries(&ledger).nth_newest(n)), [Some(at(SECOND / 10)); 2]);
        apply(&mut ledger, 3 * SECOND, 3, debt(4));
        assert_eq!(entries(&ledger).used(at(3 * SECOND), SECOND), 4, "nobody called for long");
        assert!(!entries(&ledger).is_spent(at(4 * SECOND - 1)) && entries(&ledger).is_spent(at(4 * SECOND)));
    }

    #[test]
    fn a_message_that_comes_twice_enters_its_debt_once() {
        let (mut ledger, logs) = (Ledger::new(), [log()]);
        for now in [5, 50, 500] {
            let grant = apply(&mut ledger, now, 1, Ask { debts: vec![4], ..Ask::new(logs.clone(), Vec::new()) });
            assert!(grant.remembered);
        }
        let entries = ledger.scope(None).and_then(|scope| scope.logs.get(&"tokens".into())).unwrap();
        assert_eq!((entries.used(at(500), SECOND), entries.nth_newest(1)), (4, Some(at(5))));
    }

    #[test]
    fn debts_of_other_logs_than_the_ask_names_are_refused() {
        let ask = Ask { debts: vec![1, 2], ..Ask::new([log()], Vec::new()) };
        let message = Message::new("up", MessageId::nobodys(), ask);
        assert!(Ledger::new().apply(at(0), &message).is_err());
    }
}
