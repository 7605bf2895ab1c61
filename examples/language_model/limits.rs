//! What a model allows, as the throttle is told.

use std::time::Duration;

use outgate::{Limit, Upstream};

use crate::manner::Manner;

/// Calls a minute.
pub(crate) const CALLS: u32 = 500;
/// Tokens a minute.
pub(crate) const QUOTA: u32 = 200_000;
/// The most tokens that a call can use.
pub(crate) const LARGEST: u32 = 2_500;
/// The unit.
pub(crate) const TOKENS: &str = "tokens";

/// A tenth of a minute, which is longer than by default: clients and models share one machine, which may be busy.
pub(crate) fn guard(minute: Duration) -> Duration {
    minute / 10
}

/// A model: so many calls and so many tokens in any minute. Where minutes are minutes, `Limit::per_minute` says the same.
pub(crate) fn upstream(host: &str, minute: Duration, manner: Manner) -> Upstream {
    let upstream = Upstream::new("model")
        .host(host)
        .limit(Limit::new(CALLS, minute).guard(guard(minute)))
        .limit(Limit::new(QUOTA, minute).of(TOKENS).guard(guard(minute)));
    if manner == Manner::Estimating { upstream.estimate(TOKENS, LARGEST) } else { upstream }
}
