//! What a queue does while the store cannot answer, where callers do not wait for it. Pure: time is an argument.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::apart::{Doubt, SPREAD, waited_for};
use super::contact::is_believed;
use super::engine::Engine;
use super::events::{Effect, Effects, tell};
use super::resend::Resend;
use super::waiters::{Waiter, Wish};
use crate::error::{Error, StoreError};
use crate::store::WithoutStore;

/// A store that shows no sign of life for so long cannot answer.
pub(super) const STALL: Duration = Duration::from_secs(1);

/// What a queue knows of the store, where callers do not wait for it.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Why it decided nothing on the last message of this queue.
    refused: Option<(StoreError, Instant)>,
    /// Why no queue of the upstream can reach it.
    cut_off: Option<StoreError>,
    /// When this queue found last that it cannot.
    failed_at: Option<Instant>,
    /// Callers wait for it until then all the same.
    waits_until: Option<Instant>,
    /// Processes may send by themselves, until it has answered.
    is_apart: bool,
    /// After outages in which they may have.
    pub(super) doubt: Option<Doubt>,
    /// When the last one ended of which the store was told; and the last of which it is told no more, as nothing was lost.
    said: Option<Instant>,
    pub(super) told: Option<Instant>,
    /// When it was last heard of, but for answers to messages.
    heard_at: Option<Instant>,
}

impl Lost {
    /// Whether the store refused the last message of this queue.
    pub(super) const fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    fn why(&self, now: Instant) -> Option<&StoreError> {
        let refused = self.refused.as_ref().filter(|(_, at)| is_believed(*at, now)).map(|(error, _)| error);
        refused.or(self.cut_off.as_ref().filter(|_| self.waits_until.is_none_or(|until| until <= now)))
    }

    /// Whether it is known not to answer, though callers may wait for it all the same.
    fn is_known(&self, now: Instant) -> bool {
        self.cut_off.is_some() || self.why(now).is_some()
    }
}

impl Engine {
    /// Takes note of what other queues of the upstream know: why nobody can reach the store, and when it was heard of.
    pub(super) fn follow(
        &mut self,
        cut_off: Option<StoreError>,
        heard_at: Option<Instant>,
        now: Instant,
        effects: &mut Effects,
    ) {
        self.lost.heard_at = heard_at;
        match (self.lost.cut_off.is_some(), cut_off) {
            (false, Some(error)) => {
                self.lost.cut_off = Some(error);
                self.turn_away(now, effects);
                effects.extend(self.gives_up_at(now).filter(|_| !self.waiters.is_empty()).map(Effect::Wake));
            }
            (true, None) => {
                (self.lost.cut_off, self.lost.waits_until) = (None, None);
                self.resend.iter_mut().for_each(|resend| resend.hurry(now));
            }
            _ => {}
        }
    }

    /// The store has failed: whoever waits for it waits no longer.
    pub(super) fn lose(&mut self, error: StoreError, now: Instant, effects: &mut Effects) {
        if self.settings.without_store == WithoutStore::Wait {
            return;
        }
        if error.serves_nobody() {
            (self.lost.cut_off, self.lost.failed_at) = (Some(error.clone()), Some(now));
            self.waits_since(self.lost.waits_until.is_none().then_some(now));
            let sent = self.resend.as_ref().map_or(now, |resend| resend.since);
            effects.push(Effect::CutOff(error, sent));
        } else {
            // It was reached: other processes may go by it.
            (self.lost.cut_off, self.lost.waits_until) = (None, None);
            let is_news = self.lost.refused.replace((error.clone(), now)).is_none();
            effects.extend(is_news.then_some(Effect::Refused(error)));
            effects.push(Effect::Reached);
        }
        self.turn_away(now, effects);
    }

    /// The store has answered, after so long. Where that took too long, it will not do for the next either.
    pub(super) fn found(&mut self, took: Duration, effects: &mut Effects) {
        let is_none = match self.settings.without_store {
            WithoutStore::Wait => !self.lost.is_apart,
            _ => took > STALL,
        };
        if is_none {
            return;
        }
        (self.lost.cut_off, self.lost.waits_until) = (None, None);
        effects.push(Effect::Answered);
        effects.extend(self.lost.refused.take().map(|_| Effect::RefusedNoMore));
    }

    /// When the store has shown no sign of life for too long, unless it does until then. Where each process throttles by itself, that is noted again
    /// as long as it shows none: it is tried all the time.
    pub(super) fn stalls_at(&self, now: Instant) -> Option<Instant> {
        let is_awaited = self.under_way && self.settings.without_store != WithoutStore::Wait;
        let resend = self.resend.as_ref().filter(|_| is_awaited)?;
        let since = self.lost.heard_at.max(Some(resend.silent_since()));
        let is_news = !self.lost.is_known(now) && !resend.has_failed();
        let throttles = self.settings.without_store == WithoutStore::ThrottleLocally;
        let again = (throttles && self.lost.cut_off.is_some()).then(|| self.lost.failed_at.max(since));
        again.or(is_news.then_some(since)).flatten().map(|since| since + STALL)
    }

