//! Throttles in memory, with a quota that is never used up, or is so at once.

use std::time::Duration;

use outgate::{Limit, MemoryStore, Throttle, Upstream};

use crate::turns::Result;

/// The name of the only upstream.
pub(crate) const UP: &str = "up";
/// More calls in a second than any round makes of one log.
pub(crate) const AMPLE: u32 = 1_000_000;

/// A throttle of an upstream.
pub(crate) fn throttle(upstream: Upstream) -> Result<Throttle> {
    Ok(Throttle::builder().store(MemoryStore::new()).upstream(upstream).build()?)
}

/// One whose quota no round uses up.
pub(crate) fn ample() -> Result<Throttle> {
    throttle(Upstream::new(UP).limit(Limit::per_second(AMPLE)))
}

/// One that lets one call through, and no more for the rest of the day.
pub(crate) fn scarce() -> Result<Throttle> {
    throttle(Upstream::new(UP).limit(Limit::new(1, Duration::from_secs(86_400))))
}

/// The name of a scope, as an application has it.
pub(crate) fn scope(number: usize) -> String {
    format!("merchant-{number:06}")
}

/// The scope of each call, at random: the same for everybody who asks for as many of as many.
///
/// Each call has a name of its own, in their order, as a request would have: that it is at hand is nobody's merit.
pub(crate) fn calls(count: usize, scopes: usize, seed: u64) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| scope(random.usize(..scopes))).collect()
}
