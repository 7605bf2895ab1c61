//! Who shares the limits of an upstream.

use crate::config::limit::Limit;
use crate::config::scope::Scope;
use crate::config::upstream::Upstream;
use crate::ledger::ScopeId;

/// Who shares some of the limits.
#[derive(Debug)]
pub(super) struct Sharers {
    pub(super) scope: Scope,
    /// They call any of the upstreams that share limits.
    pub(super) is_common: bool,
    /// Mixed into the values of a scope, so that a token and a merchant of one value share nothing: whoever they are charged beside, they
    /// keep their logs. None where everybody shares them.
    pub(super) salt: Option<ScopeId>,
}

impl Sharers {
    /// Who shares a limit.
    pub(super) fn of(upstream: &Upstream, limit: &Limit) -> Self {
        let everybody = Scope::upstream();
        let by_default = if limit.is_common() { &everybody } else { &upstream.scope };
        let scope = limit.own_scope().unwrap_or(by_default).clone();
        let is_common = limit.is_common();
        let is_own = upstream.ledger() == &upstream.name;
        let whose = if is_common || is_own { "" } else { &*upstream.name };
        let salt = ScopeId::of(format!("{whose} {}", scope.name()).as_bytes());
        let is_everybody = (is_common || is_own) && scope.is_upstream();
        Self { scope, is_common, salt: (!is_everybody).then_some(salt) }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.scope, self.is_common) == (&other.scope, other.is_common)
    }

    /// Whether they share the limits of an upstream that name no scope.
    pub(super) fn are_default(&self, upstream: &Upstream) -> bool {
        !self.is_common && self.scope == upstream.scope
    }

    /// Whose logs they are, for a value of theirs or for none.
    pub(super) fn id(&self, value: Option<ScopeId>) -> Option<ScopeId> {
        match (value, self.salt) {
            (Some(value), Some(salt)) => Some(value.mixed_with(salt)),
            (value, None) => value,
            // Who has none shares nothing with who has one, nor with the whole upstream.
            (None, salt) => salt,
        }
    }
}

/// Who shares the limits of an upstream: everybody who calls it first; or what is wrong with them, and where.
pub(super) fn sharers_of(upstream: &Upstream) -> Result<Vec<Sharers>, (&'static str, String)> {
    let mut all: Vec<Sharers> = Vec::new();
    for limit in upstream.limits.iter().chain(&upstream.in_flight) {
        let sharers = Sharers::of(upstream, limit);
        if let Some(fault) = sharers.scope.fault() {
            return Err(("limit.scope", fault.to_owned()));
        }
        match all.iter().find(|known| known.is_same(&sharers)) {
            Some(known) if !known.scope.is_alike(&sharers.scope) => {
                let name = known.scope.name();
                let reason = format!("two different scopes have the name {name:?}: give each its own by .named()");
                return Err(("limit.scope", reason));
            }
            Some(_) => {}
            None => all.push(sharers),
        }
    }
    if let Some(fault) = upstream.scope.fault() {
        return Err(("scope_by", fault.to_owned()));
    }
    if !upstream.scope.is_upstream() && !all.is_empty() && !all.iter().any(|sharers| sharers.are_default(upstream)) {
        let name = upstream.scope.name();
        return Err(("scope_by", format!("{name:?} is of no limit: each of them names another scope, or is shared")));
    }
    // Of those that are its own, all of them before those that a value tells apart.
    all.sort_by_key(|sharers| (sharers.salt.is_some(), !sharers.scope.is_upstream()));
    Ok(all)
}
