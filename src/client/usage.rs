//! How much of an upstream's quota is used.

use std::time::Duration;

use http::HeaderName;

use crate::client::observing::Observed;
use crate::config::limit::Limit;
use crate::error::AfterRefusals;
use crate::ledger::{LogUsage, PauseUsage};

/// How much of an upstream's quota is used at this moment, in the whole cluster.
///
/// ```
/// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
/// let usage = throttle.usage("gateway").await?;
/// for of in &usage.limits {
///     println!("{}: {} of {} used, the next in {:?}", of.limit, of.used, of.limit.quota(), of.next);
/// }
/// if let Some(paused) = usage.paused {
///     println!("nobody sends for {:?}, because of {:?}", paused.left, paused.cause);
/// }
/// if let Some(slower) = usage.after_refusals {
///     println!("{slower}"); // after refusals 60 per 60s instead of 100, for about 500s
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// One for each limit, in the order they were registered; those on calls [in flight](crate::Limit::in_flight) come last.
    pub limits: Vec<LimitUsage>,
    /// Callers of this process that wait, and would be charged as is asked: by [`usage`](crate::Throttle::usage) those without a scope, by
    /// [`usage_in`](crate::Throttle::usage_in) those of that scope. Those of all scopes together are in the
    /// [`snapshot`](crate::snapshot::UpstreamSnapshot::callers). What is [observed](Self::observed), and
    /// [learned from](Self::learned_from), is this process's own, too; all else is the cluster's.
    pub waiting: usize,
    /// What would have become of the calls, where the upstream is [observed](crate::Upstream::observe).
    pub observed: Option<Observed>,
    /// The header from which this process last [learned](crate::Upstream::learn_from_responses) how much is left: what others use is
    /// what it shows beyond our own calls. `None` where no response has told it yet.
    pub learned_from: Option<HeaderName>,
    /// The pause that lasts longest, where there is one: how long it still lasts, why, and which response began it. Those of other scopes are
    /// not among them.
    pub paused: Option<PauseUsage>,
    /// The factor on the quotas that refusals, or somebody [by hand](crate::Throttle::slow_down), have lowered: 1.0 is all of them.
    pub rate: f64,
    /// That calls come slower since refusals, and until about when: by a rate, of which limit, or one after another.
    pub after_refusals: Option<AfterRefusals>,
}

/// How much of one limit is used.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::{Limit, Throttle, Upstream};
///
/// let throttle = Throttle::builder().upstream(Upstream::new("mail").limit(Limit::in_flight(3))).build()?;
/// let permit = throttle.acquire("mail").await?;
/// let seats = throttle.usage("mail").await?.limits.remove(0);
/// assert_eq!((seats.used, seats.free), (1, 2));
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitUsage {
    /// The limit.
    pub limit: Limit,
    /// Units that count against it: started within its window and guard, or booked. Of calls in flight, seats that the store counts as taken: by
    /// calls, by processes that keep them for their next calls, and by those that died until their leases end.
    pub used: u32,
    /// Units set aside because others use the same quota, where that is
    /// [learned](crate::Upstream::learn_from_responses): by the newest response, until the quota resets.
    pub outside_use: u32,
    /// For how long others have been known to use the same quota; `None` where they are not, or not lately.
    pub outside_use_for: Option<Duration>,
    /// Units that are left, of the quota and of the burst, or of what the rate leaves of them. Where something is [reserved](crate::Upstream::reserve),
    /// for calls for which it is: less is left for all others. So it is with [`next`](Self::next).
    pub free: u32,
    /// Other processes give the same units other limits, as while a release is rolled out, and those of all hold: the strictest that this
    /// process does not have, as so many units in so long, its guard included. `None` where all give the same, or gave lately.
    pub other_limit: Option<(u32, Duration)>,
    /// How long until this limit, or a pause, lets the next unit start. Nobody knows when a seat is free: of calls in flight, how long a pause
    /// lasts.
    pub next: Duration,
}

impl Usage {
    /// Of limits, each with its log, the first of its terms there, and how many units an entry stands for.
    pub(crate) fn new<'a>(
        limits: impl Iterator<Item = (&'a Limit, (usize, usize, u32))>,
        logs: &[LogUsage],
        waiting: usize,
        learned_from: Option<HeaderName>,
    ) -> Self {
        let of_limit = |(limit, (log, term, quantum)): (&Limit, (usize, usize, u32))| {
            let other = logs.get(log)?.other_term;
            let mut terms = logs.get(log)?.terms.iter().skip(term);
            let (window, units) = (terms.next()?, |entries: u32| entries.saturating_mul(quantum));
            let mut usage = LimitUsage {
                limit: limit.clone(),
                used: units(window.used),
                outside_use: units(window.outside),
                outside_use_for: window.outside_for,
                free: units(window.quota.saturating_sub(window.used).saturating_sub(window.outside)),
                other_limit: other.map(|of| (units(of.quota), Duration::from_micros(of.span.unsigned_abs()))),
                next: window.next,
            };
            if limit.burst_or_none().is_some() {
                let term = terms.next()?;
                usage.free = usage.free.min(units(term.quota.saturating_sub(term.used)));
                usage.next = usage.next.max(term.next);
            }
            Some(usage)
        };
        let limits = limits.filter_map(of_limit).collect();
        let paused = logs.iter().filter_map(|log| log.paused).max_by_key(|paused| paused.left);
        let rate = logs.iter().map(|log| log.rate).min().map_or(1.0, |rate| f64::from(rate) / 1e6);
        Self { limits, waiting, observed: None, learned_from, paused, rate, after_refusals: None }
    }

    /// With the limits on calls in flight, and how many seats of each are taken.
    pub(crate) fn with_seats<'a>(mut self, limits: impl Iterator<Item = (&'a Limit, u32)>) -> Self {
        let next = self.paused.map(|paused| paused.left).unwrap_or_default();
        self.limits.extend(limits.map(|(limit, used)| LimitUsage {
            limit: limit.clone(),
            used,
            outside_use: 0,
            outside_use_for: None,
            other_limit: None,
            free: limit.quota().saturating_sub(used),
            next,
        }));
        self
    }
}
