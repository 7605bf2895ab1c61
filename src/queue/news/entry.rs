//! What is still to be said of somebody: one message, and behind it at most one pause and the newest report.

use std::time::Duration;

use tokio::time::Instant;

use super::behind::{Pausing, Reporting, What};
use super::errand::{Errand, Holder};
use super::known::KnownPause;
use crate::ledger::{MessageId, Reason};
use crate::queue::resend::{PATIENCE, Resend};

/// For so long after its end a pause is told all the same: how often calls were refused, and what that says of the limits.
const NEWS: Duration = Duration::from_secs(5);

/// What is still to be said of somebody.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Who tells the store.
    pub(super) holder: Option<Holder>,
    pub(super) unanswered: Option<Unanswered>,
    pausing: Option<Pausing>,
    /// When that is told, where it need not be at once.
    pub(super) pause_at: Option<Instant>,
    pub(super) reporting: Option<Reporting>,
}

/// The message that the store has not answered yet: it stays the same until then, so that it acts once however often it is sent.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) what: What,
    pub(super) id: Option<MessageId>,
    pub(super) resend: Resend,
    /// It was refused for the process's name before.
    pub(super) renamed: bool,
}

impl Unanswered {
    /// Whether it tells of a pause that has been over for so long that what it says of the limits is no news either, or is an old report.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        match &self.what {
            What::Pausing(pausing) => now.checked_sub(NEWS).is_some_and(|since| pausing.is_over(since)),
            What::Reporting(reporting) => reporting.reported.is_stale(now),
        }
    }

    /// Whether the store may have acted by it, and have forgotten that.
    pub(super) fn may_be_forgotten(&self, now: Instant) -> bool {
        self.id.is_some() && self.resend.may_be_forgotten(now)
    }
}

impl Entry {
    /// Whether whoever has this errand tells the store, and not another in its place.
    pub(super) fn is_told_by(&self, errand: &Errand) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.has(errand))
    }

    /// Whether nobody tells the store.
    pub(super) fn is_told_by_nobody(&self) -> bool {
        self.holder.as_ref().is_none_or(Holder::is_gone)
    }

    /// Whether nobody tells the store, or nothing polls whoever should.
    pub(super) fn needs_holder(&self, now: Instant) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder.is_gone() || holder.is_overdue(now))
    }

    /// Whether nobody has come to tell the store for so long that nobody waits for it, and no pause lasts.
    pub(super) fn is_given_up(&self, now: Instant) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.is_gone_for(PATIENCE, now)) && !self.has_untold_pause(now)
    }

    /// The message that is to be answered next, if there is one at `now`.
    pub(super) fn next(&mut self, now: Instant) -> Option<&mut Unanswered> {
        if self.unanswered.is_none() {
            let pausing = self.pausing.take_if(|_| self.pause_at.is_none_or(|at| at <= now)).map(What::Pausing);
            self.pause_at = self.pause_at.filter(|_| self.pausing.is_some());
            let what = pausing.or_else(|| self.reporting.take().map(What::Reporting))?;
            self.unanswered = Some(Unanswered { what, id: None, resend: Resend::new(now), renamed: false });
        }
        self.unanswered.as_mut()
    }

    /// What the message says, where that has been over for a while.
    pub(super) fn take_over(&mut self, now: Instant) -> Option<What> {
        Some(self.unanswered.take_if(|unanswered| unanswered.is_over(now))?.what)
    }

    /// Puts a pause behind the message, beside what the store knows. Says whether the next message is due earlier for it.
    pub(super) fn put_behind(&mut self, pausing: Pausing, known: Option<KnownPause>, now: Instant) -> bool {
        let pausing = match self.pausing.take() {
            Some(before) => before.and(pausing),
            None => pausing,
        };
        let planned = self.pause_at.take();
        let pause_at = known.and_then(|known| pausing.may_wait_for(&known, now));
        self.pause_at = pause_at.map(|at| planned.unwrap_or(at));
        self.pausing = Some(pausing);
        // Another refusal shows that it takes too long until everybody knows.
        let failing = self.unanswered.as_mut().filter(|unanswered| unanswered.resend.has_failed());
        let is_failing = failing.map(|unanswered| unanswered.resend.hurry(now)).is_some();
        is_failing || planned.is_some() && self.pause_at.is_none()
    }

    /// Whether the store has yet to say whether it takes a pause that lasts.
    pub(super) fn has_untold_pause(&self, now: Instant) -> bool {
        let unanswered = self.unanswered.as_ref().and_then(|unanswered| match &unanswered.what {
            What::Pausing(pausing) => Some(pausing),
            What::Reporting(_) => None,
        });
        unanswered.into_iter().chain(&self.pausing).any(|pausing| !pausing.is_over(now))
    }

    /// Whether anything is still to be said.
    pub(super) const fn has_untold(&self) -> bool {
        self.unanswered.is_some() || self.pausing.is_some() || self.reporting.is_some()
    }

    /// Who waits until the store knows what is said behind the message.
    pub(super) fn take_tickets(&mut self) -> Vec<u64> {
        let pausing = self.pausing.iter_mut().flat_map(Pausing::take_tickets);
        let reporting = self.reporting.iter_mut().flat_map(|reporting| std::mem::take(&mut reporting.tickets));
        pausing.chain(reporting).collect()
    }

    /// What is left of the pause behind the message, and why.
    pub(super) fn behind(&self, now: Instant) -> Option<(Duration, Reason)> {
        let pausing = self.pausing.as_ref()?;
        Some((pausing.until()?.saturating_duration_since(now), pausing.reason()))
    }

    /// The store knows of a pause: takes out what is behind it, if that adds nothing.
    pub(super) fn take_known(&mut self, known: KnownPause, now: Instant) -> Option<Pausing> {
        let said = self.pausing.take_if(|behind| behind.adds_nothing_to(&known));
        // Its evidence nobody waits for.
        self.pausing = self.pausing.take().or_else(|| said.as_ref().and_then(Pausing::evidence));
        self.pause_at = self.pausing.as_ref().and_then(|behind| behind.may_wait_for(&known, now));
        said
    }
}
