//! What an engine knows of its queue from the start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::calendars::Calendars;
use super::pacing::LATE_AT_MOST;
use super::seats::SeatRules;
use super::table::Key;
use crate::config::plan::Spans;
use crate::counts::Counts;
use crate::ledger::Log;
use crate::store::WithoutStore;

/// What never changes about a queue.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) upstream: Arc<str>,
    /// Whose logs they are, as the store knows it: the upstream's, or those of all upstreams that share limits.
    pub(super) ledger: Arc<str>,
    pub(super) key: Key,
    /// The stream of its messages.
    pub(super) stream: Arc<str>,
    /// What everybody in it needs a slot in.
    pub(super) logs: Arc<[Log]>,
    /// And a seat, where there are limits on calls in flight. Where there are no logs, it is the line for seats of several queues.
    pub(super) seats: Option<SeatRules>,
    /// And a seat that is borrowed from such lines.
    pub(super) borrows: bool,
    pub(super) calendars: Calendars,
    /// For what callers are told of refusals.
    pub(super) spans: Spans,
    /// How much later than its start a slot may be used.
    pub(super) stale_after: Duration,
    /// How far ahead slots are booked, where answers are quick.
    pub(super) horizon: Duration,
    /// How long callers of low priority wait before they go first.
    pub(super) promote_low_after: Option<Duration>,
    /// What becomes of callers while the store cannot answer.
    pub(super) without_store: WithoutStore,
    /// How long callers wait before it is said.
    pub(super) warn_after: Option<Duration>,
    pub(super) counts: Counts,
    /// For how many the process counts where limits are shared.
    pub(super) weight: u32,
    /// Its callers go whatever is answered.
    pub(super) observes: bool,
}

impl Queue {
    /// What its engine is to know. It is put together when somebody waits for the first time: there are as many queues as scopes.
    pub(super) fn settings_anew(&self) -> Settings {
        let (registered, process, is_line) = (self.registered(), &self.process, self.is_line());
        let stream = match self.scope() {
            _ if !is_line => registered.stream(&self.scopes().stream()),
            Some(scope) => registered.stream(&format!("line-{scope}")),
            None => registered.stream("line"),
        };
        Settings {
            upstream: Arc::clone(self.upstream()),
            ledger: Arc::clone(self.ledger()),
            key: registered.key(self.scope()),
            stream,
            logs: Arc::clone(&self.logs),
            seats: self.seats.clone(),
            borrows: self.borrows(),
            calendars: if is_line { Calendars::default() } else { self.shard.calendars.clone() },
            spans: registered.spans.clone(),
            stale_after: self.stale_after(),
            horizon: process.horizon,
            promote_low_after: registered.upstream.promote_low_after,
            without_store: self.without_store(),
            warn_after: registered.upstream.warn_after.filter(|_| !is_line && !self.is_observed()),
            // Callers of a line are places of callers that are counted in their own queues, and those who throttle by themselves go from one to another.
            counts: if is_line || self.is_local() { Counts::default() } else { registered.counts.clone() },
            weight: process.weight,
            observes: self.is_observed(),
        }
    }

    /// How much later than its start a slot may be used.
    pub(super) fn stale_after(&self) -> Duration {
        if self.is_line() { LATE_AT_MOST } else { self.registered().stale_after }
    }

    /// What becomes of its callers while the store cannot answer.
    pub(super) fn without_store(&self) -> WithoutStore {
        if self.is_local() { WithoutStore::Wait } else { self.registered().policy() }
    }

    /// Whether it alone may know of a pause that also holds for calls which go without the store.
    pub(super) fn bars_without_store(&self, now: Instant) -> bool {
        let goes = matches!(self.without_store(), WithoutStore::ThrottleLocally | WithoutStore::SendUnthrottled);
        let own = self.paused(now).filter(|_| goes);
        own.is_some_and(|(until, _)| self.crowd.paused(now).is_none_or(|(all, _)| all < until))
    }
}
