//! Pauses that the store has lost, and this process knows: they are told again, so that others keep to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::SOONER;
use crate::ledger::{Body, Cause, Pause, Reason, Reply, ScopeId, Stamp, micros};
use crate::queue::Queue;

/// Pauses that the store has lost: of scopes, and of the whole upstream.
pub(super) struct LostPauses {
    /// The log time of the look that found them, and when it was answered.
    looked: (Stamp, Instant),
    pauses: HashMap<Option<ScopeId>, Lost>,
}

/// One of them, and a queue that is paused by it.
struct Lost {
    queue: Arc<Queue>,
    since: Instant,
    until: Instant,
    reason: Reason,
}

impl LostPauses {
    pub(super) fn new(stamp: Stamp, at: Instant) -> Self {
        Self { looked: (stamp, at), pauses: HashMap::new() }
    }

    /// A pause that is known since then, and lasts until then for this reason. Of several queues of one scope the longest counts.
    pub(super) fn add(
        &mut self,
        scope: Option<ScopeId>,
        queue: &Arc<Queue>,
        since: Instant,
        (until, reason): (Instant, Reason),
    ) {
        if self.pauses.get(&scope).is_none_or(|known| known.until < until) {
            self.pauses.insert(scope, Lost { queue: Arc::clone(queue), since, until, reason });
        }
    }

    /// With them the store has lost who is there.
    pub(super) fn attend(&self, now: Instant) {
        if let Some(Lost { queue, .. }) = self.pauses.values().next() {
            queue.registered().attendance.lost_data(now);
        }
    }

    /// Tells the store, one after another until `by`: what is left the next look finds again. One that was released since it is known here
    /// the store does not take, and it is over.
    pub(super) async fn tell_again(mut self, by: Instant) {
        // What the whole upstream explains, a scope need not say.
        let of_all = self.pauses.get(&None).map(|all| all.until + all.recovery() / 2);
        self.pauses.retain(|scope, lost| scope.is_none() || of_all.is_none_or(|until| lost.until > until));
        for (scope, lost) in &self.pauses {
            if Instant::now() >= by || !self.tell(*scope, lost).await {
                return;
            }
        }
    }

    /// Says whether the store has answered.
    async fn tell(&self, scope: Option<ScopeId>, lost: &Lost) -> bool {
        let Lost { queue, since, until, reason } = lost;
        let (stamp, at) = self.looked;
        let left = until.saturating_duration_since(Instant::now());
        let started = stamp.plus(-micros(at.saturating_duration_since(*since)));
        let pause = Pause {
            recovery: lost.recovery(),
            cause: reason.cause,
            status: reason.status.unwrap_or(0),
            started: Some(started),
            ..Pause::new(left)
        };
        tracing::debug!(upstream = &**queue.upstream(), ?left, "the store has lost the pause, and is told again");
        // A stream of its own: others are about what upstreams say now.
        let name = scope.map(|scope| scope.to_string()).unwrap_or_default();
        let id = queue.process.next_message(format!("{name}?@{}", queue.upstream()).into());
        let message = queue.shard.message(id, Body::Pause { scope, pause });
        let answer = queue.process.store.apply(&message).await;
        let Some(paused) = answer.ok().and_then(Reply::paused) else { return false };
        if Instant::now() + paused.wait() + SOONER < *until {
            if scope.is_none() {
                queue.crowd.release();
            }
            queue.release_until(*until);
        }
        true
    }
}

impl Lost {
    /// For how long after it calls come slower, as far as the upstream's settings say.
    fn recovery(&self) -> Duration {
        let by_settings = self.queue.registered().upstream.recovery;
        by_settings.filter(|_| self.reason.cause <= Cause::Refusal).unwrap_or_default()
    }
}
