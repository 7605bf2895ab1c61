//! What waits behind a message until it is answered: several pauses are one, and of several reports the newest stays.

use std::time::Duration;

use tokio::time::Instant;

use super::known::KnownPause;
use super::{Effect, Whom};
use crate::ledger::{Cause, Log, Pause, QuotaReport, Reason, Report, Stamp, micros};
use crate::queue::resend::MEMORY;

/// A longer wait is too long for the clock.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// What only lengthens a pause, or is evidence, is told no later than this.
const LONGEST_GATHERING: Duration = Duration::from_secs(1);

/// What is told so much later than it was said, says when: the store would take it as of now.
const MOMENT: Duration = Duration::from_secs(1);

/// What a message says.
#[derive(Debug)]
pub(super) enum What {
    Pausing(Pausing),
    Reporting(Reporting),
}

impl What {
    pub(super) fn take_tickets(&mut self) -> Vec<u64> {
        match self {
            Self::Pausing(pausing) => pausing.take_tickets().collect(),
            Self::Reporting(reporting) => std::mem::take(&mut reporting.tickets),
        }
    }

    /// Whether it has to say when it was said, and nobody knows yet by the store's clock.
    pub(super) fn needs_date(&self, now: Instant) -> bool {
        let said = match self {
            Self::Pausing(pausing) => pausing.undated,
            Self::Reporting(Reporting { reported, .. }) => reported.report.started.is_none().then_some(reported.said),
        };
        said.is_some_and(|said| said + MOMENT < now)
    }

    /// Log time was this at `now` or before: it is of when it was said, or of earlier. A release since then it does not undo.
    pub(super) fn date(&mut self, stamp: Stamp, now: Instant) {
        let log_time = |said: Instant| stamp.plus(-micros(now.saturating_duration_since(said)));
        match self {
            Self::Pausing(Pausing { undated, pause, .. }) => {
                pause.started = pause.started.max(undated.take().map(log_time));
            }
            Self::Reporting(Reporting { reported: Reported { report, said, .. }, .. }) => {
                report.started.get_or_insert(log_time(*said));
            }
        }
    }
}

/// Pauses of the same callers, as one: whoever is told of it does what it would have done by all of them.
#[derive(Debug)]
pub(super) struct Pausing {
    /// When it ends, by how many refusals came in a row: the first stands for one, the last for more than there are.
    ends: Vec<Instant>,
    /// Until when the upstream told to wait, where that is longer.
    told: Option<Instant>,
    pause: Pause,
    /// What the same responses reported, that of the first before all others.
    followers: Vec<Follower>,
    /// When it was said last, and how many releases were known then.
    said: Instant,
    releases: u64,
    /// When it was said last of a call that nobody knows the start of: it is of then.
    undated: Option<Instant>,
}

/// What is reported once a pause is known.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) whom: Whom,
    pub(super) report: Option<Reported>,
    pub(super) tickets: Vec<u64>,
}

impl Pausing {
    /// A pause from now on, when so many releases were known.
    pub(super) fn new(pause: Pause, now: Instant, follower: Follower, releases: u64) -> Self {
        let ends = pause.waits.iter().map(|&wait| now + wait.min(LONGEST)).collect();
        let undated = pause.started.is_none().then_some(now);
        let told = Some(pause.told).filter(|told| !told.is_zero()).map(|told| now + told.min(LONGEST));
        Self { ends, told, pause, followers: vec![follower], said: now, releases, undated }
    }

    /// This pause and a later one.
    pub(super) fn and(mut self, mut later: Self) -> Self {
        let causes = (self.pause.cause, later.pause.cause);
        self.is_first_after(causes.1);
        later.is_first_after(causes.0);
        for nth in 0..self.ends.len().max(later.ends.len()) {
            let ends = [&self.ends, &later.ends].map(|ends| ends.get(nth).or(ends.last()).copied());
            let Some(end) = ends.into_iter().flatten().max() else { continue };
            match self.ends.get_mut(nth) {
                Some(before) => *before = end,
                None => self.ends.push(end),
            }
        }
        self.told = self.told.max(later.told);
        (self.said, self.releases) = (self.said.max(later.said), self.releases.max(later.releases));
        let (pause, other) = (&mut self.pause, &later.pause);
        pause.recovery = pause.recovery.max(other.recovery);
        pause.memory = pause.memory.max(other.memory);
        pause.cause = pause.cause.max(other.cause);
        pause.told = pause.told.max(other.told);
        pause.status = if pause.status == 0 { other.status } else { pause.status };
        pause.evidence = match (pause.evidence.take(), other.evidence.clone()) {
            (Some(one), Some(other)) if later.pause.started >= pause.started => Some(Box::new(other.and(&one))),
            (Some(one), Some(other)) => Some(Box::new(one.and(&other))),
            (one, other) => one.or(other),
        };
        // Whichever started after a pause is the next in a row.
        pause.started = pause.started.max(other.started);
        self.undated = self.undated.max(later.undated);
        for follower in later.followers {
            match self.followers.iter_mut().find(|before| before.whom == follower.whom) {
                Some(before) => before.add(follower),
                None => self.followers.push(follower),
            }
        }
        self
    }

