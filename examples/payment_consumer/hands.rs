//! The entries that a consumer has in hand.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many entries a consumer works on at once. Most of them wait for a slot.
const ROOM: usize = 64;

/// What is in hand, by id, and room for more.
#[derive(Clone)]
pub(crate) struct Hands {
    ids: Arc<Mutex<HashSet<String>>>,
    room: Arc<Semaphore>,
}

/// One entry in hand, until this is dropped.
pub(crate) struct Held {
    hands: Hands,
    id: String,
    _room: OwnedSemaphorePermit,
}

impl Hands {
    pub(crate) fn empty() -> Self {
        Self { ids: Arc::default(), room: Arc::new(Semaphore::new(ROOM)) }
    }

    /// Waits until there is room, and says for how many.
    pub(crate) async fn room(&self) -> usize {
        // It is never closed, and given back at once.
        let _ = self.room.acquire().await;
        self.room.available_permits().max(1)
    }

    /// Takes an entry, unless it is in hand already.
    pub(crate) async fn take(&self, id: &str) -> Option<Held> {
        let room = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let is_new = self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        is_new.then(|| Held { hands: self.clone(), id: id.to_owned(), _room: room })
    }

    /// All that is in hand.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hands.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
