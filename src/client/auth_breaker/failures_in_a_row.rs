//! A scope's responses in a row that were 401 or 403, and what follows. Pure: time is an argument.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::time::Instant;

/// For how long a row is remembered, counted from its last response or from the end of its pause.
const MEMORY: Duration = Duration::from_secs(3_600);

/// The right to make one call; some are probes. Dropped without a response, a probe leaves its place to another.
#[derive(Debug, Default)]
pub(crate) struct Pass(Option<Arc<Probe>>);

/// When a probe got its slot, and went.
type Probe = OnceLock<Instant>;

impl Pass {
    /// Its call has its slot, and goes.
    #[inline]
    pub(crate) fn goes(&self) {
        if let Some(probe) = &self.0 {
            probe.get_or_init(Instant::now);
        }
    }

    /// Whether its call was let through to see.
    #[cfg(feature = "tower")]
    pub(crate) const fn is_probe(&self) -> bool {
        self.0.is_some()
    }
}

/// The responses of one scope since the last that was neither 401 nor 403.
#[derive(Debug)]
pub(super) struct Row {
    /// How many they are; what comes late while the breaker is open aside.
    pub(super) length: u32,
    /// How many times in a row it opened; zero while it is closed.
    opened: usize,
    /// While it is open, when a probe is let through; before, when the last of them came.
    until: Instant,
    /// The pause after that, should the probe fail.
    next_pause: Duration,
    probe: Weak<Probe>,
}

impl Row {
    /// An empty row.
    pub(super) const fn new(now: Instant) -> Self {
        Self { length: 0, opened: 0, until: now, next_pause: Duration::ZERO, probe: Weak::new() }
    }

    /// The pass for one call, or how long until one is let through to see. A probe that asks again stays one. If one that has gone hangs, another
    /// follows after the next of the pauses, as if it had failed.
    pub(super) fn admit(
        &mut self,
        pass: Pass,
        now: Instant,
        pauses: impl FnOnce() -> Vec<Duration>,
    ) -> Result<Pass, Duration> {
        if !self.is_open() || self.is_probe(&pass) {
            return Ok(pass);
        }
        if now < self.until {
            return Err(self.until - now);
        }
        if let Some(probe) = self.probe.upgrade() {
            // While it waits for its slot nobody else need go.
            let Some(gone) = probe.get() else { return Err(self.next_pause) };
            let next = *gone + self.next_pause;
            if now < next {
                return Err(next - now);
            }
            self.opened += 1;
            self.next_pause = nth(&pauses(), self.opened);
        }
        let probe = Arc::default();
        self.probe = Arc::downgrade(&probe);
        Ok(Pass(Some(probe)))
    }

    /// A response was 401 or 403: says whether the breaker opened for it. After `limit` in a row it opens, for the first of the
    /// pauses; after a probe for the next of them; what else comes while it is open was sent before.
    pub(super) fn add(
        &mut self,
        pass: &Pass,
        now: Instant,
        limit: u32,
        pauses: impl FnOnce() -> Vec<Duration>,
    ) -> bool {
        if self.is_open() && !self.is_probe(pass) {
            return false;
        }
        self.length = self.length.saturating_add(1);
        self.until = now;
        if !self.is_open() && self.length < limit {
            return false;
        }
        let pauses = pauses();
        self.until = now + nth(&pauses, self.opened);
        self.opened += 1;
        self.next_pause = nth(&pauses, self.opened);
        self.probe = Weak::new();
        true
    }

    /// A response says nothing of who called: if it was that of the probe, the next one goes after the same pause.
    pub(super) fn try_again(&mut self, pass: &Pass, now: Instant, pauses: impl FnOnce() -> Vec<Duration>) {
        if self.is_open() && self.is_probe(pass) {
            self.until = now + nth(&pauses(), self.opened - 1);
            self.probe = Weak::new();
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.opened > 0
    }

    /// How long the breaker stays open.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }

    /// Whether it is too long ago to matter. A probe that waits for its slot matters, and one that has gone for as long as it may come back.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        let back_by = |probe: Arc<Probe>| probe.get().map(|gone| self.until.max(*gone + self.next_pause));
        let last = self.probe.upgrade().map_or(Some(self.until), back_by);
        last.is_some_and(|last| now.saturating_duration_since(last) > MEMORY)
    }

    fn is_probe(&self, pass: &Pass) -> bool {
        pass.0.as_ref().is_some_and(|probe| Weak::ptr_eq(&self.probe, &Arc::downgrade(probe)))
    }
}

