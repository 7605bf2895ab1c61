//! What the responses of an upstream mean: how long it is left alone, what is sent again, what is learned.

use std::time::Duration;

use super::Upstream;
use crate::config::backoff::Backoff;
use crate::feedback::Dialect;

impl Upstream {
    /// How its responses are read, where they differ from what their headers seem to say.
    ///
    /// ```
    /// use outgate::Upstream;
    /// use outgate::feedback::Dialect;
    ///
    /// let airtable = Upstream::new("airtable").host("api.airtable.com").dialect(Dialect::AIRTABLE);
    /// # let _ = airtable;
    /// ```
    #[must_use]
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// How long nobody sends after a 429, a ban or a spending limit that names no time. A 503 or a lock that names none holds
    /// nobody, but a lock by Stripe's [dialect](Self::dialect), which holds everybody like a 429. With the feature `backoff`, a policy of that
    /// crate will do.
    ///
    /// ```
    /// use outgate::{Backoff, Upstream};
    /// use std::time::Duration;
    ///
    /// let gateway = Upstream::new("gateway").backoff(Backoff::new().min(Duration::from_secs(10)).factor(3.0).jitter(0.2));
    /// # let _ = gateway;
    /// ```
    #[must_use]
    pub fn backoff(mut self, backoff: impl Into<Backoff>) -> Self {
        self.backoff = backoff.into();
        self
    }

    /// How long after a pause calls come slower than the limits allow: at first at a tenth of the rate. At most an hour.
    ///
    /// # Default
    ///
    /// 10 s after an overload (a 503 and its like), and after a refusal for too many calls in flight. After refusals for a quota three windows,
    /// ten minutes at most, where several calls were refused at once, whatever is said here; else none, or, where the upstream is
    /// [learned from](Self::learn_from_responses) and told of a quota as well, the longest window, 10 s at most.
    /// After what is no matter of pace, such as a lock or a ban, calls come at full rate whatever is said here.
    ///
    /// ```
    /// # use outgate::Upstream;
    /// # use std::time::Duration;
    /// let gateway = Upstream::new("gateway").recovery(Duration::from_secs(30)).max_pause(Duration::from_secs(600));
    /// # let _ = gateway;
    /// ```
    #[must_use]
    pub const fn recovery(mut self, recovery: Duration) -> Self {
        self.recovery = Some(recovery);
        self
    }

