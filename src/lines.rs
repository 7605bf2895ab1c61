//! The lines of one process, one for each home in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::error::Error;
use crate::line::Line;
use crate::store::{Cause, Home};

/// How long [`Lines::close`] waits for the store.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Finds the line of a home. Lines that nobody uses are forgotten as new ones come.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    lines: HashMap<Home, Arc<Line>>,
    /// How many lines it takes to look for idle ones again: twice as many as were left the last time.
    sweep_at: usize,
    closed: bool,
}

impl Lines {
    /// The line of a home, new if need be.
    pub(crate) fn get(&self, home: Home, new: impl FnOnce(Home) -> Line) -> Result<Arc<Line>, Error> {
        let mut map = self.lock();
        if map.closed {
            return Err(Error::Closed);
        }
        if let Some(line) = map.lines.get(&home) {
            return Ok(Arc::clone(line));
        }
        if map.lines.len() >= map.sweep_at {
            // Whoever holds the line may be about to use it.
            map.lines.retain(|_, line| Arc::strong_count(line) > 1 || !line.is_idle());
            map.sweep_at = (map.lines.len() * 2).max(64);
        }
        let line = Arc::new(new(home.clone()));
        map.lines.insert(home, Arc::clone(&line));
        Ok(line)
    }

    pub(crate) fn find(&self, home: &Home) -> Option<Arc<Line>> {
        self.lock().lines.get(home).map(Arc::clone)
    }

    /// Lets nobody of this process send to a home, or to any scope of an upstream, for a while.
    pub(crate) fn withhold(&self, home: &Home, wait: Duration, cause: Cause) {
        let held: Vec<_> = self.lock().lines.values().filter(|line| line.belongs_to(home)).map(Arc::clone).collect();
        for line in held {
            line.withhold(wait, cause);
        }
    }

    /// Closes every line, and waits until each has told the store what it hands back.
    pub(crate) async fn close(&self) {
        let lines: Vec<_> = {
            let mut map = self.lock();
            map.closed = true;
            map.lines.values().map(Arc::clone).collect()
        };
        for line in &lines {
            line.close();
        }
        let all = async {
            for line in &lines {
                line.idle().await;
            }
        };
        if timeout(CLOSE_PATIENCE, all).await.is_err() {
            tracing::warn!("closed without an answer from the store");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
