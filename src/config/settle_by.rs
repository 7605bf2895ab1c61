//! What a response says that its call cost.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::config::upstream::{MAX_PAUSE, Upstream};
use crate::ledger::Bucket;

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
    /// How many units the head of a response is believed that its call used, at the most: as many as fill the largest bucket of the unit, and
    /// drain within the longest pause. More would silence everybody for longer than any response may; a window is no longer than it is.
    pub(crate) fn most_settled(&self, unit: &str) -> u64 {
        let longest = i64::try_from(self.max_pause.unwrap_or(MAX_PAUSE).as_nanos()).unwrap_or(i64::MAX);
        let of_unit = self.limits.iter().filter(|limit| limit.unit() == unit);
        let buckets = of_unit.filter_map(|limit| limit.window_term().as_bucket());
        let most =
            |bucket: Bucket| bucket.depth.saturating_add(longest).unsigned_abs() / bucket.interval.unsigned_abs();
        buckets.map(most).max().unwrap_or(u64::MAX)
    }

    /// Settles each call by what the head of its response says that it used of a unit: status and headers, before the body is read.
    /// `None` settles nothing: the charge stays. May be said of several units.
    ///
    /// The middleware does so for every response of the upstream's own host, whatever its status; see
    /// [`Permit::settle`](crate::Permit::settle). What stands in a body is settled by the response's
    /// [`Passage`](crate::Passage::settle). Of a [bucket](crate::Limit::bucket) no more is believed than fills it, and flows in within
    /// [`max_pause`](Self::max_pause): no response silences an upstream for longer. Of a gRPC response the trailers are read with the head when they
    /// come; what the program has said itself until then stays, unless they say something else than the head.
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
