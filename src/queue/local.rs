//! Callers of a process that throttles by itself while the store cannot answer: in a queue of their own, which asks a store of this process
//! alone for slots, by the part of each limit that is this process's.

use std::pin::pin;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Queue;
use super::apart::{self, Doubt, Own};
use super::events::Event;
use super::resend::PATIENCE;
use super::waiters::{Slot, Waiter};
use crate::counts::GivesUp;
use crate::error::Error;
use crate::ledger::Log;

/// How often a caller that waits looks whether the store is back, and has it tried again.
const LOOK: Duration = Duration::from_millis(100);

/// The part of each log that is one's of so many processes. `None`: there is too little of one.
fn part_of(logs: &[Log], processes: u32) -> Option<Arc<[Log]>> {
    let part = |log: &Log| {
        let terms = log.terms.iter().map(|term| (term.quota >= processes).then(|| term.in_entries_of(processes)));
        Some(Log::new(Arc::clone(&log.unit), terms.collect::<Option<Vec<_>>>()?).of(log.scope))
    };
    logs.iter().map(part).collect()
}

impl Queue {
    /// Whether its callers throttle by themselves.
    pub(crate) const fn is_local(&self) -> bool {
        self.shared.is_some()
    }

    /// The queue of those who throttle by themselves, while there are any.
    pub(super) fn local(&self) -> Option<Arc<Self>> {
        self.lock_local().upgrade()
    }

    fn lock_local(&self) -> MutexGuard<'_, Weak<Self>> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the store is told of outages that are over, and ended after `told`.
    pub(super) fn doubt(&self, told: Option<Instant>, now: Instant) -> Option<Doubt> {
        let ended = self.shard.contact.apart.ended(told, now)?;
        let (lost_at, _) = self.shard.time.bounds_at(ended.sent)?;
        let (_, until) = self.shard.time.bounds_at(ended.until)?;
        Some(Doubt { lost_at, until, lasted: ended.lasted, ended_at: ended.at, went: ended.went })
    }

    /// Waits for a slot by the part of this process, while the store cannot answer and did not for `error`. `None`: it is back. With the queue
    /// that the slot is of.
    ///
    /// # Errors
    ///
    /// `error` where the store is not lost, and where callers have waited for it for long enough; [`Error::Closed`] as
    /// [`slot`](Self::slot), and its other errors.
    pub(crate) async fn slot_apart(
        self: &Arc<Self>,
        waiter: &Waiter,
        error: Error,
    ) -> Result<Option<(Arc<Self>, Slot, Instant)>, Error> {
        let waits = GivesUp::of(self.counts());
        let outcome = self.wait_apart(waiter, error).await;
        waits.end();
        outcome
    }

    async fn wait_apart(
        self: &Arc<Self>,
        waiter: &Waiter,
        error: Error,
    ) -> Result<Option<(Arc<Self>, Slot, Instant)>, Error> {
        let (mut now, mut was_lost) = (Instant::now(), false);
        let waits_since = self.shard.contact.apart.lost_at().max(Some(waiter.joined)).unwrap_or(now);
        let gives_up = waiter.until().unwrap_or(waits_since + PATIENCE);
        loop {
            if self.is_closed() {
                return Err(Error::Closed);
            }
            let Some(since) = self.shard.contact.apart.since(now) else {
                return if was_lost { Ok(None) } else { Err(error) };
            };
            was_lost = true;
            let opens_at = self.opens_at(since, now);
            let Some(local) = self.open_local(&waiter.costs, since).filter(|_| opens_at <= now) else {
                if gives_up <= now {
                    return Err(error);
                }
                self.happen(|_| Some(Event::Knocked));
                let look_at = now + LOOK;
                let look_at = if opens_at > now { look_at.min(opens_at) } else { look_at };
                let outside = self.crowd.waits_outside(waiter.ticket, waiter.joined);
                sleep_until(look_at.min(gives_up)).await;
                drop(outside);
                now = Instant::now();
                continue;
            };
            let outcome = {
                let mut slot = pin!(local.slot(waiter, now));
                loop {
                    tokio::select! {
                        biased;
                        outcome = &mut slot => break Some(outcome?),
                        () = sleep(LOOK) => {}
                    }
                    self.happen(|_| Some(Event::Knocked));
                    let is_back = self.shard.contact.apart.since(Instant::now()) != Some(since);
                    if is_back || self.is_closed() || self.part(since).is_some_and(|part| part != local.logs) {
                        break None;
                    }
                }
            };
            if let Some((slot, at)) = outcome {
                if self.shard.contact.apart.goes(&local.process, at) {
                    return Ok(Some((local, slot, at)));
                }
                local.give_back(slot);
            }
            now = Instant::now();
        }
    }

