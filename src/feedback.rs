//! What a response says about the quota: read from its status and headers, or told by whoever read its body.

mod date;
mod dialect;
mod fields;
mod grpc;
mod join;
mod moment;
mod name;
mod number;
mod part;
mod quota;
mod reach;
mod reader;
mod refill;
mod refusal;
mod reset;
/// What a response says that came just now, by the rules that suit almost every upstream: [`Feedback::read`].
///
/// ```
/// use outgate::Feedback;
/// use outgate::feedback::Refusal;
///
/// let response = http::Response::builder().status(429).header("retry-after", "20").body("slow down").unwrap();
/// assert_eq!(Feedback::from(&response).refusal(), Some(Refusal::Quota));
/// ```
impl<B> From<&http::Response<B>> for Feedback {
    fn from(response: &http::Response<B>) -> Self {
        Self::read(response.status(), response.headers(), SystemTime::now())
    }
}

/// What a response says that came just now, by the rules that suit almost every upstream: [`Feedback::read`]. Where the upstream has a
/// [`Dialect`], [`Throttle::read`](crate::Throttle::read) reads by that. After a redirect to another host it says nothing of the upstream
/// that was called.
impl From<&reqwest::Response> for Feedback {
    fn from(response: &reqwest::Response) -> Self {
        Self::read(response.status(), response.headers(), SystemTime::now())
    }
}

#[cfg(test)]
mod sample;
mod signs;
mod span;
mod structured;
mod tally;
mod text;
mod time_unit;
mod unit;
mod usage;
mod verdict;
mod wait;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use http::header::HeaderName;
use http::{HeaderMap, StatusCode};

pub use self::dialect::Dialect;
pub use self::quota::Quota;
pub use self::reach::Reach;
pub(crate) use self::reader::is_from_cache;
pub use self::refill::Refill;
pub use self::refusal::Refusal;
pub use self::time_unit::TimeUnit;
pub use self::unit::Unit;
use self::verdict::Certainty;
use self::wait::Wait;

/// In which a gRPC server says what became of a call.
pub(crate) static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What one response said about the quota: whether it refused, how long to wait, and what is left.
///
/// Reading is total: headers that cannot be read are [ignored and listed](Self::invalid), and never guessed. Bodies are
/// not read; where the verdict stands only there, construct the feedback:
///
/// ```
/// use outgate::feedback::{Feedback, Quota, Refusal, Unit};
/// use std::time::Duration;
///
/// let throttled = Feedback::refused(Duration::from_millis(1_680))
///     .with_quota(Quota::new().counting(Unit::Points).with_limit(1_000).with_remaining(118))
///     .with_cost(202);
/// assert!(throttled.is_limited());
///
/// let broke = Feedback::default().with_refusal(Refusal::Spend);
/// assert_eq!((broke.is_limited(), broke.wait()), (false, None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    refusal: Option<Refusal>,
    certainty: Certainty,
    reach: Option<Reach>,
    /// Every route is meant.
    is_global: bool,
    wait: Option<Wait>,
    quotas: Vec<Quota>,
    cost: Option<u64>,
    near_limit: bool,
    invalid: Vec<HeaderName>,
    malformed: Vec<HeaderName>,
}

impl Feedback {
    /// The longest wait that is ever given: 31 days, so that a monthly quota can still be waited for. A throttle waits no longer
    /// than [`max_pause`](crate::Upstream::max_pause).
    pub const LONGEST_WAIT: Duration = Duration::from_secs(31 * 86_400);

    /// What a response says, by the rules that suit almost every upstream.
    ///
    /// Absolute times are taken relative to the response's `Date`; without one, to `received_at`.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderValue, StatusCode};
    /// use outgate::Feedback;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("retry-after", HeaderValue::from_static("20"));
    /// let feedback = Feedback::read(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now());
    /// assert_eq!(feedback.wait(), Some(Duration::from_secs(20)));
    /// ```
    #[must_use]
    pub fn read(status: StatusCode, headers: &HeaderMap, received_at: SystemTime) -> Self {
        Self::read_as(&Dialect::GENERAL, status, headers, received_at)
    }

