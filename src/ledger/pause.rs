//! Nobody sends for a while, and then at a pace that recovers.

use std::time::Duration;

use super::{Evidence, Stamp, micros};

/// For so many microseconds after a pause another refusal is the next in a row, however short the pause was, as long as that is remembered: who
/// calls seldom, and is refused each time, waits longer and longer, too.
const ROW: i64 = 60_000_000;

/// The share of the limits' rate at which calls resume after a pause, as its inverse.
pub(crate) const RESUMED: f64 = 10.0;

/// No start is put further away than this.
pub(super) const FAR: f64 = 1e15;

/// What a process tells the store when an upstream refuses: nobody sends for a while.
///
/// ```
/// use outgate::ledger::{Cause, Evidence, Log, Pause, PauseLeft, PauseUsage, Paused, Reason, Stamp, Term};
/// use std::time::Duration;
///
/// let (second, term) = (Duration::from_secs(1), Term::new(40, 1_050_000));
/// // A 429 that no header explains is evidence of how much the upstream allows.
/// let evidence = Evidence::new(Log::new("calls", [term]), 1, vec![(term, second)]);
/// let mut pause = Pause::new(2 * second);
/// (pause.cause, pause.status, pause.evidence) = (Cause::Refusal, 429, Some(Box::new(evidence)));
///
/// // What a store says of it: to who reported it, and to whoever asks. As it is evidence, two thirds of the quota are left.
/// let paused = Paused::new(Stamp::from_micros(0), Stamp::from_micros(2_000_000), true).leaving(666_666);
/// assert_eq!(paused.wait(), pause.waits[0]);
/// let left = PauseLeft::new(second, Reason::new(pause.cause, pause.status));
/// let usage = PauseUsage::new(second, 2 * second, second, left.cause, left.status);
/// assert_eq!((usage.left, usage.status), (left.left, Some(429)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// How long, by how many refusals came in a row: the first stands for one, the last for more than there are. Overloads are counted apart from
    /// all others.
    pub waits: Vec<Duration>,
    /// For how long after it calls come slower than the limits allow: at first at a tenth of the rate, growing evenly; none later after the
    /// one before than a tenth of what is left of this time.
    pub recovery: Duration,
    /// For how long after it a refusal may be the next in a row; the recovery at least. It is, where its call started within a minute, or twice
    /// as long as the wait, or the recovery, or where the pause was for what bars us: between others calls were served. It is not where its
    /// call started as long after the pause as that had lasted, and a whole quota of the shortest of its windows, ten units at least,
    /// between: the log of its evidence shows that for 10 s longer than the window.
    pub memory: Duration,
    /// Why, for whoever waits meanwhile.
    pub cause: Cause,
    /// When the refused call started: one from before the end of a pause belongs to the same incident, and one from before a
    /// release says nothing any more. `None`: now.
    pub started: Option<Stamp>,
    /// For how long the upstream told to wait, where that is longer than the pause: at its end one call looks whether it still
    /// holds, and everybody else waits for as long again.
    pub told: Duration,
    /// The status of the response, for whoever asks why; zero where there was none.
    pub status: u16,
    /// What the refusal says of the limits, where it was for a quota and nothing explains it; of no calls where it says nothing of them, and
    /// the log alone shows whether others were served since the pause before.
    pub evidence: Option<Box<Evidence>>,
}

impl Pause {
    /// A pause of this length, after which calls come at full rate.
    #[must_use]
    pub fn new(wait: Duration) -> Self {
        Self {
            waits: vec![wait],
            recovery: Duration::ZERO,
            memory: Duration::ZERO,
            cause: Cause::Refusal,
            started: None,
            told: Duration::ZERO,
            status: 0,
            evidence: None,
        }
    }
}

impl Pause {
    /// Why nobody sends.
    pub(crate) const fn reason(&self) -> Reason {
        Reason::new(self.cause, self.status)
    }

    /// What it says of the limits.
    pub(crate) fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_deref().filter(|evidence| evidence.calls > 0)
    }

    /// The log that shows what was served before, where there is one.
    pub(crate) fn log_of_calls(&self) -> Option<&Evidence> {
        self.evidence.as_deref().filter(|evidence| !evidence.windows.is_empty())
    }
}

