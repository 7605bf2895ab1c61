//! What a store keeps of one scope of an upstream, or of the whole of it.

use super::claims::{Claim, Owner};
use super::constraints::Constraints;
use super::contenders::{Contenders, Pace};
use super::logs::Logs;
use super::seats::Holders;
use super::{Ask, Log, Priority, SlidingLog, Stamp, Term};

/// The logs of a scope, what was imposed on it, and who waits. There are as many of them as scopes: what few need lies apart, and what each
/// call reads together, in this order.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Scope {
    constraints: Option<Box<Constraints>>,
    waiting: Option<Box<Waiting>>,
    pub(super) logs: Logs,
    seats: Option<Box<Holders>>,
}

/// Who waits for the logs of a scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pub(super) contenders: Option<Contenders>,
    /// Callers of large charges that nobody may delay, first come first.
    pub(super) claims: Vec<Claim>,
    /// How far ahead the process books whose answers take longest.
    pub(super) reach: Option<Reach>,
}

/// How far ahead somebody books, and until when that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) micros: i64,
    pub(super) lapse: Stamp,
}

/// Where nobody waits.
static NOBODY_WAITS: Waiting = Waiting { contenders: None, claims: Vec::new(), reach: None };

impl Waiting {
    /// What of it counts at `now`, where what is granted comes back at this pace.
    pub(super) fn at(&self, now: Stamp, pace: Pace) -> Self {
        let contenders = self.contenders.map(|contenders| contenders.at(now, pace)).filter(|all| !all.is_nobody());
        let claims = self.claims.iter().filter(|claim| claim.lapse > now).cloned().collect();
        Self { contenders, claims, reach: self.reach.filter(|reach| reach.lapse > now) }
    }

    /// The weights of others of a priority, and of higher ones, whose callers wait: but for one of so much that was told so.
    pub(super) fn others(&self, counted: Stamp, weight: u32, priority: Priority) -> u32 {
        self.contenders.map_or(0, |contenders| contenders.others(counted, weight, priority))
    }

    /// The place of the highest priority of a queue that was told so, by this ask or as it is counted; and its weight.
    pub(super) fn own(&self, counted: Stamp, ask: &Ask) -> (usize, u32) {
        let (place, counted) = (ask.priority().place(), self.contenders.and_then(|all| all.place(counted)));
        (counted.map_or(place, |counted| counted.min(place)), ask.weight)
    }

    /// The weights of those of them, but for its own, who claim. Nobody delays these: no share is left for them.
    pub(super) fn claimed(&self, owner: &Owner, priority: Priority) -> u32 {
        let is_other = |claim: &&Claim| claim.owner != *owner && claim.priority.place() <= priority.place();
        self.claims.iter().filter(is_other).map(|claim| claim.weight).sum()
    }

    /// Enters what a caller claims, or that it claims no more: behind the owners that come before it. Says whether anything has changed.
    pub(super) fn claim(&mut self, owner: &Owner, before: &[&Owner], claim: Option<Claim>) -> bool {
        let changed = claim.is_some() || !self.claims.is_empty();
        self.claims.retain(|claim| claim.owner != *owner);
        let place = self.claims.iter().rposition(|claim| before.contains(&&claim.owner)).map_or(0, |last| last + 1);
        if let Some(claim) = claim {
            self.claims.insert(place, claim);
        }
        changed
    }

    /// Whether anybody is known to wait.
    pub(super) fn is_any(&self, now: Stamp) -> bool {
        self.contenders.is_some_and(|contenders| contenders.lapse() > now)
    }

    /// Whether nobody waits or claims a place any more.
    fn is_nobody(&self, now: Stamp) -> bool {
        !self.is_any(now) && self.claims.iter().all(|claim| claim.lapse <= now)
    }

    /// Whether nobody waits or books ahead any more.
    fn is_spent(&self, now: Stamp) -> bool {
        self.is_nobody(now) && self.reach.is_none_or(|reach| reach.lapse <= now)
    }
}

/// A log that nothing was ever entered into.
static NO_ENTRIES: SlidingLog = SlidingLog::new();

