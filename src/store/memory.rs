//! Logs in the memory of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::Store;
use crate::error::StoreError;
use crate::ledger::Stamp;
use crate::ledger::book::{Ledger, Lessoned};
use crate::ledger::constraints::Told;
use crate::ledger::correction::Corrections;
use crate::ledger::micros;
use crate::ledger::{Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MessageId};
#[cfg(any(test, feature = "testing"))]
use crate::store::clock::ManualClock;
use crate::store::turns::Turns;

const SHARDS: usize = 16;
/// How many homes a shard has room for however few there are.
const FEW: usize = 64;

/// Keeps the logs of one process. Clones share them.
///
/// Never unavailable. Its clock is tokio's, so that a paused clock in a test pauses the limits too. Homes that have been
/// silent for as long as their longest limit are forgotten within some 10 s, as long as calls of any other come.
#[derive(Clone)]
pub struct MemoryStore {
    shards: Arc<[Mutex<Shard>]>,
    /// Until when what was told of the whole of some upstream may delay a start: mostly nothing ever was.
    told_until: Arc<AtomicI64>,
    turns: Arc<Turns>,
    clock: Clock,
    corrections: Arc<Corrections>,
}

#[derive(Clone, Debug)]
enum Clock {
    Tokio {
        epoch: Instant,
    },
    #[cfg(any(test, feature = "testing"))]
    Manual(ManualClock),
}

#[derive(Debug, Default)]
struct Shard {
    ledgers: HashMap<Home, Box<Ledger>>,
    /// How many homes it takes to look for silent ones again: twice as many as were left the last time.
    sweep_at: usize,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Clock::Tokio { epoch: Instant::now() })
    }

    /// An empty store on a clock that the test moves.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_clock(clock: ManualClock) -> Self {
        Self::on(Clock::Manual(clock))
    }

    /// Homes that something is remembered of.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn homes(&self) -> usize {
        let now = self.now();
        let of_shard =
            |shard: &Mutex<Shard>| lock(shard).ledgers.values().filter(|ledger| !ledger.is_spent(now)).count();
        self.shards.iter().map(of_shard).sum()
    }

    fn on(clock: Clock) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            shards,
            told_until: Arc::new(AtomicI64::new(i64::MIN)),
            turns: Arc::new(Turns::new()),
            clock,
            corrections: Arc::default(),
        }
    }

    fn now(&self) -> Stamp {
        match &self.clock {
            Clock::Tokio { epoch } => Stamp::from_micros(micros(epoch.elapsed())),
            #[cfg(any(test, feature = "testing"))]
            Clock::Manual(clock) => clock.now(),
        }
    }

    /// What was told of the whole upstream, where a home is that of a scope, and any of it may delay a start.
    fn told_all(&self, home: &Home) -> Option<Told> {
        // Whoever asks after a hold was set sees it: that is entered before its message is answered.
        let until = self.told_until.load(Ordering::Acquire);
        if until == i64::MIN || until <= self.log_time(home).as_micros() {
            return None;
        }
        let home = home.of_upstream()?;
        let shard = lock(self.shard(&home));
        Some(shard.ledgers.get(&home)?.told().clone())
    }

    /// Takes note of until when that which was told of a home may delay a start in any scope of its upstream.
    fn note_told(&self, home: &Home, told: &Told) {
        if !home.is_of_scope() {
            self.told_until.fetch_max(told.until().as_micros(), Ordering::Release);
        }
    }

    /// The shard of a home. Scopes are digests, so that the ends of their names are as good as a hash; names that end alike
    /// share no more than a lock.
    fn shard(&self, home: &Home) -> &Mutex<Shard> {
        let mix = |mixed: usize, byte: u8| (mixed ^ usize::from(byte)).wrapping_mul(0x0100_0193);
        let mixed = home.as_str().bytes().rev().take(8).fold(0, mix);
        &self.shards[(mixed ^ (mixed >> 16)) % SHARDS]
    }

    /// Runs `act` on the ledger of a home at the log time read under its lock, so that it runs in the order in which it is read.
    fn with<T>(&self, home: &Home, act: impl FnOnce(&mut Ledger, Stamp) -> T) -> T {
        self.with_time(home, |clock| self.corrections.log_time(home, clock), act)
    }

    /// The same at what a log time is made of that.
    fn with_time<T>(
        &self,
        home: &Home,
        time: impl FnOnce(Stamp) -> Stamp,
        act: impl FnOnce(&mut Ledger, Stamp) -> T,
    ) -> T {
        let mut shard = lock(self.shard(home));
        let clock = self.now();
        let now = time(clock);
        let acted = if let Some(ledger) = shard.ledgers.get_mut(home) {
            act(ledger, now)
        } else {
            if shard.ledgers.len() >= shard.sweep_at {
                shard.sweep(self.corrections.earliest(clock));
            }
            act(shard.ledgers.entry(home.clone()).or_default(), now)
        };
        drop(shard);
        self.sweep_in_turn(clock);
        acted
    }

    fn log_time(&self, home: &Home) -> Stamp {
        self.corrections.log_time(home, self.now())
    }

    /// Sweeps the next shard, where that is due: homes that fell silent all at once must not stay until as many new ones come.
    fn sweep_in_turn(&self, clock: Stamp) {
        if let Some(shard) = self.turns.next(clock.as_micros(), SHARDS).and_then(|next| self.shards.get(next)) {
            lock(shard).sweep(self.corrections.earliest(clock));
        }
    }
}

