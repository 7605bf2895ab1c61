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

/// The square of how many standard deviations above the mean a twentieth lies, in thousandths.
const TWENTIETH: u128 = 2_706;

/// For whom it is to be enough what calls reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Enough {
    /// For so many calls of a thousand, each by itself.
    ForEach(u16),
    /// For all together that a quota of so many units has room for, 95 times of 100.
    ForAllIn(u32),
}

/// What calls of some kinds used of one unit.
#[derive(Debug)]
pub(crate) struct Estimates {
    /// The most that any call can use.
    largest: u64,
    enough: Enough,
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
    /// Where no call can use more than `largest`.
    pub(crate) fn new(largest: u64, enough: Enough) -> Self {
        Self { largest, enough, kinds: HashMap::new(), settlements: 0, unsettled: 0 }
    }

    /// From now on this is enough, by what calls used before.
    pub(crate) const fn go_by(&mut self, enough: Enough) {
        self.enough = enough;
    }

    /// How much to reserve for a call of a kind, by what calls of that kind used lately; all that a call can use, as long as little is
    /// known.
    pub(crate) fn reserve(&self, kind: &str) -> u64 {
        let known = self.kinds.get(kind).filter(|kind| kind.lately.len() >= self.settlements_needed());
        let reserve = known.and_then(|kind| match self.enough {
            Enough::ForEach(of_thousand) => kind.quantile(of_thousand),
            Enough::ForAllIn(quota) => kind.together(self.largest, quota),
        });
        reserve.map_or(self.largest, |used| used.min(self.largest))
    }

    /// How many settlements it takes: until at least two may be above a quantile.
    fn settlements_needed(&self) -> usize {
        let Enough::ForEach(of_thousand) = self.enough else { return ENOUGH };
        match 1_000_usize.saturating_sub(of_thousand.into()) {
            0 => LATELY,
            above => (2_000 / above).clamp(ENOUGH, LATELY),
        }
    }

    /// A call that reserved an estimate is over, and was not settled. Says whether this is the time to tell that none ever is.
    pub(crate) fn unsettled(&mut self) -> bool {
        self.unsettled = if self.settlements == 0 { self.unsettled.saturating_add(1) } else { 0 };
        self.unsettled == UNSETTLED
    }

    /// A call was settled that used nothing: that teaches nothing, but shows that calls are settled.
    pub(crate) const fn settled_at_nothing(&mut self) {
        self.settlements += 1;
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

    /// The mean, and as much more as makes it likely that all calls that a quota has room for use no more together: the more they are, the
    /// less that is for each. What is known of the mean is as uncertain as the sum of those that it is the mean of.
    fn together(&self, largest: u64, quota: u32) -> Option<u64> {
        let all = || self.lately.iter().map(|&used| u128::from(used.min(largest)));
        let (count, quota) = (all().count().max(1) as u128, u128::from(quota.max(1)));
        let (sum, squares): (u128, u128) = (all().sum(), all().map(|used| used * used).sum());
        let mean = sum.div_ceil(count);
        // The variance is (squares - sum² / count) / count; of the mean of those and of quota / mean more it is 1 / count + mean / quota of
        // that. So divided it has no more digits than a number, however much calls use.
        let spread = squares.saturating_sub(sum * sum / count).checked_mul(quota + sum)?;
        let margin = (spread.checked_mul(TWENTIETH)? / (1_000 * count * count * quota)).isqrt();
        u64::try_from(mean + margin + 1).ok()
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
        let mut estimates = Estimates::new(1_000, Enough::ForEach(950));
        for settlement in 0..40 {
            assert_eq!(estimates.reserve("small"), 1_000, "after {settlement}");
            estimates.settled("small", 10);
        }
        assert_eq!(estimates.reserve("small"), 10);
        assert_eq!(estimates.reserve("large"), 1_000, "of another kind nothing is known");
        let enough = [500, 950, 980, 990, 999, 1_000]
            .map(|quantile| Estimates::new(1, Enough::ForEach(quantile)).settlements_needed());
        assert_eq!(enough, [40, 40, 100, 200, 300, 300]);
    }

    #[test]
    fn what_is_reserved_is_a_quantile_of_what_was_used_lately() {
        for (quantile, expected) in [(1, 1), (500, 50), (950, 95), (990, 99), (1_000, 100)] {
            let mut estimates = Estimates::new(1_000, Enough::ForEach(quantile));
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
    fn the_more_calls_a_quota_has_room_for_the_closer_to_the_mean_each_reserves() {
        let reserve = |quota, used: &[u64]| {
            let mut estimates = Estimates::new(1_000, Enough::ForAllIn(quota));
            (0..300).for_each(|at| estimates.settled("kind", used[at % used.len()]));
            estimates.reserve("kind")
        };
        let evenly: Vec<u64> = (100..=1_000).step_by(9).collect();
        let reserves = [1_000, 4_000, 20_000, 200_000, u32::MAX].map(|quota| reserve(quota, &evenly));
        assert_eq!(reserves, [863, 706, 621, 580, 571], "of a mean of 544.1 and a deviation of 262.5");
        assert_eq!(reserve(200_000, &[300]), 301, "what is always the same is known");
        assert_eq!(reserve(1, &[u64::MAX, 1]), 1_000, "and never more than the largest");
    }

    /// Bytes by the day: their squares add up to almost more digits than a number has.
    #[test]
    fn calls_and_quotas_of_any_size_have_an_estimate() {
        let largest = 4_000_000_000;
        let reserve = |quota, used: &[u64]| {
            let mut estimates = Estimates::new(largest, Enough::ForAllIn(quota));
            (0..300).for_each(|at| estimates.settled("kind", used[at % used.len()]));
            estimates.reserve("kind")
        };
        assert_eq!(reserve(4_000_000_000, &[1, largest]), largest, "there is room for two");
        assert_eq!(reserve(u32::MAX, &[largest]), largest);
        assert_eq!(reserve(u32::MAX, &[largest / 2]), largest / 2 + 1);
        // A thousandth of each number, within the rounding.
        let (bytes, kilobytes) = (reserve(4_000_000_000, &[1_000, 9_000]), reserve(4_000_000, &[1, 9]));
        assert!(bytes.abs_diff(1_000 * kilobytes) <= 1_000, "{bytes} {kilobytes}");
    }

    #[test]
    fn no_more_is_reserved_than_a_call_can_use() {
        let mut estimates = Estimates::new(50, Enough::ForEach(950));
        (0..300).for_each(|_| estimates.settled("kind", 80));
        assert_eq!(estimates.reserve("kind"), 50);
    }

    #[test]
    fn memory_is_bounded() {
        let mut estimates = Estimates::new(1_000, Enough::ForEach(950));
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
        let mut estimates = Estimates::new(1, Enough::ForEach(950));
        assert_eq!((0..1_000).filter(|_| estimates.unsettled()).collect::<Vec<_>>(), [99]);
        let mut estimates = Estimates::new(1, Enough::ForEach(950));
        assert!((0..90).all(|_| !estimates.unsettled()));
        estimates.settled_at_nothing();
        assert!((0..1_000).all(|_| !estimates.unsettled()));
        assert_eq!(estimates.reserve("kind"), 1, "and nothing is learned");
    }
}
