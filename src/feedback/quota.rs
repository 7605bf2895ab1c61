//! What a response said of one quota.

use std::time::{Duration, SystemTime};

use http::HeaderName;

use super::part::is_part;
use super::refill::Refill;
use super::reset::Reset;
use super::unit::Unit;

/// What a response said of one quota; all of it is a hint, and each part may be missing.
///
/// `remaining` may be stale, may come from another back-end, and may rise: use it to send less until the quota resets,
/// never to send more.
///
/// ```
/// use outgate::feedback::{Quota, Unit};
/// use std::time::Duration;
///
/// let points = Quota::new().named("graphql").counting(Unit::Points).with_limit(1_000).with_remaining(118);
/// assert_eq!(points.remaining(), Some(118));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub struct Quota {
    pub(super) name: Option<String>,
    pub(super) unit: Unit,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) used: Option<u64>,
    pub(super) window: Option<Duration>,
    pub(super) reset: Option<Reset>,
    pub(super) refill: Option<Refill>,
    /// Millionths of the quota that are used.
    pub(super) utilization: Option<u32>,
    /// The upstream said that it serves nothing before the reset, whatever the numbers say.
    pub(super) blocked: bool,
    /// The upstream's own quota of calls, as opposed to one of several that it names.
    pub(super) plain: bool,
    /// It has a name that may be that of a part of the calls, beside which others may have quotas of their own.
    pub(super) part: bool,
    /// Its name is that of one of several resources of a host, each with a quota of its own.
    pub(super) resource: bool,
    pub(super) header: Option<HeaderName>,
}

impl Quota {
    /// A quota of calls of which nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self { plain: true, ..Self::default() }
    }

    /// Calls the quota by a name.
    ///
    /// Of a quota with the name of a part of the calls, as `search`, nothing is [learned](crate::Upstream::learn_from_responses) where it
    /// allows less than half of what the limit does.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.part = is_part(&name);
        self.name = Some(name);
        self
    }

    /// Counts `unit` instead of calls.
    #[must_use]
    pub const fn counting(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Allows `limit` units.
    #[must_use]
    pub const fn with_limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Has `remaining` units left.
    #[must_use]
    pub const fn with_remaining(mut self, remaining: u64) -> Self {
        self.remaining = Some(remaining);
        self
    }

    /// Allows its limit in each `window`.
    #[must_use]
    pub const fn with_window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// Resets so long after the response.
    #[must_use]
    pub const fn with_reset_after(mut self, after: Duration) -> Self {
        self.reset = Some(Reset::after(after));
        self
    }

    /// Fills at the rate of `refill`.
    #[must_use]
    pub const fn with_refill(mut self, refill: Refill) -> Self {
        self.refill = Some(refill);
        self
    }

    /// The name that the upstream gave it: never a key, because some put the numbers or a hash into it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What is counted; only [`Unit::Calls`] is a budget of calls.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Units allowed, in a window if there is one; where only used and remaining were told, their sum.
    #[must_use]
    pub const fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Whole units left; where only used and limit were told, their difference.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Units used, as told: by most upstreams in this window, by a few in this call.
    #[must_use]
    pub const fn used(&self) -> Option<u64> {
        self.used
    }

    /// The length of the window.
    #[must_use]
    pub const fn window(&self) -> Option<Duration> {
        self.window
    }

    /// From the response until the quota resets; zero if that has passed.
    ///
    /// Upstreams mean different things by it: the window ends, the oldest call leaves it, or the bucket is full again.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.reset.map(|reset| reset.after)
    }

    /// From the response until the quota has surely reset.
    pub(crate) fn reset_within(&self) -> Option<Duration> {
        self.reset.map(|reset| reset.after.saturating_add(reset.margin()))
    }

    /// The instant of the reset, by the upstream's clock, where it told one.
    #[must_use]
    pub fn reset_at(&self) -> Option<SystemTime> {
        self.reset.and_then(|reset| reset.at)
    }

    /// The rate at which units come back, where the quota is a bucket.
    #[must_use]
    pub const fn refill(&self) -> Option<Refill> {
        self.refill
    }

    /// The share that is used: 1 when nothing is left, more when the upstream let more through.
    ///
    /// ```
    /// use outgate::feedback::{Quota, Refill, Unit};
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let tokens = Quota::new()
    ///     .named("input")
    ///     .counting(Unit::Tokens)
    ///     .with_limit(1_000)
    ///     .with_remaining(0)
    ///     .with_window(minute)
    ///     .with_reset_after(minute)
    ///     .with_refill(Refill::new(100, Duration::from_secs(6)));
    /// assert_eq!((tokens.name(), tokens.unit(), tokens.limit(), tokens.remaining()), (Some("input"), Unit::Tokens, Some(1_000), Some(0)));
    /// assert_eq!((tokens.window(), tokens.reset_after(), tokens.utilization()), (Some(minute), Some(minute), None));
    /// assert!(tokens.is_spent() && tokens.used().is_none() && tokens.reset_at().is_none() && tokens.header().is_none());
    /// assert_eq!(tokens.refill().map(|refill| (refill.units(), refill.every())), Some((100, Duration::from_secs(6))));
    /// ```
    #[must_use]
    pub fn utilization(&self) -> Option<f64> {
        self.utilization.map(|millionths| f64::from(millionths) / 1_000_000.0)
    }

    /// The header that told how much is left or used; `None` where no header did.
    #[must_use]
    pub const fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// The same, as told by this header where it says how much is left or used.
    pub(super) fn told_by(self, header: Option<&HeaderName>) -> Self {
        let header = header.filter(|_| self.used.is_some() || !self.is_unknown()).cloned();
        Self { header, ..self }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.has_nothing_left() || self.utilization.is_some_and(|used| used >= 1_000_000)
    }

    /// Whether the upstream says that nothing is left, or served; not only that all is used.
    pub(super) fn has_nothing_left(&self) -> bool {
        self.blocked || self.remaining == Some(0)
    }

    /// Whether more is used than it allows.
    pub(super) fn is_overrun(&self) -> bool {
        self.used > self.limit && self.limit.is_some()
    }

    /// Whether nobody said how much is left.
    pub(super) fn is_unknown(&self) -> bool {
        !self.blocked && self.remaining.is_none() && self.utilization.is_none()
    }

    /// Whether nothing was said of it but what it is called.
    pub(super) fn is_silent(&self) -> bool {
        let Self { limit, remaining, used, window, reset, refill, .. } = self;
        let numbers = [limit, remaining, used].into_iter().any(Option::is_some);
        !numbers && window.is_none() && reset.is_none() && refill.is_none() && self.utilization.is_none()
    }

    /// Takes over what `other` says of the same quota: of two numbers the stricter one.
    pub(super) fn absorb(&mut self, other: Self) {
        self.name = self.name.take().or(other.name);
        self.limit = stricter(self.limit, other.limit, u64::min);
        self.remaining = stricter(self.remaining, other.remaining, u64::min);
        self.used = stricter(self.used, other.used, u64::max);
        self.window = self.window.or(other.window);
        self.reset = stricter(self.reset, other.reset, Reset::and);
        self.refill = self.refill.or(other.refill);
        self.utilization = stricter(self.utilization, other.utilization, u32::max);
        self.blocked |= other.blocked;
        self.plain |= other.plain;
        self.part |= other.part;
        self.resource |= other.resource;
        self.header = self.header.take().or(other.header);
    }

    /// Fills in what follows from the rest.
    pub(super) fn complete(&mut self) {
        match (self.limit, self.used, self.remaining) {
            (Some(limit), Some(used), None) => self.remaining = Some(limit.saturating_sub(used)),
            (None, Some(used), Some(remaining)) => self.limit = Some(used.saturating_add(remaining)),
            _ => {}
        }
    }
}

