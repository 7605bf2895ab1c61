//! Where the callers of a queue wait, and find what they are told.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::task::{Context, Poll, Waker};

use super::waiters::Slot;
use crate::error::Error;

/// Places that are kept although nobody is in them any more.
const SPARE: usize = 64;

/// What a caller is told in the end.
pub(super) type Outcome = Result<Slot, Error>;

/// Where callers wait, by their tickets.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<u64, Place, BuildHasherDefault<Spread>>);

#[derive(Debug)]
enum Place {
    /// Whom to wake.
    Waiting(Waker),
    /// What to tell.
    Decided(Outcome),
}

impl Places {
    /// A caller waits.
    pub(super) fn take(&mut self, ticket: u64, waker: Waker) {
        self.0.insert(ticket, Place::Waiting(waker));
    }

    /// What a caller is told; the caller wakes, to find it.
    pub(super) fn tell(&mut self, ticket: u64, outcome: Outcome) -> Option<Waker> {
        let place = self.0.get_mut(&ticket).filter(|place| matches!(place, Place::Waiting(_)))?;
        match std::mem::replace(place, Place::Decided(outcome)) {
            Place::Waiting(waker) => Some(waker),
            Place::Decided(_) => None,
        }
    }

    /// What a caller finds: its place is free then. Until then it is woken as `cx` says.
    pub(super) fn poll(&mut self, ticket: u64, cx: &Context<'_>) -> Poll<Outcome> {
        if let Some(Place::Waiting(waker)) = self.0.get_mut(&ticket) {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        self.leave(ticket).map_or(Poll::Pending, Poll::Ready)
    }

    /// Whether a caller waits, and has been told nothing yet.
    pub(super) fn is_undecided(&self, ticket: u64) -> bool {
        matches!(self.0.get(&ticket), Some(Place::Waiting(_)))
    }

    /// A caller goes: with what it has not been told yet.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Outcome> {
        let place = self.0.remove(&ticket);
        if self.0.capacity() > 8 * (self.0.len() + SPARE) {
            self.0.shrink_to(2 * (self.0.len() + SPARE));
        }
        match place? {
            Place::Waiting(_) => None,
            Place::Decided(outcome) => Some(outcome),
        }
    }

    /// Whom to wake so that everybody who waits looks.
    pub(super) fn everybody(&self) -> Vec<Waker> {
        let waker = |place: &Place| match place {
            Place::Waiting(waker) => Some(waker.clone()),
            Place::Decided(_) => None,
        };
        self.0.values().filter_map(waker).collect()
    }
}

/// Of tickets and of runtimes, which are counted: to spread them is enough.
#[derive(Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, ticket: u64) {
        self.0 = (self.0 ^ ticket).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_finds_what_was_told_once() {
        let (mut places, waker) = (Places::default(), Waker::noop());
        let cx = Context::from_waker(waker);
        for ticket in 0..3 {
            places.take(ticket, waker.clone());
        }
        assert!(places.poll(1, &cx).is_pending());
        assert!(places.tell(1, Err(Error::Closed)).is_some(), "who waits is woken");
        assert!(places.tell(7, Err(Error::Closed)).is_none(), "nobody has this ticket");
        assert_eq!(places.everybody().len(), 2);
        assert!(matches!(places.poll(1, &cx), Poll::Ready(Err(Error::Closed))));
        assert!(places.leave(2).is_none() && places.leave(1).is_none());
        assert_eq!(places.0.len(), 1);
    }

    #[test]
    fn what_a_crowd_took_is_given_back() {
        let mut places = Places::default();
        for ticket in 0..100_000 {
            places.take(ticket, Waker::noop().clone());
        }
        for ticket in 1..100_000 {
            places.leave(ticket);
        }
        assert!(places.0.capacity() < 2_000, "{}", places.0.capacity());
    }
}
