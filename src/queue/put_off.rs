//! Whom the last answer put off. It says nothing of callers who take less than all of those: they may go into what is left.

use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;
use super::pacing::MAX_SILENCE;
use super::settings::Settings;
use super::waiters::{Waiter, Wish};

/// No sooner after an answer that let nobody go it is asked for callers who take less.
const AGAIN: Duration = Duration::from_millis(250);
/// Nor for callers who are asked for so soon anyway: among many together there are some of every size, and little is left unused.
const NOT_LONG: Duration = Duration::from_secs(1);

/// Callers that the store put off.
#[derive(Debug)]
pub(super) struct PutOff {
    /// The first of them.
    ticket: u64,
    /// How many times in a row.
    times: u32,
    /// How large that one is.
    size: f64,
    /// How large the smallest is.
    least: f64,
    /// When somebody who takes less is asked for at the earliest.
    open_at: Instant,
    /// When the store was asked.
    at: Instant,
    /// When the first of them who takes less than the first of all could go, where that is earlier; and how large the largest of those is.
    next_smaller: Option<(Instant, f64)>,
}

/// Callers who have come since it was asked last.
#[derive(Debug)]
pub(super) struct Newcomers {
    /// How large the smallest is: infinite where all that wait are of a size.
    least: f64,
    /// The newest ticket, and which it was then.
    newest: u64,
    asked: u64,
}

impl Default for Newcomers {
    fn default() -> Self {
        Self { least: f64::INFINITY, newest: 0, asked: 0 }
    }
}

impl Newcomers {
    /// Whether a caller is one of them.
    pub(super) const fn include(&self, waiter: &Waiter) -> bool {
        waiter.ticket > self.asked
    }

    /// It is asked for all who have come until now.
    pub(super) const fn are_asked_for(&mut self) {
        (self.least, self.asked) = (f64::INFINITY, self.newest);
    }
}

/// Callers of whom the last answer says nothing: those who take less than so much, and when they are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unjudged {
    pub(super) below: f64,
    pub(super) at: Instant,
}

impl PutOff {
    /// These were put off by an answer that came `now`, which let so many others go; the first of them is the caller of `ticket`.
    pub(super) fn new<'a>(
        (ticket, before): (u64, Option<&Self>),
        charges: impl Iterator<Item = &'a [u32]>,
        granted: u32,
        settings: &Settings,
        now: Instant,
    ) -> Option<Self> {
        let mut sizes = charges.map(|charges| settings.size(charges));
        let size = sizes.next()?;
        let least = sizes.fold(size, f64::min);
        let times = before.filter(|before| before.ticket == ticket).map_or(1, |before| before.times + 1);
        let open_at = if granted > 0 { now } else { now + AGAIN };
        Some(Self { ticket, times, size, least, open_at, at: now, next_smaller: None })
    }

    /// The first of them who takes less could go then, and none is larger than so much.
    pub(super) fn next_smaller(self, next: Option<(Instant, f64)>) -> Self {
        Self { next_smaller: next, ..self }
    }

    /// How many times in a row this caller was put off as the first.
    pub(super) const fn times(&self, ticket: u64) -> u32 {
        if ticket == self.ticket { self.times } else { 0 }
    }

    /// Whether a caller takes less than the first, and is asked for again before its time is up. Where that is soon it is so for the sake of those of
    /// whom it is known when they go.
    pub(super) fn asks_again_for(&self, waiter: &Waiter, settings: &Settings, ask_at: Option<Instant>) -> bool {
        let Wish::By(deadline) = waiter.wish else { return false };
        let is_soon = self.next_smaller.is_some() && deadline <= self.at + MAX_SILENCE;
        !is_soon
            && self.has_smaller()
            && ask_at.is_some_and(|at| at < deadline)
            && settings.size(&waiter.costs) < self.size
    }

    /// When the first could go of those who go before the first of all, where a caller is one of them.
    pub(super) fn goes_beside(&self, waiter: &Waiter, settings: &Settings) -> Option<Instant> {
        let (next, largest) = self.next_smaller?;
        (waiter.ticket != self.ticket && settings.size(&waiter.costs) <= largest).then_some(next)
    }

    /// Whether some of them take less than the first.
    fn has_smaller(&self) -> bool {
        self.least < self.size
    }
}

