//! The calendar windows of some logs: which boundaries are around the store's now.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::skew::Skew;
use crate::config::reset::Reset;
use crate::ledger::{Grant, Log, Shape, Stamp, micros};

/// The terms of an upstream's logs that are calendar windows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendars {
    placed: Arc<[Placed]>,
    /// Of the clock that counts by them.
    skew: Arc<Skew>,
    /// By how many microseconds log time is ahead of the store's clock, as the last answer told.
    corrected: Arc<AtomicI64>,
}

/// Where a term lies, and when it resets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// The place of its log, and its place among the terms of that.
    pub(crate) log: usize,
    pub(crate) term: usize,
    pub(crate) reset: Reset,
}

impl Calendars {
    pub(crate) fn new(all: Vec<Placed>) -> Self {
        Self { placed: all.into(), skew: Arc::default(), corrected: Arc::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// What is known of the clock that counts by them.
    pub(crate) fn skew(&self) -> &Skew {
        &self.skew
    }

    /// Goes on with what was known of the clocks before.
    pub(crate) fn follow(&mut self, before: &Self) {
        (self.skew, self.corrected) = (Arc::clone(&before.skew), Arc::clone(&before.corrected));
    }

    /// Takes note of what an answer tells of the store's clock.
    pub(crate) fn hear(&self, grant: &Grant) {
        if !self.is_empty() {
            self.corrected.store(grant.corrected, Ordering::Relaxed);
        }
    }

    /// How long before a start a calendar window began to count, by the place of its log and its place there; `None` of any other term.
    pub(crate) fn since_reset(&self, log: &Log, (at, term): (usize, usize), start: Stamp) -> Option<Duration> {
        let placed = self.placed.iter().find(|placed| (placed.log, placed.term) == (at, term))?;
        let (Shape::Calendar(calendar), now) = (log.terms.get(term)?.shape, self.clock(start)) else { return None };
        let calendar = self.skew.widened(placed.reset.calendar(now, calendar.guard));
        calendar.counts_from(now).map(|reset| now.since(reset))
    }

    /// What the store's clock shows at some log time.
    pub(crate) fn clock(&self, now: Stamp) -> Stamp {
        now.plus(self.corrected.load(Ordering::Relaxed).saturating_neg())
    }

    /// Whether an ask named boundaries of another time than its answer tells, so that nobody was let go, and one that names others does better.
    pub(crate) fn were_elsewhere(&self, asked: &Arc<[Log]>, grant: &Grant) -> bool {
        let clock = grant.now.plus(grant.corrected.saturating_neg());
        let are_outside = |logs: &Arc<[Log]>| logs.iter().any(|log| log.is_outside(clock));
        are_outside(asked) && !are_outside(&self.around(asked, Some(grant.now)))
    }

    /// The logs with the boundaries around what is known of the store's clock, which counts since 1970. Where nothing is known yet
    /// the process's own clock has to do: where that is wrong by more than a window, the store lets nobody start, and says what
    /// time it is. Each boundary is as wide as the upstream's clock is known to be wrong; the store has the widest of all
    /// processes hold for all.
    pub(crate) fn around(&self, logs: &Arc<[Log]>, known: Option<Stamp>) -> Arc<[Log]> {
        if self.is_empty() {
            return Arc::clone(logs);
        }
        let own = || Stamp::from_micros(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros));
        let now = known.map_or_else(own, |known| self.clock(known));
        let of_log = |(at, log): (usize, &Log)| {
            let mut terms = log.terms.to_vec();
            for placed in self.placed.iter().filter(|placed| placed.log == at) {
                if let Some(term) = terms.get_mut(placed.term)
                    && let Shape::Calendar(calendar) = &mut term.shape
                {
                    *calendar = self.skew.widened(placed.reset.calendar(now, calendar.guard));
                }
            }
            Log { terms: terms.into(), ..log.clone() }
        };
        logs.iter().enumerate().map(of_log).collect()
    }
}
