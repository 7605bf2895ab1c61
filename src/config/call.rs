//! What is special about one call.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::ScopeId;

/// What is special about one call: for `with_extension` of a request.
///
/// # Default
///
/// * cost: 1
/// * max wait: that of the upstream
/// * upstream and scope: as the request says
///
/// ```
/// # fn send(client: &reqwest_middleware::ClientWithMiddleware) {
/// use outgate::Call;
/// use std::time::Duration;
///
/// let request = client
///     .post("https://api.example.com/batch")
///     .with_extension(Call::new().cost(50).max_wait(Duration::from_secs(5)));
/// # drop(request);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) scope: Option<ScopeId>,
    pub(crate) cost: Option<u32>,
    pub(crate) max_wait: Option<Duration>,
}

impl Call {
    /// A call like any other.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Belongs to the upstream of this name, whatever the request looks like.
    #[must_use]
    pub fn upstream(mut self, name: impl Into<Arc<str>>) -> Self {
        self.upstream = Some(name.into());
        self
    }

    /// Shares the quota with every call of this value: a token, a merchant. Hashed at once.
    ///
    /// The same as a request's value: a bearer token given here shares the log of requests that carry it.
    #[must_use]
    pub fn scope(mut self, value: impl AsRef<[u8]>) -> Self {
        self.scope = Some(ScopeId::of(value.as_ref()));
        self
    }

    /// Takes so many units: 1 to 10,000.
    #[must_use]
    pub const fn cost(mut self, units: u32) -> Self {
        self.cost = Some(units);
        self
    }

    /// Is refused at once when its slot is further away than this. Zero: a slot now or never.
    #[must_use]
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }
}
