//! The errand of telling the store about somebody: one sender has it at most, and another takes it over where nothing polls that one any more.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::entry::Entry;
use super::{Effect, Effects, News, Whom};
use crate::error::StoreError;

/// So often whoever has an errand comes round, at least.
pub(crate) const ROUND: Duration = Duration::from_secs(1);
/// Who has not come round for so long is replaced: its runtime stands still. Nothing is told twice if it was only late.
const LATE: Duration = Duration::from_secs(2);
/// How many messages about scopes may be under way at once: where many are refused, callers of others do not wait behind all of them.
const AT_ONCE: usize = 16;

/// The errand of telling the store about somebody.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    pub(crate) whom: Whom,
    /// Of all errands: that of who was replaced is never given again.
    pub(super) number: u64,
}

/// Who has an errand.
#[derive(Debug)]
pub(super) struct Sender {
    number: u64,
    /// When it must have come round again.
    comes_by: Instant,
}

impl Sender {
    pub(super) fn new(number: u64, now: Instant) -> Self {
        Self { number, comes_by: now + LATE }
    }

    pub(super) const fn has(&self, errand: &Errand) -> bool {
        self.number == errand.number
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn comes_round(&mut self, now: Instant) {
        self.comes_by = now + LATE;
    }

    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.comes_by < now
    }
}

/// Places for messages about scopes: whose errands have one, and by when they must have come round again.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<u64, Instant>);

impl Places {
    /// Gives an errand a place, if one is free. Those that are kept where nothing is polled any more are.
    pub(super) fn take(&mut self, errand: u64, now: Instant) -> bool {
        if self.0.len() >= AT_ONCE {
            self.0.retain(|_, comes_by| *comes_by >= now);
        }
        let is_free = self.0.len() < AT_ONCE;
        if is_free {
            self.0.insert(errand, now + LATE);
        }
        is_free
    }

    pub(super) fn comes_round(&mut self, errand: u64, now: Instant) {
        if let Some(comes_by) = self.0.get_mut(&errand) {
            *comes_by = now + LATE;
        }
    }

    pub(super) fn free(&mut self, errand: u64) {
        self.0.remove(&errand);
    }
}

impl News {
    /// Whoever had an errand is gone: a pause that lasts is told by whoever comes next. Who waits learns that it is not known.
    pub(super) fn lose(&mut self, errand: &Errand, now: Instant, effects: &mut Effects) {
        let Some(entry) = self.entries.get_mut(&errand.whom).filter(|entry| entry.is_told_by(errand)) else { return };
        tracing::warn!(upstream = errand.whom.upstream(), "no runtime to tell the store on");
        let tickets = entry.take_tickets().into_iter();
        effects.extend(tickets.map(|ticket| Effect::Tell(ticket, Err(StoreError::late()))));
        entry.sender = None;
        if !entry.has_untold_pause(now) {
            self.entries.remove(&errand.whom);
        }
    }

    /// Whether an errand is still that of whoever has it. It has come round.
    pub(crate) fn goes_on(&mut self, errand: &Errand, now: Instant) -> bool {
        let entry = self.entries.get_mut(&errand.whom).filter(|entry| entry.is_told_by(errand));
        let Some(sender) = entry.and_then(|entry| entry.sender.as_mut()) else { return false };
        sender.comes_round(now);
        self.places.comes_round(errand.number, now);
        true
    }

    /// Gives the message of an errand its place among those that are under way, if one is free.
    pub(crate) fn take_place(&mut self, errand: &Errand, now: Instant) -> bool {
        self.places.take(errand.number, now)
    }

    /// It needs the place no more.
    pub(crate) fn free_place(&mut self, errand: &Errand) {
        self.places.free(errand.number);
    }

    /// Has others take over the errands of senders that are gone, or overdue. That is looked for once in a while.
    pub(crate) fn replace_overdue(&mut self, now: Instant, effects: &mut Effects) {
        if self.entries.is_empty() || self.looks_at.is_some_and(|at| now < at) {
            return;
        }
        self.looks_at = Some(now + ROUND);
        let overdue = self.entries.iter().filter(|(_, entry)| entry.needs_sender(now)).map(|(whom, _)| whom.clone());
        for whom in overdue.collect::<Vec<_>>() {
            self.entry(&whom, now, effects);
        }
    }

    /// Whether whoever has this errand tells the store, and not another in its place.
    pub(super) fn has(&self, errand: &Errand) -> bool {
        self.entries.get(&errand.whom).is_some_and(|entry| entry.is_told_by(errand))
    }

    /// What is still to be said of somebody. Somebody tells the store, be it in the place of another.
    pub(super) fn entry(&mut self, whom: &Whom, now: Instant, effects: &mut Effects) -> &mut Entry {
        let entry = self.entries.entry(whom.clone()).or_default();
        if entry.needs_sender(now) {
            if let Some(replaced) = &entry.sender {
                tracing::debug!(upstream = whom.upstream(), "whoever tells the store is not polled, another does");
                self.places.free(replaced.number());
            }
            self.errands += 1;
            entry.sender = Some(Sender::new(self.errands, now));
            effects.push(Effect::Begin(Errand { whom: whom.clone(), number: self.errands }));
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_kept_where_nothing_is_polled_is_given_to_another() {
        let (mut places, begin) = (Places::default(), Instant::now());
        assert!((0..16).all(|errand| places.take(errand, begin)) && !places.take(16, begin));
        places.free(7);
        assert!(places.take(16, begin) && !places.take(17, begin));
        let later = begin + LATE;
        places.comes_round(3, later);
        assert!(!places.take(17, later), "they may be late");
        let later = later + ROUND;
        assert!((17..32).all(|errand| places.take(errand, later)));
        assert!(!places.take(32, later), "one has come round");
    }
}
