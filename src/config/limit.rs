//! What an upstream allows: so many units in any window.

mod in_flight;
mod terms;

use std::sync::Arc;
use std::time::Duration;

use self::in_flight::SeatSettings;
use super::bucket;
use super::reset::Reset;
use crate::config::charges::CALLS;
use crate::config::scope::Scope;

/// The largest quota one limit may have: each call takes about ten bytes in the log, and other units are kept in larger entries.
pub(crate) const MAX_CALLS: u32 = 1_000_000;
pub(crate) const MAX_QUOTA: u32 = 100_000_000;
/// The shortest window of a limit.
pub(crate) const MIN_WINDOW: Duration = Duration::from_millis(1);
/// The longest window of a limit.
pub(crate) const MAX_WINDOW: Duration = Duration::from_secs(366 * 86_400);
/// The shortest window that has a default guard: of a shorter one the guard would take a fifth and more.
pub(crate) const MIN_GUARDED_WINDOW: Duration = Duration::from_millis(50);
/// The narrowest default guard: half of it may pass before a slot is used, and timers alone take a millisecond or two of that.
const MIN_DEFAULT_GUARD: Duration = Duration::from_millis(10);
/// The longest default guard of a calendar window.
const MOST_AT_RESET: Duration = Duration::from_secs(60);
/// The widest guard of a limit.
pub(crate) const MAX_GUARD: Duration = Duration::from_secs(86_400);

/// At most `quota` units in any window, wherever the window begins: how many, of what, in what window, and for whom.
///
/// Or so many calls [in flight](Limit::in_flight).
///
/// # Default
///
/// * it counts calls, and is shared by whoever [`Upstream::scope_by`](crate::Upstream::scope_by) says: else by all callers
/// * no burst: the whole quota may be spent at once
/// * units count from the start of a call on
/// * guard: a twentieth of the window, at least 10 ms, and at most 1 s or, if that is more, a 2,000th of the window; none for
///   a window under 50 ms, which needs one that is given
///
/// A limit is checked when the throttle is built, not here: quotas run from 1 to 1,000,000 calls, or 100,000,000 of another unit,
/// windows from 1 ms to 366 days; a [bucket](Self::bucket) fills within 60 days at most.
///
/// ```
/// use outgate::{Limit, Scope};
/// use std::time::Duration;
///
/// let each_merchant = Limit::per_second(10).each(Scope::header("x-merchant"));
/// let tokens = Limit::per_minute(200_000).of("tokens");
/// let hourly = Limit::per_hour(5_000);
/// let gentle = Limit::per_second(100).burst(20);
/// let seats = Limit::in_flight(25);
/// let odd = Limit::new(120, Duration::from_secs(90)).guard(Duration::from_millis(250));
/// assert_eq!("120/90s guard 250ms".parse(), Ok(odd)); // as text, and back by `to_string`
/// # let _ = (hourly, gentle, seats, each_merchant, tokens);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    quota: u32,
    window: Duration,
    burst: Option<u32>,
    guard: Option<Duration>,
    /// Calls, where there is none.
    unit: Option<Arc<str>>,
    scope: Option<Scope>,
    /// Other upstreams share it.
    is_common: bool,
    /// Units that a bucket is refilled by, and how often.
    refill: Option<(u32, Duration)>,
    /// Where it limits calls in flight.
    seats: Option<SeatSettings>,
    /// The upstream counts units when a call ends.
    at_end: bool,
    resets: Option<Reset>,
}

impl Limit {
    /// At most `quota` units in any `window`.
    #[must_use]
    pub const fn new(quota: u32, window: Duration) -> Self {
        Self {
            quota,
            window,
            burst: None,
            guard: None,
            refill: None,
            unit: None,
            scope: None,
            is_common: false,
            seats: None,
            at_end: false,
            resets: None,
        }
    }

    /// A bucket of `capacity` units, full at first, into which `refill` units flow in each `per`, evenly: what many upstreams
    /// call a token bucket or a leaky bucket.
    ///
    /// `capacity` units may be spent at once, and from then on one after another at the rate of the refill. Its
    /// [window](Self::window) is the time in which it fills: 60 days at most.
    ///
    /// The [guard](Self::guard) is taken out of the capacity, not of the rate: it costs as many units at once as flow in during
    /// the guard, rounded up. Where less than one unit is left so, one unit starts in each time of a unit and guard. So a bucket of
    /// capacity 1 is [paced evenly](Self::spread).
    ///
    /// # Default
    ///
    /// The guard is a twentieth of the time in which the bucket fills, at least 10 ms, and at most 50 ms or, if that is more, a
    /// twentieth of the time in which one unit flows in, up to 1 s. Calls that probably open a connection may arrive up to 250 ms later
    /// beside that, as in a window of up to 10 s.
    ///
    /// ```
    /// use outgate::Limit;
    /// use std::time::Duration;
    ///
    /// let shop = Limit::bucket(40, 2, Duration::from_secs(1)); // the 41st call of 40 at once waits for half a second
    /// assert_eq!(shop.window(), Duration::from_secs(20));
    /// ```
    #[must_use]
    pub const fn bucket(capacity: u32, refill: u32, per: Duration) -> Self {
        let mut bucket = Self::new(capacity, bucket::time_to_fill(capacity, refill, per));
        bucket.refill = Some((refill, per));
        bucket
    }

