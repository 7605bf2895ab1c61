//! Seats: how many calls are in flight, in the whole cluster. Who holds seats, who waits for them, and whose turn it is.
//!
//! `lua/seats.lua` says the same in Redis.

mod asked;
mod holders;
mod roll_call;

use std::sync::Arc;
use std::time::Duration;

pub(super) use self::asked::{AskedSeats, Short};
use self::holders::Holder;
pub(super) use self::holders::Holders;
pub(crate) use self::roll_call::renewed_after;
use self::roll_call::{RollCall, Shown};
use super::claims::Owner;
use super::{ScopeId, Stamp};

/// Who waits for a seat and has less than an equal part of them asks again so soon; who has its part, so late; and nobody later.
const POLL: i64 = 50_000;
const POLL_OF_SERVED: i64 = 250_000;
const LATEST_POLL: i64 = 1_000_000;
/// A queue that was to ask, and is so late, keeps nobody from a seat any more.
const LATE: i64 = 200_000;
/// Where more wait than there are seats, who has had one for so long gives it back.
const TURN: i64 = 1_000_000;

/// A limit on the calls in flight of a scope, as an ask names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeatLimit {
    /// Who shares the seats. `None`: everybody who calls the upstream.
    pub scope: Option<ScopeId>,
    /// How many calls may be in flight. Where others name fewer, and hold seats or want some, no more than those.
    pub seats: u32,
}

impl SeatLimit {
    /// So many seats for the calls of a scope.
    #[must_use]
    pub const fn new(scope: Option<ScopeId>, seats: u32) -> Self {
        Self { scope, seats }
    }
}

/// What an ask says of seats: each of its callers needs one of each limit, together with its slot.
///
/// A sender's stream holds seats. What it says of them is all that it holds from then on: it takes nobody's word but the last.
///
/// ```
/// use outgate::ledger::{Ask, Ledger, Message, MessageId, Run, SeatLimit, Seated, Seats, Stamp};
///
/// let (mut ledger, now) = (Ledger::new(), Stamp::from_micros(0));
/// let two_at_once = Seats::new([SeatLimit::new(None, 2)]).keeping(1, 1); // one is held, and no call uses it
/// let mut ask = Ask::new([], vec![Run::new(3, [])]);
/// ask.seats = Some(two_at_once);
/// let grant = ledger.apply(now, &Message::new("gateway", MessageId::new(7, "", 1), ask))?.grant().unwrap();
/// let Some(Seated { again, .. }) = grant.seats else { panic!("it asked for seats") };
/// assert_eq!((grant.answered(3), again.is_zero()), (2, false));
/// # assert_eq!(Seated::new(1, again).keep, 1);
/// # Ok::<(), outgate::ledger::Refused>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seats {
    /// The limits, one for each scope at most. None: another stream of the sender holds the seats, and lends this one so many as are
    /// idle.
    pub limits: Arc<[SeatLimit]>,
    /// Seats of each limit that the stream holds and keeps, whether a call uses them or not.
    pub kept: u32,
    /// Those of them that no call uses: so many callers of the ask need no further one.
    pub idle: u32,
    /// For how long it holds its seats if it says nothing more.
    pub lease: Duration,
}

impl Seats {
    /// A stream that holds no seat yet, with a lease of 60 s.
    #[must_use]
    pub fn new(limits: impl Into<Arc<[SeatLimit]>>) -> Self {
        Self { limits: limits.into(), kept: 0, idle: 0, lease: Duration::from_secs(60) }
    }

    /// The same, where it keeps so many, of which no call uses `idle`.
    #[must_use]
    pub fn keeping(self, kept: u32, idle: u32) -> Self {
        Self { kept, idle, ..self }
    }

    /// Whether its limits are of different scopes, and there are no more idle seats than seats.
    pub(super) fn is_sound(&self) -> bool {
        let is_first = |at: usize| self.limits[..at].iter().all(|limit| limit.scope != self.limits[at].scope);
        self.idle <= self.kept && (0..self.limits.len()).all(is_first)
    }
}

/// What a grant says of seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seated {
    /// A seat that a call leaves may be used by the next one of the same queue, as long as that holds no more than so many.
    /// Those beyond it are others' turn. [`u32::MAX`] where nobody else waits.
    pub keep: u32,
    /// Callers are short of a seat: the queue asks again after so long, and no sooner. Zero: none is.
    pub again: Duration,
}

impl Seated {
    /// So many may be kept, and who is short of one asks again after so long.
    #[must_use]
    pub const fn new(keep: u32, again: Duration) -> Self {
        Self { keep, again }
    }
}

/// Another queue that holds seats or waits for some.
#[derive(Clone, Copy, Debug)]
struct Other {
    held: u64,
    wanted: u64,
    /// Where it has as many as the one that asks, it comes first.
    is_before: bool,
}

