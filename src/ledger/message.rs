//! What a process and its store say to each other.

use std::sync::Arc;
use std::time::Duration;

use super::Stamp;
use super::micros;
use super::{Cause, Home, Log};

/// Callers next to each other in a line that want the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// How many callers.
    pub callers: u32,
    /// What each takes of each log of the ask, in the ask's order; at least one unit, at most the smallest quota.
    pub costs: Arc<[u32]>,
    /// Refuse a caller whose slot would be further away than this, or than [`Ask::ahead`] where that is more. `None`: it waits.
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

/// Which message it is: a store that has seen it before acts no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageId {
    /// Which process sends it.
    pub sender: u64,
    /// Larger than that of every earlier message of the same kind, of the same sender to the same home. Asks and hand-backs
    /// are of one kind, holds and lessons of the other.
    pub number: u64,
}

impl MessageId {
    /// The message of this number in a sender's stream.
    #[must_use]
    pub const fn new(sender: u64, number: u64) -> Self {
        Self { sender, number }
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
    /// The number of the sender's last message to this home that the store is known to remember; zero where none is known. A
    /// store that remembers another decides nothing: two processes have one name.
    pub previous: u64,
    /// The logs that every caller needs a slot in: all or none.
    pub logs: Arc<[Log]>,
    /// The callers, first come first.
    pub runs: Vec<Run>,
    /// How far ahead of the earliest start that is of use a slot may be booked.
    pub horizon: Duration,
    /// No start before so long from now is of use: the answer takes as long to arrive.
    pub ahead: Duration,
    /// The newest log time that the sender was told of the upstream: no less may it be when this is decided.
    pub known: Option<Stamp>,
    /// What log time is now at the latest, by all that the sender knows: said where the store's clock has leapt ahead of that.
    pub latest: Option<Stamp>,
    /// Slots that nobody here wants: they are handed back before anything is booked.
    pub back: Vec<Slots>,
    /// The first caller needs more than one unit and was put off before: let nobody else delay it again.
    pub insist: bool,
}

impl Ask {
    /// An ask for one caller after another, with a horizon of 250 ms.
    #[must_use]
    pub fn new(home: Home, sender: u64, number: u64, logs: impl Into<Arc<[Log]>>, runs: Vec<Run>) -> Self {
        let horizon = Duration::from_millis(250);
        let (ahead, back) = (Duration::ZERO, Vec::new());
        Self {
            home,
            sender,
            number,
            previous: 0,
            logs: logs.into(),
            runs,
            horizon,
            ahead,
            known: None,
            latest: None,
            back,
            insist: false,
        }
    }

    /// How far ahead of now it may book.
    pub(crate) fn reach(&self) -> i64 {
        micros(self.ahead).saturating_add(micros(self.horizon))
    }

    /// Callers in all runs.
    #[cfg(feature = "redis")]
    pub(crate) fn callers(&self) -> u32 {
        self.runs.iter().map(|run| run.callers).sum()
    }

    /// For how long the longest log of the ask counts an entry.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn retention(&self) -> i64 {
        self.logs.iter().map(Log::retention).max().unwrap_or(0)
    }
}

/// The store's answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The upstream's log time when the store answered: its clock, corrected. A slot's wait is its start less this.
    pub now: Stamp,
    /// The answers to the first callers, in their order, equal neighbours together. Callers without an answer wait as well.
    pub answers: Vec<Answer>,
    /// The earliest start of the first caller that waits; `now` or earlier when there is none.
    pub next: Stamp,
    /// Until when nobody sends at all, and why.
    pub held: Option<(Stamp, Cause)>,
    /// How many other processes have callers that wait.
    pub contenders: u32,
}

/// What became of some callers next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// How many callers.
    pub callers: u32,
    /// Granted: they start then. Refused: they could have started then. Waiting: the first caller that waits may start then.
    pub start: Stamp,
    /// Whether they hold a slot.
    pub granted: bool,
    /// Whether they wait, because somebody behind them was granted what does not delay them. If not, and they hold no slot, their
    /// `max_wait` was too short.
    pub waits: bool,
}

impl Answer {
    /// An answer to some callers.
    #[must_use]
    pub const fn new(callers: u32, start: Stamp, granted: bool) -> Self {
        Self { callers, start, granted, waits: false }
    }

    /// Some callers wait, the first of all that wait not to start before `start`.
    #[must_use]
    pub const fn waiting(callers: u32, start: Stamp) -> Self {
        Self { callers, start, granted: false, waits: true }
    }

    /// Whether the same became of others.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.start, self.granted, self.waits) == (other.start, other.granted, other.waits)
    }
}

impl Grant {
    /// An answer given at `now`.
    #[must_use]
    pub const fn new(now: Stamp, answers: Vec<Answer>, next: Stamp) -> Self {
        Self { now, answers, next, held: None, contenders: 0 }
    }

    /// Whether an ask of so many callers has changed anything by this answer.
    pub(crate) fn leaves_traces(&self, callers: usize) -> bool {
        (self.answered() as usize) < callers || self.answers.iter().any(|answer| answer.granted)
    }

    /// Callers that were granted or refused.
    #[must_use]
    pub fn answered(&self) -> u32 {
        self.answers.iter().filter(|answer| !answer.waits).map(|answer| answer.callers).sum()
    }

    /// Callers before the first that waits.
    pub(crate) fn before_waiting(&self) -> u32 {
        self.answers.iter().take_while(|answer| !answer.waits).map(|answer| answer.callers).sum()
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
    /// The number of the sender's last message to this home that the store is known to remember; zero where none is known. A
    /// store that remembers another decides nothing: two processes have one name.
    pub previous: u64,
    /// The logs that the slots were booked in.
    pub logs: Arc<[Log]>,
    /// What is handed back.
    pub slots: Vec<Slots>,
}

impl HandBack {
    /// A message that hands back slots of some logs.
    #[must_use]
    pub fn new(home: Home, sender: u64, number: u64, logs: impl Into<Arc<[Log]>>, slots: Vec<Slots>) -> Self {
        Self { home, sender, number, previous: 0, logs: logs.into(), slots }
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
    /// Units missing from the quota, because others have used them.
    pub foreign: u32,
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
    /// So many units used, by us and by others, and so long until the next.
    #[must_use]
    pub const fn new(used: u32, foreign: u32, next: Duration) -> Self {
        Self { used, foreign, next }
    }
}
