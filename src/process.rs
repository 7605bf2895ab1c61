//! What all lines of one process share: the store, and the process's name there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::line::bounds::{Bounds, Exchange, Placing};
use crate::log::Stamp;
use crate::store::{MessageId, Store};

/// One throttle, as its store knows it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) store: Arc<dyn Store>,
    /// A name from the operating system's randomness, so that a process that starts anew is another one.
    pub(crate) id: u64,
    pub(crate) horizon: Duration,
    numbers: AtomicU64,
    /// What is known of the store's clock.
    bounds: Mutex<Bounds>,
}

impl Process {
    /// A process that is not mistaken for another: two with one name would get each other's slots.
    ///
    /// # Errors
    ///
    /// When the operating system gives no randomness.
    pub(crate) fn new(store: Arc<dyn Store>, horizon: Duration) -> Result<Self, getrandom::Error> {
        let id = getrandom::u64()?;
        Ok(Self { store, id, horizon, numbers: AtomicU64::new(1), bounds: Mutex::default() })
    }

    /// The number of the next message; they ascend for every home.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The next message about what an upstream told. Of one home they are sent one after another.
    pub(crate) fn next_message(&self) -> MessageId {
        MessageId::new(self.id, self.next_number())
    }

    /// Takes note of an exchange with the store, and says where the stamps of its reply lie.
    pub(crate) fn exchanged(&self, exchange: Exchange, stamp: Stamp, fine: Duration) -> Placing {
        self.bounds().exchanged(exchange, stamp, fine)
    }

    /// How many more exchanges it takes until slots can be placed.
    pub(crate) fn missing_exchanges(&self, fine: Duration) -> u32 {
        self.bounds().missing(fine)
    }

    /// How far ahead of now to ask for slots that may be used so late.
    pub(crate) fn ahead(&self, tolerated: Duration, now: Instant) -> Duration {
        self.bounds().ahead(tolerated, now)
    }

    /// What an answer takes at best.
    pub(crate) fn round_trip(&self) -> Duration {
        self.bounds().round_trip()
    }

    fn bounds(&self) -> MutexGuard<'_, Bounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
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