    /// Told with another refusal an overload is none of its own row: it waits as the first would.
    fn is_first_after(&mut self, other: Cause) {
        if self.pause.cause == Cause::Overload && other > Cause::Overload {
            self.ends.truncate(1);
        }
    }

    /// What is left of it.
    pub(super) fn rest(&self, now: Instant) -> Pause {
        let waits = self.ends.iter().map(|end| end.saturating_duration_since(now)).collect();
        // One that says no start is of when it was said.
        let started = self.pause.started.filter(|_| self.undated.is_none());
        let told = self.told.map(|told| told.saturating_duration_since(now)).unwrap_or_default();
        Pause { waits, started, told, ..self.pause.clone() }
    }

    /// What it says of the limits, with the pause, where it does.
    pub(super) fn evidence(&self) -> Option<Self> {
        self.pause.evidence().map(|_| self.alone())
    }

    /// The store may have taken it, and forgotten that: refused calls count once at most.
    pub(super) fn forget_evidence(&mut self) {
        self.pause.evidence = None;
    }

    /// The pause alone, without what is reported after it.
    pub(super) fn alone(&self) -> Self {
        Self { ends: self.ends.clone(), pause: self.pause.clone(), followers: Vec::new(), ..*self }
    }

    pub(super) const fn reason(&self) -> Reason {
        self.pause.reason()
    }

    /// Until when this process keeps to it before the store has answered.
    pub(super) fn until(&self) -> Option<Instant> {
        self.ends.first().copied()
    }

    /// Whether the store, by which nobody waits, took none of it: it was said to calls from before a release.
    pub(super) fn is_void(&self, wait: Duration, now: Instant) -> bool {
        wait.is_zero() && self.until().is_some_and(|until| until > now)
    }

    /// The store has taken it.
    pub(super) fn taken(&self, whom: &Whom) -> Effect {
        Effect::Took(whom.clone(), self.said, self.releases)
    }

    /// Whether nothing is left of it then.
    pub(super) fn is_over(&self, at: Instant) -> bool {
        self.ends.iter().all(|end| *end <= at)
    }

    /// Whether the store knows it all already: to within the time that its answer took. What was told before a release it knows no more.
    pub(super) fn adds_nothing_to(&self, known: &KnownPause) -> bool {
        let own = self.known(known.at, known.until);
        let lasts = own.recovery <= known.recovery && own.memory <= known.memory && own.wished <= known.wished;
        let less = own.cause <= known.cause && own.releases <= known.releases && lasts;
        less && self.is_over(known.until)
    }

    /// When it is told, if it only lengthens a pause that the store knows of: nobody sends before the end of that one, so what
    /// follows in half of the time that is left goes into one message. Not where somebody waits until the store knows.
    pub(super) fn may_wait_for(&self, known: &KnownPause, now: Instant) -> Option<Instant> {
        let is_waited_for = self.followers.iter().any(|follower| !follower.tickets.is_empty());
        (self.pause.cause <= known.cause && self.releases <= known.releases && !is_waited_for)
            .then(|| now + (known.until.saturating_duration_since(now) / 2).min(LONGEST_GATHERING))
    }

    /// What the store knows of it, which pauses until then.
    pub(super) fn known(&self, now: Instant, until: Instant) -> KnownPause {
        KnownPause::new(&self.pause, self.releases, now, until)
    }

    pub(super) fn into_followers(self) -> impl Iterator<Item = Follower> {
        self.followers.into_iter()
    }

    pub(super) fn take_tickets(&mut self) -> impl Iterator<Item = u64> {
        self.followers.iter_mut().flat_map(|follower| std::mem::take(&mut follower.tickets))
    }
}

impl Follower {
    pub(super) fn new(whom: Whom, report: Option<Reported>, ticket: Option<u64>) -> Self {
        Self { whom, report, tickets: ticket.into_iter().collect() }
    }

    fn add(&mut self, later: Self) {
        self.tickets.extend(later.tickets);
        self.report = match (self.report.take(), later.report) {
            (Some(one), Some(other)) => Some(newer(one, other)),
            (one, other) => one.or(other),
        };
    }
}