impl Shard {
    fn sweep(&mut self, now: Stamp) {
        self.ledgers.retain(|_, ledger| !ledger.is_spent(now));
        self.ledgers.shrink_to(self.ledgers.len() * 2);
        self.sweep_at = (self.ledgers.len() * 2).max(FEW);
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

/// A ledger is never left half changed by a panic: its parts are total.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for MemoryStore {
    async fn book(&self, ask: &Ask) -> Result<Grant, StoreError> {
        let all = self.told_all(&ask.home);
        let log_time = |clock| self.corrections.correct(ask, clock);
        self.with_time(&ask.home, log_time, |ledger, now| ledger.book(now, all.as_ref(), ask))
    }

    fn at_hand(&self, home: &Home, logs: &[Log], costs: &[u32]) -> Option<Stamp> {
        let all = self.told_all(home);
        self.with(home, |ledger, now| ledger.book_at_hand(now, all.as_ref(), logs, costs).then_some(now))
    }

    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError> {
        self.with(&message.home, |ledger, now| ledger.hand_back(now, message))
    }

    async fn hold(&self, home: &Home, id: MessageId, hold: &Hold) -> Result<Incident, StoreError> {
        self.with(home, |ledger, now| {
            let incident = ledger.hold(now, id, hold);
            self.note_told(home, ledger.told());
            incident
        })
    }

    async fn learn(&self, home: &Home, id: MessageId, log: &Log, lesson: &Lesson) -> Result<Learned, StoreError> {
        let (foreign, unexplained) = match self.with(home, |ledger, now| ledger.learn(now, id, log, lesson))? {
            Lessoned::Before(learned) => return Ok(learned),
            Lessoned::Now { foreign, unexplained } => (foreign, unexplained),
        };
        let all = home.of_upstream();
        let all = all.as_ref().unwrap_or(home);
        let learned = self.with(all, |ledger, now| {
            if unexplained {
                ledger.told_mut().widen(now, lesson);
                self.note_told(all, ledger.told());
            }
            Learned::new(foreign, ledger.told().widened(now))
        });
        if foreign > 0 || unexplained {
            // A copy that came meanwhile has not acted either: the message is remembered from the first step on.
            self.with(home, |ledger, now| ledger.complete(now, id, learned));
        }
        Ok(learned)
    }

    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError> {
        let all = self.told_all(home);
        let shard = lock(self.shard(home));
        let none = Ledger::default();
        Ok(shard.ledgers.get(home).map_or(&none, Box::as_ref).usage(self.log_time(home), all.as_ref(), home, logs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scope::Digest128;

    #[test]
    fn scopes_that_fell_silent_are_forgotten_as_calls_of_others_come() {
        let clock = ManualClock::new(Stamp::from_micros(0));
        let store = MemoryStore::with_clock(clock.clone());
        let logs = [Log::new("calls", [crate::ledger::Term::new(1, 1_000_000)])];
        let call = |scope: &str| store.at_hand(&Home::new("up", Some(scope)), &logs, &[1]).unwrap();
        for scope in 0..20_000_u32 {
            call(&Digest128::of(&scope.to_be_bytes()).to_hex());
        }
        for turn in 1..=20 {
            clock.set(Stamp::from_micros(turn * 2_000_000));
            call("busy");
        }
        let kept = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            (shard.ledgers.len(), shard.ledgers.capacity())
        };
        let kept: Vec<_> = store.shards.iter().map(kept).collect();
        assert_eq!(kept.iter().map(|(homes, _)| homes).sum::<usize>(), 1, "{kept:?}");
        assert!(kept.iter().all(|(_, room)| *room < FEW), "{kept:?}");
    }

    #[test]
    fn scopes_are_spread_over_the_shards() {
        let (store, mut counts) = (MemoryStore::new(), [0; SHARDS]);
        for scope in 0..1_600_u32 {
            let home = Home::new("up", Some(&Digest128::of(&scope.to_be_bytes()).to_hex()));
            let shard = store.shard(&home);
            counts[store.shards.iter().position(|of| std::ptr::eq(of, shard)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    }
}
