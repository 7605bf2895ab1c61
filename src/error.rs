//! Errors as decisions: each variant is something different that a caller would do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::limit::Limit;
use crate::ledger::{Cause, Refused};

/// Why a call was not let through.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Come back then: no slot comes within the time that the caller would wait. With
    /// [`retry_refused`](crate::Upstream::retry_refused) the call may have been sent before, and refused; it was not executed.
    #[error("{upstream}: throttled, the next slot for this call is {retry_after:?} away")]
    #[non_exhaustive]
    Throttled {
        /// The upstream whose limit is exhausted.
        upstream: Arc<str>,
        /// When this very call could have gone, counted from now: each caller is told its own time.
        retry_after: Duration,
    },
    /// Shed load: as many calls of this process wait for the upstream as may.
    #[error("{upstream}: {max_waiting} calls of this process wait already, as many as may")]
    #[non_exhaustive]
    TooManyWaiting {
        /// The upstream that they wait for.
        upstream: Arc<str>,
        /// How many calls may wait: see [`max_waiting`](crate::Upstream::max_waiting).
        max_waiting: usize,
    },
    /// Stop, and ask a human: the upstream said that waiting does not cure it.
    #[error("{upstream}: nobody sends for {retry_after:?}, because of {}", .cause.words())]
    #[non_exhaustive]
    Barred {
        /// The upstream that said so.
        upstream: Arc<str>,
        /// What it said.
        cause: Cause,
        /// How long until a call is let through, to see whether it still says so.
        retry_after: Duration,
    },
    /// Check the credentials: the upstream keeps answering 401 or 403 to this scope. Only where
    /// [`break_after_unauthorized`](crate::Upstream::break_after_unauthorized) asks for it.
    #[error(
        "{upstream}: the last {in_a_row} responses were 401 or 403, no call is sent for {retry_after:?}, and then one to see"
    )]
    #[non_exhaustive]
    Unauthorized {
        /// The upstream that answered so.
        upstream: Arc<str>,
        /// How many responses in a row were 401 or 403.
        in_a_row: u32,
        /// How long until one call is let through, to see whether it still does; while one is under way, until the next.
        retry_after: Duration,
    },
    /// Come back later, or go elsewhere: connects to the host failed in a row, and none succeeded within the time the caller would
    /// wait. Only from the [middleware](crate::Middleware).
    #[error("{upstream}: cannot be connected to, and the next call goes to see in {retry_after:?}")]
    #[non_exhaustive]
    Unreachable {
        /// The upstream that the call belongs to.
        upstream: Arc<str>,
        /// How long until a call goes to see.
        retry_after: Duration,
    },
    /// Survive without the store, or fail: the shared log could not be reached in time.
    #[error("{upstream}: the store of the shared log is unavailable: {source}")]
    #[non_exhaustive]
    StoreUnavailable {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// What the store last said.
        source: StoreError,
    },
    /// Never come back: the call costs more than a limit allows at once, or nothing at all.
    #[error(
        "{upstream}: a call of {cost} {unit} can never go: it must take something, and at most {most} by a limit of {} in {:?}",
        .limit.quota(),
        .limit.window()
    )]
    #[non_exhaustive]
    CostExceedsQuota {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// What the cost is counted in.
        unit: Arc<str>,
        /// The cost asked for.
        cost: u32,
        /// The largest cost that the limit can ever admit.
        most: u32,
        /// The limit that stands against it.
        limit: Box<Limit>,
    },
    /// Fix the call: no limit of the upstream counts this unit.
    #[error("{upstream}: no limit counts {unit:?}")]
    #[non_exhaustive]
    UnknownUnit {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// The unit that the call says its cost in.
        unit: Arc<str>,
    },
    /// Fix the call: the upstream has no scope of this name.
    #[error("{upstream}: no limit has a scope named {scope:?}")]
    #[non_exhaustive]
    UnknownScope {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// The name that the call says a value of.
        scope: Arc<str>,
    },
    /// Fix the call: no upstream of this name is registered.
    #[error("no upstream named {name:?} is registered")]
    #[non_exhaustive]
    UnknownUpstream {
        /// The name asked for; `…` where it can be no upstream's, as it may be a secret then.
        name: Arc<str>,
    },
    /// Fix the program: a call that has to wait was first polled outside of a Tokio runtime. With Redis every call has to.
    #[error("a call that has to wait must be awaited within a Tokio runtime")]
    OutsideRuntime,
    /// Register the host, or do not call it: the request belongs to no upstream. Only where
    /// [`Unmatched::Refuse`](crate::Unmatched::Refuse) asks for it.
    #[error("{host}: refused, because the request belongs to no upstream")]
    #[non_exhaustive]
    Unmatched {
        /// The request's host, with its port where that is not the one of the scheme.
        host: Arc<str>,
    },
    /// Fix the call: nothing can be slowed down by this factor.
    #[error("{upstream}: a factor of {factor} is not above 0 and at most 1")]
    #[non_exhaustive]
    Factor {
        /// The upstream that was to be slowed down.
        upstream: Arc<str>,
        /// The factor asked for.
        factor: f64,
    },
    /// Stop: the throttle was closed.
    #[error("the throttle is closed")]
    Closed,
}