impl Settings {
    /// How large a call is beside others, as the ledger says it: the parts that it takes of all quotas, together.
    pub(super) fn size(&self, charges: &[u32]) -> f64 {
        let limited = self.logs.iter().zip(charges).filter(|(log, _)| !log.terms.is_empty());
        limited.map(|(log, &units)| f64::from(units) / f64::from(log.largest_charge())).sum()
    }
}

impl Engine {
    /// Of whom the last answer says nothing, and when they are asked for: who takes less than all who were put off, or, where that was not just
    /// now, than the first of them. Of nobody while none may go.
    pub(super) fn unjudged(&self, now: Instant) -> Option<Unjudged> {
        let put_off = self.put_off.as_ref().filter(|_| !self.is_paused(now))?;
        let below = if now < put_off.open_at + NOT_LONG { put_off.least } else { put_off.size };
        Some(Unjudged { below, at: put_off.open_at.max(self.rest_until.unwrap_or(now)).max(now) })
    }

    /// When a caller so large is asked for, if the last answer says nothing of it.
    fn asked_for_at(&self, size: f64, now: Instant) -> Option<Instant> {
        self.unjudged(now).filter(|unjudged| size < unjudged.below).map(|unjudged| unjudged.at)
    }

    /// Whether the last answer says nothing of a caller who comes, and the next will before its time is up.
    pub(super) fn is_asked_for(&mut self, waiter: &Waiter, deadline: Instant, now: Instant) -> bool {
        // How many go before it the next answer shows.
        let beside = self.put_off.as_ref().and_then(|put_off| put_off.goes_beside(waiter, &self.settings));
        if beside.is_some_and(|at| at <= deadline)
            && self.ask_at.is_some_and(|at| at < deadline)
            && self.lasting_pause(now).is_none_or(|(until, _)| until <= deadline)
        {
            return true;
        }
        let at = self.waiters.has_large().then(|| self.asked_for_at(self.settings.size(&waiter.costs), now)).flatten();
        let Some(at) = at.filter(|&at| at <= deadline) else { return false };
        if self.ask_at.is_some_and(|ask_at| ask_at > deadline) {
            self.ask_at = Some(at);
        }
        true
    }

    /// A caller has come.
    pub(super) fn note_newcomer(&mut self, waiter: &Waiter) {
        self.newcomers.newest = self.newcomers.newest.max(waiter.ticket);
        if waiter.costs.is_large() {
            self.leave_nobody_out();
        }
        if self.waiters.has_large() || waiter.costs.is_large() {
            self.newcomers.least = self.newcomers.least.min(self.settings.size(&waiter.costs));
        }
    }

    /// Where somebody has come since the last ask who takes less than all who were put off, asks for that one.
    pub(super) fn ask_for_smaller(&mut self, now: Instant) {
        if let Some(at) = self.asked_for_at(self.newcomers.least, now)
            && self.ask_at.is_some_and(|ask_at| ask_at > now + NOT_LONG)
        {
            self.ask_at = Some(at);
        }
    }

    /// Where the first who was put off is gone, the answer says nothing of those behind it who take less.
    pub(super) fn look_past_first(&mut self, now: Instant) {
        let is_gone = |put_off: &PutOff| put_off.has_smaller() && self.waiters.find(put_off.ticket).is_none();
        if self.put_off.as_ref().is_some_and(is_gone)
            && let Some(Unjudged { at, .. }) = self.unjudged(now)
        {
            self.ask_at = self.ask_at.map(|ask_at| ask_at.min(at));
            (self.next_slot, self.put_off) = (None, None);
        }
    }
}