/// One of two values, and `choose` where both are there.
pub(super) fn stricter<T>(one: Option<T>, other: Option<T>, choose: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(choose(one, other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_reports_the_stricter_numbers_hold() {
        let mut quota = Quota::new().with_limit(60).with_remaining(9).with_reset_after(Duration::from_secs(5));
        quota
            .absorb(Quota::new().with_limit(50).with_remaining(10).with_reset_after(Duration::from_secs(7)).named("n"));
        let expected =
            Quota::new().with_limit(50).with_remaining(9).with_reset_after(Duration::from_secs(7)).named("n");
        assert_eq!(quota, expected);
    }

    #[test]
    fn two_of_limit_used_and_remaining_give_the_third() {
        let quota = |limit, used, remaining| Quota { limit, remaining, used, ..Quota::new() };
        let cases = [
            (quota(Some(40), Some(40), None), Some(40), Some(0)),
            (quota(Some(40), Some(41), None), Some(40), Some(0)),
            (quota(None, Some(1), Some(299)), Some(300), Some(299)),
            (quota(None, Some(u64::MAX), Some(1)), Some(u64::MAX), Some(1)),
            (quota(Some(600), Some(2), Some(596)), Some(600), Some(596)),
            (quota(None, Some(1), None), None, None),
        ];
        for (mut quota, limit, remaining) in cases {
            quota.complete();
            assert_eq!((quota.limit(), quota.remaining()), (limit, remaining));
        }
    }

    #[test]
    fn a_quota_is_spent_when_nothing_is_left_or_the_upstream_says_so() {
        let spent = [
            Quota::new().with_remaining(0),
            Quota { utilization: Some(1_010_000), ..Quota::new() },
            Quota { utilization: Some(950_000), blocked: true, ..Quota::new() },
        ];
        assert!(spent.iter().all(|quota| quota.is_spent() && !quota.is_unknown()));
        assert!(!Quota::new().is_spent() && Quota::new().is_unknown());
    }
}
