//! A store that fails as a test says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use crate::ledger::Message;
use crate::store::{Applied, Applying, Store, StoreError, StoreErrorKind};

/// A way in which a store fails to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFault {
    /// The message does not act, and its sender gets an error of this kind.
    Error(StoreErrorKind),
    /// The message acts, and the answer is lost: its sender gets [`StoreErrorKind::Unreachable`].
    AnswerLost,
    /// The message acts, and the answer comes so much later.
    Slow(Duration),
}

/// A store in front of another, which fails as long as a test says. Clones are one store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::error::ErrorKind;
/// use outgate::store::StoreErrorKind;
/// use outgate::testing::{FailingStore, StoreFault};
/// use outgate::{Limit, MemoryStore, Throttle, Upstream};
///
/// let store = FailingStore::new(MemoryStore::new());
/// let up = Upstream::new("up").limit(Limit::per_second(100));
/// let throttle = Throttle::builder().store(store.clone()).upstream(up).build()?;
///
/// store.fail(StoreFault::Error(StoreErrorKind::Unreachable));
/// let error = throttle.try_acquire("up").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
///
/// store.heal();
/// throttle.acquire("up").await?.hand_back();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FailingStore {
    store: Arc<dyn Store>,
    fault: Arc<Mutex<Option<StoreFault>>>,
}

impl FailingStore {
    /// In front of this one; it does not fail yet.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), fault: Arc::default() }
    }

    /// From now on each message fails so.
    pub fn fail(&self, fault: StoreFault) {
        self.set(Some(fault));
    }

    /// From now on each is answered.
    pub fn heal(&self) {
        self.set(None);
    }

    fn set(&self, fault: Option<StoreFault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    async fn answer(&self, message: &Message) -> Applied {
        let fault = *self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(StoreFault::Error(kind)) = fault {
            return Err(StoreError::new(kind, "it fails, as the test says"));
        }
        let answer = self.store.apply(message).await;
        match fault {
            Some(StoreFault::AnswerLost) => {
                Err(StoreError::new(StoreErrorKind::Unreachable, "the answer is lost, as the test says"))
            }
            Some(StoreFault::Slow(late)) => {
                sleep(late).await;
                answer
            }
            _ => answer,
        }
    }
}

impl Store for FailingStore {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(self.answer(message))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::{Limit, MemoryStore, Throttle, Upstream};

    #[tokio::test(start_paused = true)]
    async fn it_fails_in_each_way_and_heals() {
        let store = FailingStore::new(Arc::new(MemoryStore::new()));
        let up = Upstream::new("up").limit(Limit::per_hour(5));
        let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
        for kind in [StoreErrorKind::Unreachable, StoreErrorKind::Refused, StoreErrorKind::Malformed] {
            store.fail(StoreFault::Error(kind));
            let error = throttle.usage("up").await.unwrap_err();
            assert!(matches!(error, crate::Error::StoreUnavailable { source, .. } if source.kind() == kind));
        }
        store.fail(StoreFault::AnswerLost);
        throttle.try_acquire("up").await.unwrap_err();
        store.fail(StoreFault::Slow(Duration::from_millis(300)));
        let begin = Instant::now();
        assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 1, "the message acted whose answer was lost");
        assert_eq!(begin.elapsed(), Duration::from_millis(300));
        store.heal();
        drop(throttle.acquire("up").await.unwrap());
    }
}
