//! A mistake in the configuration.

/// A mistake in the configuration, found when the throttle is built.
///
/// ```
/// use outgate::{Limit, Throttle, Upstream};
///
/// let error = Throttle::builder().upstream(Upstream::new("mail").limit(Limit::per_hour(0))).build().unwrap_err();
/// assert_eq!((error.upstream(), error.field()), ("mail", "limit.quota"));
/// println!("{}", error.reason());
/// ```
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
