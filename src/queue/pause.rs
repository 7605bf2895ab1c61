//! Nobody sends for a while: what a queue does when it hears of a pause, and of its end.

use std::sync::Arc;

use tokio::time::Instant;

use super::engine::Engine;
use super::events::{Effect, Effects, tell};
use super::waiters::Slot;
use crate::error::Error;
use crate::ledger::{Cause, PauseLeft, Reason};

impl Engine {
    /// Until when nobody sends, and why.
    pub(super) fn lasting_pause(&self, now: Instant) -> Option<(Instant, Reason)> {
        self.paused.filter(|(until, _)| *until > now)
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.lasting_pause(now).is_some()
    }

    /// Whether a slot starts before the end of the pause. Two answers tell that end a little differently: by as much as a slot
    /// may be late.
    pub(super) fn is_before_end_of_pause(&self, slot: &Slot, now: Instant) -> bool {
        !slot.looks
            && self.lasting_pause(now).is_some_and(|(until, _)| slot.start + self.settings.late_at_most() < until)
    }

    /// Nobody sends before `until`: who waits and cannot wait for that is told, unless an answer is under way that says more.
    pub(super) fn pause(&mut self, until: Instant, reason: Reason, now: Instant, effects: &mut Effects) {
        let before = self.lasting_pause(now).map(|(until, _)| until + self.settings.horizon);
        let is_news = self.begin_pause(until, reason, now, effects) && before < Some(until);
        if let Some((until, _)) = self.lasting_pause(now).filter(|_| is_news && self.unanswered.is_none()) {
            self.next_slot = self.next_slot.max(Some(until));
            self.refuse_late(now, effects);
        }
    }

    /// Nobody sends before `until`: whoever has an earlier slot needs another, and who cannot be helped by waiting is told. Says whether that is
    /// news.
    pub(super) fn begin_pause(&mut self, until: Instant, reason: Reason, now: Instant, effects: &mut Effects) -> bool {
        let before = self.lasting_pause(now);
        // Those who wait for seats alone are told by the queues that they wait for.
        if self.settings.logs.is_empty()
            || until <= now
            || before.is_some_and(|(paused, graver)| paused >= until && graver.cause >= reason.cause)
        {
            return false;
        }
        let (until, reason) =
            before.map_or((until, reason), |(paused, before)| (paused.max(until), before.or_graver(reason)));
        let (upstream, cause) = (&*self.settings.upstream, reason.words());
        tracing::debug!(upstream, pause = ?until - now, cause, "paused");
        // One that holds on after a call has looked is the same.
        let is_same = self.paused.is_some_and(|(until, _)| until + self.settings.horizon > now);
        if !is_same {
            self.settings.counts.paused(reason.cause);
        }
        self.paused_at = self.paused_at.filter(|_| is_same).or(Some(now));
        self.paused = Some((until, reason));
        effects.push(Effect::Look);
        let early = self.waiters.take_slots_before(until.checked_sub(self.settings.late_at_most()).unwrap_or(until));
        if !early.is_empty() {
            self.put_back(early, now);
            self.ask_at = None;
        }
        if let Some(barred) = self.barred(now) {
            let barred = self.waiters.drop_hopeless(now, |_, _| Some(barred.clone()));
            tell(effects, barred);
        }
        true
    }

    /// The pause is over, or not what was known of it: whoever waits asks again.
    pub(super) fn release(&mut self, until: Instant) {
        if self.paused.is_none_or(|(paused, _)| paused > until) {
            return;
        }
        (self.paused, self.pause_unknown) = (None, false);
        self.ask_anew();
    }

    /// What counted was forgotten by hand: whoever waits asks again.
    pub(super) fn reset(&mut self) {
        self.is_reset = self.unanswered.is_some();
        self.ask_anew();
    }

    /// What the last answer said of the next slot holds no more.
    pub(super) fn ask_anew(&mut self) {
        self.aside = None;
        (self.ask_at, self.next_slot, self.rest_until, self.near_at) = (None, None, None, None);
    }

    /// What is left of the pause.
    pub(super) fn pause_left(&self, now: Instant) -> Option<PauseLeft> {
        let (until, reason) = self.lasting_pause(now)?;
        Some(PauseLeft::new(until - now, reason))
    }

    /// The error for callers whom waiting does not help.
    pub(super) fn barred(&self, now: Instant) -> Option<Error> {
        let PauseLeft { left, cause, status, .. } =
            self.pause_left(now).filter(|pause| pause.cause > Cause::Refusal)?;
        Some(Error::Barred { upstream: Arc::clone(&self.settings.upstream), cause, status, retry_after: left })
    }
}