    /// At most `quota` units in any second.
    #[must_use]
    pub const fn per_second(quota: u32) -> Self {
        Self::new(quota, Duration::from_secs(1))
    }

    /// At most `quota` units in any minute.
    #[must_use]
    pub const fn per_minute(quota: u32) -> Self {
        Self::new(quota, Duration::from_secs(60))
    }

    /// At most `quota` units in any hour.
    #[must_use]
    pub const fn per_hour(quota: u32) -> Self {
        Self::new(quota, Duration::from_secs(3_600))
    }

    /// At most `quota` units in any 24 hours.
    #[must_use]
    pub const fn per_day(quota: u32) -> Self {
        Self::new(quota, Duration::from_secs(86_400))
    }

    /// At most `quota` units in any seven days.
    #[must_use]
    pub const fn per_week(quota: u32) -> Self {
        Self::new(quota, Duration::from_secs(7 * 86_400))
    }

    /// At most `quota` units in any 31 days.
    ///
    /// ```
    /// use outgate::Limit;
    ///
    /// let plan = [Limit::per_day(1_000), Limit::per_week(5_000), Limit::per_month(15_000)]; // all of them hold
    /// # let _ = plan;
    /// ```
    #[must_use]
    pub const fn per_month(quota: u32) -> Self {
        Self::new(quota, Duration::from_secs(31 * 86_400))
    }

    /// All units come back at once, when the upstream begins to count anew: by the hour, day, week or month of its clock, and not one by
    /// one as they age. The window has to be as long as that: [`per_day`](Self::per_day) of days, and so on.
    ///
    /// Nothing starts for a [guard](Self::guard) before a reset, and units of before it count for as long after it. By the store's clock:
    /// Redis's, or that of a [`MemoryStore`](crate::MemoryStore), which knows of no step of the machine's clock. Nobody else's decides. Where the `Date` of responses shows that the upstream's is
    /// another, the time between both, up to a minute, is as quiet as the guard, for all processes; what no response has shown yet the guard
    /// has to cover. So it is where processes know different moments of one reset, as by another time zone database; other resets are other
    /// limits, each of which holds. Once the quota is spent, calls wait, or are told to, until the reset and the guard.
    ///
    /// # Default
    ///
    /// The guard is that of a window, though a minute at most. Outside use is not learned of such a limit.
    ///
    /// ```
    /// use outgate::{Limit, Reset};
    ///
    /// let daily = Limit::per_day(10_000).resets(Reset::daily("UTC"));
    /// # let _ = daily;
    /// ```
    #[must_use]
    pub const fn resets(mut self, reset: Reset) -> Self {
        self.resets = Some(reset);
        self
    }

    /// At most `burst` units at once: the rest of the quota comes at the rate of the limit.
    ///
    /// No call may cost more. Adds the bound of `burst` units in any `(window + guard) · burst / quota`. It costs no throughput: the limit allows no
    /// more in the long run. Of a [calendar window](Self::resets) the pace is that of the longest, 31 days of a month: what a shorter one,
    /// or a quiet time, leaves of the quota is not made up for.
    ///
    /// `burst(1)` is even pacing. It serves an upstream whose counter approximates a sliding window by two fixed ones, as
    /// many gateways do: there the whole quota at once is refused although no window holds more, while even calls are not. For a
    /// token bucket, say [`Limit::bucket`]; for a limit that insists on `b` calls in a shorter time, add that as a limit of its own.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Even pacing: one unit after another, each a part of the window and its guard after the one before. The same as
    /// [`burst(1)`](Self::burst).
    ///
    /// ```
    /// use outgate::Limit;
    ///
    /// assert_eq!(Limit::per_second(10).spread(), Limit::per_second(10).burst(1)); // one every tenth of a second
    /// ```
    #[must_use]
    pub const fn spread(self) -> Self {
        self.burst(1)
    }

    /// Counts every unit for `guard` longer than the window, to absorb the spread of the network delay.
    ///
    /// A slot may be used late by 7/16 of the guard, though by 2 ms at least and 219 ms at most. Where several limits hold, by that
    /// part of the narrowest guard, since a late call endangers that limit first; but a guard under 4 ms, which timers alone use up,
    /// says nothing about the slots of the others. The upstream never sees more than
    /// the quota as long as the delay from there to the arrival varies by no more than the rest of the guard. It costs
    /// `guard / (window + guard)` of the throughput.
    ///
    /// A call that brings more in flight to its host than there were in the last minute probably opens a connection, and arrives
    /// later. Where the window lasts 10 s at most, its units count for a quarter of it longer, though for 250 ms at most; those of
    /// other calls do not. Only the middleware and the layer of feature `tower` know of such calls: for one made with a permit of
    /// [`acquire`](crate::Throttle::acquire), the guard pays for a new connection as well.
    ///
    /// A day at most, and less than half of a calendar window.
    #[must_use]
    pub const fn guard(mut self, guard: Duration) -> Self {
        self.guard = Some(guard);
        self
    }

