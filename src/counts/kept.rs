//! The metrics of one upstream, by the facade of the crate `metrics`.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::watch::Watch;
use crate::client::usage::Usage;
use crate::config::charges::Charges;
use crate::config::upstream::Upstream;
use crate::error::{Error, ErrorKind};
use crate::ledger::Cause;
use metrics::{Counter, Gauge, Histogram};

/// What becomes of calls: one of these for each.
const SENT: &str = "sent";
const REFUSED: &str = "refused";
const HANDED_BACK: &str = "handed_back";
const GIVEN_UP: &str = "given_up";
/// Errors that calls to an upstream may get.
const ERRORS: [ErrorKind; 12] = [
    ErrorKind::Throttled,
    ErrorKind::TooManyWaiting,
    ErrorKind::Barred,
    ErrorKind::Unauthorized,
    ErrorKind::Unreachable,
    ErrorKind::StoreUnavailable,
    ErrorKind::CostExceedsQuota,
    ErrorKind::UnknownUnit,
    ErrorKind::UnknownScope,
    ErrorKind::UnknownUpstream,
    ErrorKind::OutsideRuntime,
    ErrorKind::Closed,
];

const CAUSES: [Cause; 4] = [Cause::Overload, Cause::Refusal, Cause::Spend, Cause::Ban];

/// The metrics of one upstream. Their labels are known when it is registered: no scope, and nothing that a call says, becomes one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    sent: Counter,
    outcomes: Vec<(&'static str, Counter)>,
    wait: Histogram,
    late: Histogram,
    waiting: Gauge,
    oldest: Gauge,
    retries: Counter,
    /// By cause: how many, and for how long yet.
    pauses: [(Counter, Gauge); 4],
    /// Until when these last, as of the last look; `None` where nothing was to be seen.
    seen: Mutex<Option<[Instant; 4]>>,
    /// By unit: what estimates reserved, and what calls were settled at.
    units: Vec<(Arc<str>, Counter, Counter)>,
    /// Of each limit that all callers share.
    quotas: Vec<Option<Quota>>,
    /// Sees to the gauges that change by themselves, once the throttle is built.
    watch: OnceLock<Arc<Watch>>,
}

#[derive(Debug)]
struct Quota {
    limit: String,
    used: Gauge,
    outside: Gauge,
}

