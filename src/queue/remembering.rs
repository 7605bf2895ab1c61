//! What a queue remembers of what it was granted, for a store that may lose it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::events::Event;
use super::memory::HEARS;
use super::resend::{PATIENCE, Resend};
use crate::ledger::{Log, SHORT, Slots};

impl Queue {
    /// Remembers what another was granted whose place it takes, of the logs that both have.
    pub(crate) fn take_over(self: &Arc<Self>, before: &Arc<Self>, now: Instant) {
        let forgets = before.known().map(|state| state.engine.memory.is_empty());
        let Some(forgets) = forgets.filter(|_| self.ledger() == before.ledger()) else { return };
        // What it hands back later, or is granted late, is told to this one, too. Of those who have a log in common with it, one is enough: there
        // may be as many as merchants, of each edition.
        if forgets && !self.is_of_scopes(self.edition(), before.scopes()) && before.successors.is_any() {
            return;
        }
        before.succeeded_by(self);
        if forgets {
            return;
        }
        let (mut theirs, mut ours) = (before.lock(), self.lock());
        ours.engine.memory.take_over(&mut theirs.engine.memory, &before.logs, &self.logs);
        drop((theirs, ours));
        if self.remembers() {
            self.shard.memories.add(self, now);
        }
    }

    /// Slots go back that were charged in these logs of a queue whose place this one took.
    pub(super) fn forget(&self, slots: &[Slots], logs: &[Log]) {
        let memory = &mut self.lock().engine.memory;
        for slots in slots {
            memory.handed_back_by(slots, logs, &self.logs);
        }
    }

    /// Whether it would say again what it was granted, if the store lost that.
    pub(super) fn remembers(&self) -> bool {
        self.known().is_some_and(|state| state.engine.memory.would_say())
    }

    /// When it was granted last what it remembers, and by when it, or another, is to ask whether the store lost anything of that; `None` where
    /// nothing of it counts any more. For its callers' sake it asks in time, unless that of them is polled no more who is to.
    pub(super) fn asks_by(&self, now: Instant) -> Option<(Instant, Instant)> {
        let state = self.known().filter(|state| !state.engine.closed)?;
        let later = if state.engine.asks_for_callers(now) { HEARS } else { Duration::ZERO };
        state.engine.memory.asks_by(now).map(|(granted_at, by)| (granted_at, by + later))
    }

    /// Has it ask whether the store lost anything of that.
    pub(super) fn asks_after_loss(self: &Arc<Self>) {
        self.is_driven_on(PATIENCE);
        self.happen(|_| Some(Event::LostData));
    }

    /// Whether a message of it is on its way.
    pub(super) fn is_under_way(&self) -> bool {
        self.known().is_some_and(|state| state.engine.under_way)
    }

    /// Whether any of its logs that count for long is not of the whole upstream: others do not ask for it.
    pub(super) fn counts_alone_for_long(&self) -> bool {
        self.logs.iter().any(|log| log.scope.is_some() && log.retention() > SHORT)
    }

    /// Whether it tries again to reach a store that does not answer.
    pub(super) fn tries_again(&self) -> bool {
        self.known().is_some_and(|state| state.engine.resend.as_ref().is_some_and(Resend::has_failed))
    }

    /// Whether the store has answered it since then.
    pub(super) fn has_heard(&self, since: Instant) -> bool {
        self.known().is_some_and(|state| state.engine.memory.has_heard(since))
    }

    /// Whether it has asked whether the store lost anything of that, and has said all there was to say.
    pub(super) fn has_said_again(&self) -> bool {
        self.known().is_none_or(|state| state.engine.has_said_again())
    }
}
