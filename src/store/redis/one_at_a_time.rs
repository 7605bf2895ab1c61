//! What one call of a process does at a time, as to connect; the others wait for its outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Duration, Instant, timeout_at};

/// Whose turn it is. Where that one has not come to an end for too long the next begins: its runtime may be kept, and not be polled any more.
#[derive(Debug)]
pub(super) struct OneAtATime {
    most: Duration,
    current: Mutex<Current>,
}

#[derive(Clone, Debug, Default)]
struct Current {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// When it was taken last.
    since: Option<Instant>,
}

impl OneAtATime {
    /// Each is to have come to an end after so long.
    pub(super) fn within(most: Duration) -> Self {
        Self { most, current: Mutex::default() }
    }

    /// Waits for its turn. What comes before may have done what there was to do.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        loop {
            let Current { turn, since } = self.current().clone();
            let until = since.unwrap_or_else(Instant::now) + self.most;
            if let Ok(mine) = timeout_at(until, Arc::clone(&turn).lock_owned()).await {
                let mut current = self.current();
                if Arc::ptr_eq(&current.turn, &turn) {
                    current.since = Some(Instant::now());
                }
                return mine;
            }
            let mut current = self.current();
            if Arc::ptr_eq(&current.turn, &turn) && current.since == since {
                *current = Current::default();
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_comes_to_no_end_keeps_the_others_for_so_long() {
        let (turns, begin) = (OneAtATime::within(Duration::from_secs(4)), Instant::now());
        let first = turns.turn().await;
        sleep(Duration::from_secs(3)).await;
        let second = turns.turn().await;
        assert_eq!(begin.elapsed().as_secs(), 4);
        drop(first);
        sleep(Duration::from_secs(9)).await;
        let third = turns.turn().await;
        assert_eq!(begin.elapsed().as_secs(), 13);
        drop((second, third));
        drop(turns.turn().await);
        assert_eq!(begin.elapsed().as_secs(), 13);
    }
}