impl Error {
    /// When to come back, counted from now, where that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. }
            | Self::Barred { retry_after, .. }
            | Self::Unreachable { retry_after, .. }
            | Self::Unauthorized { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// Finds our error in another one: through reqwest-middleware's `anyhow`, reqwest-retry's wrapper, or any chain of sources.
    ///
    /// ```
    /// # fn decide(error: &reqwest_middleware::Error) {
    /// if let Some(outgate::Error::Throttled { retry_after, .. }) = outgate::Error::find(error) {
    ///     println!("come back in {retry_after:?}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = match error.downcast_ref() {
                // Transparent: its source is not what it wraps, but the source of that.
                Some(reqwest_middleware::Error::Middleware(wrapped)) => Some(&**wrapped),
                _ => error.source(),
            };
        }
        None
    }
}

/// A mistake in the configuration, found when the throttle is built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{field}: {reason}", whose(.upstream))]
pub struct ConfigError {
    upstream: String,
    field: &'static str,
    reason: String,
}

impl ConfigError {
    pub(crate) fn new(upstream: &str, field: &'static str, reason: impl Into<String>) -> Self {
        Self { upstream: upstream.to_owned(), field, reason: reason.into() }
    }

    /// The upstream that is configured wrongly; empty for the throttle itself.
    #[must_use]
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// What is wrong with it.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The setting that is wrong.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }
}

/// The upstream, where the mistake is not the throttle's own.
fn whose(upstream: &str) -> String {
    if upstream.is_empty() { String::new() } else { format!("upstream {upstream:?}, ") }
}

/// Why a store did not answer.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What a store's failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It could not be reached, or did not answer in time. Whether the message acted is unknown: send it again.
    Unreachable,
    /// It answered that it will not do this now, or ever.
    Refused,
    /// Its answer makes no sense.
    Malformed,
    /// It has already seen a later message of this sender. The message did not act.
    Outdated,
    /// The last message that it has seen of this sender is not the one that the sender knows to be the last: another process
    /// has the same name, or the store has lost data. The message did not act.
    Duplicate,
}

impl StoreError {
    /// A failure of some kind, in words.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same failure, with what caused it: its words follow those of the failure.
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        let message = format!("{}: {source}", self.message).into();
        Self { message, ..self.explained_by(source) }
    }

    /// The same failure in the same words, which tell already what caused it.
    pub(crate) fn explained_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// What the failure means.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Nothing was heard of it for as long as a message is waited for.
    pub(crate) fn late() -> Self {
        Self::new(StoreErrorKind::Unreachable, "the store did not answer in time")
    }

    /// An answer to something else.
    pub(crate) fn senseless() -> Self {
        Self::new(StoreErrorKind::Malformed, "the store's answer makes no sense")
    }

    /// Whether the sender can go on under another name only.
    pub(crate) const fn wants_another_name(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Outdated | StoreErrorKind::Duplicate)
    }
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Outdated => Self::new(StoreErrorKind::Outdated, "a later message of this sender has been seen"),
            Refused::Senseless => {
                Self::new(StoreErrorKind::Malformed, "an ask charges a caller in other logs than it names")
            }
            Refused::Duplicate => Self::new(StoreErrorKind::Duplicate, "another process sends under the same name"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, " ({source:?})"))
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // The words of the cause stand in its own: what follows is what lies behind the cause.
        self.source.as_deref().and_then(StdError::source)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_failure_of_the_store_shows_its_cause_once() {
        let cause = StoreError::new(StoreErrorKind::Refused, "no").caused_by(io::Error::other("who are you"));
        let error = Error::StoreUnavailable { upstream: "up".into(), source: cause.clone() };
        assert_eq!(error.to_string(), "up: the store of the shared log is unavailable: no: who are you");
        assert!(cause.source().is_none(), "and nobody who follows the chain reads it again");
        assert!(format!("{cause:?}").contains("Custom { kind: Other"), "{cause:?}");
    }
}
