//! Nobody sends for a while, and then at a pace that recovers.

use std::time::Duration;

use super::{Stamp, micros};

/// The share of the limits' rate at which calls resume after a pause, as its inverse.
pub(crate) const RESUMED: f64 = 10.0;

/// No start is put further away than this.
const FAR: f64 = 1e15;

/// What a process tells the store when an upstream refuses: nobody sends for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// How long, by how many refusals came in a row: the first stands for one, the last for more than there are.
    pub waits: Vec<Duration>,
    /// For how long after it calls come slower than the limits allow: at first at a tenth of the rate, growing evenly.
    pub recovery: Duration,
    /// For how long after it a refusal is the next in a row; the recovery at least.
    pub memory: Duration,
    /// Why, for whoever waits meanwhile.
    pub cause: Cause,
    /// When the refused call started: one from before the end of a pause belongs to the same incident. `None`: now.
    pub started: Option<Stamp>,
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
        }
    }
}

/// Why nobody sends for a while; graver causes are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// The upstream refused a call, for its quota or because it was busy: wait.
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
            Self::Refusal => "a refusal",
            Self::Spend => "a spending limit",
            Self::Ban => "a ban",
        }
    }
}

/// A pause as a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pausing {
    /// No start before this.
    pub(crate) until: Stamp,
    /// Microseconds after that in which calls come slower.
    pub(crate) recovery: i64,
    /// Refusals in a row.
    pub(crate) refusals: usize,
    /// When the row ends: a refusal after that is the first again.
    pub(crate) forgotten: Stamp,
    pub(crate) cause: Cause,
}

impl Pausing {
    /// The pause after another refusal at `now`, and whether that began it. Refusals while it lasts, or of calls from before
    /// its end, belong to the same incident; another, before it is forgotten, is the next in a row. It only ever lengthens,
    /// and keeps the graver cause.
    pub(crate) fn after(before: Option<Self>, now: Stamp, pause: &Pause) -> (Self, bool) {
        let earlier = |before: Self| pause.started.is_some_and(|started| started < before.until);
        let same = before.is_some_and(|before| before.until > now || earlier(before));
        let refusals = before.map_or(1, |before| before.refusals + usize::from(!same));
        let wait = pause.waits.get(refusals - 1).or(pause.waits.last()).copied().unwrap_or_default();
        let mut next = Self {
            until: now.plus(micros(wait)),
            recovery: micros(pause.recovery),
            refusals,
            forgotten: now,
            cause: pause.cause,
        };
        if let Some(before) = before {
            next.cause = if before.until > now { before.cause.max(next.cause) } else { next.cause };
            (next.until, next.recovery) = (next.until.max(before.until), next.recovery.max(before.recovery));
        }
        next.forgotten = next.until.plus(next.recovery.max(micros(pause.memory)));
        next.forgotten = before.map_or(next.forgotten, |before| before.forgotten.max(next.forgotten));
        (next, !same)
    }

    /// When calls come at full rate again.
    pub(crate) const fn over(&self) -> Stamp {
        self.until.plus(self.recovery)
    }

    /// The earliest start of `units`, in a log whose newest entry is `newest` and whose limits allow one each `interval`:
    /// after the pause, one after another, at a tenth of the rate, which grows to all of it by the end of the recovery.
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
        let gap = (float(interval) * slower * float(i64::try_from(gaps).unwrap_or(i64::MAX))).ceil();
        base.plus(whole(gap.min(FAR))).min(self.over())
    }
}

#[expect(clippy::cast_precision_loss, reason = "as in Lua")]
const fn float(integer: i64) -> f64 {
    integer as f64
}

#[expect(clippy::cast_possible_truncation, reason = "whole, and at most FAR")]
const fn whole(float: f64) -> i64 {
    float as i64
}