/// How the seats of one limit are taken, as the queue that asks sees it.
#[derive(Clone, Debug)]
pub(super) struct Seating {
    now: Stamp,
    /// By the limit of the queue.
    named: u32,
    /// By all limits.
    seats: u64,
    /// What the queue keeps.
    kept: u64,
    /// It held or wanted some before. What lapsed may be kept or not: it was not there.
    was_there: bool,
    /// Since when it holds any.
    since: Option<Stamp>,
    /// What it held before.
    waited: bool,
    roll_call: Option<RollCall>,
    /// It begins now.
    is_lost: bool,
    others: Vec<Other>,
}

impl Seating {
    /// For how many microseconds no seat is given to anybody.
    fn closed_for(&self) -> Option<i64> {
        self.roll_call.map(|of| of.left(self.now)).filter(|left| *left > 0)
    }

    /// So many seats the queue may take, of those that it wants. The next goes to whoever has the fewest; among those who have as
    /// many, to who has waited longest.
    pub(super) fn most(&self, wanted: u64) -> u64 {
        let free = self.free(self.kept);
        let may_take = |taken: u64| free > taken + self.due_before(self.kept + taken);
        let (mut most, mut over) = (0, wanted.min(free));
        while most < over {
            let taken = most + (over - most) / 2;
            if may_take(taken) { most = taken + 1 } else { over = taken }
        }
        most
    }

    /// Seats that nobody holds, where the queue holds so many.
    fn free(&self, held: u64) -> u64 {
        if self.closed_for().is_some() {
            return 0;
        }
        let taken: u64 = self.others.iter().map(|other| other.held).sum();
        self.seats.saturating_sub(taken + held)
    }

    /// Seats that others are to get before a queue that holds so many gets another.
    fn due_before(&self, held: u64) -> u64 {
        let due = |other: &Other| (held + u64::from(other.is_before)).saturating_sub(other.held).min(other.wanted);
        self.others.iter().map(due).sum()
    }

    /// An equal part of the seats, rounded down, for each that holds any or waits.
    fn part(&self) -> u64 {
        let others = self.others.iter().filter(|other| other.held + other.wanted > 0).count() as u64;
        self.seats / (others + 1)
    }

    /// When a queue asks again that holds so many and is short of more: in µs.
    pub(super) fn again(&self, held: u64) -> i64 {
        if let Some(left) = self.closed_for() {
            return left.min(LATEST_POLL);
        }
        if held >= self.part().max(1) {
            return POLL_OF_SERVED;
        }
        let rounds = i64::try_from(self.due_before(held) / self.seats.max(1)).unwrap_or(i64::MAX);
        POLL.saturating_mul(rounds.saturating_add(1)).min(LATEST_POLL)
    }

    /// How many of the seats that it holds a queue may use again when its calls leave them.
    fn keep(&self, held: u64, since: Stamp) -> u64 {
        let waiting = || self.others.iter().filter(|other| other.wanted > 0);
        // Nobody would get what is given back while none is given.
        let lowest = waiting().map(|other| other.held).min().filter(|_| self.closed_for().is_none());
        let Some(lowest) = lowest else { return u32::MAX.into() };
        let part = self.part();
        if part == 0 && lowest == 0 && since.plus(TURN) <= self.now {
            return 0;
        }
        // No more than those with fewer want; and about half of the difference at once, as others give back too.
        let wanted: u64 = waiting().filter(|other| other.held + 1 < held).map(|other| other.wanted).sum();
        let unmet = wanted.saturating_sub(self.free(held));
        (lowest + 1).max(part).max((held + lowest).div_ceil(2)).max(held.saturating_sub(unmet))
    }

    /// Enters that the queue took so many more, and is short of so many; it asks again after `again`. Says how many it may keep,
    /// and whether anything has changed: a message that is not remembered changes nothing.
    pub(super) fn enter(&self, holders: &mut Holders, owner: &Owner, taking: &Taking) -> (u32, bool) {
        let Taking { taken, wanted, again, lease } = *taking;
        let held = self.kept + taken;
        let since = self.since.unwrap_or(self.now);
        let keep = small(self.keep(held, since));
        let holder = Holder {
            owner: owner.clone(),
            held: small(held),
            lapse: self.now.plus(lease),
            wanted: small(wanted.min(self.seats)),
            asks_by: self.now.plus(4 * again + LATE),
            since,
            named: self.named,
        };
        let is_news = self.was_there || held > 0 || holder.wanted > 0 || self.is_lost;
        if self.is_lost {
            holders.roll_call = self.roll_call;
        }
        holders.enter(self.now, holder, self.waited && taken == 0);
        (keep, is_news)
    }
}

/// What a queue takes of the seats of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taking {
    pub(super) taken: u64,
    /// How many more it is short of.
    pub(super) wanted: u64,
    pub(super) again: i64,
    pub(super) lease: i64,
}

fn small(seats: u64) -> u32 {
    u32::try_from(seats).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
