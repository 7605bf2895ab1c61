//! What a process says to a store, and what the store answers.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Again, Cold, Grant, Learned, Log, LogUsage, Looked, MAX_WEIGHT, Pause, Paused, Priority, Processes, Remembered,
    Renewal, Report, ScopeId, SeatLimit, Seats, Slots, Stamp, micros,
};

/// Whose messages a store does not remember: of those that book for nobody, or only look.
pub const NOBODY: u64 = 0;

/// Something that a process says to a store about one upstream.
///
/// ```
/// use outgate::ledger::{Body, Ledger, Log, Message, MessageId, Pause, Refused, Stamp, Term};
/// use std::time::Duration;
///
/// let (mut ledger, now) = (Ledger::new(), Stamp::from_micros(0));
/// let pause = Body::Pause { scope: None, pause: Pause::new(Duration::from_secs(20)) };
/// let message = Message::new("gateway", MessageId::new(7, "pauses", 2).after(1), pause);
/// let paused = ledger.apply(now, &message)?.paused().expect("what a pause is answered by");
/// assert_eq!((paused.wait(), paused.first), (Duration::from_secs(20), true));
///
/// // A number that is not larger than the last is of a message that was lost on its way.
/// let mut late = message;
/// late.id = MessageId::new(7, "pauses", 1);
/// assert_eq!(ledger.apply(now, &late), Err(Refused::Outdated));
///
/// // What changes nothing needs no number.
/// let logs = [Log::new("calls", [Term::new(10, 1_050_000)])];
/// let usage = ledger.apply(now, &Message::new("gateway", MessageId::nobodys(), Body::usage(logs)))?.usage();
/// assert_eq!(usage.and_then(|usage| usage[0].paused).map(|paused| paused.left), Some(Duration::from_secs(20)));
///
/// let release = Body::Release { scope: None, served: None };
/// assert_eq!(ledger.apply(now, &Message::new("gateway", MessageId::new(7, "by hand", 1), release))?.done(), Some(now));
/// let look = Body::Look { scopes: [].into(), since: now };
/// assert!(ledger.apply(now, &Message::new("gateway", MessageId::nobodys(), look))?.looked().is_some());
/// # Ok::<(), Refused>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// Whose logs, limits and pauses: an upstream's, those of upstreams that share limits, or those of one shard of an upstream.
    pub upstream: Arc<str>,
    /// Which message it is: one that comes twice acts once.
    pub id: MessageId,
    /// The newest log time of the upstream that the sender knows: log time is at least this when the store decides.
    pub known: Option<Stamp>,
    /// The most that log time can be now, by all that the sender knows. Said only where the store's clock has leapt ahead of
    /// that; `known` counts more.
    pub latest: Option<Stamp>,
    /// What it says.
    pub body: Body,
}

impl Message {
    /// Refuses what cannot be decided: an ask that charges a caller in other logs than it names, or wants seats for nobody; and
    /// nobody who is there.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        match &self.body {
            Body::Ask(ask) if !ask.is_sound() => Err(Refused::Senseless),
            Body::Ask(ask) if ask.seats.is_some() && self.id.sender == NOBODY => Err(Refused::Senseless),
            Body::Renew(_) if self.id.sender == NOBODY => Err(Refused::Senseless),
            _ => Ok(()),
        }
    }

    /// A message of somebody who knows nothing of the upstream's log time.
    #[must_use]
    pub fn new(upstream: impl Into<Arc<str>>, id: MessageId, body: impl Into<Body>) -> Self {
        Self { upstream: upstream.into(), id, known: None, latest: None, body: body.into() }
    }
}

