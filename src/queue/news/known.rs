//! Pauses that the store knows of, while they last.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Whom;
use super::behind::Told;

/// For how long it is certain that the store still knows: who releases a pause in another process is noticed by then.
const CERTAIN: Duration = Duration::from_secs(2);
/// How many are kept at least before those that are over are looked for.
const FEW: usize = 64;

/// What the store was told of whom. Those that are over are forgotten as new ones come.
#[derive(Debug, Default)]
pub(super) struct Known {
    told: HashMap<Whom, Told>,
    /// How many it takes to look for old ones again: twice as many as were left the last time.
    sweep_at: usize,
}

impl Known {
    /// The pause of somebody that lasts at `now`.
    pub(super) fn of(&self, whom: &Whom, now: Instant) -> Option<Told> {
        self.told.get(whom).filter(|told| told.until > now && now < told.at + CERTAIN).copied()
    }

    /// The store knows of a pause.
    pub(super) fn enter(&mut self, whom: &Whom, told: Told, now: Instant) {
        if self.told.len() >= self.sweep_at.max(FEW) {
            self.told.retain(|_, told| told.until > now && now < told.at + CERTAIN);
            self.told.shrink_to(2 * self.told.len());
            self.sweep_at = 2 * self.told.len();
        }
        self.told.insert(whom.clone(), told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Pause, ScopeId};

    #[test]
    fn pauses_that_are_over_are_forgotten_as_new_ones_come() {
        let (mut known, begin) = (Known::default(), Instant::now());
        let whom = |scope: u128| Whom::new("up".into(), (0, Some(ScopeId::from_bits(scope))));
        let pause = Pause::new(Duration::from_secs(1));
        for scope in 0..10_000 {
            known.enter(&whom(scope), Told::new(&pause, begin, begin + Duration::from_secs(1)), begin);
        }
        assert!((0..10_000).all(|scope| known.of(&whom(scope), begin).is_some()));
        let later = begin + Duration::from_secs(1);
        assert!(known.of(&whom(0), later).is_none(), "it is over");
        for scope in 10_000..30_000 {
            known.enter(&whom(scope), Told::new(&pause, later, later + Duration::from_secs(1)), later);
        }
        assert!(known.of(&whom(29_999), later).is_some());
        assert_eq!(known.told.len(), 20_000);
    }
}
