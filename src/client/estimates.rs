//! How much calls of a kind used lately, and so how much to reserve for the next. Pure.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// So many settlements of a kind are remembered, the newest.
const LATELY: usize = 300;
/// So many tell enough for a quantile of which one in twenty is more.
const ENOUGH: usize = 40;
/// So many kinds are remembered.
const KINDS: usize = 1_000;
/// After so many calls, and no settlement, somebody is told.
pub(crate) const UNSETTLED: u32 = 100;

/// What calls of some kinds used of one unit.
#[derive(Debug)]
pub(crate) struct Estimates {
    /// The most that any call can use.
    largest: u64,
    /// How many calls of a thousand are to use no more than is reserved.
    quantile: u16,
    kinds: HashMap<Arc<str>, Kind>,
    settlements: u64,
    unsettled: u32,
}

/// What calls of one kind used.
#[derive(Debug, Default)]
struct Kind {
    /// In the order in which they were settled.
    lately: VecDeque<u64>,
    ascending: Vec<u64>,
    /// The number of the newest settlement among those of all kinds.
    newest: u64,
}

impl Estimates {
    /// Where no call can use more than `largest`, and of a thousand `quantile` are to use no more than is reserved for them.
    pub(crate) fn new(largest: u64, quantile: u16) -> Self {
        let quantile = quantile.clamp(1, 1_000);
        Self { largest, quantile, kinds: HashMap::new(), settlements: 0, unsettled: 0 }
    }

    /// How much to reserve for a call of a kind: the quantile of what calls of that kind used lately; all that a call can use, as long
    /// as little is known.
    pub(crate) fn reserve(&self, kind: &str) -> u64 {
        let known = self.kinds.get(kind).filter(|kind| kind.lately.len() >= self.enough());
        known.and_then(|kind| kind.quantile(self.quantile)).map_or(self.largest, |used| used.min(self.largest))
    }

    /// How many settlements it takes until at least two may be above the quantile.
    fn enough(&self) -> usize {
        match usize::from(1_000 - self.quantile) {
            0 => LATELY,
            above => (2_000 / above).clamp(ENOUGH, LATELY),
        }
    }

    /// A call that reserved an estimate is over, and was not settled. Says whether this is the time to tell that none ever is.
    pub(crate) fn unsettled(&mut self) -> bool {
        self.unsettled = if self.settlements == 0 { self.unsettled.saturating_add(1) } else { 0 };
        self.unsettled == UNSETTLED
    }

    /// A call of a kind used so much.
    pub(crate) fn settled(&mut self, kind: &str, used: u64) {
        self.settlements += 1;
        if !self.kinds.contains_key(kind) {
            self.make_room();
            self.kinds.insert(kind.into(), Kind::default());
        }
        if let Some(of) = self.kinds.get_mut(kind) {
            of.newest = self.settlements;
            of.settled(used);
        }
    }

    /// Forgets the kind that was settled longest ago, where there are too many.
    fn make_room(&mut self) {
        if self.kinds.len() >= KINDS {
            let oldest = self.kinds.iter().min_by_key(|(_, kind)| kind.newest).map(|(name, _)| Arc::clone(name));
            oldest.and_then(|name| self.kinds.remove(&name));
        }
    }
}

impl Kind {
    fn settled(&mut self, used: u64) {
        if self.lately.len() >= LATELY
            && let Some(oldest) = self.lately.pop_front()
            && let Ok(at) = self.ascending.binary_search(&oldest)
        {
            self.ascending.remove(at);
        }
        self.lately.push_back(used);
        let at = self.ascending.partition_point(|&other| other < used);
        self.ascending.insert(at, used);
    }

    /// The least that so many of a thousand calls did not exceed.
    fn quantile(&self, of_thousand: u16) -> Option<u64> {
        let count = (self.ascending.len() * usize::from(of_thousand)).div_ceil(1_000);
        self.ascending.get(count.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_call_can_use_is_reserved_until_enough_is_known() {
        let mut estimates = Estimates::new(1_000, 950);
        for settlement in 0..40 {
            assert_eq!(estimates.reserve("small"), 1_000, "after {settlement}");
            estimates.settled("small", 10);
        }
        assert_eq!(estimates.reserve("small"), 10);
        assert_eq!(estimates.reserve("large"), 1_000, "of another kind nothing is known");
        let enough = [500, 950, 980, 990, 999, 1_000].map(|quantile| Estimates::new(1, quantile).enough());
        assert_eq!(enough, [40, 40, 100, 200, 300, 300]);
    }

    #[test]
    fn what_is_reserved_is_a_quantile_of_what_was_used_lately() {
        for (quantile, expected) in [(1, 1), (500, 50), (950, 95), (990, 99), (1_000, 100)] {
            let mut estimates = Estimates::new(1_000, quantile);
            let mut used: Vec<u64> = (1..=100).flat_map(|used| [used; 3]).collect();
            fastrand::Rng::with_seed(7).shuffle(&mut used);
            for &used in &used {
                estimates.settled("kind", used);
            }
            assert_eq!(estimates.reserve("kind"), expected, "{quantile} of a thousand");
            // As many later calls use half as much again.
            for &used in &used {
                estimates.settled("kind", used * 3 / 2);
            }
            assert_eq!(estimates.reserve("kind"), expected * 3 / 2, "{quantile} of a thousand, lately");
        }
    }

    #[test]
    fn no_more_is_reserved_than_a_call_can_use() {
        let mut estimates = Estimates::new(50, 950);
        (0..300).for_each(|_| estimates.settled("kind", 80));
        assert_eq!(estimates.reserve("kind"), 50);
    }

    #[test]
    fn memory_is_bounded() {
        let mut estimates = Estimates::new(1_000, 950);
        for round in 0..50 {
            (0..40).for_each(|_| estimates.settled("often", 10));
            (0..100).for_each(|kind| estimates.settled(&format!("{round} {kind}"), 1));
        }
        assert_eq!(estimates.kinds.len(), KINDS);
        assert_eq!(estimates.reserve("often"), 10, "what is used often is remembered");
        let often = &estimates.kinds["often"];
        assert_eq!((often.lately.len(), often.ascending.len()), (LATELY, LATELY));
    }

    #[test]
    fn who_never_settles_is_told_once() {
        let mut estimates = Estimates::new(1, 950);
        assert_eq!((0..1_000).filter(|_| estimates.unsettled()).collect::<Vec<_>>(), [99]);
        let mut estimates = Estimates::new(1, 950);
        assert!((0..90).all(|_| !estimates.unsettled()));
        estimates.settled("kind", 1);
        assert!((0..1_000).all(|_| !estimates.unsettled()));
    }
}
