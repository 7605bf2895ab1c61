//! Messages of one process about one home, one after another: a store refuses one that comes after a later one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedMutexGuard};

use super::table::Key;

/// Who may send a message about a home now.
#[derive(Debug, Default)]
pub(crate) struct OneByOne(Mutex<HashMap<Key, Arc<Door>>>);

#[derive(Debug, Default)]
struct Door {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Tells whoever has the turn that another waits for it.
    knock: Notify,
}

/// The right to send, until dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    doors: &'a OneByOne,
    home: Key,
    door: Arc<Door>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl OneByOne {
    /// Waits until nobody else sends messages about a home.
    pub(crate) async fn turn(&self, home: Key) -> Turn<'_> {
        let door = Arc::clone(self.lock().entry(home).or_default());
        let mut turn = Turn { doors: self, home, door, guard: None };
        let lock = Arc::clone(&turn.door.turn);
        turn.guard = Arc::clone(&lock).try_lock_owned().ok();
        if turn.guard.is_none() {
            turn.door.knock.notify_one();
            turn.guard = Some(lock.lock_owned().await);
        }
        turn
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Door>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Waits until somebody else wants the turn.
    pub(crate) async fn wanted(&self) {
        self.door.knock.notified().await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut doors = self.doors.lock();
        // The map's own, and this one.
        if Arc::strong_count(&self.door) == 2 {
            doors.remove(&self.home);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn one_has_the_turn_of_a_home_and_hears_of_the_next() {
        let (doors, home, other) = (OneByOne::default(), (0, None), (1, None));
        let first = doors.turn(home).await;
        assert!(timeout(SHORT, doors.turn(other)).await.is_ok(), "each home has its own");
        assert!(timeout(SHORT, first.wanted()).await.is_err());
        assert!(timeout(SHORT, doors.turn(home)).await.is_err());
        assert!(timeout(SHORT, first.wanted()).await.is_ok());
        drop(first);
        drop(doors.turn(home).await);
        assert!(doors.lock().is_empty(), "nothing is kept");
    }
}