    /// What a response says, by the rules of one upstream.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderValue, StatusCode};
    /// use outgate::feedback::{Dialect, Feedback, TimeUnit};
    /// use std::time::{Duration, SystemTime};
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("retry-after", HeaderValue::from_static("1500"));
    /// let dialect = Dialect::GENERAL.retry_after_in(TimeUnit::Millis);
    /// let feedback = Feedback::read_as(&dialect, StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now());
    /// assert_eq!(feedback.wait(), Some(Duration::from_millis(1_500)));
    /// ```
    #[must_use]
    pub fn read_as(dialect: &Dialect, status: StatusCode, headers: &HeaderMap, received_at: SystemTime) -> Self {
        reader::read(dialect, status, headers, (received_at, Duration::ZERO))
    }

    /// The same, where the head was received so long before what is read now, as trailers are: its `Date` is as old.
    pub(crate) fn read_later(
        dialect: &Dialect,
        status: StatusCode,
        headers: &HeaderMap,
        (received_at, age): (SystemTime, Duration),
    ) -> Self {
        reader::read(dialect, status, headers, (received_at, age))
    }

    /// Whether a response can be a refusal at all: by its status, or as a gRPC server's.
    pub(crate) fn may_refuse(status: StatusCode, headers: &HeaderMap) -> bool {
        verdict::is_error(status) || headers.contains_key(&GRPC_STATUS)
    }

    /// The quota is spent, and something is left again after `wait`.
    #[must_use]
    pub fn refused(wait: Duration) -> Self {
        Self::default().with_refusal(Refusal::Quota).with_wait(wait)
    }

    /// The same, refused for this reason.
    #[must_use]
    pub fn with_refusal(mut self, refusal: Refusal) -> Self {
        self.refusal = Some(refusal);
        if self.certainty == Certainty::Inferred {
            self.certainty = Certainty::Told;
        }
        self
    }

