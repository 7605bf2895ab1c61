//! What a store answers to an ask.

use std::time::Duration;

use super::{Reason, Seated, Slower, Stamp, Term};

/// The store's answer to an ask.
///
/// ```
/// use outgate::ledger::{Answer, Grant, Reply, Stamp, Verdict};
///
/// // What a store of one's own answers, where it does not leave it to a ledger.
/// let (now, then) = (Stamp::from_micros(0), Stamp::from_micros(1_000_000));
/// let some = Grant::new(now, vec![Answer::granted(2, now), Answer::refused(1, then), Answer::waiting(1, then)], then);
/// assert_eq!(some.answers[0], Answer::new(2, now, Verdict::Granted));
/// assert_eq!(Reply::Grant(Grant::all_now(now)).grant().map(|grant| grant.answered(5)), Some(5));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The upstream's log time when the store answered: its clock, corrected. A slot's wait is its start less this.
    pub now: Stamp,
    /// Everybody starts at [`next`](Self::next), and there is nothing else to say: that was `now` when this was decided.
    pub all_now: bool,
    /// The answers to the first callers, in their order, equal neighbours together. Callers without an answer wait as well. None
    /// where all start now.
    pub answers: Vec<Answer>,
    /// The earliest start of the first caller that waits; `now` or earlier when there is none.
    pub next: Stamp,
    /// When the first could start of those that wait and take less than that one, where it is earlier; and at which place in the ask the run of
    /// the largest of them is.
    pub next_smaller: Option<(Stamp, usize)>,
    /// So long before `next` an ask may be granted, and no earlier. Mostly the horizon; less where the first caller that waits
    /// waits for a log that few share, and must not keep others from the logs that many share.
    pub within: Duration,
    /// Until when nobody sends at all, and why.
    pub paused: Option<(Stamp, Reason)>,
    /// That calls come slower since refusals, where not all start now and no pause lasts: for those who are told that they would wait too long.
    pub slower: Option<Box<Slower>>,
    /// How many other queues, of any process, have callers that wait, in the scope where most do; each with its weight. Of the priority
    /// of the first caller that waits, or that asked, and of higher ones.
    pub contenders: u32,
    /// For each scope of the ask, a receipt: its queue is counted among those whose callers wait, in the period that ends
    /// about then. The next ask says it again, so that the queue is not counted twice.
    pub counted: Vec<Stamp>,
    /// What an ask that wants seats is told of them. Each caller that is granted a start has its seats, too.
    pub seats: Option<Seated>,
    /// Others name other terms of a log of the ask, as while a release is rolled out: the strictest that the ask does not name, as a
    /// window, behind the place of its log. It held for this answer, too.
    pub other_term: Option<Box<(usize, Term)>>,
    /// Whether the message has changed anything: only then is it remembered.
    pub remembered: bool,
    /// The store has lost data: nobody starts until all that may be missing has left its window, or no seat is given until those who hold some
    /// have had the time to re-report them.
    pub lost: bool,
    /// When the last loss was seen of what counts for longer than 10 s, where the queue has not said that it has heard of it; and the
    /// number of the last message of its stream that the store remembers from before this one: what was granted up to that is there. Zero
    /// where nobody can say so. The next ask says [again](super::Ask::again) what was granted before this answer, and is not there.
    pub loss: Option<Box<(Stamp, u64)>>,
    /// By how many microseconds log time is ahead of the store's clock, where that is a second or more, and the ask has calendar windows; else
    /// zero. The next ask names boundaries around what that clock shows.
    pub corrected: i64,
}

/// What became of some callers next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// How many callers.
    pub callers: u32,
    /// Granted: they start then. Refused: they could have started then. Waiting: the first caller that waits may start then.
    pub start: Stamp,
    /// What became of them.
    pub verdict: Verdict,
}

/// What became of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Its `max_wait` is too short.
    Refused,
    /// It holds a slot.
    Granted,
    /// It waits, though somebody behind it, who needs less, was granted.
    Waits,
    /// It holds a slot, as the one call that looks whether a pause still holds: whoever is served says so to the store.
    Looks,
}

impl Verdict {
    /// Whether it holds a slot.
    #[must_use]
    pub const fn is_granted(self) -> bool {
        matches!(self, Self::Granted | Self::Looks)
    }
}

impl Answer {
    /// An answer to some callers.
    #[must_use]
    pub const fn new(callers: u32, start: Stamp, verdict: Verdict) -> Self {
        Self { callers, start, verdict }
    }

    /// So many callers start then.
    #[must_use]
    pub const fn granted(callers: u32, start: Stamp) -> Self {
        Self::new(callers, start, Verdict::Granted)
    }

    /// So many callers could have started then.
    #[must_use]
    pub const fn refused(callers: u32, start: Stamp) -> Self {
        Self::new(callers, start, Verdict::Refused)
    }

    /// So many callers wait, the first of all that wait not to start before `start`.
    #[must_use]
    pub const fn waiting(callers: u32, start: Stamp) -> Self {
        Self::new(callers, start, Verdict::Waits)
    }
}

impl Grant {
    /// An answer given at `now`: the callers without one wait until `next`.
    #[must_use]
    pub fn new(now: Stamp, answers: Vec<Answer>, next: Stamp) -> Self {
        let (within, counted) = (Duration::MAX, Vec::new());
        Self {
            now,
            all_now: false,
            answers,
            next,
            next_smaller: None,
            within,
            paused: None,
            slower: None,
            contenders: 0,
            counted,
            seats: None,
            other_term: None,
            remembered: true,
            lost: false,
            loss: None,
            corrected: 0,
        }
    }

    /// Who takes less than the first caller that waits may go then.
    pub(crate) fn before(self, next_smaller: Option<(Stamp, usize)>) -> Self {
        Self { next_smaller, ..self }
    }

    /// The first caller that waits is granted no earlier than so many microseconds before its start.
    pub(crate) fn within(self, micros: i64) -> Self {
        Self { within: Duration::from_micros(micros.unsigned_abs()), ..self }
    }

    /// Everybody starts now.
    #[must_use]
    pub fn all_now(now: Stamp) -> Self {
        Self { all_now: true, ..Self::new(now, Vec::new(), now) }
    }

    /// The same said again at `now`.
    pub(super) fn again(self, now: Stamp) -> Self {
        let paused = self.paused.filter(|(until, _)| *until > now);
        Self { now, paused, ..self }
    }

    /// The answers to `callers` callers.
    pub fn answers(&self, callers: u32) -> impl Iterator<Item = Answer> {
        let all = self.all_now.then(|| Answer::granted(callers, self.next));
        all.into_iter().chain(self.answers.iter().copied())
    }

    /// Of `callers`, those that were granted or refused.
    #[must_use]
    pub fn answered(&self, callers: u32) -> u32 {
        self.answers(callers).filter(|answer| answer.verdict != Verdict::Waits).map(|answer| answer.callers).sum()
    }
}
