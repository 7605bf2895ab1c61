//! The count that one limit of an upstream keeps. Pure: time is an argument, and never goes back.

use std::collections::VecDeque;

use super::{Balance, Shape, window_counter::WindowCounter};

/// No window lasts longer, nor less than 1 µs: 73,000 years, so that two of them and an instant can be added.
const LONGEST: i64 = i64::MAX / 4;

#[derive(Clone, Debug)]
pub(super) struct Meter {
    quota: u64,
    window: i64,
    shape: Shape,
    count: Count,
}

#[derive(Clone, Debug)]
enum Count {
    /// `used` is the sum of the entries' costs.
    Log {
        entries: VecDeque<(i64, u64)>,
        used: u64,
    },
    /// Before any call, and after `end`, no window is open.
    Window {
        phase: Option<i64>,
        end: i64,
        used: u64,
    },
    /// What is missing from a full bucket at instant `at`, in 1/window of a token: `quota` of
    /// these flow in per µs, so nothing is ever rounded.
    Bucket {
        missing: u128,
        at: i64,
    },
    Counter(WindowCounter),
}

impl Meter {
    pub(super) fn new(quota: u64, window: i64, shape: Shape) -> Self {
        let window = window.clamp(1, LONGEST);
        let count = match shape {
            Shape::SlidingLog => Count::Log { entries: VecDeque::new(), used: 0 },
            Shape::FixedWindow { phase } => Count::Window { phase: Some(phase), end: i64::MIN, used: 0 },
            Shape::FixedWindowFromFirstCall => Count::Window { phase: None, end: i64::MIN, used: 0 },
            Shape::TokenBucket => Count::Bucket { missing: 0, at: i64::MIN },
            Shape::SlidingWindowCounter { phase } => Count::Counter(WindowCounter::new(window, phase)),
        };
        Self { quota, window, shape, count }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.quota, self.window, self.shape);
    }

    /// Forgets what no longer counts at `now`.
    pub(super) fn advance(&mut self, now: i64) {
        match &mut self.count {
            Count::Log { entries, used } => {
                while let Some(&(stamp, cost)) = entries.front()
                    && stamp.saturating_add(self.window) <= now
                {
                    entries.pop_front();
                    *used -= cost;
                }
            }
            Count::Window { end, used, .. } => {
                if *end <= now {
                    *used = 0;
                }
            }
            Count::Bucket { missing, at } => {
                let elapsed = u128::from(now.abs_diff(*at));
                *missing = missing.saturating_sub(elapsed * u128::from(self.quota));
                *at = now;
            }
            Count::Counter(counter) => counter.advance(now),
        }
    }

    /// How long until `cost` would be admitted if nobody else called: 0 is now, `None` is never.
    /// To be asked after [`Self::advance`].
    pub(super) fn wait(&self, now: i64, cost: u64) -> Option<i64> {
        if cost == 0 {
            return Some(0);
        }
        if cost > self.quota {
            return None;
        }
        match &self.count {
            Count::Log { entries, used } => {
                let mut excess = (used + cost).saturating_sub(self.quota);
                let mut wait = 0;
                for (stamp, freed) in entries {
                    if excess == 0 {
                        break;
                    }
                    excess = excess.saturating_sub(*freed);
                    wait = stamp + self.window - now;
                }
                Some(wait)
            }
            Count::Window { end, used, .. } => Some(if used + cost <= self.quota { 0 } else { end - now }),
            Count::Bucket { missing, .. } => {
                let excess = (missing + self.tokens(cost)).saturating_sub(self.tokens(self.quota));
                i64::try_from(excess.div_ceil(u128::from(self.quota))).ok()
            }
            Count::Counter(counter) => Some(counter.wait(now, cost, self.quota)),
        }
    }

    /// The quota, what is left of it, and how long until all of it is there again if nobody calls. To be asked after
    /// [`Self::advance`].
    pub(super) fn balance(&self, now: i64) -> Balance {
        let (left, reset) = match &self.count {
            Count::Log { entries, used } => {
                let last = entries.back().map_or(0, |(stamp, _)| stamp + self.window - now);
                (self.quota.saturating_sub(*used), last)
            }
            Count::Window { end, used, .. } => (self.quota.saturating_sub(*used), end.saturating_sub(now).max(0)),
            Count::Bucket { missing, .. } => {
                let units = missing.div_ceil(u128::from(self.window.unsigned_abs()));
                let left = u128::from(self.quota).saturating_sub(units);
                let reset = missing.div_ceil(u128::from(self.quota.max(1)));
                (u64::try_from(left).unwrap_or(0), i64::try_from(reset).unwrap_or(i64::MAX))
            }
            Count::Counter(counter) => counter.balance(now, self.quota),
        };
        Balance { quota: self.quota, left, reset }
    }

    /// Counts `cost`, whether or not the limit would have admitted it. To be called after
    /// [`Self::advance`].
    pub(super) fn take(&mut self, now: i64, cost: u64) {
        if cost == 0 {
            return;
        }
        let full = self.tokens(self.quota);
        let taken = self.tokens(cost);
        match &mut self.count {
            Count::Log { entries, used } => {
                entries.push_back((now, cost));
                *used += cost;
            }
            Count::Window { phase, end, used } => {
                if *end <= now {
                    let since_start =
                        phase.map_or(0, |phase| (now - phase.rem_euclid(self.window)).rem_euclid(self.window));
                    *end = now - since_start + self.window;
                }
                *used += cost;
            }
            Count::Bucket { missing, .. } => *missing = (*missing + taken).min(full),
            Count::Counter(counter) => counter.take(cost),
        }
    }

    fn tokens(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.window.unsigned_abs())
    }
}
