//! What a throttle asks of the place where its logs are kept, and the laws that every such place obeys.

mod decision;
mod hold;
pub(crate) mod ledger;
mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub(crate) use self::hold::Held;
pub use self::hold::{Cause, Hold};
pub use self::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
use crate::error::StoreError;
use crate::limit::Term;
use crate::log::Stamp;

/// Callers that one ask carries at most.
pub(crate) const MAX_CALLERS: usize = 1_000;
/// Units that one ask carries at most, unless its first caller alone wants more.
pub(crate) const MAX_UNITS: u32 = 10_000;
/// The longest time for which a store remembers the answer to a message.
pub(crate) const MAX_MEMORY: i64 = 60_000_000;
/// The longest that a line which waits for a slot says nothing to the store.
pub(crate) const MAX_SILENCE: i64 = 30_000_000;

/// Keeps the logs: in memory for one process, in Redis for a cluster.
///
/// # Laws
///
/// `outgate::testing::conformance` checks them on any store.
///
/// 1. No half-open interval of a term's span ever holds more than its quota.
/// 2. Slots are given in the order asked.
/// 3. A batch gives what the same asks one by one would.
/// 4. A slot handed back can be given again.
/// 5. Handing back twice, or something never given, changes nothing.
/// 6. An empty log means no wait.
/// 7. A hold delays every later slot and no earlier one.
/// 8. Homes do not affect each other.
/// 9. After the longest span of silence nothing is stored.
/// 10. The answer does not depend on the caller's clock.
/// 11. The same message sent twice acts once, asks and hand-backs alike.
///
/// Every call must end: a store that cannot be reached is an error, not a wait. A call that fails may have acted; its
/// caller sends the same message, with the same number, again.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Books a slot for each caller of the ask that can start within the horizon, in their order.
    ///
    /// # Errors
    ///
    /// When the log could not be reached, or the answer not be read.
    async fn book(&self, ask: &Ask) -> Result<Grant, StoreError>;

    /// Takes slots that nobody wants out of their logs.
    ///
    /// # Errors
    ///
    /// As for [`Store::book`].
    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError>;

    /// Lets no slot of a home start for a while, and says for how long. Only ever lengthens the hold that is there. A hold
    /// on an upstream's home without a scope holds all its scopes.
    ///
    /// # Errors
    ///
    /// As for [`Store::book`].
    async fn hold(&self, home: &Home, hold: &Hold) -> Result<Duration, StoreError>;

    /// Counts what a home's logs hold, without changing anything.
    ///
    /// # Errors
    ///
    /// As for [`Store::book`].
    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError>;
}

/// Whose logs: one upstream and one scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// The upstream, and after a slash the scope.
    name: Arc<str>,
    upstream: usize,
}

impl Home {
    /// The home of an upstream's logs, one for each scope.
    #[must_use]
    pub fn new(upstream: &str, scope: Option<&str>) -> Self {
        let name = scope.map_or_else(|| upstream.into(), |scope| format!("{upstream}/{scope}").into());
        Self { name, upstream: upstream.len() }
    }

    /// The name: the upstream, and after a slash the scope.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The home of the whole upstream, where this is that of a scope.
    #[must_use]
    pub fn of_upstream(&self) -> Option<Self> {
        (self.upstream < self.name.len()).then(|| Self::new(&self.name[..self.upstream], None))
    }

    /// The upstream's part of the name, and the rest.
    #[must_use]
    pub fn split(&self) -> (&str, &str) {
        self.name.split_at(self.upstream)
    }
}

/// A log that is asked for: its name within the home, and its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Log {
    /// The unit that it counts, `calls` by default.
    pub name: Arc<str>,
    /// All of them hold at once; at least one.
    pub terms: Arc<[Term]>,
}

impl Log {
    /// A log that obeys all of `terms`.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, terms: impl Into<Arc<[Term]>>) -> Self {
        Self { name: name.into(), terms: terms.into() }
    }

    /// For how long an entry of this log counts, in microseconds.
    pub(crate) fn retention(&self) -> i64 {
        self.terms.iter().map(|term| term.span).max().unwrap_or(0)
    }

    /// The time that one unit takes by the slowest of the terms, in microseconds.
    pub(crate) fn interval(&self) -> i64 {
        let of_term = |term: &Term| (term.span + i64::from(term.quota) - 1) / i64::from(term.quota.max(1));
        self.terms.iter().map(of_term).max().unwrap_or(0)
    }

    /// The most units that can ever start at once.
    pub(crate) fn largest_cost(&self) -> u32 {
        self.terms.iter().map(|term| term.quota).min().unwrap_or(0)
    }

    /// The most entries that can ever count at once.
    pub(crate) fn largest_quota(&self) -> u32 {
        self.terms.iter().map(|term| term.quota).max().unwrap_or(0)
    }
}

/// Callers next to each other in a line that want the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// How many callers.
    pub callers: u32,
    /// What each takes of each log of the ask, in the ask's order; at least one unit, at most the smallest quota.
    pub costs: Arc<[u32]>,
    /// Refuse a caller whose slot would be further away than this. `None`: it waits.
    pub max_wait: Option<Duration>,
}