/// Which message it is, in which stream of its sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MessageId {
    /// Which process sends it; [`NOBODY`] where it need not be remembered.
    pub sender: u64,
    /// Which of the sender's streams it belongs to, one for each of its queues: the next message of a stream follows when
    /// this is answered. Any text without blanks.
    pub stream: Arc<str>,
    /// Larger than that of every earlier message of the stream; below 2⁵³.
    pub number: u64,
    /// The number of the last message of the stream that the store is known to remember; zero where none is known. A store
    /// whose last one is neither this nor the message itself decides nothing: two processes have one name. One that
    /// remembers none decides.
    pub previous: u64,
}

impl MessageId {
    /// The message of this number in a sender's stream.
    #[must_use]
    pub fn new(sender: u64, stream: impl Into<Arc<str>>, number: u64) -> Self {
        Self { sender, stream: stream.into(), number, previous: 0 }
    }

    /// The message after that of the number `previous`, which the store remembers.
    #[must_use]
    pub fn after(self, previous: u64) -> Self {
        Self { previous, ..self }
    }

    /// A message that need not be remembered.
    #[must_use]
    pub fn nobodys() -> Self {
        Self::new(NOBODY, Arc::default(), 0)
    }

    /// Whether it is that of such a message.
    pub(crate) const fn is_nobodys(&self) -> bool {
        self.sender == NOBODY
    }
}

/// What a message says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Body {
    /// May these callers send, and when? Answered by [`Reply::Grant`].
    Ask(Ask),
    /// Nobody sends to a scope, or to the whole upstream, for a while. Answered by [`Reply::Paused`].
    Pause {
        /// Who: `None` is the whole upstream.
        scope: Option<ScopeId>,
        /// For how long, and why.
        pause: Pause,
    },
    /// Pauses end before their time. Answered by [`Reply::Done`].
    Release {
        /// Whose: `None` is the whole upstream, and all its scopes.
        scope: Option<ScopeId>,
        /// When the call started that [looked](super::Verdict::Looks) whether the pause still held, and was served. `None`:
        /// somebody ends pauses and lowered rates by hand.
        served: Option<Stamp>,
    },
    /// The quotas of a scope are lowered by hand for a while. Answered by [`Reply::Done`].
    SlowDown {
        /// Whose: `None` is the whole upstream, with all its scopes.
        scope: Option<ScopeId>,
        /// Millionths of the quotas that are left, of a million.
        factor: u32,
        /// For how long.
        lasting: Duration,
    },
    /// What counts in some logs is forgotten by hand, with what was learned of their scope: whoever asks next finds them empty. Answered by
    /// [`Reply::Done`].
    Reset {
        /// Whose logs: `None` are the whole upstream's own.
        scope: Option<ScopeId>,
        /// Which of them, by what they count.
        units: Arc<[Arc<str>]>,
    },
    /// Does anybody still have to wait for a pause? Changes nothing. Answered by [`Reply::Looked`].
    Look {
        /// Scopes that the process knows to be paused, beside the whole upstream: as many as one likes to look at.
        scopes: Arc<[ScopeId]>,
        /// What [`Looked::now`](super::Looked::now) said the last time: scopes that were released since are told.
        since: Stamp,
    },
    /// What the upstream reported of a log. Answered by [`Reply::Learned`].
    Report {
        /// Which log.
        log: Log,
        /// What it reported.
        report: Report,
    },
    /// What do these logs hold, and who holds the seats of these limits? Changes nothing. Answered by [`Reply::Usage`].
    Usage {
        /// The logs, those of one scope next to each other, the whole upstream's first.
        logs: Arc<[Log]>,
        /// Limits on calls in flight.
        seats: Arc<[SeatLimit]>,
    },
    /// The sender is there, with who waits in it, or it is gone. Answered by [`Reply::Renewed`].
    Renew(Renewal),
    /// Which processes use an upstream? Changes nothing. Answered by [`Reply::Processes`].
    Processes {
        /// The upstream, which has the ledger's name but where several share limits.
        upstream: Arc<str>,
    },
}

impl Body {
    /// What do these logs hold?
    #[must_use]
    pub fn usage(logs: impl Into<Arc<[Log]>>) -> Self {
        Self::Usage { logs: logs.into(), seats: [].into() }
    }
}

