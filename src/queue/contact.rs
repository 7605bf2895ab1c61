//! Whether the store answers the queues of an upstream, and what becomes of calls while it does not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::apart::Apart;
use super::resend::MEMORY;
use crate::error::StoreError;
use crate::ledger::{Reason, Term, micros};
use crate::store::WithoutStore;

/// Who hears so soon again that data was lost hears of the same loss.
const SAID: Duration = Duration::from_secs(60);

/// What the queues of one upstream know of the store together.
#[derive(Debug)]
pub(crate) struct Contact {
    upstream: Arc<str>,
    policy: WithoutStore,
    /// Where each process throttles by itself meanwhile.
    pub(super) apart: Arc<Apart>,
    state: Mutex<State>,
    /// Whether it was said that it is lost, so that mostly nobody takes the lock.
    is_lost: AtomicBool,
    /// When it was last heard of, but for answers to messages: microseconds since `epoch`; zero where it never was.
    heard: AtomicU64,
    epoch: Instant,
    /// It was said that others name other limits.
    told_other_limit: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Why, and when, it could not be reached: nothing was heard of it since.
    cut_off: Option<(StoreError, Instant)>,
    /// Queues whose last message it refused.
    refused: usize,
    /// When it was said last that it has lost data.
    lost_data: Option<Instant>,
    /// The pause of the whole upstream that it told last of, and how many releases were known then.
    pause: Option<(Instant, Reason, u64)>,
}

impl Contact {
    pub(crate) fn new(upstream: Arc<str>, policy: WithoutStore) -> Self {
        Self {
            upstream,
            policy,
            apart: Arc::default(),
            state: Mutex::default(),
            is_lost: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            epoch: Instant::now(),
            told_other_limit: AtomicBool::new(false),
        }
    }

    /// Goes on with an outage that was known before.
    pub(super) fn follow(&mut self, before: &Self) {
        self.apart = Arc::clone(&before.apart);
        // A queue of before may have heard of the store since.
        let heard_at = self.apart.heard_at();
        let cut_off = before.lock().cut_off.clone().filter(|(_, at)| heard_at.is_none_or(|heard_at| heard_at < *at));
        self.is_lost = AtomicBool::new(cut_off.is_some());
        // By another policy nobody has noted it.
        if let Some((_, at)) = cut_off.as_ref().filter(|_| self.throttles_locally() && !self.apart.is_lost()) {
            self.apart.lose(*at, *at);
        }
        self.lock().cut_off = cut_off;
    }

    /// Why the store cannot be reached by any queue of the upstream.
    pub(super) fn cut_off(&self, now: Instant) -> Option<StoreError> {
        if !self.is_lost.load(Ordering::Relaxed) {
            return None;
        }
        // Where each process throttles by itself nobody goes by the store before it is known that it answers.
        let is_believed = |at| self.throttles_locally() || is_believed(at, now);
        let state = self.lock();
        state.cut_off.as_ref().filter(|(_, at)| is_believed(*at)).map(|(error, _)| error.clone())
    }

    /// When it was last heard of, but for answers to messages.
    pub(super) fn heard_at(&self) -> Option<Instant> {
        let heard = self.heard.load(Ordering::Relaxed);
        (heard > 0).then(|| self.epoch + Duration::from_micros(heard))
    }

    /// Whether it has answered a message since then.
    pub(super) fn has_answered_since(&self, then: Instant) -> bool {
        self.apart.heard_at().is_some_and(|heard_at| heard_at > then)
    }

    /// Whether the whole upstream is paused, as it has told when so many releases were known.
    pub(super) fn note_pause(&self, pause: Option<(Instant, Reason)>, releases: u64) {
        self.lock().pause = pause.map(|(until, reason)| (until, reason, releases));
    }

    /// Until when the whole upstream is paused, as far as it has told, unless anything was released since.
    pub(super) fn pause_of_all(&self, releases: u64) -> Option<(Instant, Reason)> {
        self.lock().pause.filter(|(.., known)| *known == releases).map(|(until, reason, _)| (until, reason))
    }

    /// It told its time.
    pub(super) fn heard(&self, now: Instant) {
        let heard = micros(now.saturating_duration_since(self.epoch)).unsigned_abs();
        self.heard.fetch_max(heard, Ordering::Relaxed);
    }

    /// It could not be reached by a message that was sent first at `sent`.
    pub(super) fn lose(&self, error: &StoreError, sent: Instant, now: Instant) {
        let mut state = self.lock();
        state.cut_off = Some((error.clone(), now));
        if self.throttles_locally() {
            self.apart.lose(sent, now);
        }
        self.tell(&state, Some(error));
    }

