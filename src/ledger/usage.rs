//! What logs hold, as a store tells it.

use std::sync::Arc;
use std::time::Duration;

use super::rule::Entries as _;
use super::scope::Scope;
use super::{Cause, Ledger, Log, SeatLimit, Shape, SlidingLog, Slower, Stamp, Term};

/// What one log holds, term by term.
///
/// ```
/// use outgate::ledger::{LogUsage, Looked, Stamp, TermUsage};
/// use std::time::Duration;
///
/// // What a store of one's own answers, where it does not leave it to a ledger.
/// let minute = Duration::from_secs(60);
/// let term = TermUsage::new(100, 20, 70, Duration::ZERO).with_outside_for(Some(minute));
/// assert_eq!((LogUsage::new(vec![term]).rate, term.outside_for), (1_000_000, Some(minute)));
/// # let _ = Looked::new;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogUsage {
    /// One for each term, in their order.
    pub terms: Vec<TermUsage>,
    /// The pause that delays its next unit longest.
    pub paused: Option<PauseUsage>,
    /// Millionths of the quotas that refusals, or somebody by hand, have left.
    pub rate: u32,
    /// That calls come slower since refusals: by that rate, or one after another.
    pub slower: Option<Slower>,
    /// Others name other terms of the log, as while a release is rolled out: the strictest that is not among these, as a window. It
    /// holds for all who ask.
    pub other_term: Option<Term>,
}

/// A pause, as it is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PauseUsage {
    /// How long nobody sends.
    pub left: Duration,
    /// How long the upstream told to wait, from now: longer than `left` where a call looks meanwhile whether it still holds.
    pub told: Duration,
    /// How long ago the store learned of the response that began it.
    pub since: Duration,
    /// Why.
    pub cause: Cause,
    /// The status of the response that began it; `None` where a program said so.
    pub status: Option<u16>,
}

impl PauseUsage {
    /// A pause that lasts so long, and was told for so long, since so long.
    #[must_use]
    pub const fn new(left: Duration, told: Duration, since: Duration, cause: Cause, status: Option<u16>) -> Self {
        Self { left, told, since, cause, status }
    }
}

/// What one term of a log allows at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TermUsage {
    /// Units that the term allows now: its quota, or what a rate leaves of it.
    pub quota: u32,
    /// Units that count now: started within the span, or booked; and those of cold calls, which count longer.
    pub used: u32,
    /// Units missing from the quota, because others have used them.
    pub outside: u32,
    /// How long until the next unit may start, by this term and the pause.
    pub next: Duration,
    /// For how long others have been known to use the quota; `None` where they are not.
    pub outside_for: Option<Duration>,
}

impl LogUsage {
    /// What each term of a log allows, where nothing is paused and no rate lowered.
    #[must_use]
    pub const fn new(terms: Vec<TermUsage>) -> Self {
        Self { terms, paused: None, rate: 1_000_000, slower: None, other_term: None }
    }
}

impl TermUsage {
    /// So many units allowed, so many used by us and by others, and so long until the next; nobody knows of others.
    #[must_use]
    pub const fn new(quota: u32, used: u32, outside: u32, next: Duration) -> Self {
        Self { quota, used, outside, next, outside_for: None }
    }

    /// The same, where others have been known of for so long.
    #[must_use]
    pub const fn with_outside_for(self, outside_for: Option<Duration>) -> Self {
        Self { outside_for, ..self }
    }
}

impl Ledger {
    /// How many seats of each limit are held.
    pub(super) fn seats_taken(&self, now: Stamp, limits: &[SeatLimit]) -> Vec<u32> {
        let of =
            |limit: &SeatLimit| self.scope(limit.scope).and_then(Scope::seats).map_or(0, |holders| holders.taken(now));
        limits.iter().map(of).collect()
    }

    /// What each log holds.
    pub(super) fn usage(&self, now: Stamp, logs: &[Log]) -> Vec<LogUsage> {
        let empty = SlidingLog::new();
        let of_log = |log: &Log| {
            let in_force = self.in_force(now, log.scope);
            let entries = self.scope(log.scope).and_then(|scope| scope.logs.get(&log.unit)).unwrap_or(&empty);
            let of_term = |term: &Term| {
                let alone = Log::new(Arc::clone(&log.unit), [*term]).of(log.scope);
                let (next, left) = (in_force.earliest(now, &alone, 1, entries), in_force.term(log, *term));
                let counted = || match left.shape {
                    Shape::Calendar(calendar) => {
                        let in_span = entries.used(now, left.span);
                        calendar.counts_from(now).map_or(in_span, |since| entries.used_since(since).min(in_span)) as u64
                    }
                    _ => entries.used(now, left.span) as u64 + in_force.cold(log, *term),
                };
                let filled = term.as_bucket().zip(left.as_bucket());
                let filled = filled.map(|(bucket, left)| entries.level(bucket).units(now, left));
                TermUsage {
                    quota: left.quota,
                    used: filled.unwrap_or_else(|| u32::try_from(counted()).unwrap_or(u32::MAX)),
                    outside: in_force.outside(log, *term),
                    next: next.since(now),
                    outside_for: in_force.outside_since(log, *term).map(|since| now.since(since)),
                }
            };
            let terms = log.terms.iter().map(of_term).collect();
            LogUsage {
                paused: in_force.longest_pause(),
                rate: in_force.rate(),
                slower: in_force.slower(),
                other_term: self.named_beside(now, log),
                ..LogUsage::new(terms)
            }
        };
        logs.iter().map(of_log).collect()
    }
}
