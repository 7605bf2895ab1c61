//! Why a store did not answer.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::ledger::Refused;

/// Why a store did not answer.
///
/// ```
/// use outgate::store::{StoreError, StoreErrorKind};
///
/// let broken = std::io::Error::other("connection reset");
/// let error = StoreError::new(StoreErrorKind::Unreachable, "no answer").caused_by(broken);
/// assert_eq!((error.kind(), error.to_string()), (StoreErrorKind::Unreachable, "no answer: connection reset".to_owned()));
/// ```
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
    /// It answered that it can serve nobody at the moment: it reads its data, or is busy with a script. Send the message again.
    Unavailable,
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

    /// Whether nobody is served, for all that is known.
    pub(crate) const fn serves_nobody(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unreachable | StoreErrorKind::Unavailable)
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

    /// Whether something else failed first, as a server that refuses.
    #[cfg(feature = "redis-cluster")]
    pub(crate) const fn has_cause(&self) -> bool {
        self.source.is_some()
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
    use crate::error::Error;

    #[test]
    fn a_failure_of_the_store_shows_its_cause_once() {
        let cause = StoreError::new(StoreErrorKind::Refused, "no").caused_by(io::Error::other("who are you"));
        let error = Error::StoreUnavailable { upstream: "up".into(), source: cause.clone() };
        assert_eq!(error.to_string(), "up: the store of the shared log is unavailable: no: who are you");
        assert!(cause.source().is_none(), "and nobody who follows the chain reads it again");
        assert!(format!("{cause:?}").contains("Custom { kind: Other"), "{cause:?}");
    }
}