impl From<Ask> for Body {
    fn from(ask: Ask) -> Self {
        Self::Ask(ask)
    }
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// To an ask.
    Grant(Grant),
    /// To a pause.
    Paused(Paused),
    /// To a release, a rate by hand, or a reset: done, at this log time.
    Done(Stamp),
    /// To a look.
    Looked(Looked),
    /// To a report.
    Learned(Learned),
    /// To a question for usage.
    Usage {
        /// One for each log.
        logs: Vec<LogUsage>,
        /// Seats that are held of each limit.
        seats: Vec<u32>,
    },
    /// To a renewal: how many processes there are. Some that fell silent within the last seconds may be among them.
    Renewed(u32),
    /// To a question for the processes.
    Processes(Processes),
}

impl Reply {
    /// The answer to an ask.
    #[must_use]
    pub fn grant(self) -> Option<Grant> {
        if let Self::Grant(grant) = self { Some(grant) } else { None }
    }

    /// The answer to a pause.
    #[must_use]
    pub fn paused(self) -> Option<Paused> {
        if let Self::Paused(paused) = self { Some(paused) } else { None }
    }

    /// Since when it is done: the answer to a release, to a rate by hand, or to a reset.
    #[must_use]
    pub fn done(self) -> Option<Stamp> {
        if let Self::Done(now) = self { Some(now) } else { None }
    }

    /// The answer to a look.
    #[must_use]
    pub fn looked(self) -> Option<Looked> {
        if let Self::Looked(looked) = self { Some(looked) } else { None }
    }

    /// The answer to a report.
    #[must_use]
    pub fn learned(self) -> Option<Learned> {
        if let Self::Learned(learned) = self { Some(learned) } else { None }
    }

    /// The answer to a question for the usage of logs.
    #[must_use]
    pub fn usage(self) -> Option<Vec<LogUsage>> {
        if let Self::Usage { logs, .. } = self { Some(logs) } else { None }
    }

    /// How many processes there are: the answer to a renewal.
    #[must_use]
    pub fn renewed(self) -> Option<u32> {
        if let Self::Renewed(processes) = self { Some(processes) } else { None }
    }

    /// The answer to a question for the processes.
    #[must_use]
    pub fn processes(self) -> Option<Processes> {
        if let Self::Processes(processes) = self { Some(processes) } else { None }
    }
}

impl Reply {
    /// The same answer to a message that comes again, later.
    pub(crate) fn again(self, now: Stamp) -> Self {
        match self {
            Self::Grant(grant) => Self::Grant(grant.again(now)),
            Self::Paused(paused) => Self::Paused(Paused { now, ..paused }),
            Self::Done(_) => Self::Done(now),
            other => other,
        }
    }
}

/// Why a store decides nothing on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// A later message of its stream has come before it.
    Outdated,
    /// Another process sends under the same name.
    Duplicate,
    /// An ask that charges a caller in other logs than it names, or that wants seats for nobody; a renewal of nobody.
    Senseless,
}

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
    /// For each scope of the ask, in the order of its logs, what the last [`Grant::counted`] said;
    /// left out where none did.
    pub counted: Vec<Stamp>,
    /// Each caller needs a seat of these limits as well; and so many the queue holds. Where it does, no slot is granted that
    /// starts more than 20 ms, or [`ahead`](Self::ahead), from the earliest start that is of use. An ask that names no log is for seats
    /// alone: no pause concerns it.
    pub seats: Option<Seats>,
    /// For how many its process counts where limits are shared: 1 to 100, the same in all of its asks.
    pub weight: u32,
    /// What the store must hold: where it does not, data was lost, and nobody starts until all counts no more that may be missing. Windows
    /// longer than 10 s are not waited for, but for 6 s: who hears of the loss says [again](Self::again) what it was granted.
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
    fn is_sound(&self) -> bool {
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
