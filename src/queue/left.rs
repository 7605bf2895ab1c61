//! What a queue leaves to others where slots come one by one, and whether they take it.

use std::time::Duration;

/// No shorter than this part of it is a rest for the others' sake.
const LEAST: f64 = 1.0 / 64.0;

/// The part of a rest for the others' sake that they need: half of it each time that no slot was taken when the queue came back, and
/// all of it again soon after they took what was left.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftToOthers(f64);

impl LeftToOthers {
    pub(super) const fn all() -> Self {
        Self(1.0)
    }

    /// The first of its callers could go at once: what had been left to others passed, and nobody took it.
    pub(super) fn found(&mut self, is_unused: bool) {
        self.0 = if is_unused { (self.0 / 2.0).max(LEAST) } else { (self.0 * 2.0).min(1.0) };
    }

    /// So long it rests of what it would, where it is so long until the last of its own slots.
    pub(super) fn rest(self, rest: Duration, own: Duration) -> Duration {
        own.min(rest) + rest.saturating_sub(own).mul_f64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_nobody_takes_is_left_to_nobody() {
        let mut left = LeftToOthers::all();
        let rest = |left: LeftToOthers| left.rest(300 * MS, 140 * MS).as_millis();
        assert_eq!(rest(left), 300);
        left.found(true);
        assert_eq!(rest(left), 220);
        (0..10).for_each(|_| left.found(true));
        assert_eq!(rest(left), 142);
        (0..6).for_each(|_| left.found(false));
        assert_eq!(rest(left), 300);
        assert_eq!(left.rest(100 * MS, 140 * MS).as_millis(), 100);
    }
}