/// How a permit ends, unless its call was sent.
#[derive(Debug, Default)]
pub(crate) struct Ending(OnceLock<&'static str>);

impl Ending {
    /// The upstream refused its call.
    pub(crate) fn refused(&self) {
        let _ = self.0.set(REFUSED);
    }

    /// Nothing was sent.
    pub(crate) fn handed_back(&self) {
        let _ = self.0.set(HANDED_BACK);
    }
}

impl Counts {
    /// The metrics of an upstream, where the recorder that is installed by now keeps them.
    pub(crate) fn of(upstream: &Upstream, charges: &Charges) -> Self {
        let name = || upstream.name.to_string();
        let outcome = |outcome| metrics::counter!("outgate_calls_total", "upstream" => name(), "outcome" => outcome);
        let outcomes = [REFUSED, HANDED_BACK, GIVEN_UP].into_iter().chain(ERRORS.map(ErrorKind::as_str));
        let pauses = CAUSES.map(|cause| {
            let cause = word(cause);
            (
                metrics::counter!("outgate_pauses_total", "upstream" => name(), "cause" => cause),
                metrics::gauge!("outgate_pause_seconds", "upstream" => name(), "cause" => cause),
            )
        });
        let mut units: Vec<(Arc<str>, Counter, Counter)> = Vec::new();
        for unit in charges.counted(upstream).into_iter().map(|counted| counted.unit) {
            if units.iter().all(|(known, ..)| *known != unit) {
                let of = || unit.to_string();
                let estimated =
                    metrics::counter!("outgate_units_estimated_total", "upstream" => name(), "unit" => of());
                let settled = metrics::counter!("outgate_units_settled_total", "upstream" => name(), "unit" => of());
                units.push((unit, estimated, settled));
            }
        }
        let quota = |(at, limit): (usize, &crate::Limit)| {
            // One of its own may read the same.
            let of = || if limit.is_common() { format!("{}/{limit}", upstream.ledger()) } else { limit.to_string() };
            charges.is_everybodys(at).then(|| Quota {
                limit: of(),
                used: metrics::gauge!("outgate_quota_used", "upstream" => name(), "limit" => of()),
                outside: metrics::gauge!("outgate_outside_use", "upstream" => name(), "limit" => of()),
            })
        };
        Self(Some(Arc::new(Kept {
            sent: outcome(SENT),
            outcomes: outcomes.map(|of| (of, outcome(of))).collect(),
            wait: metrics::histogram!("outgate_wait_seconds", "upstream" => name()),
            late: metrics::histogram!("outgate_late_seconds", "upstream" => name()),
            waiting: metrics::gauge!("outgate_callers_waiting", "upstream" => name()),
            oldest: metrics::gauge!("outgate_oldest_wait_seconds", "upstream" => name()),
            retries: metrics::counter!("outgate_retries_total", "upstream" => name()),
            pauses,
            seen: Mutex::default(),
            units,
            quotas: upstream.limits.iter().enumerate().map(quota).collect(),
            watch: OnceLock::new(),
        })))
    }

    /// Sees to what changes by itself by this.
    pub(crate) fn watch(&self, watch: &Arc<Watch>) {
        if let Some(kept) = &self.0 {
            let _ = kept.watch.set(Arc::clone(watch));
        }
    }

    /// A caller begins to wait.
    pub(crate) fn came(&self) {
        if let Some(kept) = &self.0 {
            kept.waiting.increment(1.0);
            kept.begin_to_watch();
        }
    }

    /// A caller waits no more, and it was the last, or others do.
    pub(crate) fn went(&self, is_last: bool) {
        if let Some(kept) = &self.0 {
            kept.waiting.decrement(1.0);
            if is_last {
                kept.nobody_waits();
            }
        }
    }

    /// A caller went without an answer.
    pub(crate) fn gave_up(&self) {
        self.count(GIVEN_UP);
    }

    /// A caller has waited in a queue for its permit, which is so late.
    pub(crate) fn waited(&self, waited: Duration, late: Duration) {
        if let Some(kept) = &self.0 {
            kept.wait.record(waited);
            kept.late.record(late);
        }
    }

    /// A permit has ended.
    pub(crate) fn ended(&self, ending: &Ending) {
        match (&self.0, ending.0.get()) {
            (Some(kept), None) => kept.sent.increment(1),
            (_, Some(ending)) => self.count(ending),
            (None, None) => {}
        }
    }

    /// A call got an error.
    pub(crate) fn failed(&self, error: &Error) {
        self.count(error.kind().as_str());
    }

    /// The program says that a call was refused.
    pub(crate) fn refusal_reported(&self) {
        self.count(REFUSED);
    }

    /// A call is sent again.
    pub(crate) fn retried(&self) {
        if let Some(kept) = &self.0 {
            kept.retries.increment(1);
        }
    }

    /// A queue falls silent.
    pub(crate) fn paused(&self, cause: Cause) {
        if let Some(kept) = &self.0 {
            for ((count, _), _) in kept.pauses.iter().zip(CAUSES).filter(|(_, of)| *of == cause) {
                count.increment(1);
            }
            kept.begin_to_watch();
        }
    }

    /// A call reserves an estimate of a unit.
    pub(crate) fn estimated(&self, unit: &str, units: u64) {
        if let Some((_, estimated, _)) = self.of_unit(unit) {
            estimated.increment(units.min(u32::MAX.into()));
        }
    }

    /// A call used so much of a unit.
    pub(crate) fn settled(&self, unit: &str, units: u64) {
        if let Some((_, _, settled)) = self.of_unit(unit) {
            settled.increment(units.min(u32::MAX.into()));
        }
    }

    /// The program has asked how much is used.
    pub(crate) fn used(&self, usage: &Usage) {
        let quotas = self.0.iter().flat_map(|kept| &kept.quotas);
        for (usage, quota) in usage.limits.iter().zip(quotas).filter_map(|(of, to)| Some((of, to.as_ref()?))) {
            quota.used.set(usage.used);
            quota.outside.set(usage.outside_use);
        }
    }

    /// How long the one has waited who has waited longest; and for how long yet nobody sends in the queue that waits longest, by cause.
    pub(crate) fn seen(&self, oldest: Duration, pauses: &[(Cause, Duration)]) {
        let Some(kept) = &self.0 else { return };
        let left = CAUSES.map(|cause| {
            let of_cause = pauses.iter().filter(|(of, _)| *of == cause).map(|(_, left)| *left);
            of_cause.max().unwrap_or_default()
        });
        kept.show(oldest, left, Instant::now());
    }

    /// Others have taken the place of these: of limits that are gone nothing is used.
    pub(crate) fn replaced_by(&self, new: &Self) {
        for quota in self.quotas().filter(|quota| new.quotas().all(|of| of.limit != quota.limit)) {
            quota.used.set(0);
            quota.outside.set(0);
        }
    }

    /// Nothing is to be seen any more.
    pub(crate) fn gone(&self) {
        self.seen(Duration::ZERO, &[]);
    }

    fn quotas(&self) -> impl Iterator<Item = &Quota> {
        self.0.iter().flat_map(|kept| &kept.quotas).flatten()
    }

    fn count(&self, outcome: &str) {
        let mut outcomes = self.0.iter().flat_map(|kept| &kept.outcomes);
        if let Some((_, counter)) = outcomes.find(|(of, _)| *of == outcome) {
            counter.increment(1);
        }
    }

    fn of_unit(&self, unit: &str) -> Option<&(Arc<str>, Counter, Counter)> {
        self.0.as_ref()?.units.iter().find(|(of, ..)| **of == *unit)
    }
}

impl Kept {
    fn show(&self, oldest: Duration, left: [Duration; 4], now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_any = !oldest.is_zero() || left.iter().any(|left| !left.is_zero());
        *seen = is_any.then(|| left.map(|left| now + left));
        self.oldest.set(oldest);
        self.pauses.iter().zip(left).for_each(|((_, gauge), left)| gauge.set(left));
    }

    /// Nobody waits any more, and whoever looks may be polled no more: what was seen last goes on by the clock.
    fn nobody_waits(&self) {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ends) = seen {
            let now = Instant::now();
            self.show(Duration::ZERO, ends.map(|end| end.saturating_duration_since(now)), now);
        }
    }

    fn begin_to_watch(&self) {
        self.watch.get().into_iter().for_each(Watch::begin);
    }
}

fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Overload => "overload",
        Cause::Refusal => "refusal",
        Cause::Spend => "spend",
        Cause::Ban => "ban",
    }
}
