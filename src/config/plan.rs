//! An upstream that has been found to be in order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderName;

use crate::client::auth_breaker::Breaker;
use crate::client::connections::Connections;
use crate::client::observing::Observer;
use crate::client::retry::Budget;
use crate::config::limit::Limit;
use crate::config::upstream::Upstream;
use crate::error::ConfigError;
use crate::ledger::Log;
use crate::ledger::ScopeId;
use crate::queue::crowd::Crowd;
use crate::queue::log_time::LogTime;
use crate::queue::looks::Looks;
use crate::queue::pacing::stale_after_all;
use crate::queue::table::Key;

/// An upstream, checked.
#[derive(Debug)]
pub(crate) struct Registered {
    /// Its place among those registered.
    index: usize,
    pub(crate) upstream: Upstream,
    pub(crate) logs: Arc<[Log]>,
    /// What a call of cost 1 takes of each log.
    pub(crate) one: Arc<[u32]>,
    pub(crate) stale_after: Duration,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) time: Arc<LogTime>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) budget: Budget,
    pub(crate) breaker: Option<Breaker>,
    /// Where calls do not wait, and are counted as they would have.
    pub(crate) observer: Option<Observer>,
    /// None where it makes no difference whether a call opens one.
    pub(crate) connections: Option<Arc<Connections>>,
    /// The header that told last how much is left.
    learned_from: Mutex<Option<HeaderName>>,
}

impl Registered {
    pub(crate) fn new(index: usize, upstream: Upstream) -> Result<Arc<Self>, ConfigError> {
        upstream.check(index)?;
        let mut terms = Vec::new();
        for limit in &upstream.limits {
            terms.extend(limit.terms(&upstream.name)?);
        }
        let crowd = Arc::new(Crowd::new(upstream.max_waiting));
        let stale_after = stale_after_all(upstream.limits.iter().map(Limit::guard_or_default));
        let logs: Arc<[Log]> = Arc::from([Log::new("calls", terms)]);
        let budget = Budget::new(upstream.retry_share);
        let new = |limit| Breaker::new(Arc::clone(&upstream.name), limit, upstream.backoff.clone());
        let breaker = upstream.break_after.filter(|_| !upstream.observes).map(new);
        let observer = upstream.observes.then(Observer::default);
        let (one, time, looks) = ([1].into(), Arc::new(LogTime::new()), Arc::new(Looks::default()));
        let connections = logs.iter().any(Log::minds_cold).then(|| Arc::new(Connections::new()));
        Ok(Arc::new(Self {
            index,
            upstream,
            logs,
            one,
            stale_after,
            crowd,
            time,
            looks,
            budget,
            breaker,
            observer,
            connections,
            learned_from: Mutex::default(),
        }))
    }

    /// The logs of the callers of a scope.
    pub(crate) fn logs_of(&self, scope: Option<ScopeId>) -> Arc<[Log]> {
        let of = |log: &Log| log.clone().of(scope);
        if scope.is_none() { Arc::clone(&self.logs) } else { self.logs.iter().map(of).collect() }
    }

    /// The header that told last how much is left.
    pub(crate) fn learned_from(&self) -> Option<HeaderName> {
        self.learned_from.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn learn_from(&self, header: &HeaderName) {
        let mut last = self.learned_from.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(header) {
            *last = Some(header.clone());
        }
    }

    /// Whose queue the callers of a scope stand in.
    pub(crate) const fn key(&self, scope: Option<ScopeId>) -> Key {
        (self.index, scope)
    }

    /// The largest cost of one call that the limits can ever admit.
    pub(crate) fn largest_cost(&self) -> u32 {
        self.logs.iter().map(Log::largest_charge).min().unwrap_or(0)
    }
}
