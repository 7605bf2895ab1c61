//! The approximating counter: two counts stand for all the calls of a window. Pure: time is an argument, and never goes back.

/// The counts of two windows that touch, aligned to the clock.
///
/// What counts at an instant is the current count, and of the previous one the part that a window ending now still covers.
/// It is kept in 1/window of a unit, so nothing is ever rounded.
#[derive(Clone, Debug)]
pub(super) struct WindowCounter {
    window: i64,
    phase: i64,
    /// Where the current window begins; far in the past before the first instant.
    begin: i64,
    current: u64,
    previous: u64,
}

impl WindowCounter {
    /// Nothing has come yet. Windows begin at `phase`, and whole windows away from it.
    pub(super) fn new(window: i64, phase: i64) -> Self {
        Self { window, phase: phase.rem_euclid(window), begin: i64::MIN, current: 0, previous: 0 }
    }

    /// Moves on to the window of `now`.
    pub(super) fn advance(&mut self, now: i64) {
        let begin = now - (now - self.phase).rem_euclid(self.window);
        if begin == self.begin {
            return;
        }
        let follows = self.begin == begin - self.window;
        self.previous = if follows { self.current } else { 0 };
        self.current = 0;
        self.begin = begin;
    }

    pub(super) fn take(&mut self, cost: u64) {
        self.current += cost;
    }

    /// How long until `cost`, which is no more than `quota`, fits if nobody else calls.
    pub(super) fn wait(&self, now: i64, cost: u64, quota: u64) -> i64 {
        let left = self.end() - now;
        if self.current + cost <= quota {
            return left - left.min(self.covered(quota - self.current - cost, self.previous));
        }
        // In the next window the current count is the previous one, and nothing has been counted yet.
        left + self.window - self.window.min(self.covered(quota - cost, self.current))
    }

    /// Whole units that are left of `quota`, and how long until nothing counts any more.
    pub(super) fn balance(&self, now: i64, quota: u64) -> (u64, i64) {
        let (left, window) = (self.end() - now, self.units(1));
        let used = u128::from(self.previous) * u128::from(left.unsigned_abs()) + self.units(self.current);
        let free = self.units(quota).saturating_sub(used) / window;
        let reset = match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => left,
            _ => left + self.window,
        };
        (u64::try_from(free).unwrap_or(u64::MAX), reset)
    }

    fn end(&self) -> i64 {
        self.begin + self.window
    }

    /// How much of a window of `count` units may be covered while they take no more than `room` units.
    fn covered(&self, room: u64, count: u64) -> i64 {
        let covered = self.units(room).checked_div(u128::from(count));
        covered.and_then(|covered| i64::try_from(covered).ok()).unwrap_or(i64::MAX)
    }

    fn units(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.window.unsigned_abs())
    }
}
