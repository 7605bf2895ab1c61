//! An outage in which each process throttles by itself: since when it lasts, and until when others may do so. Pure: time is an argument.
//!
//! The shared log and the shares of the processes must not be used within one window. So each process goes by its share no sooner than a
//! window and two seconds after the store was lost, when all that was booked there counts no more. And after an outage that was long enough
//! for that, each tells the store until when others may have sent, as of an entry that is lost: nobody starts then until all of that counts
//! no more. Where it has sent nothing itself, that goes for nothing as long as an entry counts that was booked before it lost the store:
//! somebody reached that too lately for anybody to have sent by itself. As the answer may have been lost on its way, it asks for nobody then
//! until all others must have the store back, and have told what they have sent.

use std::sync::atomic::{AtomicBool, Ordering};
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
pub(super) const SPREAD: Duration = STALL;
/// For so long everybody waits for the store when nothing counts any more: after an outage that was over by then nobody waits for what others
/// may have sent, and most are.
const BRIEF: Duration = Duration::from_secs(1);
/// For so long it is told what may have been sent in an outage: no log counts for longer.
const TOLD: Duration = Duration::from_micros(SHORT.unsigned_abs());
/// Of so many outages that are over each is known by itself: of more, the first two are one.
const MOST: usize = 16;

/// What the queues of one upstream know of it together.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    state: Mutex<State>,
    /// The store was lost once, so that mostly nobody takes the lock.
    was_lost: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// When the store answered last.
    heard_at: Option<Instant>,
    outage: Option<Outage>,
    /// Outages that are over, if not for long.
    ended: Vec<Ended>,
}

#[derive(Debug)]
struct Outage {
    /// When the message was sent that could not reach it first.
    sent: Instant,
    since: Instant,
    /// When the store failed last.
    failed_at: Instant,
    /// When a call went last.
    went_at: Option<Instant>,
    /// Where its calls are booked.
    own: Option<Own>,
    /// The store was reached last, and refused: others may go by it.
    is_refused: bool,
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
    /// When this process had sent the message that could not reach the store first.
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
        let mut state = self.lock();
        self.was_lost.store(true, Ordering::Relaxed);
        match &mut state.outage {
            Some(outage) if outage.is_fresh(now) && !outage.is_refused => outage.failed_at = outage.failed_at.max(now),
            before => {
                let went_at = before.as_ref().and_then(|before| before.went_at);
                // Who was refused meanwhile waits since then all the same.
                let refused = before.as_ref().filter(|before| before.is_refused && before.is_fresh(now));
                let sent = refused.map_or(sent, |before| before.sent);
                *before = Some(Outage { sent, since: now, failed_at: now, went_at, own: None, is_refused: false });
            }
        }
    }

    /// It was reached, and refused a message: nobody goes by its part any more. Others may, until it has answered here.
    pub(super) fn refused(&self, now: Instant) {
        if let Some(outage) = &mut self.lock().outage {
            (outage.failed_at, outage.is_refused, outage.own) = (now, true, None);
        }
    }

    /// It has answered. Where processes throttle by themselves no more, it is not noted when it was tried.
    pub(super) fn answered(&self, is_noted: bool, now: Instant) {
        let mut state = self.lock();
        let heard_at = state.heard_at.replace(now);
        let Some(outage) = state.outage.take() else { return };
        // Others may have found it lost before, as soon as it had answered here.
        let lasted = heard_at.map_or(Duration::MAX, |heard_at| now.saturating_duration_since(heard_at));
        // Who did not try it lately does not know when it was back: those who did tell.
        let until =
            if outage.is_fresh(now) || !is_noted { now + SPREAD } else { outage.went_at.unwrap_or(outage.since) };
        state.ended.retain(|ended| ended.matters(now));
        state.ended.push(Ended { sent: outage.sent, until, lasted, at: now, went: outage.went_at.is_some() });
        if state.ended.len() > MOST {
            let first = state.ended.remove(0);
            state.ended[0] = state.ended[0].and(first);
        }
    }

    /// Whether the store was ever lost.
    pub(super) fn was_lost(&self) -> bool {
        self.was_lost.load(Ordering::Relaxed)
    }

    /// Whether it is lost, and processes may send by themselves.
    pub(super) fn is_lost(&self) -> bool {
        self.was_lost() && self.lock().outage.is_some()
    }

    /// When it answered last.
    pub(super) fn heard_at(&self) -> Option<Instant> {
        self.lock().heard_at
    }

    /// Since when the store has been out of reach: since now, where it was not tried lately, and may have been back meanwhile.
    pub(super) fn since(&self, now: Instant) -> Option<Instant> {
        let state = self.lock();
        let outage = state.outage.as_ref().filter(|outage| !outage.is_refused)?;
        Some(if outage.is_fresh(now) { outage.since } else { now })
    }

    /// When the message was sent that could not reach it first.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        self.lock().outage.as_ref().map(|outage| outage.sent)
    }

    /// The outages that are over, if not for long, and ended after `told`, as one.
    pub(super) fn ended(&self, told: Option<Instant>, now: Instant) -> Option<Ended> {
        let state = self.lock();
        let untold = state.ended.iter().filter(|ended| ended.matters(now) && told.is_none_or(|told| told < ended.at));
        untold.copied().reduce(Ended::and)
    }

    /// Where calls are booked meanwhile. `None`: the store was reached, or the operating system gives no randomness.
    pub(super) fn own(&self, horizon: Duration) -> Option<Own> {
        let mut state = self.lock();
        let outage = state.outage.as_mut().filter(|outage| !outage.is_refused)?;
        if outage.own.is_none() {
            let process = Process::new(Arc::new(MemoryStore::new()), horizon).ok()?;
            outage.own = Some(Own { process: Arc::new(process), time: Arc::new(LogTime::new()) });
        }
        outage.own.clone()
    }

    /// A call goes by the share of this process: not where the store was reached, or may have been, meanwhile.
    pub(super) fn goes(&self, by: &Arc<Process>, now: Instant) -> bool {
        let mut state = self.lock();
        let is_of = |outage: &Outage| outage.own.as_ref().is_some_and(|own| Arc::ptr_eq(&own.process, by));
        let outage = state.outage.as_mut().filter(|outage| is_of(outage) && outage.is_fresh(now));
        let Some(outage) = outage else { return false };
        outage.went_at = Some(now);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    /// Whether the store was tried lately.
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.failed_at) < PATIENCE
    }
}

