//! Calendar windows: units come back at boundaries that the sender of an ask names, all at once.
//!
//! `lua/calendar.lua` says the same in Redis.

use super::{Shape, Stamp, Term};

/// So many boundaries are named: two before now, and two after it.
const NAMED: usize = 4;
/// Outside all boundaries that are named nobody starts for so long: the answer tells of the store's clock, and the next ask names others.
const LOST: i64 = 2_000_000;

/// Of corrections of log time from this on processes that name boundaries are told: smaller ones move none out of reach.
pub(super) const TOLD_FROM: i64 = 1_000_000;

/// A moment at which an upstream begins to count anew: from the earliest to the latest that it may be, where it is not known exactly
/// or happens twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Boundary {
    /// The earliest moment.
    pub from: Stamp,
    /// The latest.
    pub to: Stamp,
}

impl Boundary {
    /// A boundary that is somewhere between these moments.
    #[must_use]
    pub const fn new(from: Stamp, to: Stamp) -> Self {
        Self { from, to }
    }
}

/// The boundaries of a calendar window around now, by the store's own clock: in microseconds since 1970, where that counts so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Calendar {
    /// Nothing starts for so many microseconds before a boundary, and units of before it count for as many after it.
    pub guard: i64,
    /// One after another: the second is the last that is past.
    pub boundaries: [Boundary; NAMED],
}

impl Calendar {
    /// Boundaries around now: the second of them is the last that is past.
    #[must_use]
    pub const fn new(guard: i64, boundaries: [Boundary; NAMED]) -> Self {
        Self { guard, boundaries }
    }

    /// The same by a clock that is ahead by so many microseconds.
    pub(crate) fn later_by(self, micros: i64) -> Self {
        let later = |boundary: Boundary| Boundary::new(boundary.from.plus(micros), boundary.to.plus(micros));
        Self { boundaries: self.boundaries.map(later), ..self }
    }

    /// From one boundary to the next.
    pub(super) fn length(&self, at: usize) -> i64 {
        let at = at.min(NAMED - 2);
        self.boundaries[at + 1].from.as_micros().saturating_sub(self.boundaries[at].from.as_micros())
    }

    /// Units that started before this count no more at `now`, which is known of from the boundaries that are named.
    pub(crate) fn counts_from(&self, now: Stamp) -> Option<Stamp> {
        let past = self.boundaries.iter().filter(|boundary| boundary.to.plus(self.guard) <= now);
        past.map(|boundary| boundary.from.plus(-self.guard)).max()
    }

    /// Whether now lies outside all boundaries that are named: what counts is not known.
    pub(super) fn is_outside(&self, now: Stamp) -> bool {
        let [first, .., last] = self.boundaries;
        now < first.from || now >= last.from.plus(-self.guard)
    }

    /// How far ahead of `now` is booked by these terms, `limit` at most: where it is not known what counts, nobody who is far from the store
    /// books behind the time for which nobody starts.
    pub(super) fn limit(now: Stamp, limit: Stamp, terms: &[Vec<Term>]) -> Stamp {
        if terms.iter().flatten().any(|term| term.is_outside(now)) { limit.min(now.plus(LOST - 1)) } else { limit }
    }

    /// The earliest start, not before `start`, after an entry that has to count no more, where there is one. `now` is what the
    /// boundaries are around.
    pub(super) fn earliest(&self, now: Stamp, start: Stamp, entry: Option<Stamp>) -> Stamp {
        if self.is_outside(now) {
            return start.max(now.plus(LOST));
        }
        let [.., before_last, last] = self.boundaries;
        let start = entry.map_or(start, |entry| {
            let ends = self.boundaries.iter().find(|boundary| entry < boundary.from.plus(-self.guard));
            let ends = ends.copied().unwrap_or_else(|| {
                // Further away than anybody is granted a start: as if all windows were as long.
                let length = (last.from.as_micros() - before_last.from.as_micros()).max(1);
                let behind = entry.plus(self.guard).as_micros() - last.from.as_micros();
                let times = behind.div_euclid(length) + 1;
                Boundary::new(last.from.plus(times * length), last.to.plus(times * length))
            });
            start.max(ends.to.plus(self.guard))
        });
        let quiet = |start: Stamp, boundary: &Boundary| {
            if boundary.from.plus(-self.guard) <= start { start.max(boundary.to) } else { start }
        };
        // Those that are past move nothing.
        self.boundaries.iter().filter(|boundary| start < boundary.to).fold(start, quiet)
    }
}

impl Term {
    /// Whether it is a calendar window, and now lies outside all of its boundaries that are named.
    pub(super) fn is_outside(&self, now: Stamp) -> bool {
        matches!(self.shape, Shape::Calendar(calendar) if calendar.is_outside(now))
    }
}

#[cfg(test)]
mod tests;