    /// How long one response can silence an upstream or a scope: 1 ms to 31 days. Where it asks for more, one call in the
    /// cluster goes after this, and looks whether the pause still holds: its answer decides for all. Where nothing comes of it, another
    /// looks after as long again. After the pause of an overload all go on, slower.
    ///
    /// # Default
    ///
    /// An hour, with three exceptions. A ban that names its end, and a spent quota that names its reset, are honoured for
    /// that long, a day at most. An overload (a 503 and its like) pauses for a minute at most; each [in a row](Backoff), for twice as
    /// long as the one before. Waits of [`backoff`](Upstream::backoff), where no time is told, are as long as it says.
    ///
    /// A value given here cuts all of these.
    #[must_use]
    pub const fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = Some(max_pause);
        self
    }

    /// Sends a call again that the upstream refused for its quota, up to `retries` times, whatever its method, where the
    /// response says that the call was not executed: a 429, a 420, or an error whose header names throttling as its cause.
    ///
    /// A 429 that is read as a ban, a spending limit, a lock or an overload is not sent again: waiting does not cure those, or not in time.
    /// Nothing else is sent again, not even beside a spent quota or a `Retry-After`; nor is a call that was redirected. A
    /// redirect to the call's own URL cannot be told from none: before a payment, turn redirects off with
    /// `redirect::Policy::none()`.
    ///
    /// Each time is a full call, which waits in the queue until the pause is over, within the longest wait of the first. The request is sent
    /// as it was, an `Idempotency-Key` included; one whose body cannot be cloned is not sent again.
    ///
    /// Each time is charged, and what was refused keeps its charge: the caller sees the last response alone, and settles that. Where refused calls
    /// use nothing of a unit, `.settle_by("tokens", |status, _| (status == 429).then_some(0))` says so.
    ///
    /// ```
    /// # use outgate::{Limit, Upstream};
    /// let gateway = Upstream::new("gateway").limit(Limit::per_second(10)).retry_refused(2).retries_per_thousand(50);
    /// # let _ = gateway;
    /// ```
    #[must_use]
    pub const fn retry_refused(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// How many retries there may be for each thousand calls of a process: 100 by default. A process begins with ten, and saves up as many; by 0 there
    /// are none at all.
    #[must_use]
    pub const fn retries_per_thousand(mut self, share: u32) -> Self {
        self.retry_share = share;
        self
    }

    /// Learns from what responses say of the quota, where others spend it too: the limits given here are never exceeded, but
    /// fewer calls may be made.
    ///
    /// * Where the newest response tells fewer units left than our log allows, others use the difference. Until the reset no more
    ///   calls start than it left; calls start at once as long as a tenth of the quota is left beside what the others use until
    ///   then, and come further and further apart after that.
    /// * Where the reset is always a window away, units come back one by one, as ours age: what others use is then missing from
    ///   the quota. So it is for a window after a reset, until a response tells more. A wrong report costs two windows at most,
    ///   or until the next response. More remaining than our log allows is ignored.
    /// * Of a [bucket](crate::Limit::bucket), what is missing beside our own calls is in it as theirs are: it counts as used, and drains.
    /// * A response that took longer than a sixteenth of the window is held against all calls since, so that those in flight
    ///   do not look like others'; one that took longer than the window reports nothing.
    ///
    /// A report belongs to the limit of its unit and window, else to the only one of its unit, else to the one with the least quota that is
    /// no less than the limit reported. One with the name of a part of the calls, as GitHub's `search` or a bucket of Discord's, which
    /// allows less than half of what that limit does, belongs to none: what is left of a part says nothing of the rest. Nor does one that
    /// `X-RateLimit-Resource` names, but for `core`, where the upstream is a whole host, without [`path`](crate::Upstream::path) or
    /// [`matching`](crate::Upstream::matching): GitHub's `graphql` is as large as `core`. Nor does what may be of a shorter window, as Intercom's
    /// 167 in 10 s beside a limit of 1,000 a minute: it says no window, and allows less than half of what that limit does, and its reset is no
    /// later than its part of the window. Of several for one limit the strictest counts. It costs a store call for each response that reports, one
    /// at a time. Where a report belongs to none, or teaches nothing for another reason, an `info` event says so and why, once for each upstream
    /// and reason.
    ///
    /// ```
    /// # use outgate::{Limit, Scope, Upstream};
    /// let github = Upstream::new("github")
    ///     .host("api.github.com")
    ///     .limit(Limit::per_hour(5_000).each(Scope::bearer_token()))
    ///     .learn_from_responses(); // others use the same tokens
    /// # let _ = github;
    /// ```
    #[must_use]
    pub const fn learn_from_responses(mut self) -> Self {
        self.learns = true;
        self
    }

    /// Refuses a scope's calls with [`Error::Unauthorized`](crate::Error::Unauthorized), at the cost of no slot, once its
    /// last `in_a_row` responses were 401 or 403: some upstreams ban an address that goes on. After a pause one call is let
    /// through to see. If it gets 401 or 403 as well, the next pause is longer, as those of [`backoff`](Upstream::backoff)
    /// are; after a 5xx or a 423 it is as long as the last; any other response but a refusal for a limit lets all calls through again. A gRPC
    /// server says 401 and 403 by `UNAUTHENTICATED` and `PERMISSION_DENIED`; of a gRPC stream that is let through to see the head decides.
    ///
    /// A refusal for a limit, a 403 included, and a failure of the upstream's neither count nor end a row. Only calls of which the throttle sees the
    /// response count and are refused: through the middleware, the layer of feature `tower`, or [`acquire_for`](crate::Throttle::acquire_for).
    /// Each process counts for itself, and forgets a row after an hour of silence.
    ///
    /// ```
    /// # use outgate::{Limit, Upstream};
    /// let discord = Upstream::new("discord").limit(Limit::per_second(50)).break_after_unauthorized(5);
    /// # let _ = discord;
    /// ```
    #[must_use]
    pub const fn break_after_unauthorized(mut self, in_a_row: u32) -> Self {
        self.break_after = Some(in_a_row);
        self
    }
}
