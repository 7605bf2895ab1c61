//! Whose logs a call is charged in, and which of them.

use std::sync::Arc;

use crate::ledger::ScopeId;

/// Whose logs a call is charged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scopes {
    /// The scope that few share.
    pub(crate) narrowest: Option<ScopeId>,
    /// All of them, where there are several.
    pub(crate) all: Option<Arc<[Option<ScopeId>]>>,
    /// Of which of the logs nothing is taken: a bit for each.
    pub(crate) untouched: u16,
}

impl Scopes {
    /// The stream of the messages about them.
    pub(crate) fn stream(&self) -> Arc<str> {
        let all = self.all.iter().flat_map(|all| all.iter());
        let several = all.map(|scope| scope.map_or_else(|| "-".to_owned(), |scope| scope.to_string()));
        let mut several = several.collect::<Vec<_>>().join("+");
        if self.untouched > 0 {
            let one = self.narrowest.filter(|_| self.all.is_none());
            several.extend([one.map(|scope| scope.to_string()).unwrap_or_default(), format!("~{}", self.untouched)]);
        }
        match self.narrowest {
            _ if !several.is_empty() => ScopeId::of(several.as_bytes()).to_string().into(),
            Some(scope) => scope.to_string().into(),
            None => "".into(),
        }
    }

    /// The scope at a place.
    pub(super) fn at(&self, place: usize) -> Option<ScopeId> {
        let all = self.all.as_deref();
        all.map_or(self.narrowest, |all| all.get(place).copied().flatten())
    }

    /// Of the line for the seats of a scope: other than those of any call.
    pub(crate) fn line(scope: Option<ScopeId>) -> Self {
        Self { narrowest: scope, all: Some([].into()), untouched: 0 }
    }

    /// The only scope.
    pub(crate) const fn only(scope: Option<ScopeId>) -> Self {
        Self { narrowest: scope, all: None, untouched: 0 }
    }
}
