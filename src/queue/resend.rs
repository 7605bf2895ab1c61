//! A message without an answer: when to send it again, and how long callers wait for it. Time is an argument, but for that of the machine.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::engine::Engine;
use super::events::{Effects, tell};
use super::waiters::{Waiter, Wish};
use crate::error::StoreError;
use crate::store::age::{REPEATED_WITHIN, Written};

/// How long a caller without a deadline that came then waits for a store that does not answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a message may be sent again; and so long what failed is believed, where nobody tries.
pub(super) const MEMORY: Duration = REPEATED_WITHIN;
/// Whoever looks for an answer so much later than it would has not been there: its process, or its runtime, stood still.
pub(super) const LATE: Duration = Duration::from_millis(100);
/// A new caller has a silent store tried again at once, but no more often than this.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries, less the jitter, which is as much again: a store that is back is found within a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The time since a message was first sent.
#[derive(Debug)]
pub(super) struct Resend {
    pub(super) since: Instant,
    /// The same by a clock that goes on while the machine stands still.
    written: Written,
    /// The store has been silent for longer, to a message before it.
    silent_since: Instant,
    failure: Option<Failure>,
    /// Somebody came since the message was last sent: that try may have begun before the store was back.
    hurried: bool,
    /// It was sent more than once: the store may have acted long before it answered.
    pub(super) is_repeated: bool,
    /// Nobody had looked for an answer for too long until then. Once for each message: where all is late a silent store is lost all the same.
    unheard_until: Option<Instant>,
    /// It has been sent anew as nobody waited for the answer any more. That counts once as well.
    was_lost: bool,
}

/// The last answer that was none.
#[derive(Debug)]
struct Failure {
    error: StoreError,
    at: Instant,
    retry_at: Instant,
    backoff: ExponentialBackoff,
}

impl Resend {
    pub(super) fn new(since: Instant) -> Self {
        Self {
            since,
            written: Written::now(),
            silent_since: since,
            failure: None,
            hurried: false,
            is_repeated: false,
            unheard_until: None,
            was_lost: false,
        }
    }

    /// The same for the next message, to a store that is as silent as before.
    fn for_next(self, since: Instant) -> Self {
        let silent_since = self.silent_since();
        let (written, unheard_until) = (Written::now(), None);
        Self { since, written, silent_since, is_repeated: false, unheard_until, was_lost: false, ..self }
    }

    /// Nobody waited for the answer any more, and it is sent anew: the store may have answered.
    pub(super) fn was_lost(&mut self, now: Instant) {
        if !self.has_failed() && !std::mem::replace(&mut self.was_lost, true) {
            (self.silent_since, self.unheard_until) = (now, None);
        }
    }

    /// Whether the store may have acted by the message so long ago that it has forgotten that: sent again, it would act twice.
    pub(super) fn may_be_forgotten(&self, now: Instant) -> bool {
        self.since + MEMORY <= now || self.written.is_old()
    }

    /// Takes note of a failure: the message goes out again after a pause that doubles, with jitter that grows from
    /// `seed`: up to a second.
    pub(super) fn failed(&mut self, error: StoreError, now: Instant, seed: u64) {
        let mut backoff = self.failure.take().map_or_else(
            || {
                let pauses = ExponentialBuilder::new().with_min_delay(RETRY_PAUSE).with_max_delay(LONGEST_PAUSE);
                pauses.without_max_times().with_jitter().with_jitter_seed(seed).build()
            },
            |failure| failure.backoff,
        );
        let pause = if std::mem::take(&mut self.hurried) { None } else { backoff.next() };
        let retry_at = now + pause.unwrap_or(RETRY_PAUSE);
        self.failure = Some(Failure { error, at: now, retry_at, backoff });
    }

    /// Somebody came and wants an answer: tries again soon.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.hurried = true;
        if let Some(failure) = &mut self.failure {
            failure.retry_at = failure.retry_at.min(now.max(failure.at + RETRY_PAUSE));
        }
    }

    /// Nobody has looked for an answer until now, who should have: the store may have answered.
    pub(super) fn was_unheard(&mut self, now: Instant) {
        self.unheard_until.get_or_insert(now);
    }

    /// Whether what fails now says nothing of the store.
    pub(super) fn is_unheard(&self, now: Instant) -> bool {
        self.unheard_until.is_some_and(|until| now < until + LATE)
    }

    /// Since when the store is silent, as far as anybody would have heard it.
    pub(super) fn silent_since(&self) -> Instant {
        self.unheard_until.unwrap_or(self.silent_since)
    }

    /// When the message goes out again; `None` while it is under way for the first time.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.failure.as_ref().map(|failure| failure.retry_at)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Why there is no answer.
    pub(super) fn error(&self) -> StoreError {
        self.failure.as_ref().map_or_else(StoreError::late, |failure| failure.error.clone())
    }
}

