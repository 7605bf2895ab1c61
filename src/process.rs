//! What all lines of one process share: the store, and the process's name there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::line::pace::Fastest;
use crate::store::Store;

/// One throttle, as its store knows it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) store: Arc<dyn Store>,
    /// A name from the operating system's randomness, so that a process that starts anew is another one.
    pub(crate) id: u64,
    pub(crate) horizon: Duration,
    numbers: AtomicU64,
    fastest: Mutex<Fastest>,
}

impl Process {
    /// A process that is not mistaken for another: two with one name would get each other's slots.
    ///
    /// # Errors
    ///
    /// When the operating system gives no randomness.
    pub(crate) fn new(store: Arc<dyn Store>, horizon: Duration) -> Result<Self, getrandom::Error> {
        let id = getrandom::u64()?;
        Ok(Self { store, id, horizon, numbers: AtomicU64::new(1), fastest: Mutex::default() })
    }

    /// The number of the next message; they ascend for every home.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// By how much an answer was slower than the fastest recent one.
    pub(crate) fn excess(&self, round_trip: Duration, now: Instant) -> Duration {
        self.fastest.lock().unwrap_or_else(PoisonError::into_inner).excess(round_trip, now)
    }

    /// What an answer takes at best.
    pub(crate) fn round_trip(&self) -> Duration {
        self.fastest.lock().unwrap_or_else(PoisonError::into_inner).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn processes_whose_own_generators_agree_have_different_names() {
        let name = || {
            fastrand::seed(7);
            Process::new(Arc::new(MemoryStore::new()), Duration::ZERO).unwrap().id
        };
        assert_ne!(name(), name());
    }
}
