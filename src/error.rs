//! Errors as decisions: each variant is something different that a caller would do.

mod after_refusals;
mod config;
mod kind;
mod store;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::after_refusals::AfterRefusals;
pub use self::config::ConfigError;
pub use self::kind::ErrorKind;
pub use self::store::{StoreError, StoreErrorKind};
use crate::config::limit::Limit;
use crate::ledger::{Cause, PauseLeft};

/// Why a call was not let through.
///
/// ```
/// use outgate::Error;
///
/// fn decide(error: &Error) {
///     match error {
///         Error::Throttled { retry_after, .. } => println!("come back in {retry_after:?}"),
///         Error::StoreUnavailable { .. } => println!("survive without the store, or fail"),
///         other => println!("{other}: of {:?}, to be tried again in {:?}", other.upstream(), other.retry_after()),
///     }
/// }
/// # decide(&Error::Closed);
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Come back then: no slot comes within the time that the caller would wait. With
    /// [`retry_refused`](crate::Upstream::retry_refused) the call may have been sent before, and refused; it was not executed.
    /// As with every error here, that is said of this attempt: what a retry middleware further out has sent before may have been executed.
    #[error("{upstream}: throttled, the next slot for this call is {:?} away{}{}", whole_ms(.retry_after), Pausing(.paused), Slower(.after_refusals))]
    #[non_exhaustive]
    Throttled {
        /// The upstream whose limit is exhausted.
        upstream: Arc<str>,
        /// When this very call could have gone, counted from now: each caller is told its own time. Where calls in flight hold all seats of a
        /// limit, nobody knows that: when to ask again.
        retry_after: Duration,
        /// The pause that lasts, where one does: nobody sends before its end, and then callers go one after another.
        paused: Option<PauseLeft>,
        /// That calls come slower since refusals, as the last answer of the store told: not while a pause lasts.
        after_refusals: Option<Box<AfterRefusals>>,
    },
    /// Shed load: as many calls of this process wait for the upstream as may.
    #[error("{upstream}: {max_waiting} calls of this process wait already, as many as may")]
    #[non_exhaustive]
    TooManyWaiting {
        /// The upstream that they wait for.
        upstream: Arc<str>,
        /// How many calls may wait: see [`max_waiting`](crate::Upstream::max_waiting).
        max_waiting: usize,
    },
    /// Stop, and ask a human: the upstream said that waiting does not cure it.
    #[error("{upstream}: nobody sends for {:?}, because of {}{}", whole_ms(.retry_after), .cause.words(), Response(.status))]
    #[non_exhaustive]
    Barred {
        /// The upstream that said so.
        upstream: Arc<str>,
        /// What it said.
        cause: Cause,
        /// The status of the response that said so; `None` where a program did.
        status: Option<u16>,
        /// How long until a call is let through, to find out whether it still says so.
        retry_after: Duration,
    },
    /// Check the credentials: the upstream keeps answering 401 or 403 to this scope. Only where
    /// [`break_after_unauthorized`](crate::Upstream::break_after_unauthorized) asks for it.
    #[error(
        "{upstream}: the last {in_a_row} responses were 401 or 403, no call is sent for {:?}, and then one to see",
        whole_ms(.retry_after)
    )]
    #[non_exhaustive]
    Unauthorized {
        /// The upstream that answered so.
        upstream: Arc<str>,
        /// How many responses in a row were 401 or 403.
        in_a_row: u32,
        /// How long until one call is let through, to see whether it still does; while one is under way, until the next.
        retry_after: Duration,
    },
    /// Come back later, or go elsewhere: connects to the host failed in a row, and no call got a response within the time the caller
    /// would wait. Only where the throttle sees what came back: from the [middleware](crate::Middleware), and the layer of feature
    /// `tower` that is told which errors say so.
    #[error("{upstream}: {host} cannot be connected to, and the next call goes to see in {:?}", whole_ms(.retry_after))]
    #[non_exhaustive]
    Unreachable {
        /// The upstream that the call belongs to.
        upstream: Arc<str>,
        /// The host, with its port where that is not the one of the scheme.
        host: Arc<str>,
        /// How long until a call tries again.
        retry_after: Duration,
    },
    /// Survive without the store, or fail: the shared log could not be reached in time. What calls do meanwhile is said by
    /// [`WithoutStore`](crate::store::WithoutStore).
    #[error("{upstream}: the store of the shared log is unavailable: {source}")]
    #[non_exhaustive]
    StoreUnavailable {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// What the store last said.
        source: StoreError,
    },
    /// Never come back: the call costs more than a limit allows at once, or nothing at all.
    #[error("{upstream}: {}", never(*cost, unit, *most, limit))]
    #[non_exhaustive]
    CostExceedsQuota {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// What the cost is counted in.
        unit: Arc<str>,
        /// The cost asked for.
        cost: u32,
        /// The largest cost that the limit can ever admit.
        most: u32,
        /// The limit that stands against it.
        limit: Box<Limit>,
    },
    /// Fix the call: no limit of the upstream counts this unit.
    #[error("{upstream}: no limit counts {unit:?}, only {}", units(.known))]
    #[non_exhaustive]
    UnknownUnit {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// The unit that the call says its cost in.
        unit: Arc<str>,
        /// The units that limits count.
        known: Box<[Arc<str>]>,
    },
    /// Fix the call: the upstream has no scope of this name.
    #[error("{upstream}: no limit has a scope named {scope:?}, only {}", known.join(", "))]
    #[non_exhaustive]
    UnknownScope {
        /// The upstream asked for.
        upstream: Arc<str>,
        /// The name that the call says a value of.
        scope: Arc<str>,
        /// The names of the scopes that limits have.
        known: Box<[Arc<str>]>,
    },
    /// Fix the call: no upstream of this name is registered.
    #[error("no upstream named {name:?} is registered")]
    #[non_exhaustive]
    UnknownUpstream {
        /// The name asked for; `…` where it can be no upstream's, as it may be a secret then.
        name: Arc<str>,
    },
    /// Fix the program: a call that has to wait was first polled outside of a Tokio runtime. With Redis every call has to.
    #[error("a call that has to wait must be awaited within a Tokio runtime")]
    OutsideRuntime,
    /// Register the host, or do not call it: the request belongs to no upstream. Only where
    /// [`Unmatched::Refuse`](crate::Unmatched::Refuse) asks for it.
    #[error("{host}: refused, as no upstream takes this request by its host, path and method")]
    #[non_exhaustive]
    Unmatched {
        /// The request's host, with its port where that is not the one of the scheme.
        host: Arc<str>,
    },
    /// Fix the call: nothing can be slowed down by this factor.
    #[error("{upstream}: a factor of {factor} is not above 0 and at most 1")]
    #[non_exhaustive]
    Factor {
        /// The upstream that was to be slowed down.
        upstream: Arc<str>,
        /// The factor asked for.
        factor: f64,
    },
    /// Stop: the throttle was closed.
    #[error("the throttle is closed")]
    Closed,
}