impl Ended {
    /// Whether anything counts that may have been sent meanwhile.
    fn matters(&self, now: Instant) -> bool {
        now < self.until + TOLD
    }

    /// Both as one.
    fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent.min(other.sent),
            until: self.until.max(other.until),
            lasted: self.lasted.max(other.lasted),
            at: self.at.max(other.at),
            went: self.went || other.went,
        }
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
    /// When this process had sent the message that could not reach the store first, in log time, at the earliest.
    pub(super) lost_at: Stamp,
    /// Until when others may have sent by themselves, in log time.
    pub(super) until: Stamp,
    pub(super) lasted: Duration,
    /// What was first said before its end told nobody of it.
    pub(super) ended_at: Instant,
    /// This process has.
    pub(super) went: bool,
}

impl Doubt {
    /// Whether others may have sent by this log alone.
    fn concerns(&self, log: &Log, horizon: Duration) -> bool {
        !log.terms.is_empty() && self.lasted >= waited_for(std::slice::from_ref(log), horizon)
    }

    /// Whether others may have sent, and this process has not.
    pub(super) fn is_of_others(&self, logs: &[Log], horizon: Duration) -> bool {
        !self.went && logs.iter().any(|log| self.concerns(log, horizon))
    }

    /// Adds what the store must hold of it, as far as that counts by the log time that is known. Says whether there is anything.
    pub(super) fn add_to(self, told: &mut Remembered, logs: &[Log], horizon: Duration, known: Option<Stamp>) -> bool {
        let mut adds = false;
        for (at, log) in logs.iter().enumerate().filter(|(_, log)| self.concerns(log, horizon)) {
            if known.is_some_and(|known| self.until.plus(log.retention()) <= known) {
                continue;
            }
            let of_logs = if self.went { &mut told.newest } else { &mut told.apart };
            of_logs.resize(logs.len(), Stamp::NEVER);
            of_logs[at] = of_logs[at].max(self.until);
            adds = true;
        }
        if !told.apart.is_empty() {
            told.lost_at = self.lost_at;
        }
        adds
    }
}
