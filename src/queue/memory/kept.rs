//! For how long a store must hold what was granted to other queues, whose logs may have counted for less long. Pure.

use std::collections::VecDeque;

/// For how long the store must hold each of some starts, by log.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Of each start: which of those below it is, counted from one; zero where it is as long as the logs count. Empty where all are.
    of: VecDeque<u8>,
    retentions: Vec<Box<[i64]>>,
}

impl Kept {
    /// That of a start, where it is not as long as the logs count.
    pub(super) fn of(&self, at: usize) -> Option<&[i64]> {
        let which = self.of.get(at).filter(|which| **which > 0)?;
        self.retentions.get(usize::from(which - 1)).map(AsRef::as_ref)
    }

    /// A start comes in before so many of `count`.
    pub(super) fn insert(&mut self, at: usize, count: usize, retention: Option<Box<[i64]>>) {
        let which = retention.map_or(0, |retention| self.which(retention));
        if which > 0 {
            self.of.resize(count, 0);
        }
        if !self.of.is_empty() || which > 0 {
            self.of.insert(at, which);
        }
    }

    /// The start that is forgotten first where there are too many: one that need not be held for long, else the earliest.
    pub(super) fn first_to_go(&self) -> usize {
        self.of.iter().position(|which| *which > 0).unwrap_or(0)
    }

    /// Something else starts then as well: where it is kept otherwise, both are for as long as the logs count, which is never too short.
    pub(super) fn join(&mut self, at: usize, retention: Option<&[i64]>) {
        if self.of(at) != retention
            && let Some(which) = self.of.get_mut(at)
        {
            *which = 0;
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.of.remove(at);
        self.tidy();
    }

    /// Forgets so many, the first ones.
    pub(super) fn forget_first(&mut self, count: usize) {
        self.of.drain(..count.min(self.of.len()));
        self.tidy();
    }

    fn which(&mut self, retention: Box<[i64]>) -> u8 {
        let known = self.retentions.iter().position(|known| *known == retention);
        let at = known.unwrap_or_else(|| {
            self.retentions.push(retention);
            self.retentions.len() - 1
        });
        // Of more than there are ever: for as long as the logs count, which is never too short.
        u8::try_from(at + 1).unwrap_or(0)
    }

    fn tidy(&mut self) {
        if self.of.iter().all(|which| *which == 0) {
            self.of.clear();
            self.retentions.clear();
        }
    }
}
