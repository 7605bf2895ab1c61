//! Every slot that was booked and not handed back, and whether the limits hold over all of them.

use std::collections::HashMap;
use std::sync::Arc;

use outgate::ledger::Term;
use outgate::ledger::{Ask, Grant, HandBack, Home, Slots};
use outgate::testing::oracle;

/// The slots of each home, kept apart from the store's own logs.
#[derive(Debug, Default)]
pub(crate) struct Ledger(HashMap<Home, Booked>);

#[derive(Debug)]
struct Booked {
    terms: Arc<[Term]>,
    starts: Vec<i64>,
}

/// Whether the first law of a store holds: no span of a term ever holds more slots than its quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) slots: usize,
    pub(crate) homes: usize,
    /// Homes of which some span holds more.
    pub(crate) violations: usize,
}

impl Ledger {
    /// Takes out what came back with an ask, and enters what it was granted. The ask must be for one log, and one unit for each caller.
    pub(crate) fn book(&mut self, ask: &Ask, grant: &Grant) {
        self.take_out(&ask.home, &ask.back);
        let terms = || ask.logs.first().map_or_else(|| [].into(), |log| Arc::clone(&log.terms));
        let booked = self.0.entry(ask.home.clone()).or_insert_with(|| Booked { terms: terms(), starts: Vec::new() });
        for answer in grant.answers.iter().filter(|answer| answer.granted) {
            booked.starts.extend(std::iter::repeat_n(answer.start.as_micros(), answer.callers as usize));
        }
    }

    /// Takes out what was handed back.
    pub(crate) fn hand_back(&mut self, message: &HandBack) {
        self.take_out(&message.home, &message.slots);
    }

    fn take_out(&mut self, home: &Home, slots: &[Slots]) {
        let Some(booked) = self.0.get_mut(home) else { return };
        for &Slots { count, start, .. } in slots {
            for _ in 0..count {
                if let Some(at) = booked.starts.iter().rposition(|&other| other == start.as_micros()) {
                    booked.starts.remove(at);
                }
            }
        }
    }

    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict { homes: self.0.len(), ..Verdict::default() };
        for Booked { terms, starts } in self.0.values() {
            let broken = |term: &Term| oracle::worst_window(starts, term.span).count > term.quota.into();
            verdict.slots += starts.len();
            verdict.violations += usize::from(terms.iter().any(broken));
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use outgate::ledger::Stamp;
    use outgate::ledger::{Answer, Log, Run};

    use super::*;

    /// Books slots of two in any 100 µs.
    fn book(ledger: &mut Ledger, callers: u32, start: i64) {
        let home = Home::new("api", Some("one"));
        let ask = Ask::new(home, 1, 1, [Log::new("calls", [Term::new(2, 100)])], vec![Run::new(callers, [1])]);
        let start = Stamp::from_micros(start);
        ledger.book(&ask, &Grant::new(start, vec![Answer::new(callers, start, true)], start));
    }

    #[test]
    fn a_slot_too_many_is_found_unless_another_was_handed_back() {
        let mut ledger = Ledger::default();
        book(&mut ledger, 2, 0);
        book(&mut ledger, 1, 99);
        let Verdict { slots, homes, violations } = ledger.judge();
        assert_eq!((slots, homes, violations), (3, 1, 1));
        let slots = vec![Slots::new(1, Stamp::from_micros(0), [1])];
        ledger.hand_back(&HandBack::new(Home::new("api", Some("one")), 1, 2, [], slots));
        let Verdict { slots, violations, .. } = ledger.judge();
        assert_eq!((slots, violations), (2, 0));
    }
}
