//! What a process asks a store for: callers, and what each is charged.

use std::sync::Arc;
use std::time::Duration;

use super::{Again, Cold, Log, MAX_WEIGHT, Priority, Remembered, ScopeId, Seats, Slots, Stamp, micros};

/// Callers next to each other in a queue that want the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// How many callers.
    pub callers: u32,
    /// What each is charged: units of each log of the ask, in the ask's order, at most the smallest quota; zero of a log that
    /// does not concern it, but not of all.
    pub charges: Arc<[u32]>,
    /// Refuse a caller whose slot would be further away than this, or than [`Ask::ahead`] where that is more. `None`: it waits. Nobody
    /// knows when a seat is free: for want of one alone, only who waits for no longer than [`Ask::ahead`] is refused.
    pub max_wait: Option<Duration>,
    /// Which goes first.
    pub priority: Priority,
}

impl Run {
    /// So many callers of these charges and of normal priority, who all wait as long as it takes.
    #[must_use]
    pub fn new(callers: u32, charges: impl Into<Arc<[u32]>>) -> Self {
        Self { callers, charges: charges.into(), max_wait: None, priority: Priority::Normal }
    }

    /// The same callers, refused when their slot is further away than `max_wait`.
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// The same callers, of a priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

/// May these callers send, and when? All charges of a caller get one common start, or none is made.
///
/// ```
/// use outgate::ledger::{Ask, Cold, Ledger, Log, Message, MessageId, Priority, Run, Slots, Stamp, Term, Verdict};
/// use std::time::Duration;
///
/// let (mut ledger, now) = (Ledger::new(), Stamp::from_micros(0));
/// let logs = [Log::new("calls", [Term::new(10, 1_000_000)])];
/// let runs = vec![Run::new(1, [8]).priority(Priority::High), Run::new(2, [1]), Run::new(1, [4]).max_wait(Duration::ZERO)];
/// let ask = Ask::new(logs.clone(), runs);
/// let grant = ledger.apply(now, &Message::new("gateway", MessageId::new(7, "", 1), ask))?.grant().unwrap();
/// let answers: Vec<_> = grant.answers(4).map(|answer| (answer.callers, answer.verdict)).collect();
/// assert_eq!(answers, [(3, Verdict::Granted), (1, Verdict::Refused)]);
/// assert!(answers[0].1.is_granted() && grant.answered(4) == 4);
///
/// // One of them was not sent; and the first opened a connection, so that it counts for longer.
/// let mut back = Ask::hand_back(logs, vec![Slots::new(1, now, [1])]);
/// back.cold = Some(Cold::new(now, now, [8]));
/// ledger.apply(now, &Message::new("gateway", MessageId::new(7, "", 2), back))?;
/// # Ok::<(), outgate::ledger::Refused>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// The logs that callers are charged in: those of one scope next to each other, the whole upstream's first.
    pub logs: Arc<[Log]>,
    /// The callers, first come first, and those of the highest priority before all others.
    pub runs: Vec<Run>,
    /// How far ahead of the earliest start that is of use a slot may be booked.
    pub horizon: Duration,
    /// A start sooner than so long from now is useless: the answer would arrive after it.
    pub ahead: Duration,
    /// Slots that nobody here wants, or units of slots that a call did not use: they are handed back before anything is booked.
    pub back: Vec<Slots>,
    /// Calls of before that probably opened a connection: they count somewhat longer than others.
    pub cold: Option<Cold>,
    /// Units of each log that calls of before used beyond what they were charged; none where there are no such calls. They are
    /// entered after what goes back, and before anything is booked: at the tail of each log, beyond the quota if need be. What is
    /// more than the log's largest quota makes nobody wait longer.
    pub debts: Vec<u32>,
    /// The first caller needs more than one unit and was put off before: it claims its turn, so that no later ask pushes it
    /// back.
    pub insist: bool,
    /// For each scope of the ask, in the order of its logs, what the last [`Grant::counted`](super::Grant::counted) said;
    /// left out where none did.
    pub counted: Vec<Stamp>,
    /// Each caller needs a seat of these limits as well; and so many the queue holds. Where it does, no slot is granted that
    /// starts more than 20 ms, or [`ahead`](Self::ahead), from the earliest start that is of use. An ask that names no log is for seats
    /// alone: no pause concerns it.
    pub seats: Option<Seats>,
    /// For how many its process counts where limits are shared: 1 to 100, the same in all of its asks.
    pub weight: u32,
    /// Its callers go whatever is answered: their terms hold for nobody else.
    pub observes: bool,
    /// What the store must hold: where it does not, data was lost, and nobody starts until all that may be missing has left its window. Windows
    /// longer than 10 s are not waited for, but for 6 s: who hears of the loss [re-reports](Self::again) what it was granted.
    pub remembered: Remembered,
    /// What was granted before a loss that the store has told of; and from then on, that the queue has heard of it.
    pub again: Option<Again>,
}