/// What was reported of a log, and when.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) log: Log,
    pub(super) report: Report,
    pub(super) said: Instant,
}

impl Reported {
    /// Whether it is no news any more, and may be of a message that the store has forgotten.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.said + MEMORY <= now
    }
}

/// A report of a log.
#[derive(Debug)]
pub(super) struct Reporting {
    pub(super) reported: Reported,
    pub(super) tickets: Vec<u64>,
}

impl Reporting {
    /// The newer of this report and another.
    pub(super) fn and(mut self, later: Self) -> Self {
        self.tickets.extend(later.tickets);
        Self { reported: newer(self.reported, later.reported), tickets: self.tickets }
    }
}

/// Of two reports that of the later call, or the only one that says anything. One that says no start is of now. Of calls that started
/// together the one that was counted last was told least, whichever is answered last.
fn newer(one: Reported, other: Reported) -> Reported {
    if one.report.started.is_some() && one.report.started == other.report.started {
        return if is_stricter(&one.report, &other.report) { one } else { other };
    }
    let is_later = match (one.report.started, other.report.started) {
        (None, None) => one.said > other.said,
        (_, None) => false,
        (None, _) => true,
        (Some(one), Some(other)) => one > other,
    };
    let silent = [&one, &other].map(|reported| reported.report.quotas.is_empty());
    let keeps_one = if silent[0] == silent[1] { is_later } else { silent[1] };
    if keeps_one { one } else { other }
}

/// Whether fewer units are left by a report than by another of as many quotas; or more, after a reset between them.
fn is_stricter(one: &Report, other: &Report) -> bool {
    let pairs = || one.quotas.iter().zip(&other.quotas);
    if one.quotas.len() != other.quotas.len() || pairs().any(|(one, other)| one.term != other.term) {
        return one.quotas.len() > other.quotas.len();
    }
    let is_reset = |(one, other): &(&QuotaReport, &QuotaReport)| one.reset.abs_diff(other.reset) > one.window / 2;
    if let Some((one, other)) = pairs().find(is_reset) {
        return one.reset > other.reset;
    }
    let left = pairs().find(|(one, other)| one.remaining != other.remaining);
    left.is_some_and(|(one, other)| one.remaining < other.remaining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::limit::Limit;

    fn report((at, left): (Option<i64>, Option<u32>)) -> Reported {
        resetting(at, left, Duration::from_secs(1))
    }

    fn resetting(at: Option<i64>, left: Option<u32>, reset: Duration) -> Reported {
        let second = Duration::from_secs(1);
        let report = |left| QuotaReport::new(Limit::per_second(9).window_term(), second, left, reset);
        let reports = left.map(report).into_iter().collect();
        let report = Report { started: at.map(Stamp::from_micros), quotas: reports, ..Report::default() };
        Reported { log: Log::new("calls", []), report, said: Instant::now() }
    }

    #[test]
    fn of_calls_that_started_together_that_which_was_counted_after_a_reset_counts() {
        let before = || resetting(Some(1), Some(2), Duration::from_millis(10));
        let after = || resetting(Some(1), Some(8), Duration::from_secs(1));
        for newer in [newer(before(), after()), newer(after(), before())] {
            assert_eq!(newer.report.quotas[0].remaining, 8);
        }
    }

    #[test]
    fn of_two_reports_that_of_the_later_call_counts_and_no_report_is_lost_to_a_refusal_without_any() {
        let left = |newer: &Reported| newer.report.quotas.first().map(|report| report.remaining);
        let cases = [
            ((Some(1), Some(8)), (Some(2), Some(7)), Some(7)),
            ((Some(2), Some(8)), (Some(1), Some(7)), Some(8)),
            ((Some(1), Some(8)), (Some(1), Some(7)), Some(7)),
            ((Some(1), Some(7)), (Some(1), Some(8)), Some(7)),
            ((Some(1), Some(7)), (Some(1), None), Some(7)),
            ((Some(9), Some(8)), (None, Some(7)), Some(7)),
            ((None, Some(8)), (Some(9), Some(7)), Some(8)),
            ((None, Some(8)), (None, Some(7)), Some(7)),
            ((Some(1), Some(8)), (Some(2), None), Some(8)),
            ((Some(2), None), (Some(1), Some(7)), Some(7)),
            ((Some(1), None), (Some(2), None), None),
        ];
        for (one, other, expected) in cases {
            let newer = newer(report(one), report(other));
            assert_eq!(left(&newer), expected, "{one:?} {other:?}");
        }
    }
}
