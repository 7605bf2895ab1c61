//! What a call is charged: units of some logs.

use std::sync::Arc;

use super::{ScopeId, Shape, Stamp, Term};

/// A log that a call is charged in: the start times of one upstream, scope and unit, and the terms that it obeys.
///
/// ```
/// use outgate::ledger::{Log, ScopeId, Term};
///
/// let merchant = Some(ScopeId::of(b"m-17"));
/// let logs = [
///     Log::new("calls", [Term::new(100, 1_050_000)]),                                        // everybody's
///     Log::new("calls", [Term::new(10, 1_050_000), Term::new(90, 60_500_000)]).of(merchant), // one merchant's
/// ];
/// # let _ = logs;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Log {
    /// Who shares it. `None`: everybody who calls the upstream.
    pub scope: Option<ScopeId>,
    /// What it counts, `calls` by default: letters, digits, `-` and `_`.
    pub unit: Arc<str>,
    /// All of them hold at once. None: it is limited by pauses alone, and keeps no entries.
    pub terms: Arc<[Term]>,
}

impl Log {
    /// A log of the whole upstream, that obeys all of `terms`.
    #[must_use]
    pub fn new(unit: impl Into<Arc<str>>, terms: impl Into<Arc<[Term]>>) -> Self {
        Self { scope: None, unit: unit.into(), terms: terms.into() }
    }

    /// The same log of a scope.
    #[must_use]
    pub fn of(self, scope: Option<ScopeId>) -> Self {
        Self { scope, ..self }
    }

    /// The scopes of logs, in their order: those of one scope stand next to each other.
    pub(crate) fn scopes(logs: &[Self]) -> impl Iterator<Item = Option<ScopeId>> {
        let mut last = None;
        logs.iter().map(|log| log.scope).filter(move |scope| last.replace(*scope) != Some(*scope))
    }

    /// Whether it may be that nobody starts though it holds nothing: before a boundary.
    pub(crate) fn has_calendar(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.shape, Shape::Calendar(_)))
    }

    /// Whether now, by the clock that they are named by, lies outside all boundaries of a calendar window of its.
    pub(crate) fn is_outside(&self, clock: Stamp) -> bool {
        self.terms.iter().any(|term| term.is_outside(clock))
    }

    /// What it is called: its unit, and whose it is.
    pub(crate) fn name(&self) -> (&str, Option<ScopeId>) {
        (&self.unit, self.scope)
    }

    /// For how long an entry of this log counts, in microseconds.
    pub(crate) fn retention(&self) -> i64 {
        self.terms.iter().map(|term| term.span).max().unwrap_or(0)
    }

    /// The most units that can ever start at once.
    pub(crate) fn largest_charge(&self) -> u32 {
        self.terms.iter().map(|term| term.quota).min().unwrap_or(u32::MAX)
    }

    /// The most entries that can ever count at once.
    pub(crate) fn largest_quota(&self) -> u32 {
        self.terms.iter().map(|term| term.quota).max().unwrap_or(0)
    }
}
