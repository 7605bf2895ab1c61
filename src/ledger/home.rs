//! Whose logs, and what they obey.

use std::sync::Arc;

use super::rule::Term;

/// Whose logs: one upstream and one scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// The upstream, and after a slash the scope.
    name: Arc<str>,
    upstream: usize,
}

impl Home {
    /// The home of an upstream's logs, one for each scope.
    #[must_use]
    pub fn new(upstream: &str, scope: Option<&str>) -> Self {
        let name = scope.map_or_else(|| upstream.into(), |scope| format!("{upstream}/{scope}").into());
        Self { name, upstream: upstream.len() }
    }

    /// The name: the upstream, and after a slash the scope.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The home of the whole upstream, where this is that of a scope.
    #[must_use]
    pub fn of_upstream(&self) -> Option<Self> {
        self.is_of_scope().then(|| Self::new(&self.name[..self.upstream], None))
    }

    /// Whether it is that of one scope of an upstream.
    pub(crate) fn is_of_scope(&self) -> bool {
        self.upstream < self.name.len()
    }

    /// The upstream's part of the name, and the rest.
    #[must_use]
    pub fn split(&self) -> (&str, &str) {
        self.name.split_at(self.upstream)
    }
}

/// A log that is asked for: its name within the home, and its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Log {
    /// The unit that it counts, `calls` by default.
    pub name: Arc<str>,
    /// All of them hold at once; at least one.
    pub terms: Arc<[Term]>,
}

impl Log {
    /// A log that obeys all of `terms`.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, terms: impl Into<Arc<[Term]>>) -> Self {
        Self { name: name.into(), terms: terms.into() }
    }

    /// For how long an entry of this log counts, in microseconds.
    pub(crate) fn retention(&self) -> i64 {
        self.terms.iter().map(|term| term.span).max().unwrap_or(0)
    }

    /// The most units that can ever start at once.
    pub(crate) fn largest_cost(&self) -> u32 {
        self.terms.iter().map(|term| term.quota).min().unwrap_or(0)
    }

    /// The most entries that can ever count at once.
    pub(crate) fn largest_quota(&self) -> u32 {
        self.terms.iter().map(|term| term.quota).max().unwrap_or(0)
    }
}
