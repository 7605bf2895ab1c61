//! What callers have waited for: known when they go, and told to the traces. And the warning that they wait for long.

use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;
use super::glance::WaitsFor;

/// When callers of a queue last waited for a slot, for a seat, and for the end of a pause. Nothing where they only waited for the store.
#[derive(Debug, Default)]
pub(super) struct WaitedFor(Option<Box<[Option<Instant>; 3]>>);

/// By gravity.
const KINDS: [WaitsFor; 3] = [WaitsFor::Limit, WaitsFor::Seat, WaitsFor::Pause];

impl WaitedFor {
    fn note(&mut self, what: WaitsFor, now: Instant) {
        if let Some(at) = KINDS.iter().position(|kind| *kind == what) {
            self.0.get_or_insert_default()[at] = Some(now);
        }
    }

    /// The gravest that held up a caller which came then.
    pub(super) fn since(&self, joined: Instant) -> WaitsFor {
        let held = self.0.iter().flat_map(|last| last.iter().zip(KINDS));
        let held = held.filter(|(last, _)| last.is_some_and(|last| last >= joined)).map(|(_, kind)| kind);
        held.max().unwrap_or(WaitsFor::Store)
    }

    /// Nobody waits any more.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

impl Engine {
    /// Takes note of what the callers wait for who have had an answer.
    pub(super) fn note_wait(&mut self, now: Instant) {
        if let Some(what) = self.waits_for(now) {
            self.waited_for.note(what, now);
        }
    }

    /// Says that calls wait for longer than the upstream wants to know of: once, until nobody has waited in between.
    pub(super) fn warn(&mut self, now: Instant) {
        let Some(first) = self.waiters.first_joined().filter(|_| self.warn_at().is_some_and(|at| at <= now)) else {
            return;
        };
        self.is_warned = true;
        let waits_for = self.waits_for(now).unwrap_or(WaitsFor::Store).as_str();
        let paused = self.pause_left(now);
        tracing::warn!(
            upstream = &*self.settings.upstream,
            scope = self.settings.key.1.map(tracing::field::display),
            callers = self.waiters.len(),
            waited = ?now.saturating_duration_since(first),
            waits_for,
            pause = paused.map(|paused| tracing::field::debug(paused.left)),
            cause = paused.map(|paused| paused.reason().words()),
            "calls wait for long"
        );
    }

    /// When to say so.
    pub(super) fn warn_at(&self) -> Option<Instant> {
        let after: Duration = self.settings.warn_after.filter(|_| !self.is_warned)?;
        self.waiters.first_joined()?.checked_add(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_waited_for_the_gravest_that_held_since_it_came() {
        let (begin, mut waited_for) = (Instant::now(), WaitedFor::default());
        let at = |secs| begin + Duration::from_secs(secs);
        waited_for.note(WaitsFor::Store, at(0));
        assert_eq!(waited_for.since(at(0)), WaitsFor::Store);
        waited_for.note(WaitsFor::Pause, at(1));
        waited_for.note(WaitsFor::Limit, at(2));
        let since = [0, 1, 2, 3].map(|secs| waited_for.since(at(secs)));
        assert_eq!(since, [WaitsFor::Pause, WaitsFor::Pause, WaitsFor::Limit, WaitsFor::Store]);
        waited_for.forget();
        assert_eq!(waited_for.since(at(0)), WaitsFor::Store);
    }
}
