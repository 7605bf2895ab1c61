//! Answers that a store has at hand, for callers before whom nobody is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::glance::WaitsFor;
use super::waiters::Slot;
use crate::config::costs::Costs;
use crate::ledger::{Ask, Log, Message, MessageId, Run, Stamp, Verdict};
use crate::store::MemoryStore;

impl Queue {
    /// A slot that starts at `now`, which the clock has just shown, or how long until there is one, where nobody is before the caller and the
    /// store has its answer at hand.
    #[inline]
    pub(crate) fn at_hand(&self, charges: &Costs, now: Instant) -> Option<Result<Slot, Duration>> {
        let is_paused = self.crowd.paused(now).is_some();
        // What the boundaries of a calendar are depends on the store's clock.
        if is_paused
            || self.has_seats()
            || !self.shard.calendars.is_empty()
            || !self.process.answers_at_hand()
            || self.registered().handover.look_at(now).is_some()
            || self.known().is_some_and(|state| !state.is_quiet(now))
        {
            return None;
        }
        let slot = |(stamp, looks)| Slot {
            stamp,
            start: now,
            costs: charges.clone(),
            excess: Duration::ZERO,
            sender: self.process.id(),
            looks,
            waited_for: WaitsFor::Store,
        };
        self.ask_at_once(charges, now).map(|answer| answer.map(slot))
    }

    /// When the caller starts, which is now, and whether it is the one call that looks whether a pause still holds; or how long it is until
    /// there is a slot.
    fn ask_at_once(&self, charges: &Costs, now: Instant) -> Option<Result<(Stamp, bool), Duration>> {
        let (ledger, logs) = (self.ledger(), &self.logs);
        let in_memory = |store: &MemoryStore| store.at_once(self.shard.kept(store), logs, charges, now);
        if let Some(answer) = self.process.memory().and_then(in_memory) {
            return Some(answer.map(|stamp| (stamp, false)));
        }
        let answer = self.process.store.apply(&now_or_never(ledger, logs, charges)).at_hand();
        if answer.is_none() {
            self.process.answers_later();
        }
        let grant = answer?.ok()?.grant()?;
        let answer = grant.answers(1).next()?;
        match answer.verdict {
            verdict if verdict.is_granted() => Some(Ok((answer.start, verdict == Verdict::Looks))),
            // Who is paused, or left what is free to others, is told so in the queue.
            _ if grant.paused.is_some() || answer.start <= grant.now => None,
            _ => Some(Err(answer.start.since(grant.now))),
        }
    }
}

/// An ask of one caller of these charges who does not wait.
fn now_or_never(ledger: &Arc<str>, logs: &Arc<[Log]>, charges: &Costs) -> Message {
    let run = Run::new(1, charges).max_wait(Duration::ZERO);
    Message::new(Arc::clone(ledger), MessageId::nobodys(), Ask::new(Arc::clone(logs), vec![run]))
}
