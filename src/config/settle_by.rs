//! What a response says that its call cost.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::config::upstream::Upstream;

type Cost = Arc<dyn Fn(StatusCode, &HeaderMap) -> Option<u64> + Send + Sync>;

/// Reads from a response how many of a unit its call used.
#[derive(Clone)]
pub(crate) struct SettleBy {
    pub(crate) unit: Arc<str>,
    cost: Cost,
}

impl SettleBy {
    /// How many units the call of a response used, where that says so.
    pub(crate) fn used(&self, status: StatusCode, headers: &HeaderMap) -> Option<u64> {
        (self.cost)(status, headers)
    }
}

impl Upstream {
    /// Settles each call by what the head of its response says that it used of a unit: status and headers, before the body is read.
    /// `None` settles nothing: the charge stays. May be said of several units.
    ///
    /// The middleware does so for every response of the upstream's own host, whatever its status; see
    /// [`Permit::settle`](crate::Permit::settle). What stands in a body is settled by the response's
    /// [`Passage`](crate::Passage::settle).
    ///
    /// ```
    /// use outgate::{Limit, Upstream};
    ///
    /// let upstream = Upstream::new("shop").host("shop.example.com").limit(Limit::per_minute(1_000)).settle_by(
    ///     "calls",
    ///     |status, headers| {
    ///         let cost = headers.get("x-request-cost")?.to_str().ok()?.parse().ok();
    ///         if status.is_success() { cost } else { None }
    ///     },
    /// );
    /// # let _ = upstream;
    /// ```
    #[must_use]
    pub fn settle_by(
        mut self,
        unit: impl Into<Arc<str>>,
        used: impl Fn(StatusCode, &HeaderMap) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.settles.push(SettleBy { unit: unit.into(), cost: Arc::new(used) });
        self
    }
}