impl Ask {
    /// An ask for one caller after another, with a horizon of 250 ms.
    #[must_use]
    pub fn new(logs: impl Into<Arc<[Log]>>, runs: Vec<Run>) -> Self {
        Self {
            logs: logs.into(),
            runs,
            horizon: Duration::from_millis(250),
            ahead: Duration::ZERO,
            back: Vec::new(),
            cold: None,
            debts: Vec::new(),
            insist: false,
            counted: Vec::new(),
            seats: None,
            weight: 1,
            observes: false,
            remembered: Remembered::default(),
            again: None,
        }
    }

    /// An ask for nobody, that hands slots back.
    #[must_use]
    pub fn hand_back(logs: impl Into<Arc<[Log]>>, back: Vec<Slots>) -> Self {
        Self { back, ..Self::new(logs, Vec::new()) }
    }

    /// Whether each caller, and each slot that goes back, says units of every log, and those of one scope stand together.
    pub(super) fn is_sound(&self) -> bool {
        let count = self.logs.len();
        let is_together = |at: usize| {
            let (before, scope) = (&self.logs[..at], self.logs[at].scope);
            let is_same = before.last().is_none_or(|log| log.scope == scope);
            // The whole upstream's come first.
            is_same || (scope.is_some() && before.iter().all(|log| log.scope != scope))
        };
        // Who is charged nowhere needs a seat alone.
        let needs = |run: &Run| run.charges.iter().any(|&units| units > 0) || (count == 0 && self.seats.is_some());
        let is_charged = |run: &Run| run.callers > 0 && run.charges.len() == count && needs(run);
        (0..count).all(is_together)
            && self.runs.iter().all(is_charged)
            && self.back.iter().all(|slots| slots.charges.len() == count)
            && self.cold.iter().all(|cold| cold.charges.len() == count)
            && self.seats.iter().all(Seats::is_sound)
            && (self.debts.is_empty() || self.debts.len() == count)
            && [&self.remembered.newest, &self.remembered.apart].iter().all(|of| of.is_empty() || of.len() == count)
            && self.again.iter().all(|again| again.is_sound(count))
            && (1..=MAX_WEIGHT).contains(&self.weight)
    }

    /// How far ahead of now it may book.
    pub(crate) fn reach(&self) -> i64 {
        micros(self.ahead).saturating_add(micros(self.horizon))
    }

    /// The priority of its first caller, which is the highest.
    pub(crate) fn priority(&self) -> Priority {
        self.runs.first().map_or(Priority::Low, |run| run.priority)
    }

    /// Callers in all runs.
    pub(crate) fn callers(&self) -> u32 {
        self.runs.iter().map(|run| run.callers).sum()
    }

    /// For how long the longest log of the ask counts an entry.
    pub(crate) fn retention(&self) -> i64 {
        self.logs.iter().map(Log::retention).max().unwrap_or(0)
    }

    /// The scopes of the logs, in their order.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = Option<ScopeId>> {
        Log::scopes(&self.logs)
    }
}