impl Run {
    /// So many callers of these costs, who all wait as long as it takes.
    #[must_use]
    pub fn new(callers: u32, costs: impl Into<Arc<[u32]>>) -> Self {
        Self { callers, costs: costs.into(), max_wait: None }
    }

    /// The same callers, refused when their slot is further away than `max_wait`.
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }
}

/// A message of a line: may these callers send, and when?
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// Whose logs.
    pub home: Home,
    /// Which process asks.
    pub sender: u64,
    /// Larger than that of every earlier message of the same sender to the same home.
    pub number: u64,
    /// The logs that every caller needs a slot in: all or none.
    pub logs: Arc<[Log]>,
    /// The callers, first come first.
    pub runs: Vec<Run>,
    /// How far ahead of now a slot may be booked.
    pub horizon: Duration,
    /// The first caller needs more than one unit and was put off before: let nobody else overtake it again.
    pub insist: bool,
}

impl Ask {
    /// An ask for one caller after another, with a horizon of 250 ms.
    #[must_use]
    pub fn new(home: Home, sender: u64, number: u64, logs: impl Into<Arc<[Log]>>, runs: Vec<Run>) -> Self {
        let horizon = Duration::from_millis(250);
        Self { home, sender, number, logs: logs.into(), runs, horizon, insist: false }
    }

    /// Callers in all runs.
    pub(crate) fn callers(&self) -> u32 {
        self.runs.iter().map(|run| run.callers).sum()
    }

    /// For how long the longest log of the ask counts an entry.
    pub(crate) fn retention(&self) -> i64 {
        self.logs.iter().map(Log::retention).max().unwrap_or(0)
    }
}

/// The store's answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The store's clock when it answered. A slot's wait is its start less this.
    pub now: Stamp,
    /// The answers to the first callers, in their order, equal neighbours together. Callers without an answer wait.
    pub answers: Vec<Answer>,
    /// The earliest start of the first caller without an answer; `now` or earlier when there is none.
    pub next: Stamp,
    /// Until when nobody sends at all, and why.
    pub held: Option<(Stamp, Cause)>,
}

/// What became of some callers next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// How many callers.
    pub callers: u32,
    /// Granted: they start then. Refused: they could have started then.
    pub start: Stamp,
    /// Whether they hold a slot. If not, their `max_wait` was too short.
    pub granted: bool,
}

impl Answer {
    /// An answer to some callers.
    #[must_use]
    pub const fn new(callers: u32, start: Stamp, granted: bool) -> Self {
        Self { callers, start, granted }
    }
}

impl Grant {
    /// An answer given at `now`.
    #[must_use]
    pub const fn new(now: Stamp, answers: Vec<Answer>, next: Stamp) -> Self {
        Self { now, answers, next, held: None }
    }

    /// Callers that have an answer.
    #[must_use]
    pub fn answered(&self) -> u32 {
        self.answers.iter().map(|answer| answer.callers).sum()
    }
}

/// A message of a line: nobody here wants these slots.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandBack {
    /// Whose logs.
    pub home: Home,
    /// Which process hands back.
    pub sender: u64,
    /// Larger than that of every earlier message of the same sender to the same home.
    pub number: u64,
    /// The logs that the slots were booked in.
    pub logs: Arc<[Log]>,
    /// What is handed back.
    pub slots: Vec<Slots>,
}

impl HandBack {
    /// A message that hands back slots of some logs.
    #[must_use]
    pub fn new(home: Home, sender: u64, number: u64, logs: impl Into<Arc<[Log]>>, slots: Vec<Slots>) -> Self {
        Self { home, sender, number, logs: logs.into(), slots }
    }

    /// For how long the longest log of the message counts an entry.
    pub(crate) fn retention(&self) -> i64 {
        self.logs.iter().map(Log::retention).max().unwrap_or(0)
    }
}

/// Slots of equal start and cost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slots {
    /// How many slots.
    pub count: u32,
    /// When they start.
    pub start: Stamp,
    /// What each takes of each log.
    pub costs: Arc<[u32]>,
}

impl Slots {
    /// So many slots of this start and these costs.
    #[must_use]
    pub fn new(count: u32, start: Stamp, costs: impl Into<Arc<[u32]>>) -> Self {
        Self { count, start, costs: costs.into() }
    }
}

/// What one log holds, term by term.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogUsage {
    /// One for each term, in their order.
    pub terms: Vec<TermUsage>,
}

/// What one term of a log allows at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TermUsage {
    /// Units that count now: started within the span, or booked.
    pub used: u32,
    /// How long until the next unit may start, by this term and the hold.
    pub next: Duration,
}

impl LogUsage {
    /// What each term of a log allows.
    #[must_use]
    pub const fn new(terms: Vec<TermUsage>) -> Self {
        Self { terms }
    }
}

impl TermUsage {
    /// So many units used, and so long until the next.
    #[must_use]
    pub const fn new(used: u32, next: Duration) -> Self {
        Self { used, next }
    }
}
