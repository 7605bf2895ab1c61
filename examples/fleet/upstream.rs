//! The upstream of the model: counts the calls of each scope as they arrive.

use std::time::Duration;

use outgate::testing::oracle;

use crate::args::Args;
use crate::call::Call;
use crate::fair::micros;

/// What the upstream saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Calls in the fullest second of any scope.
    pub(crate) fullest: u64,
    /// Scopes of which some second holds more calls than the quota.
    pub(crate) violations: usize,
}

/// Lets every call that started arrive after a delay of its own, and counts.
pub(crate) fn see(args: &Args, scopes: &[Vec<&Call>]) -> Seen {
    let mut delays = fastrand::Rng::with_seed(args.seed.wrapping_add(1));
    let spread = u64::from(args.spread_ms) * 1_000;
    let mut seen = Seen::default();
    for calls in scopes {
        let mut arrival = |start: Duration| micros(start + Duration::from_micros(delays.u64(0..=spread)));
        let arrivals: Vec<i64> = calls.iter().filter_map(|call| call.started()).map(&mut arrival).collect();
        let worst = oracle::worst_window(&arrivals, micros(args.limit().window()));
        seen.fullest = seen.fullest.max(worst.count);
        seen.violations += usize::from(worst.count > args.quota.into());
    }
    seen
}