    /// The same, with this wait instead of any other.
    ///
    /// ```
    /// use outgate::Feedback;
    /// use std::time::Duration;
    ///
    /// let again = Feedback::refused(Duration::from_secs(20)).with_wait(Duration::from_secs(5));
    /// assert_eq!(again.wait(), Some(Duration::from_secs(5)));
    /// ```
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(Wait::exactly(wait));
        self
    }

    /// The same, about the calls of `reach`.
    #[must_use]
    pub fn with_reach(mut self, reach: Reach) -> Self {
        (self.reach, self.is_global) = (Some(reach), false);
        self
    }

    /// The same, with one more quota.
    #[must_use]
    pub fn with_quota(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self
    }

    /// The same, for a call that cost so many units.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Why the call was refused; `None` if it was served, or failed for a reason other than limits.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Whether it counts as a refusal only as nothing is left of a quota: the call may have failed for another reason.
    pub(crate) fn is_inferred(&self) -> bool {
        self.certainty == Certainty::Inferred
    }

    /// Whether the call was throttled, whatever the status: the same call may succeed later at a lower rate.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.refusal.is_some_and(Refusal::is_throttling)
    }

    /// Whether the response says that the call was not executed, so that the same call may be sent again whatever its method.
    ///
    /// Only a 429, a 420, or an error whose header names throttling as its cause (`x-amzn-errortype: ThrottlingException`)
    /// says so. A call of any other response may have been executed, whatever is said of quotas and waits. Feedback that
    /// was not read from a response says nothing of it. Where the client follows redirects it is the last call of which it speaks: a POST that was
    /// answered by a 303 was executed, even if the GET after it got a 429.
    #[must_use]
    pub const fn not_executed(&self) -> bool {
        matches!(self.certainty, Certainty::NotExecuted)
    }

    /// How long nobody should send, counted from the response: never more than [`LONGEST_WAIT`](Self::LONGEST_WAIT).
    ///
    /// `None` if the response names no time: after a refusal, back off by a rule of your own. Where it names a window of a minute at most, or how
    /// fast units come back, that stands in for a time: it is the least to wait. Zero is not a licence to
    /// retry at once. A response that was served has a wait too when it spent the last unit, or asks for one.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.told_wait().map(|told| told.min(Self::LONGEST_WAIT))
    }

    /// The wait as the upstream told it, however long; what a `Duration` cannot hold is as long as one can be.
    #[must_use]
    pub fn told_wait(&self) -> Option<Duration> {
        self.wait.map(|wait| wait.told)
    }

    /// Whether the upstream told a longer wait than is given: let the caller know instead of waiting.
    #[must_use]
    pub fn over_cap(&self) -> bool {
        self.told_wait().is_some_and(|told| told > Self::LONGEST_WAIT)
    }

    /// How much later than the wait it may really be: a second where the time was told in whole seconds by a reset.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.wait.map_or(Duration::ZERO, |wait| wait.margin)
    }

    /// Whether nobody told the wait, and a window, or the time in which a unit comes back, stands in for it.
    pub(crate) fn wait_stands_in(&self) -> bool {
        self.wait.is_some_and(|wait| wait.stands_in)
    }

    /// Whose calls the refusal is about; `None` if the response does not say.
    #[must_use]
    pub const fn reach(&self) -> Option<Reach> {
        self.reach
    }

    /// Whether the response says that calls of every route are meant.
    pub(crate) const fn is_global(&self) -> bool {
        self.is_global
    }

    /// All quotas that the response spoke of.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The same to whoever calls a part of a host alone: the quota of a resource may be that of all its calls.
    pub(crate) fn to_part_of_host(&self) -> Cow<'_, Self> {
        let mut feedback = Cow::Borrowed(self);
        if self.quotas.iter().any(|quota| quota.resource) {
            feedback.to_mut().quotas.iter_mut().for_each(|quota| quota.resource = false);
        }
        feedback
    }

    /// The quotas of which both limit and window are known.
    pub fn policies(&self) -> impl Iterator<Item = &Quota> {
        self.quotas.iter().filter(|quota| quota.limit.is_some() && quota.window.is_some())
    }

    /// The quota that matters first: a spent one of calls, else the upstream's own without a name, else the one with
    /// the least left.
    #[must_use]
    pub fn main(&self) -> Option<&Quota> {
        let rank = |quota: &&Quota| {
            let calls = quota.unit == Unit::Calls;
            let left = quota.remaining.unwrap_or(u64::MAX);
            let used = Reverse(quota.utilization);
            (!calls, !quota.is_spent(), quota.is_unknown(), !quota.plain, left, used)
        };
        self.quotas.iter().min_by_key(rank)
    }

    /// The quota of calls with the least left, whatever its name: the one that will bind first.
    ///
    /// ```
    /// use outgate::Feedback;
    ///
    /// let response = http::Response::builder()
    ///     .status(429)
    ///     .header("retry-after", "7200")
    ///     .header("ratelimit-policy", "\"burst\";q=100;w=60, \"day\";q=5000;w=86400")
    ///     .header("ratelimit", "\"burst\";r=0;t=20, \"day\";r=4000;t=7200")
    ///     .body(())?;
    /// let feedback = Feedback::from(&response);
    /// assert_eq!((feedback.quotas().len(), feedback.policies().count()), (2, 2));
    /// assert_eq!(feedback.binding().and_then(|quota| quota.name()), Some("burst"));
    /// assert_eq!(feedback.main().and_then(|quota| quota.remaining()), Some(0));
    /// assert_eq!((feedback.over_cap(), feedback.told_wait(), feedback.not_executed()), (false, feedback.wait(), true));
    /// assert!(feedback.refusal().is_some() && feedback.cost().is_none() && !feedback.near_limit());
    /// assert!(feedback.invalid().is_empty() && feedback.malformed().is_empty());
    /// println!("wait for {:?}, or up to {:?} longer", feedback.wait(), feedback.margin());
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn binding(&self) -> Option<&Quota> {
        let left = |quota: &&Quota| quota.unit == Unit::Calls && quota.remaining.is_some();
        self.quotas.iter().filter(left).min_by_key(|quota| quota.remaining)
    }

    /// What the call cost, where the upstream says so.
    #[must_use]
    pub const fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Whether the upstream warned that little is left.
    #[must_use]
    pub const fn near_limit(&self) -> bool {
        self.near_limit
    }

    /// The headers about limits that were ignored, because nothing in them could be read.
    #[must_use]
    pub fn invalid(&self) -> &[HeaderName] {
        &self.invalid
    }

    /// The headers that were read although a strict parser would drop them.
    #[must_use]
    pub fn malformed(&self) -> &[HeaderName] {
        &self.malformed
    }
}