/// Why nobody sends for a while; graver causes are greater.
///
/// ```
/// use outgate::{Cause, Error};
///
/// /// What to write into the log of a worker whose call was not sent.
/// fn advice(error: &Error) -> &'static str {
///     match error {
///         Error::Barred { cause: Cause::Spend, .. } => "raise the spending limit",
///         Error::Barred { cause: Cause::Ban, .. } => "ask the upstream why it bans us",
///         _ => "try again later",
///     }
/// }
/// # let _ = advice;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// The upstream is busy, and asks to wait: a 503, whatever is left of its quota.
    Overload,
    /// The upstream refused a call, mostly for its quota: wait.
    #[default]
    Refusal,
    /// What may be spent is spent: waiting does not help.
    Spend,
    /// The upstream bans us: waiting may help, calling makes it worse.
    Ban,
}

impl Cause {
    /// What it is called in errors.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Overload => "an overload",
            Self::Refusal => "a refusal",
            Self::Spend => "a spending limit",
            Self::Ban => "a ban",
        }
    }
}

/// Why nobody sends for a while, and by which response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// What the upstream said.
    pub cause: Cause,
    /// The status of the response that began the pause; `None` where a program said so.
    pub status: Option<u16>,
}

impl Reason {
    /// What it is called in errors and traces. A refusal without a response is what a program reports, or somebody says by hand.
    pub(crate) const fn words(self) -> &'static str {
        match (self.cause, self.status) {
            (Cause::Refusal, None) => "a pause by hand, or by a program",
            (cause, _) => cause.words(),
        }
    }

    /// A cause, by a response of this status; zero where there was none.
    #[must_use]
    pub const fn new(cause: Cause, status: u16) -> Self {
        Self { cause, status: if status == 0 { None } else { Some(status) } }
    }

    /// Of two the graver; of two that are equally grave, this one.
    #[must_use]
    pub(crate) fn or_graver(self, other: Self) -> Self {
        if other.cause > self.cause { other } else { self }
    }
}

/// What is left of a pause, and why it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PauseLeft {
    /// How long nobody sends.
    pub left: Duration,
    /// Why.
    pub cause: Cause,
    /// The status of the response that began it; `None` where a program said so.
    pub status: Option<u16>,
}

impl PauseLeft {
    /// So much is left, for this reason.
    #[must_use]
    pub const fn new(left: Duration, Reason { cause, status }: Reason) -> Self {
        Self { left, cause, status }
    }

    pub(crate) const fn reason(self) -> Reason {
        Reason { cause: self.cause, status: self.status }
    }
}

/// A pause as a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pausing {
    /// No start before this.
    pub(crate) until: Stamp,
    /// Microseconds after that in which calls come slower.
    pub(crate) recovery: i64,
    /// Refusals in a row, but for overloads; and overloads.
    pub(crate) refusals: usize,
    pub(crate) overloads: usize,
    /// A refusal after that is the first again.
    pub(crate) forgotten: Stamp,
    pub(crate) cause: Cause,
    /// When its first refusal was told, and the status of that response.
    pub(crate) began: Stamp,
    pub(crate) status: u16,
    /// Until then the upstream told to wait. Where that is later than `until`, one call starts at `until` and looks whether it
    /// still holds; for so many microseconds nobody else does.
    pub(crate) told: Stamp,
    pub(crate) again: i64,
    /// When the call starts that looks, since the last refusal.
    pub(crate) look: Stamp,
}

impl Pausing {
    /// Whether another refusal belongs to the incident of a pause: while it lasts, or of a call from before its end.
    pub(crate) fn is_same(before: Option<Self>, now: Stamp, started: Option<Stamp>) -> bool {
        before.is_some_and(|before| before.until > now || started.is_some_and(|started| started < before.until))
    }

    /// Whether a refusal of a call that started then, of another incident, is the next in a row. What bars us is nothing that happens now
    /// and then.
    fn is_followed_by(&self, started: Stamp) -> bool {
        let follows_within = self.recovery.max(self.again.saturating_mul(2)).max(ROW);
        self.cause > Cause::Refusal || started <= self.told.plus(follows_within)
    }

