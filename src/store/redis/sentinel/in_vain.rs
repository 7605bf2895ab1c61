//! Since when nothing has counted that was answered. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// For how long nothing counts that is not with a replica of which nothing is known: it may have been made primary, and Sentinels take a
/// second to notice that, and two more to tell each other.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// Since when nothing has counted, as far as anybody called.
#[derive(Debug)]
pub(super) struct InVain {
    /// Since when, and when that was seen last.
    seen: Option<(Instant, Instant)>,
    /// So long after that it may have counted again in the meantime.
    gap: Duration,
}

impl InVain {
    /// Of a primary whose calls and replicas are given so much time to answer.
    pub(super) fn new(response_timeout: Duration) -> Self {
        // A call ends at worst while a replica is asked, and is sent again after a second.
        Self { seen: None, gap: 2 * response_timeout + Duration::from_secs(3) }
    }

    /// Something did not count, or what a replica is was not found out.
    pub(super) fn see(&mut self, now: Instant) {
        let since = self.seen.filter(|(_, last)| now <= *last + self.gap).map_or(now, |(since, _)| since);
        self.seen = Some((since, now));
    }

    /// Something counted.
    pub(super) const fn end(&mut self) {
        self.seen = None;
    }

    /// For how long.
    pub(super) fn lasts(&self, now: Instant) -> Duration {
        let seen = self.seen.filter(|(_, last)| now <= *last + self.gap);
        seen.map_or(Duration::ZERO, |(since, _)| now.saturating_duration_since(since))
    }

    /// Whether that was long ago.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.lasts(now) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_counted_for_long_only_where_that_was_seen_all_the_time() {
        let (mut in_vain, began) = (InVain::new(Duration::from_secs(1)), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        in_vain.see(at(0));
        in_vain.see(at(2_500));
        assert!(!in_vain.is_late(at(3_999)) && in_vain.is_late(at(4_000)));
        in_vain.end();
        assert!(!in_vain.is_late(at(5_000)));
        in_vain.see(at(6_000));
        // Nobody called for a while: a replica that lacked something then may have had all since.
        assert!(!in_vain.is_late(at(20_000)));
        in_vain.see(at(20_000));
        assert!(!in_vain.is_late(at(20_000)));
        in_vain.see(at(22_000));
        assert!(!in_vain.is_late(at(23_999)) && in_vain.is_late(at(24_000)));
    }
}