    /// When nothing counts any more that was booked before the store was lost then. Where one shard alone is lost all others hear of each process that
    /// comes, and have too large a part until they do.
    fn opens_at(&self, lost_at: Instant, now: Instant) -> Instant {
        let registered = self.registered();
        let hears = registered.home().contact.cut_off(now).is_none();
        let heard_of = registered.attendance.heard_of().filter(|_| hears);
        heard_of.map_or(lost_at, |heard_of| heard_of.max(lost_at))
            + apart::opens_after(&self.logs, self.process.horizon)
    }

    /// The part of this process: the store must have counted it not long before. Where one shard alone is lost, it is counted still.
    fn part(&self, lost_at: Instant) -> Option<Arc<[Log]>> {
        part_of(&self.logs, self.registered().attendance.processes(lost_at)?)
    }

    /// The queue by the part of this process, where that has room for such a call.
    fn open_local(self: &Arc<Self>, costs: &[u32], lost_at: Instant) -> Option<Arc<Self>> {
        let own = self.shard.contact.apart.own(self.process.horizon)?;
        let logs = self.part(lost_at)?;
        if logs.iter().zip(costs).any(|(log, &units)| units > log.largest_charge()) {
            return None;
        }
        let now = Instant::now();
        let mut open = self.lock_local();
        // Whoever is left in that of an outage before, or of another part, leaves it.
        let is_same = |open: &Arc<Self>| Arc::ptr_eq(&open.process, &own.process) && open.logs == logs;
        if let Some(open) = open.upgrade().filter(is_same) {
            return Some(open);
        }
        let local = Arc::new(self.beside_itself(own, logs)?);
        *open = Arc::downgrade(&local);
        drop(open);
        if let Some((until, reason)) = self.paused(now) {
            local.pause(until - now, reason, now);
        }
        Some(local)
    }

    fn beside_itself(self: &Arc<Self>, own: Own, logs: Arc<[Log]>) -> Option<Self> {
        let mut local = Self::of(&own.process, self.registered(), self.scopes().clone(), logs).ok()?;
        let shard = self.shard.in_another_store(own.time);
        (local.shard, local.shared) = (Arc::new(shard), Some(Arc::clone(self)));
        Some(local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Bucket, Term};

    #[test]
    fn each_of_several_processes_has_its_part_of_every_limit_and_none_where_there_is_too_little() {
        let bucket = Term::bucket(Bucket::new(100_000_000, 1_000_000_000));
        let logs = [Log::new("calls", [Term::new(10, 1_000), Term::new(4, 100)]), Log::new("tokens", [bucket])];
        for (processes, parts) in [(1, [10, 4, 10]), (2, [5, 2, 5]), (3, [3, 1, 3]), (4, [2, 1, 2])] {
            let part = part_of(&logs, processes).unwrap();
            let quotas: Vec<u32> = part.iter().flat_map(|log| log.terms.iter()).map(|term| term.quota).collect();
            assert_eq!(quotas, parts, "{processes}");
            let spans = part.iter().flat_map(|log| log.terms.iter()).map(|term| term.span);
            assert!(spans.eq(logs.iter().flat_map(|log| log.terms.iter()).map(|term| term.span)), "{processes}");
        }
        assert_eq!(part_of(&logs, 5), None);
    }
}
