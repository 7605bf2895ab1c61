//! The last message of each process, and what it was answered: one that comes twice acts once.

use super::Stamp;
use super::senders::Senders;
use crate::error::StoreError;

/// How many senders it takes to look for those that are gone.
const MANY_SENDERS: usize = 64;

/// A message and its answer, remembered for a while.
#[derive(Debug)]
pub(super) struct Seen<A> {
    number: u64,
    until: Stamp,
    answer: A,
}

impl<A> Seen<A> {
    /// Whether the message is forgotten.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.until <= now
    }
}

impl<A> Senders<Seen<A>> {
    /// The answer to a message that has come before. Refuses one that comes after a later one of its sender, and one whose sender
    /// knows of another last message, if of any: two processes have one name.
    pub(super) fn recall(&self, now: Stamp, sender: u64, number: u64, previous: u64) -> Result<Option<&A>, StoreError> {
        match self.get(sender).filter(|seen| !seen.is_spent(now)) {
            Some(seen) if seen.number > number => Err(StoreError::outdated()),
            Some(seen) if seen.number == number => Ok(Some(&seen.answer)),
            Some(seen) if previous > 0 && seen.number != previous => Err(StoreError::duplicate()),
            _ => Ok(None),
        }
    }

    /// The answer to the last message of a sender, if it is this one.
    pub(super) fn recall_mut(&mut self, now: Stamp, sender: u64, number: u64) -> Option<&mut A> {
        let seen = self.get_mut(sender).filter(|seen| seen.number == number && !seen.is_spent(now))?;
        Some(&mut seen.answer)
    }

    /// Remembers a message and its answer for so many microseconds.
    pub(super) fn remember(&mut self, now: Stamp, sender: u64, number: u64, memory: i64, answer: A) {
        if self.len() >= MANY_SENDERS {
            self.retain(|seen| !seen.is_spent(now));
        }
        // Not for less long than the message before: a late copy of that must not act.
        let before = self.get(sender).map_or(now, |seen| seen.until);
        self.insert(sender, Seen { number, until: now.plus(memory).max(before), answer });
    }
}