impl Engine {
    /// Refuses callers without a deadline for whom the store has been silent too long, and forgets what its message told once nobody
    /// waits any more. As long as anybody does, debts are told again.
    pub(super) fn expire(&mut self, now: Instant, effects: &mut Effects) {
        if self.stalls_at(now).is_some_and(|at| at <= now) {
            self.lose(StoreError::late(), now, effects);
        }
        if self.sits_out_until(now).is_none() {
            self.turn_away(now, effects);
        }
        let Some(resend) = &self.resend else { return };
        let silent_since = resend.silent_since();
        if self.first_expiry(silent_since, now).is_some_and(|first| first <= now) {
            let error = self.unavailable(&resend.error(), now);
            let expired = |waiter: &Waiter| waiter.wish == Wish::Soon && expiry(waiter.joined, silent_since) <= now;
            tell(effects, self.waiters.drop_hopeless(now, |waiter, _| expired(waiter).then(|| error.clone())));
        }
        // While it is under way it may be answered.
        if (resend.has_failed() || !self.under_way) && resend.may_be_forgotten(now) {
            // Twice, a hand-back would take somebody else's slots, and an ask book more. A wasted slot breaks no limit.
            let unanswered = self.unanswered.take();
            self.previous = 0;
            // Where nothing is known to have failed, nothing is known of the store.
            let failed = self.resend.take().filter(Resend::has_failed);
            if let Some(seats) = &mut self.seats {
                seats.give_up(now);
            }
            self.seats_lent(0);
            self.counted.clear();
            if self.waiters.is_empty() {
                self.on_record = false;
                self.surplus.clear();
                self.memory.tell_later();
                self.is_in_doubt = false;
                // What calls used since then was in no message yet: it is told by one of its own, for as long.
                self.leave_one_message();
                self.resend = failed.filter(|_| self.corrections.is_some()).map(|resend| resend.for_next(now));
            } else {
                self.resend = failed.map(|resend| resend.for_next(now));
                if let Some(message) = unanswered {
                    self.owe_again(&message, now);
                }
            }
        }
    }

    /// When the first of those callers is refused.
    fn first_expiry(&self, since: Instant, now: Instant) -> Option<Instant> {
        let joined = if self.sits_out_until(now).is_some() { None } else { self.waiters.first_patient(now) };
        joined.map(|joined| expiry(joined, since))
    }

    /// When there is more to expire.
    pub(super) fn next_expiry(&self, now: Instant) -> Option<Instant> {
        let goes_at = self.goes_at(now);
        let gives_up_at = self.gives_up_at(now);
        let Some(resend) = &self.resend else { return goes_at.into_iter().chain(gives_up_at).min() };
        let end = self.waiters.is_empty().then_some(resend.since + MEMORY);
        let first = self.first_expiry(resend.silent_since(), now).or(end).filter(|&at| at > now);
        first.into_iter().chain(self.stalls_at(now)).chain(goes_at).chain(gives_up_at).min()
    }
}

/// How long a caller without a deadline waits for a store that has been silent for so long.
fn expiry(joined: Instant, since: Instant) -> Instant {
    joined.max(since) + PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_the_machine_stood_still_is_as_old_as_that() {
        let start = Instant::now();
        let mut resend = Resend::new(start);
        assert!(!resend.may_be_forgotten(start + MEMORY / 2) && resend.may_be_forgotten(start + MEMORY));
        let written = resend.written;
        resend.written = written.earlier_by(MEMORY);
        assert!(resend.may_be_forgotten(start));
        resend.written = written.later_by(MEMORY);
        assert!(resend.may_be_forgotten(start), "the clock was set back");
        assert!(!resend.for_next(start).may_be_forgotten(start));
    }

    #[test]
    fn pauses_grow_to_a_second_at_most_and_a_new_caller_cuts_them_short() {
        let start = Instant::now();
        let mut resend = Resend::new(start);
        assert!(resend.retry_at().is_none() && !resend.has_failed());
        for _ in 0..20 {
            resend.failed(StoreError::late(), start, 7);
        }
        let pause = resend.retry_at().unwrap() - start;
        assert!(pause >= LONGEST_PAUSE && pause <= 2 * LONGEST_PAUSE, "{pause:?}");
        resend.hurry(start + Duration::from_millis(10));
        assert_eq!(resend.retry_at().unwrap(), start + RETRY_PAUSE);
        resend.hurry(start + Duration::from_millis(70));
        assert_eq!(resend.retry_at().unwrap(), start + RETRY_PAUSE);
        resend.failed(StoreError::late(), start, 7);
        assert_eq!(resend.retry_at().unwrap(), start + RETRY_PAUSE, "a try that he may have come too late for");
        resend.failed(StoreError::late(), start, 7);
        assert!(resend.retry_at().unwrap() >= start + LONGEST_PAUSE);
    }
}
