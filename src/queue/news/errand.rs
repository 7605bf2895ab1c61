//! The errand of telling the store about somebody: one sender has it at most, and another takes it over where nothing polls that one any more.

use std::time::Duration;

use tokio::time::Instant;

use super::entry::Entry;
use super::{Effect, Effects, News, Whom};

/// So often whoever has an errand comes round, at least.
pub(crate) const ROUND: Duration = Duration::from_secs(1);
/// Who has not come round for so long may be replaced: its runtime stands still. Where it was only late, the same message goes again, and acts
/// once as long as the store remembers it: after that it goes without what would count twice.
const LATE: Duration = Duration::from_secs(2);
/// From so many errands on those that are given up are looked for.
const FEW: usize = 64;

/// The errand of telling the store about somebody.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    pub(crate) whom: Whom,
    /// Of all errands: that of who was replaced is never given again.
    pub(super) number: u64,
}

/// Who has an errand, or had it last.
#[derive(Debug)]
pub(super) struct Holder {
    number: u64,
    /// When it must have come round again.
    comes_by: Instant,
    gone_at: Option<Instant>,
}

impl Holder {
    pub(super) const fn has(&self, errand: &Errand) -> bool {
        self.number == errand.number && !self.is_gone()
    }

    /// Whether it was dropped with its runtime, or there was none.
    pub(super) const fn is_gone(&self) -> bool {
        self.gone_at.is_some()
    }

    pub(super) fn is_gone_for(&self, time: Duration, now: Instant) -> bool {
        self.gone_at.is_some_and(|at| at + time <= now)
    }

    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.comes_by <= now
    }
}

impl News {
    /// Whoever had an errand is gone: whoever comes next takes it over, or waits until the store knows.
    pub(super) fn lose(&mut self, errand: &Errand, now: Instant, effects: &mut Effects) {
        let entry = self.entries.get_mut(&errand.whom).filter(|entry| entry.is_told_by(errand));
        let Some(holder) = entry.and_then(|entry| entry.holder.as_mut()) else { return };
        tracing::warn!(upstream = errand.whom.upstream(), "no runtime to tell the store on");
        holder.gone_at = Some(now);
        effects.push(Effect::Hurry);
        // Where no runtime is left, nobody takes them over.
        if self.entries.len() >= self.sweep_at.max(FEW) {
            self.entries.retain(|_, entry| !entry.is_given_up(now));
            self.sweep_at = 2 * self.entries.len();
        }
    }

    /// Whether an errand is still that of whoever has it. It has come round.
    pub(crate) fn goes_on(&mut self, errand: &Errand, now: Instant) -> bool {
        let entry = self.entries.get_mut(&errand.whom).filter(|entry| entry.is_told_by(errand));
        let Some(holder) = entry.and_then(|entry| entry.holder.as_mut()) else { return false };
        holder.comes_by = now + LATE;
        true
    }

    /// There is a runtime here: takes over what holders that are gone, or overdue, were to tell. About one at once; who else there is is looked
    /// for once in a while.
    pub(crate) fn replace_overdue(&mut self, about: Option<&Whom>, now: Instant, effects: &mut Effects) {
        if let Some(entry) = about.and_then(|whom| self.entries.get(whom))
            && entry.needs_holder(now)
        {
            self.replace(about.into_iter().cloned(), now, effects);
        }
        if self.entries.is_empty() || self.looks_at.is_some_and(|at| now < at) {
            return;
        }
        self.looks_at = Some(now + ROUND);
        let overdue = self.entries.iter().filter(|(_, entry)| entry.needs_holder(now)).map(|(whom, _)| whom.clone());
        self.replace(overdue.collect::<Vec<_>>(), now, effects);
    }

    fn replace(&mut self, overdue: impl IntoIterator<Item = Whom>, now: Instant, effects: &mut Effects) {
        for whom in overdue {
            tracing::debug!(upstream = whom.upstream(), "whoever tells the store is not polled, another does");
            self.begin(whom, now, effects);
        }
    }

    /// Whether whoever has this errand tells the store, and not another in its place.
    pub(super) fn has(&self, errand: &Errand) -> bool {
        self.entries.get(&errand.whom).is_some_and(|entry| entry.is_told_by(errand))
    }

    /// What is still to be said of somebody. Somebody tells the store: whoever has come, if nobody does.
    pub(super) fn entry(&mut self, whom: &Whom, now: Instant, effects: &mut Effects) -> &mut Entry {
        if self.entries.get(whom).is_none_or(Entry::is_told_by_nobody) {
            self.begin(whom.clone(), now, effects);
        }
        self.entries.entry(whom.clone()).or_default()
    }

    fn begin(&mut self, whom: Whom, now: Instant, effects: &mut Effects) {
        self.errands += 1;
        let holder = Holder { number: self.errands, comes_by: now + LATE, gone_at: None };
        self.entries.entry(whom.clone()).or_default().holder = Some(holder);
        effects.push(Effect::Begin(Errand { whom, number: self.errands }));
    }
}
