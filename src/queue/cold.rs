//! Cold calls of a queue, until the store is told of them.

use std::sync::Arc;

use tokio::time::Instant;

use super::settling::patience;
use crate::ledger::{Cold, Log, Stamp};

/// Cold calls that the store does not know of: all since the last message, as one.
#[derive(Debug)]
pub(super) struct Untold {
    cold: Cold,
    /// The store is told by then, with the next ask or without one.
    by: Instant,
}

impl Untold {
    /// A call of these charges that started at `start`, beside those that the store does not know of either.
    pub(super) fn and(before: Option<Self>, start: Stamp, charges: &Arc<[u32]>, logs: &[Log], now: Instant) -> Self {
        let Some(Self { cold, by }) = before else {
            let by = now + patience(logs, |term| term.cold > 0);
            return Self { cold: Cold::new(start, start, Arc::clone(charges)), by };
        };
        let sum = cold.charges.iter().zip(charges.iter()).map(|(one, other)| one.saturating_add(*other));
        Self { cold: Cold::new(cold.first.min(start), cold.last.max(start), sum.collect::<Vec<_>>()), by }
    }

    pub(super) const fn by(&self) -> Instant {
        self.by
    }

    pub(super) fn into_cold(self) -> Cold {
        self.cold
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::Term;

    #[test]
    fn cold_calls_are_told_as_one_within_an_eighth_of_the_shortest_span() {
        let (now, at) = (Instant::now(), Stamp::from_micros);
        for (span, patience) in [(8_000, 25), (1_040_000, 130), (9_000_000, 250)] {
            let logs =
                [Log::new("calls", [Term::new(100, 10_000_000).cold(1), Term::new(9, span).cold(1), Term::new(1, 1)])];
            let mut untold = None;
            for (call, start) in [(0, 50), (1, 40), (2, 60)] {
                let now = now + Duration::from_millis(call);
                untold = Some(Untold::and(untold, at(start), &[2].into(), &logs, now));
            }
            let untold = untold.unwrap();
            assert_eq!(untold.by(), now + Duration::from_millis(patience));
            assert_eq!(untold.into_cold(), Cold::new(at(40), at(60), [6]));
        }
    }
}
