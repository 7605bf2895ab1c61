//! What a process reports to the store of an upstream's quotas, and what the store makes of it.

use std::time::Duration;

use super::{Stamp, Term};

/// What an upstream reported of the quotas of one log.
///
/// ```
/// use outgate::ledger::{Learned, QuotaReport, Reply, Report, Term};
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let thirty_left = QuotaReport::new(Term::new(100, 60_500_000), minute, 30, minute);
/// assert_eq!(thirty_left.remaining, 30);
///
/// // A store of one's own that learns nothing.
/// fn learn(report: &Report) -> Reply {
///     println!("{} quotas were told of", report.quotas.len());
///     Reply::Learned(Learned::new(0))
/// }
///
/// fn outside_use(reply: Reply) -> Option<u32> {
///     reply.learned().map(|learned| learned.outside)
/// }
/// # let _ = (learn, outside_use);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// When the call started. `None`: now. What the upstream counted a window ago or more tells nothing.
    pub started: Option<Stamp>,
    /// How long after its start a call may be sent: those that started later than that had not arrived when the upstream
    /// counted.
    pub late: Duration,
    /// What is left, by term.
    pub quotas: Vec<QuotaReport>,
}

/// How much of one term's quota is left, by the upstream's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaReport {
    /// The term.
    pub term: Term,
    /// For how long the upstream counts a call: the term's span without its guard.
    pub window: Duration,
    /// Units that are left.
    pub remaining: u32,
    /// How long until all of them are there again.
    pub reset: Duration,
}

impl QuotaReport {
    /// So many units of a term are left, until it resets; the upstream counts for `window`.
    #[must_use]
    pub const fn new(term: Term, window: Duration, remaining: u32, reset: Duration) -> Self {
        Self { term, window, remaining, reset }
    }
}

/// What a store made of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Learned {
    /// Units that others have used of the term of which they used most.
    pub outside: u32,
}

impl Learned {
    /// So many units used by others.
    #[must_use]
    pub const fn new(outside: u32) -> Self {
        Self { outside }
    }
}

/// What a store made of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Paused {
    /// The upstream's log time when the store answered.
    pub now: Stamp,
    /// Nobody sends before.
    pub until: Stamp,
    /// This refusal began it: no other was known of.
    pub first: bool,
    /// Millionths of the quotas that it leaves as evidence of what the upstream allows: a million, where it is none, or is ignored.
    pub rate: u32,
}

impl Paused {
    /// A pause until then, which this refusal began or only lengthened, and which leaves all of the quotas.
    #[must_use]
    pub const fn new(now: Stamp, until: Stamp, first: bool) -> Self {
        Self { now, until, first, rate: 1_000_000 }
    }

    /// The same, where so many millionths of the quotas are left.
    #[must_use]
    pub const fn leaving(self, rate: u32) -> Self {
        Self { rate, ..self }
    }

    /// How long nobody sends.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.until.since(self.now)
    }
}
