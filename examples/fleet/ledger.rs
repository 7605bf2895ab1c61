//! Every slot that was booked and not handed back, and whether the limits hold over all of them.

use std::collections::HashMap;
use std::sync::Arc;

use outgate::ledger::{Ask, Grant, ScopeId, Term, Verdict as Fate};
use outgate::testing::oracle;

use crate::service::callers;

/// The slots of each scope, kept apart from the store's own logs.
#[derive(Debug, Default)]
pub(crate) struct Ledger(HashMap<Option<ScopeId>, Booked>);

#[derive(Debug)]
struct Booked {
    terms: Arc<[Term]>,
    starts: Vec<i64>,
}

/// Whether the first law of a store holds: no span of a term ever holds more slots than its quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) slots: usize,
    pub(crate) logs: usize,
    /// Logs of which some span holds more.
    pub(crate) violations: usize,
}

impl Ledger {
    /// Takes out what came back with an ask, and enters what it was granted. The ask must be for one log, and one unit for each caller.
    pub(crate) fn book(&mut self, ask: &Ask, grant: &Grant) {
        let Some(log) = ask.logs.first() else { return };
        let new = || Booked { terms: Arc::clone(&log.terms), starts: Vec::new() };
        let starts = &mut self.0.entry(log.scope).or_insert_with(new).starts;
        for slots in &ask.back {
            for _ in 0..slots.count {
                if let Some(at) = starts.iter().rposition(|&other| other == slots.start.as_micros()) {
                    starts.remove(at);
                }
            }
        }
        for answer in grant.answers(callers(ask)).filter(|answer| answer.verdict == Fate::Granted) {
            starts.extend(std::iter::repeat_n(answer.start.as_micros(), answer.callers as usize));
        }
    }

    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict { logs: self.0.len(), ..Verdict::default() };
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
    use outgate::ledger::{Answer, Log, Run, Slots, Stamp};

    use super::*;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// Of two units in any 100 µs.
    fn log() -> Log {
        Log::new("calls", [Term::new(2, 100)]).of(Some(ScopeId::from_bits(1)))
    }

    #[test]
    fn a_slot_too_many_is_found_unless_another_was_handed_back() {
        let mut ledger = Ledger::default();
        for (callers, start) in [(2, at(0)), (1, at(99))] {
            let ask = Ask::new([log()], vec![Run::new(callers, [1])]);
            ledger.book(&ask, &Grant::new(start, vec![Answer::granted(callers, start)], start));
        }
        let Verdict { slots, logs, violations } = ledger.judge();
        assert_eq!((slots, logs, violations), (3, 1, 1));
        ledger.book(&Ask::hand_back([log()], vec![Slots::new(1, at(0), [1])]), &Grant::new(at(99), Vec::new(), at(99)));
        let Verdict { slots, violations, .. } = ledger.judge();
        assert_eq!((slots, violations), (2, 0));
    }
}
