//! Whether an upstream makes sense.

use std::time::Duration;

use http::Method;

use super::Upstream;
use crate::config::charges::Charges;
use crate::config::name::fault;
use crate::error::ConfigError;
use crate::excerpt;
use crate::feedback::Feedback;
use crate::ledger::{Log, SHORT};
use crate::store::WithoutStore;

/// The least that one response may be allowed to silence an upstream.
const MIN_MAX_PAUSE: Duration = Duration::from_millis(1);
/// The longest recovery after a pause.
const MAX_RECOVERY: Duration = Duration::from_secs(3_600);

/// What is wrong with a method: requests have those that everybody knows in capitals.
pub(crate) fn method_fault(method: &Method) -> Option<String> {
    let known = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::CONNECT,
        Method::PATCH,
        Method::TRACE,
    ];
    let meant = known.iter().find(|known| *known != method && known.as_str().eq_ignore_ascii_case(method.as_str()))?;
    Some(format!("{:?} is the method of no request: write {meant}", method.as_str()))
}

impl Upstream {
    /// What is wrong with the configuration, limits aside; `index` is the upstream's place among those registered.
    pub(crate) fn check(&self, index: usize) -> Result<(), ConfigError> {
        let wrong = |field, reason: &str| Err(ConfigError::new(&self.name, field, reason));
        if let Some(fault) = fault(&self.name) {
            // No name says which one it is, so its place does.
            let place = excerpt::ordinal(index + 1);
            return Err(ConfigError::new("", "name", format!("the {place} upstream's name {fault}")));
        }
        if let Some(fault) = self.shared.as_deref().and_then(fault) {
            return wrong("shares", &format!("the name {fault}"));
        }
        if let Some(fault) = self.scope_names.iter().find_map(|(_, name)| fault(name)) {
            return wrong("name_scope", &format!("a name {fault}"));
        }
        if self.limits.is_empty() && self.in_flight.is_empty() {
            return wrong("limit", "an upstream needs at least one limit");
        }
        if let Some(fault) = self.backoff.fault() {
            return wrong("backoff", fault);
        }
        if self.warn_after == Some(Duration::ZERO) {
            return wrong("warn_after", "must be longer than no time: every call waits for an answer");
        }
        if self.max_waiting == 0 {
            return wrong("max_waiting", "must be at least 1 call: whoever asks waits for the answer");
        }
        if self.retry_share > 1_000 {
            return wrong("retries_per_thousand", "is more than one for each call");
        }
        if self.break_after == Some(0) {
            return wrong("break_after_unauthorized", "must be at least 1 response in a row");
        }
        if let Some(max_pause) = self.max_pause.filter(|max| *max < MIN_MAX_PAUSE || *max > Feedback::LONGEST_WAIT) {
            return wrong("max_pause", &format!("{max_pause:?} is not between 1 ms and 31 days"));
        }
        if let Some(recovery) = self.recovery.filter(|recovery| *recovery > MAX_RECOVERY) {
            return wrong("recovery", &format!("{recovery:?} is longer than an hour"));
        }
        if let Some(reserve) = self.reserve {
            if let Some(fault) = reserve.fault() {
                return wrong("reserve", &fault);
            }
            if self.limits.iter().all(|limit| reserve.rest_of(limit).is_none()) {
                return wrong("reserve", "leaves nothing of any limit for all others");
            }
        }
        if self.common_limits().is_some_and(|(_, limits)| limits.is_empty()) {
            return wrong("shares", "no limit is shared");
        }
        if let Some(fault) = self.methods.iter().find_map(method_fault) {
            return wrong("method", &fault);
        }
        match &self.wrong_pattern {
            Some((field, reason)) => wrong(field, reason),
            None => Ok(()),
        }
    }

    /// What its calls are charged, or what is wrong with the configuration, limits and all; `index` as for [`check`](Self::check).
    pub(crate) fn checked_charges(&self, index: usize) -> Result<Charges, ConfigError> {
        self.check(index)?;
        let charges = Charges::new(self)?;
        self.check_shards(&charges)?;
        self.check_policy(&charges)?;
        Ok(charges)
    }

    /// Whether each process can throttle by itself, where that is to be.
    fn check_policy(&self, charges: &Charges) -> Result<(), ConfigError> {
        if self.without_store != Some(WithoutStore::ThrottleLocally) {
            return Ok(());
        }
        let fault = if !self.in_flight.is_empty() {
            "a limit on calls in flight"
        } else if self.shared.is_some() {
            "limits that upstreams share"
        } else if charges.logs().iter().any(Log::has_calendar) {
            "a calendar window"
        } else if charges.logs().iter().any(|log| log.retention() > SHORT) {
            "a window that lasts more than 10 s with its guard"
        } else {
            return Ok(());
        };
        Err(ConfigError::new(
            &self.name,
            "without_store",
            format!("ThrottleLocally does not go with {fault}: choose another policy"),
        ))
    }
}
