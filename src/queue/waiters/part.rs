//! The callers of one priority.

use std::collections::VecDeque;

use super::units::{Units, Wanted};
use super::waiter::Waiter;

/// Places that are kept although nobody is in them any more.
const SPARE: usize = 64;

/// Callers of one priority, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Ascending by ticket. A caller that leaves from the middle leaves its place empty, until many are.
    places: VecDeque<(u64, Option<Waiter>)>,
    waiting: usize,
    wanted: Wanted,
}

impl Part {
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Units that they want.
    pub(super) const fn units(&self) -> &Units {
        self.wanted.total()
    }

    /// The same of those who come before a ticket.
    pub(super) fn units_before(&self, ticket: u64) -> Units {
        let (begin, mut sum) = self.wanted.of_blocks_before(ticket);
        let rest = self.places.range(self.place_of(begin)..).take_while(|(other, _)| *other < ticket);
        rest.filter_map(|(_, waiter)| waiter.as_ref()).for_each(|waiter| sum.add(&waiter.costs));
        sum
    }

    /// Puts a caller in its place: at the end, unless it had a ticket before.
    pub(super) fn join(&mut self, waiter: Waiter) {
        self.waiting += 1;
        self.wanted.add(&waiter);
        let ticket = waiter.ticket;
        if self.is_behind_all(ticket) {
            self.places.push_back((ticket, Some(waiter)));
            return;
        }
        match self.places.binary_search_by_key(&ticket, |(other, _)| *other) {
            Ok(at) => self.places[at].1 = Some(waiter),
            Err(at) => self.places.insert(at, (ticket, Some(waiter))),
        }
    }

    /// Takes a caller out. Where it was not the first its place stays, so that those of the others do.
    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let waiter = if self.places.front().is_some_and(|(first, _)| *first == ticket) {
            self.places.pop_front()?.1?
        } else {
            let at = self.places.binary_search_by_key(&ticket, |(other, _)| *other).ok()?;
            self.places.get_mut(at)?.1.take()?
        };
        self.waiting -= 1;
        self.wanted.take(&waiter);
        Some(waiter)
    }

    /// Drops the empty places at the front, and all of them once they are the most.
    pub(super) fn tidy(&mut self) {
        while self.places.front().is_some_and(|(_, waiter)| waiter.is_none()) {
            self.places.pop_front();
        }
        if self.places.len() > 2 * self.waiting + SPARE {
            self.places.retain(|(_, waiter)| waiter.is_some());
        }
        if self.places.capacity() > 4 * (self.places.len() + SPARE) {
            self.places.shrink_to(2 * self.places.len());
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Waiter> {
        self.places.iter().filter_map(|(_, waiter)| waiter.as_ref())
    }

    /// Those who come before a ticket.
    pub(super) fn before(&self, ticket: u64) -> impl Iterator<Item = &Waiter> {
        self.places.range(..self.place_of(ticket)).filter_map(|(_, waiter)| waiter.as_ref())
    }

    /// Those of this ticket and of later ones.
    pub(super) fn since(&self, ticket: u64) -> impl Iterator<Item = &Waiter> {
        self.places.range(self.place_of(ticket)..).filter_map(|(_, waiter)| waiter.as_ref())
    }

    /// Whether nobody has a later ticket.
    pub(super) fn is_behind_all(&self, ticket: u64) -> bool {
        self.places.back().is_none_or(|(last, _)| *last < ticket)
    }

    fn place_of(&self, ticket: u64) -> usize {
        // Mostly nobody comes before it.
        if self.places.front().is_none_or(|(first, _)| *first >= ticket) {
            return 0;
        }
        self.places.partition_point(|(other, _)| *other < ticket)
    }

    /// Places that it has room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.places.capacity()
    }
}
