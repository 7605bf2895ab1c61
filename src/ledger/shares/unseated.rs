//! Callers for whom there is a slot and no seat.

use super::{Bounds, Deciding, join};
use crate::ledger::{Answer, Run, Stamp, Verdict, micros};

impl Bounds {
    /// Who gets no seat hears of none before.
    pub(in crate::ledger) const fn unseated_until(&self) -> Stamp {
        self.now.plus(self.again)
    }
}

impl Deciding<'_, '_> {
    /// There is no seat for the rest of a run: who wants one now or never is refused, by the answer at that place.
    pub(super) fn unseat(&mut self, run: &Run, rest: u32) -> Option<usize> {
        let Bounds { now, soonest, .. } = self.bounds;
        if run.max_wait.is_none_or(|wait| now.plus(micros(wait)) > soonest) {
            self.decision.passed += rest;
            self.decision.short.waiting += rest;
            return None;
        }
        self.decision.short.was_refused = true;
        self.push(rest, now, Verdict::Refused);
        Some(self.decision.answers.len() - 1)
    }

    /// The next callers are told this; those that were passed over before them, that they wait.
    pub(super) fn push(&mut self, callers: u32, start: Stamp, verdict: Verdict) {
        let Self { decision, bounds, .. } = self;
        if decision.passed > 0 {
            let start = decision.waiting.as_ref().map_or(bounds.unseated_until(), |turn| turn.start);
            decision.answers.push(Answer::waiting(decision.passed, start));
            decision.passed = 0;
        }
        let answer = Answer::new(callers, start, verdict);
        if verdict.is_granted() {
            decision.granted += callers;
            join(&mut decision.answers, answer);
        } else {
            decision.answers.push(answer);
        }
    }
}
