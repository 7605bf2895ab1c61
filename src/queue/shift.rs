//! A task of a process of which there is one at most: who looks now and then. Where its runtime is gone the next may begin at once; where that is kept,
//! and polls it no more, some seconds after it was to look.

use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::resend::PATIENCE;
use crate::ledger::micros;

const NOBODY: i64 = i64::MIN;

/// Whether anybody has it, and by when they look.
#[derive(Debug)]
pub(crate) struct Shift {
    epoch: Instant,
    /// In microseconds since then.
    looks_by: AtomicI64,
    /// In each of these a task stands by, or has it.
    runtimes: Arc<Runtimes>,
}

/// In each of these one task stands by.
#[derive(Debug, Default)]
pub(super) struct Runtimes(Mutex<Vec<Id>>);

/// Stands by in a runtime until it is dropped.
#[derive(Debug)]
pub(crate) struct StandsBy {
    runtimes: Arc<Runtimes>,
    here: Id,
}

/// Has the shift until it is dropped, or another has begun.
#[derive(Debug)]
pub(crate) struct OnShift {
    shift: Arc<Shift>,
    /// What it wrote there: where that is another by now, another has begun.
    looks_by: i64,
}

impl Default for Shift {
    fn default() -> Self {
        Self { epoch: Instant::now(), looks_by: AtomicI64::new(NOBODY), runtimes: Arc::default() }
    }
}

impl Shift {
    /// Whether nobody has it, or has not looked for too long.
    pub(crate) fn is_free(&self, now: Instant) -> bool {
        self.is_over(self.looks_by.load(Ordering::SeqCst), now)
    }

    /// Has a task of this runtime take turns where it has the shift, or where `is_new` here and none stands by yet.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        (runtime, is_new): (&Handle, bool),
        on_shift: Option<OnShift>,
        take_turns: impl FnOnce(Option<OnShift>, Option<StandsBy>) -> F,
    ) {
        let stands_by = if is_new { self.runtimes.stands_by(runtime.id()) } else { None };
        if on_shift.is_some() || stands_by.is_some() {
            runtime.spawn(take_turns(on_shift, stands_by));
        }
    }

    /// Serves whenever it gets the shift, and stands by while another has it, unless a task of this runtime does that already. Is over as soon as
    /// it has served to the end.
    pub(crate) async fn take_turns<F: Future<Output = bool>>(
        self: &Arc<Self>,
        mut on_shift: Option<OnShift>,
        mut stands_by: Option<StandsBy>,
        begin: impl Fn() -> Option<OnShift>,
        serve: impl Fn(OnShift) -> F,
    ) {
        loop {
            if let Some(on_shift) = on_shift.take().or_else(&begin)
                && serve(on_shift).await
            {
                return;
            }
            stands_by = stands_by.or_else(|| self.runtimes.stands_by(Handle::current().id()));
            if stands_by.is_none() {
                return;
            }
            sleep_until(self.free_at()).await;
        }
    }

    /// When whoever has it will have looked, or is to be replaced.
    fn free_at(&self) -> Instant {
        let looks_by = u64::try_from(self.looks_by.load(Ordering::SeqCst)).unwrap_or(0);
        self.epoch + Duration::from_micros(looks_by) + PATIENCE + Duration::from_millis(1)
    }

    /// Takes it, and promises to look by then.
    pub(crate) fn begin(self: &Arc<Self>, now: Instant, looks_by: Instant) -> Option<OnShift> {
        let before = self.looks_by.load(Ordering::SeqCst);
        if !self.is_over(before, now) {
            return None;
        }
        let looks_by = self.micros(looks_by);
        self.changes(before, looks_by).then(|| OnShift { shift: Arc::clone(self), looks_by })
    }

    fn is_over(&self, looks_by: i64, now: Instant) -> bool {
        looks_by == NOBODY || looks_by.saturating_add(micros(PATIENCE)) < self.micros(now)
    }

    fn changes(&self, before: i64, after: i64) -> bool {
        self.looks_by.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn micros(&self, at: Instant) -> i64 {
        micros(at.saturating_duration_since(self.epoch))
    }
}

impl Runtimes {
    /// A task stands by in this runtime; `None` where one does already.
    pub(super) fn stands_by(self: &Arc<Self>, here: Id) -> Option<StandsBy> {
        let mut runtimes = self.lock();
        let is_new = !runtimes.contains(&here);
        runtimes.extend(is_new.then_some(here));
        is_new.then(|| StandsBy { runtimes: Arc::clone(self), here })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Id>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnShift {
    /// Goes on, and promises to look by then; not where another has begun meanwhile.
    pub(crate) fn goes_on(&mut self, looks_by: Instant) -> bool {
        self.becomes(self.shift.micros(looks_by))
    }

    /// Goes on, and sleeps until then; not where another has begun meanwhile.
    pub(crate) async fn sleep_until(&mut self, at: Instant) -> bool {
        let goes_on = self.goes_on(at);
        if goes_on {
            sleep_until(at).await;
        }
        goes_on
    }

    /// Goes on while it waits for this, however long the store takes; not where another has begun before.
    pub(crate) async fn during<T>(&mut self, happens: impl Future<Output = T>) -> Option<T> {
        let mut happens = pin!(happens);
        loop {
            let at = Instant::now() + PATIENCE;
            if !self.goes_on(at) {
                return None;
            }
            if let Ok(happened) = timeout_at(at, happens.as_mut()).await {
                return self.goes_on(at).then_some(happened);
            }
        }
    }

    /// Leaves it to whoever comes next.
    pub(crate) fn end(&mut self) {
        self.becomes(NOBODY);
    }

    fn becomes(&mut self, looks_by: i64) -> bool {
        let is_mine = self.shift.changes(self.looks_by, looks_by);
        if is_mine {
            self.looks_by = looks_by;
        }
        is_mine
    }
}

impl Drop for OnShift {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for StandsBy {
    fn drop(&mut self) {
        self.runtimes.lock().retain(|runtime| *runtime != self.here);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_at_most_has_it_and_who_does_not_look_loses_it() {
        let (shift, begin) = (Arc::new(Shift::default()), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        let mut first = shift.begin(at(0), at(1_000)).unwrap();
        assert!(shift.begin(at(0), at(1_000)).is_none() && first.goes_on(at(2_000)));
        assert!(shift.begin(at(7_000), at(8_000)).is_none(), "it may be late");
        let mut second = shift.begin(at(7_001), at(8_000)).unwrap();
        assert!(!first.goes_on(at(9_000)) && second.goes_on(at(9_000)));
        drop(first);
        assert!(!shift.is_free(at(9_000)), "it was not its own any more");
        drop(second);
        assert!(shift.is_free(at(9_000)));
        let mut third = shift.begin(at(9_000), at(10_000)).unwrap();
        third.end();
        assert!(shift.begin(at(9_000), at(10_000)).is_some());
    }
}
