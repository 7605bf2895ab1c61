//! An outage in which each process throttles by itself: since when it lasts, and until when others may do so. Pure: time is an argument.
//!
//! The shared log and the shares of the processes must not be used within one window. So each process goes by its share no sooner than a
//! window and two seconds after the store was lost, when all that was booked there counts no more. And after an outage that was long enough
//! for that, each tells the store until when others may have sent, as of an entry that is lost: nobody starts then until all of that counts
//! no more. Where it has sent nothing itself, that goes for nothing in a log in which an entry counts still that was booked before it lost the
//! store: somebody was answered too lately for anybody to have sent by itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::log_time::LogTime;
use super::process::Process;
use super::resend::PATIENCE;
use super::without_store::STALL;
use crate::ledger::{Log, Remembered, SHORT, Stamp};
use crate::store::MemoryStore;

/// What the processes of an upstream notice within so long they notice at once: that the store is lost, and that it is back.
const SPREAD: Duration = STALL;
/// For so long everybody waits for the store when nothing counts any more: after an outage that was over by then nobody waits for what others
/// may have sent, and most are.
const BRIEF: Duration = Duration::from_secs(1);
/// For so long it is told what may have been sent in an outage: no log counts for longer.
const TOLD: Duration = Duration::from_micros(SHORT.unsigned_abs());

/// What the queues of one upstream know of it together.
#[derive(Debug, Default)]
pub(crate) struct Apart(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the store answered last.
    heard_at: Option<Instant>,
    outage: Option<Outage>,
    last: Option<Ended>,
}

#[derive(Debug)]
struct Outage {
    /// When the first message was sent that could not reach it.
    sent: Instant,
    since: Instant,
    /// When the store was found lost last.
    failed_at: Instant,
    /// When a call went last.
    went_at: Option<Instant>,
    /// Where its calls are booked.
    own: Option<Own>,
}

/// A store of this process alone, and its time.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) process: Arc<Process>,
    pub(super) time: Arc<LogTime>,
}

/// An outage that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// When this process had sent the first message that could not reach the store.
    pub(super) sent: Instant,
    /// Until when any process may have sent by itself.
    pub(super) until: Instant,
    /// At the most.
    pub(super) lasted: Duration,
    pub(super) at: Instant,
    /// This process has.
    pub(super) went: bool,
}

impl Apart {
    /// The store cannot be reached by a message that was sent first at `sent`.
    pub(super) fn lose(&self, sent: Instant, now: Instant) {
        let new = || Outage { sent, since: now, failed_at: now, went_at: None, own: None };
        self.lock().outage.get_or_insert_with(new).failed_at = now;
    }

    /// It has answered.
    pub(super) fn answered(&self, now: Instant) {
        let mut state = self.lock();
        let heard_at = state.heard_at.replace(now);
        let Some(outage) = state.outage.take() else { return };
        // Others may have found it lost before, as soon as it had answered here.
        let lasted = heard_at.map_or(Duration::MAX, |heard_at| now.saturating_duration_since(heard_at));
        // Who did not try it lately does not know when it was back: those who did tell.
        let is_fresh = now.saturating_duration_since(outage.failed_at) < PATIENCE;
        let until = if is_fresh { now + SPREAD } else { outage.went_at.unwrap_or(outage.since) };
        let before = state.last.filter(|last| now < last.until + TOLD);
        state.last = Some(Ended {
            sent: before.map_or(outage.sent, |before| before.sent.min(outage.sent)),
            until: before.map_or(until, |before| until.max(before.until)),
            lasted: before.map_or(lasted, |before| lasted.max(before.lasted)),
            at: now,
            went: outage.went_at.is_some() || before.is_some_and(|before| before.went),
        });
    }

    /// Since when the store has been lost.
    pub(super) fn since(&self) -> Option<Instant> {
        self.lock().outage.as_ref().map(|outage| outage.since)
    }

    /// An outage that is over, if not for long.
    pub(super) fn last(&self, now: Instant) -> Option<Ended> {
        self.lock().last.filter(|last| now < last.until + TOLD)
    }

    /// Where calls are booked meanwhile. `None`: the store is back, or the operating system gives no randomness.
    pub(super) fn own(&self, horizon: Duration) -> Option<Own> {
        let mut state = self.lock();
        let outage = state.outage.as_mut()?;
        if outage.own.is_none() {
            let process = Process::new(Arc::new(MemoryStore::new()), horizon).ok()?;
            outage.own = Some(Own { process: Arc::new(process), time: Arc::new(LogTime::new()) });
        }
        outage.own.clone()
    }

    /// A call goes by the share of this process: not where the store is back, or was meanwhile.
    pub(super) fn goes(&self, by: &Arc<Process>, now: Instant) -> bool {
        let mut state = self.lock();
        let is_of = |outage: &&mut Outage| outage.own.as_ref().is_some_and(|own| Arc::ptr_eq(&own.process, by));
        let Some(outage) = state.outage.as_mut().filter(is_of) else { return false };
        outage.went_at = Some(now);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long after the store was lost nothing counts any more that was booked there so far ahead.
pub(super) fn runs_out_after(logs: &[Log], horizon: Duration) -> Duration {
    let longest = logs.iter().map(Log::retention).max().unwrap_or(0);
    horizon + Duration::from_micros(longest.unsigned_abs())
}

/// How long after the store was lost everybody waits for it.
pub(super) fn waited_for(logs: &[Log], horizon: Duration) -> Duration {
    runs_out_after(logs, horizon) + BRIEF
}

/// How long after the store was lost a process may send by itself: by then all have noticed, and wait no more for the store.
pub(super) fn opens_after(logs: &[Log], horizon: Duration) -> Duration {
    waited_for(logs, horizon) + SPREAD
}

/// After an outage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// When this process had sent the first message that could not reach the store, in log time, at the earliest.
    pub(super) lost_at: Stamp,
    /// Until when others may have sent by themselves, in log time.
    pub(super) until: Stamp,
    pub(super) lasted: Duration,
    /// What was first said before its end told nobody of it.
    pub(super) ended_at: Instant,
    /// This process has.
    pub(super) went: bool,
}

/// Adds what the store must hold of an outage, of logs that may have been sent by meanwhile, as far as that counts by the log time that is known.
pub(super) fn remember(told: &mut Remembered, doubt: Doubt, logs: &[Log], horizon: Duration, known: Option<Stamp>) {
    let Doubt { lost_at, until, lasted, went, .. } = doubt;
    for (at, log) in logs.iter().enumerate().filter(|(_, log)| !log.terms.is_empty()) {
        let counts = known.is_none_or(|known| until.plus(log.retention()) > known);
        if counts && lasted >= waited_for(std::slice::from_ref(log), horizon) {
            let of_logs = if went { &mut told.newest } else { &mut told.apart };
            told.lost_at = lost_at;
            of_logs.resize(logs.len(), Stamp::NEVER);
            of_logs[at] = of_logs[at].max(until);
        }
    }
}
