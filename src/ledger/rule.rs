//! The rule: a unit may start when the N-th newest entry is a span old.

use super::stamp::Stamp;

/// One bound of the rule: no half-open interval of `span` holds more than `quota` units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Term {
    /// Units allowed in any span.
    pub quota: u32,
    /// Window and guard together, in microseconds.
    pub span: i64,
    /// For how many microseconds more a cold call counts, which probably opened a connection first.
    pub cold: i64,
}

impl Term {
    /// At most `quota` units in any `span` microseconds.
    #[must_use]
    pub const fn new(quota: u32, span: i64) -> Self {
        Self { quota, span, cold: 0 }
    }

    /// The same, where cold calls count for so many microseconds more.
    #[must_use]
    pub const fn cold(self, micros: i64) -> Self {
        Self { cold: micros, ..self }
    }

    /// The time that one unit takes, in microseconds.
    pub(crate) fn interval(self) -> i64 {
        (self.span + i64::from(self.quota) - 1) / i64::from(self.quota.max(1))
    }
}

/// The rule, for whatever has an n-th newest entry.
pub(crate) fn earliest(
    floor: Stamp,
    terms: impl Iterator<Item = Term>,
    units: usize,
    nth_newest: impl Fn(usize) -> Option<Stamp>,
) -> Stamp {
    let newest = nth_newest(1).unwrap_or(floor);
    terms.fold(floor.max(newest), |start, term| {
        // What is more than a lowered quota starts when nothing else counts.
        let n = (term.quota as usize + 1).saturating_sub(units).max(1);
        nth_newest(n).map_or(start, |entry| start.max(entry.plus(term.span)))
    })
}