    /// It has answered a message.
    pub(super) fn answered(&self, now: Instant) {
        if self.throttles_locally() || self.apart.is_lost() {
            self.apart.answered(self.throttles_locally(), now);
        }
        self.is_reached();
    }

    /// It was reached, and refused a message.
    pub(super) fn refused(&self, now: Instant) {
        if self.apart.was_lost() {
            self.apart.refused(now);
        }
        self.is_reached();
    }

    fn is_reached(&self) {
        if self.is_lost.load(Ordering::Relaxed) {
            let mut state = self.lock();
            state.cut_off = None;
            self.tell(&state, None);
        }
    }

    /// It has lost data: said once for all queues that hear of it.
    pub(super) fn lost_data(&self, now: Instant) {
        let mut state = self.lock();
        if state.lost_data.replace(now).is_none_or(|last| now.saturating_duration_since(last) > SAID) {
            let upstream = &*self.upstream;
            tracing::warn!(upstream, "store lost data: nobody sends until all that may be missing counts no more");
        }
    }

    /// It refused a message of a queue whose last it did not refuse.
    pub(super) fn refuse(&self, error: &StoreError) {
        let mut state = self.lock();
        state.refused += 1;
        self.tell(&state, Some(error));
    }

    /// A queue whose last message it refused is refused no more, or is no more.
    pub(super) fn refuse_no_more(&self) {
        let mut state = self.lock();
        state.refused = state.refused.saturating_sub(1);
        self.tell(&state, None);
    }

    /// Other processes name other limits of a log, and these hold as well: the strictest of them.
    pub(super) fn other_limit(&self, log: &str, term: Term) {
        if self.told_other_limit.load(Ordering::Relaxed) || self.told_other_limit.swap(true, Ordering::Relaxed) {
            return;
        }
        let (upstream, units, span) = (&*self.upstream, term.quota, Duration::from_micros(term.span.unsigned_abs()));
        tracing::warn!(
            upstream,
            log,
            units,
            ?span,
            "other processes give it other limits, and those of all hold; said once"
        );
    }

    /// Says what is new: once, not for each queue.
    fn tell(&self, state: &State, error: Option<&StoreError>) {
        let is_lost = state.cut_off.is_some() || state.refused > 0;
        if self.is_lost.swap(is_lost, Ordering::Relaxed) == is_lost {
            return;
        }
        let (upstream, error) = (&*self.upstream, error.map(|error| error as &dyn std::error::Error));
        match (is_lost, self.policy) {
            (false, _) => tracing::info!(upstream, "store back: calls are throttled again"),
            (true, WithoutStore::Wait) => {}
            (true, WithoutStore::Refuse) => tracing::warn!(upstream, error, "store lost: calls are refused"),
            (true, WithoutStore::ThrottleLocally) => {
                tracing::warn!(upstream, error, "store lost: each process throttles its calls by itself");
            }
            (true, WithoutStore::SendUnthrottled) => {
                tracing::warn!(upstream, error, "store lost: calls are sent unthrottled");
            }
        }
    }

    fn throttles_locally(&self) -> bool {
        self.policy == WithoutStore::ThrottleLocally
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what happened then is still believed: as long as anybody is here the store is tried again, and fails again.
pub(super) fn is_believed(failed_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(failed_at) < MEMORY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;

    #[test]
    fn the_store_is_lost_as_long_as_any_queue_is_cut_off_or_refused() {
        let contact = Contact::new("up".into(), WithoutStore::Refuse);
        let now = Instant::now();
        let is_lost_at =
            |contact: &Contact, now| (contact.cut_off(now).is_some(), contact.is_lost.load(Ordering::Relaxed));
        let is_lost = |contact: &Contact| is_lost_at(contact, now);
        let refusal = StoreError::new(StoreErrorKind::Refused, "no");
        contact.answered(now);
        assert_eq!(is_lost(&contact), (false, false));
        contact.lose(&StoreError::late(), now, now);
        contact.refuse(&refusal);
        contact.refuse(&refusal);
        assert_eq!(is_lost(&contact), (true, true));
        let later = now + Duration::from_secs(30);
        assert_eq!(is_lost_at(&contact, later), (false, true), "nobody has tried since, and nobody has heard of it");
        contact.answered(now);
        assert_eq!(is_lost(&contact), (false, true), "others are refused still, and only they");
        contact.refuse_no_more();
        assert_eq!(is_lost(&contact), (false, true));
        contact.refuse_no_more();
        assert_eq!(is_lost(&contact), (false, false));
    }
}
