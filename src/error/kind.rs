//! Errors without what they carry.

use std::fmt;

use super::Error;

/// Which variant an [`Error`] is, without what it carries: to count by, or to match on.
///
/// ```
/// use outgate::Error;
/// use outgate::error::ErrorKind;
///
/// assert_eq!(Error::Closed.kind(), ErrorKind::Closed);
/// assert_eq!(ErrorKind::StoreUnavailable.as_str(), "store_unavailable");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::Throttled`]
    Throttled,
    /// [`Error::TooManyWaiting`]
    TooManyWaiting,
    /// [`Error::Barred`]
    Barred,
    /// [`Error::Unauthorized`]
    Unauthorized,
    /// [`Error::Unreachable`]
    Unreachable,
    /// [`Error::StoreUnavailable`]
    StoreUnavailable,
    /// [`Error::CostExceedsQuota`]
    CostExceedsQuota,
    /// [`Error::UnknownUnit`]
    UnknownUnit,
    /// [`Error::UnknownScope`]
    UnknownScope,
    /// [`Error::UnknownUpstream`]
    UnknownUpstream,
    /// [`Error::OutsideRuntime`]
    OutsideRuntime,
    /// [`Error::Unmatched`]
    Unmatched,
    /// [`Error::Factor`]
    Factor,
    /// [`Error::Closed`]
    Closed,
}

impl ErrorKind {
    /// In lower case, with `_` between words, as metrics say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::TooManyWaiting => "too_many_waiting",
            Self::Barred => "barred",
            Self::Unauthorized => "unauthorized",
            Self::Unreachable => "unreachable",
            Self::StoreUnavailable => "store_unavailable",
            Self::CostExceedsQuota => "cost_exceeds_quota",
            Self::UnknownUnit => "unknown_unit",
            Self::UnknownScope => "unknown_scope",
            Self::UnknownUpstream => "unknown_upstream",
            Self::OutsideRuntime => "outside_runtime",
            Self::Unmatched => "unmatched",
            Self::Factor => "factor",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// Which variant it is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use outgate::Throttle;
    /// use outgate::error::ErrorKind;
    ///
    /// let throttle = Throttle::builder().build().unwrap();
    /// let error = throttle.acquire("nobody").await.unwrap_err();
    /// assert_eq!((error.kind(), error.upstream()), (ErrorKind::UnknownUpstream, None));
    /// # }
    /// ```
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Throttled { .. } => ErrorKind::Throttled,
            Self::TooManyWaiting { .. } => ErrorKind::TooManyWaiting,
            Self::Barred { .. } => ErrorKind::Barred,
            Self::Unauthorized { .. } => ErrorKind::Unauthorized,
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::StoreUnavailable { .. } => ErrorKind::StoreUnavailable,
            Self::CostExceedsQuota { .. } => ErrorKind::CostExceedsQuota,
            Self::UnknownUnit { .. } => ErrorKind::UnknownUnit,
            Self::UnknownScope { .. } => ErrorKind::UnknownScope,
            Self::UnknownUpstream { .. } => ErrorKind::UnknownUpstream,
            Self::OutsideRuntime => ErrorKind::OutsideRuntime,
            Self::Unmatched { .. } => ErrorKind::Unmatched,
            Self::Factor { .. } => ErrorKind::Factor,
            Self::Closed => ErrorKind::Closed,
        }
    }

    /// The upstream that it is about, where that is one of the throttle's.
    #[must_use]
    pub fn upstream(&self) -> Option<&str> {
        match self {
            Self::Throttled { upstream, .. }
            | Self::TooManyWaiting { upstream, .. }
            | Self::Barred { upstream, .. }
            | Self::Unauthorized { upstream, .. }
            | Self::Unreachable { upstream, .. }
            | Self::StoreUnavailable { upstream, .. }
            | Self::CostExceedsQuota { upstream, .. }
            | Self::UnknownUnit { upstream, .. }
            | Self::UnknownScope { upstream, .. }
            | Self::Factor { upstream, .. } => Some(upstream),
            Self::UnknownUpstream { .. } | Self::OutsideRuntime | Self::Unmatched { .. } | Self::Closed => None,
        }
    }
}