    /// For an upstream that counts units when a call ends, as most do that count tokens: when a call is
    /// [settled](crate::Permit::settle), its charge is taken out of the log, and what it used is entered anew at that time.
    ///
    /// Until then the charge counts from the start of the call on, for a window. So nothing is reserved any more for a call that lasts
    /// longer than the window. A call that is never settled counts from its start. It goes for the unit: where several limits of an
    /// upstream count the same one, it is enough if one says so.
    ///
    /// ```
    /// use outgate::Limit;
    ///
    /// let tokens = Limit::per_minute(200_000).of("tokens").counted_at_end();
    /// assert!(tokens.is_counted_at_end());
    /// assert_eq!((tokens.unit(), tokens.quota()), ("tokens", 200_000));
    /// ```
    #[must_use]
    pub const fn counted_at_end(mut self) -> Self {
        self.at_end = true;
        self
    }

    /// Whether the upstream counts units when a call ends.
    #[must_use]
    pub const fn is_counted_at_end(&self) -> bool {
        self.at_end
    }

    /// Counts these units, such as tokens or points: [`Call::cost_of`](crate::Call::cost_of) says how many a call costs, and
    /// [`Upstream::cost_by`](crate::Upstream::cost_by) or [`Upstream::estimate`](crate::Upstream::estimate) where the call does not; else it is 1.
    /// A name has 1 to 32 letters, digits or `_`. What responses report is [learned](crate::Upstream::learn_from_responses) for `calls`, `tokens`, `points` and
    /// `bytes`. Calls that cost 0 of a unit do not queue
    /// behind calls that take it; and they have a share of their own in what processes share.
    ///
    /// Above a quota of 20,000 an entry of the log stands for several units, and a cost is rounded up to whole entries. A call that costs a
    /// hundredth of the quota loses a hundredth of that at most. Entries stand for 1 unit, 2, 4, and so on, and those of another size stand in
    /// another log: a quota that is changed from one side of 20,000, 40,000, 80,000, … to the other begins with an empty one.
    #[must_use]
    pub fn of(mut self, unit: impl Into<Arc<str>>) -> Self {
        self.unit = Some(unit.into());
        self
    }

    /// Holds for each value of a scope: for each token, each merchant, each host. A call is charged in all its limits at once, or in
    /// none.
    #[must_use]
    pub fn each(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// What it counts: `calls`, unless it says otherwise.
    #[must_use]
    pub fn unit(&self) -> &str {
        self.unit.as_deref().unwrap_or(CALLS)
    }

    /// What it counts, where it says so.
    pub(crate) fn unit_or_none(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// Who shares it, where it says so itself.
    pub(crate) const fn own_scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    /// The same limit, common to several upstreams.
    pub(crate) fn common(self) -> Self {
        Self { is_common: true, ..self }
    }

    /// Whether other upstreams share it.
    pub(crate) const fn is_common(&self) -> bool {
        self.is_common
    }

    /// The most units that can ever start at once.
    pub(crate) fn most_at_once(&self) -> u32 {
        self.burst.unwrap_or(self.quota)
    }

    /// Units allowed in any window; of a bucket, its capacity.
    #[must_use]
    pub const fn quota(&self) -> u32 {
        self.quota
    }

    /// The length of the window; of a bucket, the time in which it fills.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The extra time for which a unit is counted: the one given, else the default.
    ///
    /// ```
    /// use outgate::Limit;
    /// use std::time::Duration;
    ///
    /// assert_eq!(Limit::per_minute(60).guard_or_default(), Duration::from_secs(1));
    /// ```
    #[must_use]
    pub fn guard_or_default(&self) -> Duration {
        if let (None, Some((refill, per))) = (self.guard, self.refill) {
            return bucket::default_guard(self.window, per.checked_div(refill).unwrap_or_default());
        }
        // Clocks that are slewed by 500 ppm make a window of an hour 1.8 s shorter.
        let longest = (self.window / 2_000).max(Duration::from_secs(1));
        let longest = if self.resets.is_some() { longest.min(MOST_AT_RESET) } else { longest };
        self.guard.unwrap_or_else(|| (self.window / 20).clamp(MIN_DEFAULT_GUARD, longest))
    }

    /// The guard, where one was given.
    pub(crate) const fn guard_or_none(&self) -> Option<Duration> {
        self.guard
    }

    /// When it resets, where it is a calendar window.
    pub(crate) const fn resets_or_none(&self) -> Option<Reset> {
        self.resets
    }

    /// The burst, where one was given.
    pub(crate) const fn burst_or_none(&self) -> Option<u32> {
        self.burst
    }

    /// What flows in, and how often, where it is a bucket.
    pub(crate) const fn refill_or_none(&self) -> Option<(u32, Duration)> {
        self.refill
    }
}

#[cfg(test)]
mod tests;