    /// The pause after another refusal at `now`, after which calls come slower for `recovery` microseconds at least. It only ever
    /// lengthens, and keeps the graver cause. What was served before the refusal may end the row, but of what bars us.
    pub(crate) fn after(before: Option<Self>, now: Stamp, pause: &Pause, (recovery, ends_row): (i64, bool)) -> Self {
        let incident = before.filter(|_| Self::is_same(before, now, pause.started));
        let row = before.filter(|before| before.is_followed_by(pause.started.unwrap_or(now)));
        let row = row.filter(|before| !ends_row || before.cause > Cause::Refusal);
        let (mut refusals, mut overloads) = incident.or(row).map_or((0, 0), |of| (of.refusals, of.overloads));
        let in_a_row = if pause.cause == Cause::Overload { &mut overloads } else { &mut refusals };
        *in_a_row = if incident.is_some() { (*in_a_row).max(1) } else { *in_a_row + 1 };
        let wait = micros(pause.waits.get(*in_a_row - 1).or(pause.waits.last()).copied().unwrap_or_default());
        let mut next = Self {
            until: now.plus(wait),
            recovery: micros(pause.recovery).max(recovery),
            refusals,
            overloads,
            forgotten: now,
            cause: pause.cause,
            began: incident.map_or(now, |of| of.began),
            status: incident.map_or(pause.status, |of| of.status),
            told: now.plus(micros(pause.told)),
            again: wait,
            look: Stamp::NEVER,
        };
        if let Some(before) = before {
            next.cause = if before.until > now { before.cause.max(next.cause) } else { next.cause };
            (next.until, next.recovery) = (next.until.max(before.until), next.recovery.max(before.recovery));
        }
        if let Some(of) = incident {
            (next.told, next.again) = (next.told.max(of.told), next.again.max(of.again));
        }
        next.told = next.told.max(next.until);
        next.forgotten = next.told.plus(next.recovery.max(micros(pause.memory)));
        next.forgotten = before.map_or(next.forgotten, |before| before.forgotten.max(next.forgotten));
        next
    }

    /// Why nobody sends.
    pub(crate) const fn reason(&self) -> Reason {
        Reason::new(self.cause, self.status)
    }

    /// Whether a call that starts then looks whether the pause still holds.
    pub(crate) fn is_looked_at(&self, start: Stamp) -> bool {
        self.told > start.max(self.until)
    }

    /// The pause after the call that was to look then did not: another may look at once.
    pub(crate) fn not_looked(self, now: Stamp, start: Stamp) -> Self {
        if self.look == start { Self { until: start.max(now), look: Stamp::NEVER, ..self } } else { self }
    }

    /// Whether a call that started then and was served shows that it holds no more: it was one that looked.
    pub(crate) fn is_ended_by(&self, started: Stamp) -> bool {
        self.told > self.began.plus(self.again) && started >= self.began.plus(self.again)
    }

    /// The pause after a call that looks, which starts then: for as long again nobody else does.
    pub(crate) fn looked(self, start: Stamp) -> Self {
        Self { until: start.plus(self.again.max(1)).min(self.told), look: start, ..self }
    }

    /// When calls come at full rate again.
    pub(crate) const fn over(&self) -> Stamp {
        self.until.plus(self.recovery)
    }

    /// The earliest start of `units`, in a log whose newest entry is `newest` and whose limits allow one each `interval`:
    /// after the pause, one after another, at a tenth of the rate, which grows to all of it by the end of the recovery. None waits for more
    /// than a tenth of what is left of that: else slow limits would let nobody start, and then all at once.
    ///
    /// The arithmetic is that of Lua, operation by operation, whose numbers are floats.
    pub(crate) fn earliest(&self, newest: Option<Stamp>, interval: i64, units: u64) -> Stamp {
        let (base, elapsed, gaps) = match newest.filter(|newest| *newest >= self.until) {
            None => (self.until, 0, units.saturating_sub(1)),
            Some(newest) => (newest, newest.as_micros() - self.until.as_micros(), units),
        };
        if elapsed >= self.recovery {
            return self.until;
        }
        let recovery = float(self.recovery);
        let slower = RESUMED * recovery / (recovery + (RESUMED - 1.0) * float(elapsed));
        let gap = float(interval) * slower * float(i64::try_from(gaps).unwrap_or(i64::MAX));
        base.plus(whole(gap.min(float(self.recovery - elapsed) / RESUMED).ceil()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "as in Lua")]
pub(super) const fn float(integer: i64) -> f64 {
    integer as f64
}

#[expect(clippy::cast_possible_truncation, reason = "whole, and at most FAR")]
pub(super) const fn whole(float: f64) -> i64 {
    float as i64
}
