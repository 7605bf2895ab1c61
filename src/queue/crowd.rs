//! The callers of an upstream: how many wait, that they are not too many, and until when none of them sends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::counts::Counts;
use crate::error::Error;
use crate::ledger::Reason;

/// The callers of one process that wait for an upstream, whatever their scope.
#[derive(Debug)]
pub(crate) struct Crowd {
    waiting: AtomicUsize,
    /// Shadows of callers that went on, as the upstream is observed: nobody waits there.
    shadows: AtomicUsize,
    most: AtomicUsize,
    counts: Counts,
    /// The next caller's.
    tickets: AtomicU64,
    /// Since when those wait who are in no queue yet, as their host cannot be connected to: by their tickets.
    outside: Mutex<BTreeMap<u64, Instant>>,
    pause: Mutex<Option<Pause>>,
    /// Whether there is a pause, so that mostly nobody takes the lock.
    is_paused: AtomicBool,
    /// How many releases of it, or of its scopes, are known.
    releases: AtomicU64,
}

/// Nobody sends before then, and why.
type Pause = (Instant, Reason);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    crowd: Arc<Crowd>,
    is_shadow: bool,
    /// Its place: before all who came later, in whichever queue it stands.
    pub(crate) ticket: u64,
}

impl Crowd {
    pub(crate) const fn new(most: usize, counts: Counts) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            shadows: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
            counts,
            tickets: AtomicU64::new(1),
            outside: Mutex::new(BTreeMap::new()),
            pause: Mutex::new(None),
            is_paused: AtomicBool::new(false),
            releases: AtomicU64::new(0),
        }
    }

    /// What they are counted by.
    #[cfg(feature = "metrics")]
    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether neither callers nor shadows are here.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.shadows.load(Ordering::Relaxed) == 0
    }

    /// Callers that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lets nobody send before `until`. Says whether that is news to whoever waits: a pause begins, or its cause is graver.
    pub(super) fn pause(&self, until: Instant, reason: Reason, now: Instant) -> bool {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let before = pause.filter(|(until, _)| *until > now);
        let (later, graver) =
            before.map_or((until, reason), |(paused, before)| (paused.max(until), before.or_graver(reason)));
        *pause = Some((later, graver)).filter(|_| later > now);
        self.is_paused.store(pause.is_some(), Ordering::Relaxed);
        pause.is_some() && before.is_none_or(|(_, before)| before.cause < graver.cause)
    }

    /// The pause has ended before its time, or may have.
    pub(super) fn release(&self) {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.is_paused.store(false, Ordering::Relaxed);
    }

    /// The same of a pause that was to last until then, and of no longer one.
    pub(super) fn release_until(&self, until: Instant) {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        *pause = pause.filter(|(paused, _)| *paused > until);
        self.is_paused.store(pause.is_some(), Ordering::Relaxed);
    }

    /// Somebody has ended pauses of it, or of a scope: what the store knew of them it knows no more.
    pub(super) fn note_release(&self) {
        self.releases.fetch_add(1, Ordering::Relaxed);
    }

    /// How many releases are known.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Relaxed)
    }

    /// The pause at `now`.
    #[inline]
    pub(crate) fn paused(&self, now: Instant) -> Option<Pause> {
        if !self.is_paused.load(Ordering::Relaxed) {
            return None;
        }
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        *pause = pause.filter(|(until, _)| *until > now);
        self.is_paused.store(pause.is_some(), Ordering::Relaxed);
        *pause
    }

    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// From now on so many may wait; who waits already goes on.
    pub(crate) fn admit_at_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Takes in a caller, or a shadow, of an upstream.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyWaiting`].
    pub(crate) fn admit(self: &Arc<Self>, is_shadow: bool, upstream: &Arc<str>) -> Result<Member, Error> {
        let refused = || Error::TooManyWaiting { upstream: Arc::clone(upstream), max_waiting: self.most() };
        self.enter(is_shadow).ok_or_else(refused)
    }

    /// The same, unless too many of them are here already.
    pub(super) fn enter(self: &Arc<Self>, is_shadow: bool) -> Option<Member> {
        // First: what a program counts with may panic.
        if !is_shadow {
            self.counts.came();
        }
        let before = self.like(is_shadow).fetch_add(1, Ordering::Relaxed);
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let member = Member { crowd: Arc::clone(self), is_shadow, ticket };
        (before < self.most()).then_some(member)
    }

    /// A caller of this place waits in no queue, since then, for as long as that is kept.
    pub(crate) fn waits_outside(&self, ticket: u64, since: Instant) -> impl Drop + '_ {
        self.outside().insert(ticket, since);
        Outside(self, ticket)
    }

    /// Since when the one waits who has waited longest of those who are in no queue yet.
    #[cfg(feature = "metrics")]
    pub(crate) fn outside_since(&self) -> Option<Instant> {
        self.outside().first_key_value().map(|(_, since)| *since)
    }

    fn outside(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn like(&self, is_shadow: bool) -> &AtomicUsize {
        if is_shadow { &self.shadows } else { &self.waiting }
    }
}

/// Somebody who waits in no queue.
struct Outside<'a>(&'a Crowd, u64);

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.outside().remove(&self.1);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let before = self.crowd.like(self.is_shadow).fetch_sub(1, Ordering::Relaxed);
        if !self.is_shadow {
            self.crowd.counts.went(before == 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::Cause;

    #[test]
    fn a_pause_is_news_when_it_begins_or_its_cause_is_graver() {
        let (crowd, begin) = (Crowd::new(1, Counts::default()), Instant::now());
        let at = |secs| begin + Duration::from_secs(secs);
        let said = [
            (0, 5, Cause::Refusal, true),
            (1, 3, Cause::Refusal, false),
            (1, 6, Cause::Refusal, false),
            (2, 4, Cause::Ban, true),
            (2, 7, Cause::Spend, false),
            (7, 7, Cause::Ban, false),
            (7, 9, Cause::Refusal, true),
        ];
        assert_eq!(crowd.paused(begin), None);
        for (now, until, cause, is_news) in said {
            assert_eq!(crowd.pause(at(until), Reason::new(cause, 429), at(now)), is_news, "{now} s");
        }
        assert_eq!(
            [at(8), at(9)].map(|now| crowd.paused(now)),
            [Some((at(9), Reason::new(Cause::Refusal, 429))), None]
        );
        assert_eq!(crowd.paused(at(8)), None, "it is forgotten when it is over");
    }

    #[test]
    fn as_many_enter_as_may_wait_and_who_leaves_makes_room() {
        let crowd = Arc::new(Crowd::new(2, Counts::default()));
        let enter = || crowd.enter(false);
        let (first, second) = (enter(), enter());
        assert!(first.is_some() && second.is_some() && enter().is_none());
        drop(first);
        assert!(enter().is_some());
        assert_eq!(crowd.waiting.load(Ordering::Relaxed), 1, "who was refused, and who left, counts no more");
    }
}