/// One of the pauses; behind them it is the last.
fn nth(pauses: &[Duration], at: usize) -> Duration {
    pauses.get(at).or(pauses.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 3;

    fn pauses() -> Vec<Duration> {
        [10, 20, 40].map(Duration::from_secs).to_vec()
    }

    /// A row, and its time in seconds.
    struct Scene {
        row: Row,
        start: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let start = Instant::now();
            Self { row: Row::new(start), start }
        }

        /// Open since second zero, for the first pause.
        fn open() -> Self {
            let mut scene = Self::new();
            assert_eq!([(); 3].map(|()| scene.add(&Pass::default(), 0)), [false, false, true]);
            scene
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        /// In seconds.
        fn admit(&mut self, second: u64) -> Result<Pass, u64> {
            self.again(Pass::default(), second)
        }

        fn again(&mut self, pass: Pass, second: u64) -> Result<Pass, u64> {
            self.row.admit(pass, self.at(second), pauses).map_err(|wait| wait.as_secs())
        }

        /// A probe that goes then.
        fn gone(&self, pass: Pass, second: u64) -> Arc<Probe> {
            let probe = pass.0.unwrap();
            probe.set(self.at(second)).unwrap();
            probe
        }

        fn add(&mut self, pass: &Pass, second: u64) -> bool {
            self.row.add(pass, self.at(second), LIMIT, pauses)
        }
    }

    fn is_plain(pass: &Result<Pass, u64>) -> bool {
        matches!(pass, Ok(Pass(None)))
    }

    fn is_probe(pass: &Result<Pass, u64>) -> bool {
        matches!(pass, Ok(Pass(Some(_))))
    }

    #[test]
    fn so_many_in_a_row_open_it() {
        let mut scene = Scene::new();
        for second in 0..2 {
            assert!(!scene.add(&Pass::default(), second));
            assert!(is_plain(&scene.admit(second)));
        }
        assert!(scene.add(&Pass::default(), 2));
        assert_eq!(scene.row.length, 3);
        assert_eq!([2, 3, 11].map(|second| scene.admit(second).unwrap_err()), [10, 9, 1]);
    }

    #[test]
    fn after_the_pause_one_probe_is_let_through() {
        let mut scene = Scene::open();
        let probe = scene.admit(10);
        assert!(is_probe(&probe));
        assert_eq!([10, 15].map(|second| scene.admit(second).unwrap_err()), [20, 20], "the pause if it fails");
        let probe = scene.gone(probe.unwrap(), 15);
        assert!(is_probe(&scene.again(Pass(Some(Arc::clone(&probe))), 15)), "when it asks again after its wait");
        assert_eq!([15, 34].map(|second| scene.admit(second).unwrap_err()), [20, 1], "while it may come back");
        let next = scene.admit(35);
        assert!(is_probe(&next), "where the first hangs");
        assert_eq!(scene.admit(36).unwrap_err(), 40, "and then less often");
        assert!(!scene.add(&Pass(Some(probe)), 36), "that one is a probe no more");
        assert!(scene.add(&next.unwrap(), 37));
    }

    #[test]
    fn each_probe_that_fails_is_followed_by_a_longer_pause() {
        let mut scene = Scene::open();
        for (second, pause) in [(10, 20), (30, 40), (70, 40), (110, 40)] {
            let probe = scene.admit(second).unwrap();
            assert!(scene.add(&probe, second));
            assert_eq!(scene.admit(second).unwrap_err(), pause, "while the pass of the failed one lives, too");
        }
        assert_eq!(scene.row.length, 7);
    }

    #[test]
    fn a_probe_without_a_response_leaves_its_place_to_the_next() {
        let mut scene = Scene::open();
        drop(scene.admit(10).unwrap());
        assert!(is_probe(&scene.admit(10)));
        assert!(is_probe(&scene.admit(11)), "dropped, too");
    }

    #[test]
    fn what_was_sent_before_it_opened_does_not_lengthen_it() {
        let mut scene = Scene::open();
        assert!(!scene.add(&Pass::default(), 5));
        assert_eq!(scene.admit(5).unwrap_err(), 5);
        let probe = scene.admit(10).unwrap();
        assert!(!scene.add(&Pass::default(), 11), "nor does it take the probe's place");
        assert_eq!((scene.row.length, scene.admit(11).unwrap_err()), (3, 20));
        assert!(scene.add(&probe, 12));
        let old = probe;
        assert_eq!(scene.again(old, 13).unwrap_err(), 19, "a pass is a probe once");
    }

    #[test]
    fn whoever_waited_while_it_opened_is_refused_or_becomes_the_probe() {
        let mut scene = Scene::new();
        let [early, late] = [0, 0].map(|second| scene.admit(second).unwrap());
        assert!([(); 3].map(|()| scene.add(&Pass::default(), 0))[2]);
        assert_eq!(scene.again(early, 4).unwrap_err(), 6);
        assert!(is_probe(&scene.again(late, 10)));
    }

    #[test]
    fn a_row_is_forgotten_an_hour_after_its_last_response_or_pause() {
        let mut closed = Scene::new();
        closed.add(&Pass::default(), 100);
        let forgotten = |scene: &Scene, second| scene.row.is_forgotten(scene.at(second));
        assert_eq!([3_700, 3_701].map(|second| forgotten(&closed, second)), [false, true]);
        let mut open = Scene::open();
        assert_eq!([3_610, 3_611].map(|second| forgotten(&open, second)), [false, true]);
        let probe = open.admit(3_610).unwrap();
        assert!(!forgotten(&open, 9_000), "a probe that waits for its slot is not");
        let _hangs = open.gone(probe, 9_000);
        assert_eq!([12_620, 12_621].map(|second| forgotten(&open, second)), [false, true], "one that hangs is");
    }
}
