//! A clock that tests set by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::ledger::Stamp;

/// A store's clock that stands still until a test moves it. Clones show the same time.
///
/// ```
/// use outgate::MemoryStore;
/// use outgate::ledger::Stamp;
/// use outgate::testing::ManualClock;
///
/// let clock = ManualClock::new(Stamp::from_micros(0));
/// let store = MemoryStore::with_clock(clock.clone());
/// clock.set(Stamp::from_micros(1_000_000)); // a second later
/// assert_eq!((clock.now(), store.scopes_in_use()), (Stamp::from_micros(1_000_000), 0));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Stamp) -> Self {
        Self(Arc::new(AtomicI64::new(now.as_micros())))
    }

    /// What the clock shows.
    #[must_use]
    pub fn now(&self) -> Stamp {
        Stamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, now: Stamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}
