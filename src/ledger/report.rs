//! What a process tells the store of an upstream's reports, and what the store makes of it.

use std::time::Duration;

use super::Stamp;
use super::Term;

/// What an upstream reported of the quotas of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lesson {
    /// When the call started. `None`: now. What the upstream counted a window ago or more tells nothing.
    pub started: Option<Stamp>,
    /// How long after its start a call may be sent: those that started later than that had not arrived when the upstream
    /// counted.
    pub late: Duration,
    /// What is left, by term.
    pub reports: Vec<Report>,
    /// The call was refused, and nothing was held for it yet: where nothing explains it, the guard is widened. Of calls from
    /// before it was widened, one alone does so.
    pub refused: bool,
    /// For how long a wider guard lasts, narrowing evenly; at least a microsecond.
    pub memory: Duration,
}

/// How much of one term's quota is left, by the upstream's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The term.
    pub term: Term,
    /// For how long the upstream counts a call: the term's span without its guard.
    pub window: Duration,
    /// Units that are left.
    pub remaining: u32,
    /// How long until all of them are there again.
    pub reset: Duration,
}

impl Report {
    /// So many units of a term are left, until it resets; the upstream counts for `window`.
    #[must_use]
    pub const fn new(term: Term, window: Duration, remaining: u32, reset: Duration) -> Self {
        Self { term, window, remaining, reset }
    }
}

/// What a store made of a lesson.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Learned {
    /// Units that others have used of the term of which they used most.
    pub foreign: u32,
    /// By how many thousandths every span is wider now.
    pub widened: u32,
}

impl Learned {
    /// So many units used by others, and spans wider by so many thousandths.
    #[must_use]
    pub const fn new(foreign: u32, widened: u32) -> Self {
        Self { foreign, widened }
    }
}

/// What a store made of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// How long nobody sends.
    pub wait: Duration,
    /// This refusal began it: no other was known of.
    pub first: bool,
}

impl Incident {
    /// A hold for so long, which this refusal began or only lengthened.
    #[must_use]
    pub const fn new(wait: Duration, first: bool) -> Self {
        Self { wait, first }
    }
}
