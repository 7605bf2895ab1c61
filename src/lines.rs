//! The lines of one process, one for each home in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::error::Error;
use crate::line::Line;
use crate::scope::Digest128;
use crate::store::{Cause, Home};

/// How long [`Lines::close`] waits for the store.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// How many parts the lines are in, so that threads seldom wait for each other.
const PARTS: usize = 16;

/// Whose line: of an upstream, by its place among those registered, and a scope.
pub(crate) type Key = (usize, Option<Digest128>);

/// Finds the line of a home. Lines that nobody uses, or has used but once for a long time, are forgotten as new ones come.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    parts: [Mutex<Map>; PARTS],
}

#[derive(Debug, Default)]
struct Map {
    lines: HashMap<Key, Entry>,
    /// How many lines it takes to look for idle ones again: twice as many as were left the last time.
    sweep_at: usize,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    line: Arc<Line>,
    /// Used again since the last look for idle ones.
    again: bool,
}

impl Lines {
    /// The line of a home, new if need be.
    pub(crate) fn get(&self, key: Key, new: impl FnOnce() -> Line) -> Result<Arc<Line>, Error> {
        let mut map = self.part(key);
        if map.closed {
            return Err(Error::Closed);
        }
        if let Some(entry) = map.lines.get_mut(&key) {
            entry.again = true;
            return Ok(Arc::clone(&entry.line));
        }
        if map.lines.len() >= map.sweep_at {
            map.sweep();
        }
        let line = Arc::new(new());
        map.lines.insert(key, Entry { line: Arc::clone(&line), again: false });
        Ok(line)
    }

    pub(crate) fn find(&self, key: Key) -> Option<Arc<Line>> {
        self.part(key).lines.get(&key).map(|entry| Arc::clone(&entry.line))
    }

    fn part(&self, (upstream, scope): Key) -> MutexGuard<'_, Map> {
        lock(&self.parts[scope.map_or(upstream, |scope| scope.first_byte().into()) % PARTS])
    }

    fn all(&self, which: impl Fn(&Line) -> bool) -> Vec<Arc<Line>> {
        let mut all = Vec::new();
        for part in &self.parts {
            let part = lock(part);
            all.extend(part.lines.values().filter(|entry| which(&entry.line)).map(|entry| Arc::clone(&entry.line)));
        }
        all
    }

    /// Lets nobody of this process send to a home, or to any scope of an upstream, for a while.
    pub(crate) fn withhold(&self, home: &Home, wait: Duration, cause: Cause) {
        for line in self.all(|line| line.belongs_to(home)) {
            line.withhold(wait, cause);
        }
    }

    /// Closes every line, and waits until each has told the store what it hands back.
    pub(crate) async fn close(&self) {
        self.parts.iter().for_each(|part| lock(part).closed = true);
        let lines = self.all(|_| true);
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
}

impl Map {
    fn sweep(&mut self) {
        // Whoever holds the line may be about to use it.
        let idle = |line: &Arc<Line>| Arc::strong_count(line) == 1 && line.is_idle();
        self.lines.retain(|_, entry| std::mem::take(&mut entry.again) || !idle(&entry.line));
        self.sweep_at = (self.lines.len() * 2).max(64);
    }
}

fn lock(part: &Mutex<Map>) -> MutexGuard<'_, Map> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