/// Where nothing is known.
static EMPTY: Scope = Scope { logs: Logs::new(), constraints: None, waiting: None, seats: None };

impl Scope {
    /// A scope that nothing is known of.
    pub(super) fn empty() -> &'static Self {
        &EMPTY
    }

    /// Who waits.
    pub(super) fn waiting(&self) -> &Waiting {
        self.waiting.as_deref().unwrap_or(&NOBODY_WAITS)
    }

    pub(super) fn set_waiting(&mut self, waiting: Waiting) {
        let is_empty = waiting.contenders.is_none() && waiting.claims.is_empty() && waiting.reach.is_none();
        self.waiting = (!is_empty).then(|| Box::new(waiting));
    }

    /// Who holds its seats, where anybody does.
    pub(super) fn seats(&self) -> Option<&Holders> {
        self.seats.as_deref()
    }

    /// Changes who holds its seats.
    pub(super) fn seat<T>(&mut self, change: impl FnOnce(&mut Holders) -> T) -> T {
        let outcome = change(self.seats.get_or_insert_default());
        self.seats.take_if(|seats| seats.is_empty());
        outcome
    }

    /// What the upstream imposed.
    pub(super) fn constraints(&self) -> &Constraints {
        self.constraints.as_deref().unwrap_or_else(|| Constraints::nothing())
    }

    /// Changes what the upstream imposed.
    pub(super) fn constrain<T>(&mut self, change: impl FnOnce(&mut Constraints, &Logs) -> T) -> T {
        let outcome = change(self.constraints.get_or_insert_default(), &self.logs);
        // Mostly there is nothing.
        self.constraints.take_if(|constraints| constraints.is_nothing());
        outcome
    }

    /// Whether nobody waits and nothing is in force, so that its logs alone decide.
    pub(super) fn is_plain(&self, now: Stamp) -> bool {
        self.is_plain_but_for_cold(now) && !self.constraints().has_cold(now)
    }

    /// The same, where only cold calls may count longer than others.
    pub(super) fn is_plain_but_for_cold(&self, now: Stamp) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.is_spent(now)) && self.is_free_but_for_cold(now)
    }

    /// The same for a caller who does not wait: how far ahead others book is nothing to it.
    #[inline]
    pub(super) fn is_plain_now_or_never(&self, now: Stamp) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.is_nobody(now)) && self.is_free_but_for_cold(now)
    }

    #[inline]
    fn is_free_but_for_cold(&self, now: Stamp) -> bool {
        self.constraints.as_ref().is_none_or(|constraints| constraints.is_idle_but_for_cold(now))
    }

    /// The earliest start, not before `start`, for units of a log whose terms are no calendars, where nothing but cold calls is in force,
    /// neither here nor in the whole upstream. It says what the rule of all that may be in force does, and changes with that.
    #[inline]
    pub(super) fn earliest_beside_cold(&self, start: Stamp, log: &Log, units: u32) -> Stamp {
        let entries = self.logs.get(&log.unit).unwrap_or(&NO_ENTRIES);
        let start = entries.earliest(start, &log.terms, units);
        let cold = self.constraints.as_ref().map(|of| of.cold());
        cold.map_or(start, |cold| cold.earliest(start, log, |term| term, units.into(), entries))
    }

    /// Enters starts, each with its units; `left` is what rates leave of the log's terms. Says whether the log is to be trimmed.
    #[inline]
    pub(super) fn append(&mut self, log: &Log, starts: &[(Stamp, usize)], retention: i64, left: &[Term]) -> bool {
        // What nothing limits need not be known.
        if starts.iter().all(|(_, units)| *units == 0) || log.terms.is_empty() {
            return false;
        }
        let entries = self.logs.entry(&log.unit);
        entries.fill(&log.terms, left, starts, retention);
        entries.is_long(log.largest_quota())
    }

    /// Whether nothing here means anything any more.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.waiting().is_spent(now)
            && self.constraints().is_spent(now)
            && self.logs.iter().all(|log| log.is_spent(now))
            && self.seats.as_ref().is_none_or(|seats| seats.is_spent(now))
    }
}