impl Error {
    /// When to come back, counted from now, where that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. }
            | Self::Barred { retry_after, .. }
            | Self::Unreachable { retry_after, .. }
            | Self::Unauthorized { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// Finds our error in another one: through reqwest-middleware's `anyhow`, reqwest-retry's wrapper, or any chain of sources.
    ///
    /// ```
    /// # fn decide(error: &reqwest_middleware::Error) {
    /// if let Some(outgate::Error::Throttled { retry_after, .. }) = outgate::Error::find(error) {
    ///     println!("come back in {retry_after:?}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = match error.downcast_ref() {
                // Transparent: its source is not what it wraps, but the source of that.
                Some(reqwest_middleware::Error::Middleware(wrapped)) => Some(&**wrapped),
                _ => error.source(),
            };
        }
        None
    }
}

/// What limits count; where there is none of these, there are limits on calls in flight.
fn units(known: &[Arc<str>]) -> String {
    if known.is_empty() { "calls in flight".to_owned() } else { known.join(", ") }
}

/// A time as a text shows it: rounded up to whole milliseconds.
fn whole_ms(time: &Duration) -> Duration {
    let up = Duration::from_nanos(999_999);
    u64::try_from(time.saturating_add(up).as_millis()).map_or(*time, Duration::from_millis)
}

/// Says that a pause lasts, until when, why, and by which response.
struct Pausing<'a>(&'a Option<PauseLeft>);

impl fmt::Display for Pausing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pause) = self.0 else { return Ok(()) };
        let (left, why, by) = (whole_ms(&pause.left), pause.reason().words(), Response(&pause.status));
        write!(f, "; nobody sends for {left:?}, because of {why}{by}")
    }
}

/// Says that calls come slower since refusals, and for how long.
struct Slower<'a>(&'a Option<Box<AfterRefusals>>);

impl fmt::Display for Slower<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |of| write!(f, "; {of}"))
    }
}

/// Names a response by its status.
struct Response<'a>(&'a Option<u16>);

impl fmt::Display for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |status| write!(f, " (a response of status {status})"))
    }
}

/// Why a call of this cost never goes.
fn never(cost: u32, unit: &str, most: u32, limit: &Limit) -> String {
    if cost == 0 {
        let words = "a call that takes nothing of any limit cannot be throttled: limit calls as well";
        return format!("{words}, or have such calls belong to another upstream");
    }
    let (quota, window) = (limit.quota(), limit.window());
    let why = if most < quota {
        ", by its burst or guard, in whole entries of its log, or as the rest is reserved for high priority"
    } else {
        ""
    };
    format!(
        "a call that takes {cost} {unit} can never go: a limit of {quota} in {window:?} admits at most {most} at once{why}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Reason;

    #[test]
    fn errors_say_that_a_pause_lasts_until_when_why_and_by_which_response() {
        let (second, upstream) = (Duration::from_secs(1), || Arc::from("up"));
        // Rounded up to whole milliseconds.
        let nearly = |seconds: u64| Duration::from_nanos(seconds * 1_000_000_000 - 999_999);
        let after = || Some(Box::new(AfterRefusals::new(Some(Limit::per_minute(100)), 0.6, nearly(2))));
        let throttled = |paused: Option<PauseLeft>| Error::Throttled {
            upstream: upstream(),
            retry_after: nearly(3),
            paused,
            after_refusals: paused.and_then(|pause| pause.status).and_then(|_| after()),
        };
        let paused = |status| Some(PauseLeft::new(nearly(2), Reason::new(Cause::Refusal, status)));
        let barred = |status| Error::Barred { upstream: upstream(), cause: Cause::Ban, status, retry_after: second };
        let away = "up: throttled, the next slot for this call is 3s away";
        let cases = [
            (throttled(None), away.to_owned()),
            (
                throttled(paused(429)),
                format!(
                    "{away}; nobody sends for 2s, because of a refusal (a response of status 429); after refusals 60 per \
                     60s instead of 100, for about 2s"
                ),
            ),
            (throttled(paused(0)), format!("{away}; nobody sends for 2s, because of a pause by hand, or by a program")),
            (barred(Some(403)), "up: nobody sends for 1s, because of a ban (a response of status 403)".to_owned()),
            (barred(None), "up: nobody sends for 1s, because of a ban".to_owned()),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
    }
}
