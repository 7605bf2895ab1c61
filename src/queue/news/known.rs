//! Pauses that the store knows of, while they last.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Whom;
use crate::ledger::{Cause, Pause};

/// For how long it is certain that the store still knows: who releases a pause in another process is noticed by then.
const CERTAIN: Duration = Duration::from_secs(2);
/// How many are kept at least before those that are over are looked for.
const FEW: usize = 64;

/// What the store knows of a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownPause {
    /// Since when: somebody may have released it since.
    pub(super) at: Instant,
    pub(super) until: Instant,
    pub(super) cause: Cause,
    pub(super) recovery: Duration,
    pub(super) memory: Duration,
    /// For how long the upstream told to wait, where that is longer.
    pub(super) wished: Duration,
    /// How many releases were known when it was said.
    pub(super) releases: u64,
}

impl KnownPause {
    pub(super) fn new(pause: &Pause, releases: u64, at: Instant, until: Instant) -> Self {
        let Pause { cause, recovery, memory, told, .. } = *pause;
        Self { at, until, cause, recovery, memory: memory.max(recovery), wished: told, releases }
    }

    /// Whether it lasts, and the store is certain to know of it.
    fn is_certain(&self, now: Instant) -> bool {
        self.until > now && now < self.at + CERTAIN
    }
}

/// Whose pauses the store knows of. Those that are over are forgotten as new ones come.
#[derive(Debug, Default)]
pub(super) struct Known {
    pauses: HashMap<Whom, KnownPause>,
    /// How many it takes to look for old ones again: twice as many as were left the last time.
    sweep_at: usize,
}

impl Known {
    /// The pause of somebody that lasts at `now`.
    pub(super) fn of(&self, whom: &Whom, now: Instant) -> Option<KnownPause> {
        self.pauses.get(whom).filter(|pause| pause.is_certain(now)).copied()
    }

    /// The store knows of none.
    pub(super) fn forget(&mut self, whom: &Whom) {
        self.pauses.remove(whom);
    }

    /// The store knows of a pause.
    pub(super) fn enter(&mut self, whom: &Whom, pause: KnownPause, now: Instant) {
        if self.pauses.len() >= self.sweep_at.max(FEW) {
            self.pauses.retain(|_, pause| pause.is_certain(now));
            self.pauses.shrink_to(2 * self.pauses.len());
            self.sweep_at = 2 * self.pauses.len();
        }
        self.pauses.insert(whom.clone(), pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ScopeId;

    #[test]
    fn pauses_that_are_over_are_forgotten_as_new_ones_come() {
        let (mut known, begin) = (Known::default(), Instant::now());
        let whom = |scope: u128| Whom::new("up".into(), (0, Some(ScopeId::from_bits(scope))));
        let pause = Pause::new(Duration::from_secs(1));
        for scope in 0..10_000 {
            known.enter(&whom(scope), KnownPause::new(&pause, 0, begin, begin + Duration::from_secs(1)), begin);
        }
        assert!((0..10_000).all(|scope| known.of(&whom(scope), begin).is_some()));
        let later = begin + Duration::from_secs(1);
        assert!(known.of(&whom(0), later).is_none(), "it is over");
        for scope in 10_000..30_000 {
            known.enter(&whom(scope), KnownPause::new(&pause, 0, later, later + Duration::from_secs(1)), later);
        }
        assert!(known.of(&whom(29_999), later).is_some());
        assert_eq!(known.pauses.len(), 20_000);
    }
}
