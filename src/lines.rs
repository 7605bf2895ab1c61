//! The lines of one process, one for each home in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::error::Error;
use crate::limit::micros;
use crate::line::Line;
use crate::scope::Digest128;
use crate::store::{Cause, Home};
use crate::turns::Turns;

/// How long [`Lines::close`] waits for the store.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// How many lines a part has at least before idle ones are looked for: to make one anew costs more than to keep it.
const FEW: usize = 1_024;

/// How many parts the lines are in, so that threads seldom wait for each other.
const PARTS: usize = 16;

/// Whose line: of an upstream, by its place among those registered, and a scope.
pub(crate) type Key = (usize, Option<Digest128>);

/// Finds the line of a home. Where there are many, those that nobody has used for a while are forgotten, as calls of others come.
#[derive(Debug)]
pub(crate) struct Lines {
    parts: [Mutex<Map>; PARTS],
    epoch: Instant,
    turns: Turns,
}

impl Default for Lines {
    fn default() -> Self {
        Self { parts: Default::default(), epoch: Instant::now(), turns: Turns::new() }
    }
}

#[derive(Debug)]
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
    /// The line of a home at `now`, new if need be.
    pub(crate) fn get(&self, key: Key, now: Instant, new: impl FnOnce() -> Line) -> Result<Arc<Line>, Error> {
        self.sweep_in_turn(now);
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

    fn sweep_in_turn(&self, now: Instant) {
        let now = micros(now.saturating_duration_since(self.epoch));
        if let Some(part) = self.turns.next(now, PARTS).and_then(|next| self.parts.get(next)) {
            let mut map = lock(part);
            if map.lines.len() >= FEW {
                map.sweep();
            }
        }
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

    /// Closes every line, and waits until each has told the store what it hands back. Outside of a runtime nobody is told.
    pub(crate) async fn close(&self) {
        self.parts.iter().for_each(|part| lock(part).closed = true);
        let lines = self.all(|_| true);
        for line in &lines {
            line.close();
        }
        if Handle::try_current().is_err() {
            tracing::warn!("closed outside of a runtime: the store is not told");
            return;
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

impl Default for Map {
    fn default() -> Self {
        Self { lines: HashMap::new(), sweep_at: FEW, closed: false }
    }
}

impl Map {
    fn sweep(&mut self) {
        // Whoever holds the line may be about to use it.
        let idle = |line: &Arc<Line>| Arc::strong_count(line) == 1 && line.is_idle();
        self.lines.retain(|_, entry| std::mem::take(&mut entry.again) || !idle(&entry.line));
        self.lines.shrink_to(self.lines.len() * 2);
        self.sweep_at = (self.lines.len() * 2).max(FEW);
    }
}

fn lock(part: &Mutex<Map>) -> MutexGuard<'_, Map> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::process::Process;
    use crate::registered::Registered;
    use crate::store::MemoryStore;
    use crate::upstream::Upstream;

    fn lines() -> (Lines, impl Fn(u32, &Lines, Instant) -> Arc<Line>) {
        let process = Arc::new(Process::new(Arc::new(MemoryStore::new()), Duration::from_millis(250)).unwrap());
        let up = Registered::new(0, Upstream::new("up").limit(Limit::per_second(1))).unwrap();
        let get = move |scope: u32, lines: &Lines, now| {
            let scope = Some(Digest128::of(&scope.to_be_bytes()));
            lines.get(up.key(scope), now, || Line::new(&process, &up, scope)).unwrap()
        };
        (Lines::default(), get)
    }

    fn kept(lines: &Lines) -> usize {
        lines.parts.iter().map(|part| lock(part).lines.len()).sum()
    }

    #[test]
    fn a_program_with_a_thousand_scopes_makes_each_line_once() {
        let (lines, get) = lines();
        let all =
            |now| (0..1_000).map(|scope| get(scope, &lines, now)).map(|line| Arc::as_ptr(&line)).collect::<Vec<_>>();
        let now = Instant::now();
        let first = all(now);
        for round in 1..5 {
            assert_eq!(all(now + Duration::from_secs(60 * round)), first);
        }
    }

    #[test]
    fn lines_of_many_scopes_are_forgotten_when_all_have_fallen_silent() {
        let (lines, get) = lines();
        let now = Instant::now();
        let used: Vec<_> = (0..100_000).map(|scope| get(scope, &lines, now)).collect();
        assert_eq!(kept(&lines), 100_000, "they are in use");
        drop(used);
        for second in 1..30 {
            get(0, &lines, now + Duration::from_secs(second));
        }
        assert!(kept(&lines) < 100, "{}", kept(&lines));
    }
}