    /// Where each process throttles by itself, callers wait for the store until nothing counts any more that was booked before, and a second
    /// more.
    pub(super) fn waits_since(&mut self, lost_at: Option<Instant>) {
        let Some(lost_at) = lost_at.filter(|_| self.settings.without_store == WithoutStore::ThrottleLocally) else {
            return;
        };
        self.lost.waits_until = Some(lost_at + waited_for(&self.settings.logs, self.settings.horizon));
    }

    /// Whether an answer is to a message that was first sent before the end of an outage in which processes may have sent by themselves: it
    /// says nothing of that.
    pub(super) fn knows_nothing_of_outage(&self, sent: Instant) -> bool {
        self.lost.is_apart || self.lost.doubt.is_some_and(|doubt| sent <= doubt.ended_at)
    }

    /// Takes note of outages that are over, and whether one lasts. What this process has sent in one that is over the store is told at once.
    pub(super) fn doubt(&mut self, is_apart: bool, doubt: Option<Doubt>) {
        (self.lost.is_apart, self.lost.doubt) = (is_apart, doubt);
        self.is_in_doubt |= !self.closed && self.unsaid().is_some_and(|doubt| doubt.went);
    }

    /// The outages of which the store was told nothing yet.
    fn unsaid(&self) -> Option<Doubt> {
        self.lost.doubt.filter(|doubt| self.lost.said.is_none_or(|said| said < doubt.ended_at))
    }

    /// Whether the store is to be told that others may have sent, before anybody asks for a slot.
    pub(super) fn says_first(&self) -> bool {
        let is_of_others = |doubt: Doubt| doubt.is_of_others(&self.settings.logs, self.settings.horizon);
        self.waiters.has_unslotted() && self.unsaid().is_some_and(is_of_others)
    }

    /// The store was told of an outage that ended then. Where nothing is lost nobody has sent who must have told by now; whoever is late tells
    /// before this queue asks.
    pub(super) fn has_said(&mut self, ended_at: Instant, others: bool, lost: bool) {
        self.lost.said = self.lost.said.max(Some(ended_at));
        if !lost {
            self.lost.told = self.lost.told.max(Some(ended_at));
            if others && !self.closed {
                self.silent_until = self.silent_until.max(Some(ended_at + SPREAD));
            }
        }
    }

    /// When callers wait no more for a store that is lost.
    pub(super) fn gives_up_at(&self, now: Instant) -> Option<Instant> {
        self.lost.waits_until.filter(|&until| until > now && self.lost.cut_off.is_some())
    }

    /// Whether the store is known not to answer, and nobody waits for it.
    pub(super) fn is_without_store(&self, now: Instant) -> bool {
        self.lost.why(now).is_some()
    }

    /// Refuses a caller who would wait for a store that does not answer, and has it tried again.
    ///
    /// Where calls go without the store they do so after the pause: until then they wait.
    pub(super) fn check_store(&self, wish: Wish, now: Instant) -> Result<(), Error> {
        let Some(error) = self.lost.why(now) else { return Ok(()) };
        match (self.sits_out_until(now), wish) {
            (Some(_), Wish::Soon) => Ok(()),
            (Some(until), Wish::By(by)) if until <= by => Ok(()),
            _ => Err(self.unavailable(error, now)),
        }
    }

    /// Has the store tried again, though nobody waits.
    pub(super) fn knock(&mut self, now: Instant, effects: &mut Effects) {
        if let Some(resend) = &mut self.resend {
            resend.hurry(now);
        }
        if self.unanswered.is_none() {
            // What it is told then, that nobody waits, does no harm.
            (self.on_record, self.leave_at) = (true, None);
        }
        let at = self.resend.as_ref().and_then(Resend::retry_at).unwrap_or(now);
        effects.extend((!self.under_way).then_some(Effect::Wake(at)));
    }

    /// Why a caller goes without the store's word; one that has to sit out a pause first is told of that.
    pub(super) fn unavailable(&self, error: &StoreError, now: Instant) -> Error {
        match self.sits_out_until(now) {
            Some(until) => self.throttled(until - now, now),
            None => Error::StoreUnavailable { upstream: Arc::clone(&self.settings.upstream), source: error.clone() },
        }
    }

    /// Until when whoever goes without the store waits for the end of a pause.
    pub(super) fn sits_out_until(&self, now: Instant) -> Option<Instant> {
        let goes = self.settings.without_store == WithoutStore::SendUnthrottled;
        self.lasting_pause(now).map(|(until, _)| until).filter(|_| goes)
    }

    /// When callers go who sit out a pause.
    pub(super) fn goes_at(&self, now: Instant) -> Option<Instant> {
        let is_awaited = self.is_without_store(now) && self.waiters.has_unslotted();
        self.sits_out_until(now).filter(|_| is_awaited)
    }

    /// Tells every caller without a slot that the store cannot answer.
    pub(super) fn turn_away(&mut self, now: Instant, effects: &mut Effects) {
        let Some(error) = self.lost.why(now) else { return };
        let (error, sits_out) = (self.unavailable(error, now), self.sits_out_until(now));
        let is_hopeless = |waiter: &Waiter| match (sits_out, waiter.wish) {
            (Some(_), Wish::Soon) => false,
            (Some(until), Wish::By(by)) => by < until,
            _ => true,
        };
        tell(effects, self.waiters.drop_hopeless(now, |waiter, _| is_hopeless(waiter).then(|| error.clone())));
    }
}
