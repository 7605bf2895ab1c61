//! How one upstream differs from the rest.

use std::time::Duration;

use super::refusal::Refusal;
use super::time_unit::TimeUnit;

/// How the responses of one upstream are to be read, where they differ from what their headers seem to say.
///
/// Most upstreams need none: [`GENERAL`](Self::GENERAL) tells units apart by magnitude.
///
/// # Default
///
/// * numbers that tell a reset: epoch milliseconds from 10^12 on, epoch seconds from 10^9 on, else seconds from now
/// * `Retry-After` in seconds
/// * a 429 without any reason means that the quota is spent
/// * no penalty: a refusal that names no time has no wait
///
/// ```
/// use outgate::feedback::{Dialect, TimeUnit};
///
/// const PRICES: Dialect = Dialect::GENERAL.reset_in(TimeUnit::Millis);
/// # let _ = PRICES;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    pub(super) reset: Option<TimeUnit>,
    pub(super) retry_after: TimeUnit,
    pub(super) unexplained: Refusal,
    pub(super) penalty: Option<Duration>,
}

impl Dialect {
    /// The common rules, right for almost every upstream.
    pub const GENERAL: Self =
        Self { reset: None, retry_after: TimeUnit::Seconds, unexplained: Refusal::Quota, penalty: None };
    /// Airtable: nothing is served for 30 s after a refusal, and no header says so.
    pub const AIRTABLE: Self = Self::GENERAL.penalty(Duration::from_secs(30));
    /// Anthropic: a refusal without a time is the spending limit.
    pub const ANTHROPIC: Self = Self::GENERAL.unexplained(Refusal::Spend);
    /// Discord: its API names a scope in every refusal, so that one without comes from the edge and is a ban.
    pub const DISCORD: Self = Self::GENERAL.unexplained(Refusal::Ban);
    /// Riot Games: a refusal without a type comes from a service behind the edge.
    pub const RIOT: Self = Self::GENERAL.unexplained(Refusal::Service);
    /// Stripe: a refusal without a reason is the lock of an object.
    pub const STRIPE: Self = Self::GENERAL.unexplained(Refusal::Lock);

    /// Reads numbers that tell a reset in `unit`.
    #[must_use]
    pub const fn reset_in(mut self, unit: TimeUnit) -> Self {
        self.reset = Some(unit);
        self
    }

    /// Reads the number in `Retry-After` in `unit`.
    #[must_use]
    pub const fn retry_after_in(mut self, unit: TimeUnit) -> Self {
        self.retry_after = unit;
        self
    }

    /// Takes a 429 that gives no reason, and shows no spent quota, for `refusal`.
    ///
    /// ```
    /// use outgate::feedback::{Dialect, Refusal, TimeUnit};
    /// use std::time::Duration;
    ///
    /// let gateway = Dialect::GENERAL
    ///     .reset_in(TimeUnit::EpochMillis)
    ///     .retry_after_in(TimeUnit::Millis)
    ///     .unexplained(Refusal::Overload)
    ///     .penalty(Duration::from_secs(30));
    /// # let _ = gateway;
    /// ```
    #[must_use]
    pub const fn unexplained(mut self, refusal: Refusal) -> Self {
        self.unexplained = refusal;
        self
    }

    /// Waits for `penalty` where the quota is spent and the response names no time.
    #[must_use]
    pub const fn penalty(mut self, penalty: Duration) -> Self {
        self.penalty = Some(penalty);
        self
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self::GENERAL
    }
}
