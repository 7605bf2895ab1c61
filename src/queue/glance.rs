//! What is to be seen of a queue from outside: who waits, for what, and how long. Nobody is asked, and nothing changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::engine::Engine;
use super::resend::Resend;
use crate::counts::Counts;
use crate::ledger::{PauseLeft, ScopeId};

/// What keeps the first caller of a queue from going.
///
/// ```
/// use outgate::snapshot::WaitsFor;
///
/// assert_eq!(WaitsFor::Limit.as_str(), "limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WaitsFor {
    /// The store's answer: it is on its way, or does not come.
    Store,
    /// A slot: the limits leave none before then, or it is another process's turn.
    Limit,
    /// A [call in flight](crate::Limit::in_flight) has to end.
    Seat,
    /// The end of a pause: nobody sends.
    Pause,
}

impl WaitsFor {
    /// In one word, as traces say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Limit => "limit",
            Self::Seat => "seat",
            Self::Pause => "pause",
        }
    }
}

/// One queue of this process: callers that need the same logs.
///
/// ```
/// use outgate::snapshot::QueueSnapshot;
///
/// fn show(queue: &QueueSnapshot) {
///     let scope = queue.scope_name.as_deref().unwrap_or("somebody");
///     println!("{scope}: {} wait for {:?}, the next goes in {:?}", queue.callers, queue.waits_for, queue.next);
/// }
/// # let _ = show;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueSnapshot {
    /// Whose: the hash of a token, a merchant. `None` where all callers of the upstream share its limits. Of calls that are charged in
    /// logs of several scopes, that of [`scope_by`](crate::Upstream::scope_by), else of the last that a limit names.
    pub scope: Option<ScopeId>,
    /// What the program [calls](crate::Upstream::name_scope) this scope.
    pub scope_name: Option<Arc<str>>,
    /// Callers that wait.
    pub callers: usize,
    /// How long the one has waited who has waited longest.
    pub oldest: Option<Duration>,
    /// How long until the first caller can go, as far as the last answer tells; `None` where nobody waits, and where nobody knows:
    /// before an answer, and until a call in flight ends.
    pub next: Option<Duration>,
    /// What the first caller waits for; `None` where nobody waits.
    pub waits_for: Option<WaitsFor>,
    /// The pause that lasts: how long, why, and by a response of which status.
    pub paused: Option<PauseLeft>,
    /// Calls in flight: permits that were given and are not dropped yet. Where calls in flight are [limited](crate::Limit::in_flight), seats
    /// that are in use.
    pub in_flight: usize,
}

impl Queue {
    /// What is counted of its upstream: of calls, not of places in a line.
    pub(crate) fn counts(&self) -> &Counts {
        &self.registered().counts
    }

    /// A permit is given.
    pub(crate) fn depart(&self) {
        self.permits.fetch_add(1, Ordering::Relaxed);
    }

    /// It is dropped.
    pub(crate) fn arrive(&self) {
        self.permits.fetch_sub(1, Ordering::Relaxed);
    }

    /// Permits that are given, and not dropped yet.
    pub(crate) fn permits(&self) -> usize {
        self.permits.load(Ordering::Relaxed)
    }

    /// A call keeps its seat beyond its permit.
    pub(crate) fn body_begins(&self) {
        self.bodies.fetch_add(1, Ordering::Relaxed);
    }

    /// It keeps it no more.
    pub(crate) fn body_ended(&self) {
        self.bodies.fetch_sub(1, Ordering::Relaxed);
    }

    /// It is used. Says whether it is to be listed among those that are [attended](Self::attended).
    pub(super) fn note_use(&self) -> bool {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        !self.is_listed.load(Ordering::Relaxed) && !self.is_listed.swap(true, Ordering::Relaxed)
    }

    /// It is called again.
    #[inline]
    pub(super) fn is_called_again(&self) {
        if !self.again.load(Ordering::Relaxed) {
            self.again.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was, since this was asked last.
    pub(super) fn was_called_again(&self) -> bool {
        self.again.swap(false, Ordering::Relaxed)
    }

    /// Callers that wait, how long the one has waited who has waited longest, and whether it was used since this was asked last.
    pub(super) fn attended(&self, now: Instant) -> (u32, Duration, bool) {
        let is_used = self.is_used.swap(false, Ordering::Relaxed);
        let Some(state) = self.known().filter(|_| !self.is_observed()) else { return (0, Duration::ZERO, is_used) };
        let waiters = &state.engine.waiters;
        let oldest = waiters.first_joined().map(|joined| now.saturating_duration_since(joined));
        let seen = (u32::try_from(waiters.len()).unwrap_or(u32::MAX), oldest.unwrap_or_default(), is_used);
        drop(state);
        let Some((more, longest, _)) = self.local().map(|local| local.attended(now)) else { return seen };
        (seen.0.saturating_add(more), seen.1.max(longest), seen.2)
    }

    /// Calls in flight: where their number is limited, until their bodies have ended.
    fn in_flight(&self) -> usize {
        self.permits() + self.bodies.load(Ordering::Relaxed)
    }

    /// What is to be seen of it; nothing where nobody waits, no call is in flight and nothing is paused.
    pub(crate) fn glance(&self, now: Instant) -> Option<QueueSnapshot> {
        // By itself, and before this one is looked at.
        let local = self.local().and_then(|local| local.glance(now));
        let of_crowd = self.crowd.paused(now);
        let state = self.known();
        let engine = state.as_ref().map(|state| &state.engine);
        let of_queue = engine.and_then(|engine| engine.lasting_pause(now));
        let paused = match (of_queue, of_crowd) {
            (Some((one, reason)), Some((other, further))) => Some((one.max(other), reason.or_graver(further))),
            (one, other) => one.or(other),
        };
        let paused = paused.map(|(until, reason)| PauseLeft::new(until - now, reason));
        let waited_in = engine.filter(|_| !self.is_observed());
        let waits_for = waited_in.and_then(|engine| engine.waits_for(now));
        let waits_for = waits_for.map(|known| if paused.is_some() { WaitsFor::Pause } else { known });
        let oldest = waited_in.and_then(|engine| engine.waiters.first_joined());
        let next = waited_in.and_then(|engine| engine.next(waits_for, now));
        let seen = QueueSnapshot {
            scope: self.scope(),
            scope_name: None,
            callers: waited_in.map_or(0, |engine| engine.waiters.len()),
            oldest: oldest.map(|joined| now.saturating_duration_since(joined)),
            next: next.max(paused.filter(|_| waits_for.is_some()).map(|paused| paused.left)),
            waits_for,
            paused,
            in_flight: engine.and_then(Engine::seats_in_flight).unwrap_or_else(|| self.in_flight()),
        };
        let seen = if let Some(local) = local { seen.and_local(&local) } else { seen };
        let has_any = seen.callers > 0 || seen.in_flight > 0 || seen.paused.is_some();
        has_any.then_some(seen)
    }
}

impl QueueSnapshot {
    /// With what is to be seen of the queue in which callers of this process stand by themselves while the store cannot answer.
    fn and_local(self, local: &Self) -> Self {
        Self {
            callers: self.callers + local.callers,
            oldest: self.oldest.max(local.oldest),
            next: if self.callers > 0 { self.next } else { local.next },
            waits_for: self.waits_for.or(local.waits_for),
            paused: self.paused.or(local.paused),
            in_flight: self.in_flight + local.in_flight,
            ..self
        }
    }
}

impl Engine {
    /// What the first caller waits for.
    pub(super) fn waits_for(&self, now: Instant) -> Option<WaitsFor> {
        if self.waiters.is_empty() {
            return None;
        }
        let waits_for_seat = || {
            let is_short = self.seats.as_ref().is_some_and(|seats| seats.ask_at(now).is_some());
            is_short && self.next_slot.is_none_or(|next| next <= now)
        };
        Some(if self.is_paused(now) {
            WaitsFor::Pause
        } else if !self.waiters.has_unslotted() {
            WaitsFor::Limit
        } else if self.resend.as_ref().is_some_and(Resend::has_failed) {
            WaitsFor::Store
        } else if waits_for_seat() || (self.is_unseated() && self.may_ask(now)) {
            WaitsFor::Seat
        } else if self.next_slot.is_some() || self.rest_until.is_some_and(|until| until > now) {
            WaitsFor::Limit
        } else {
            WaitsFor::Store
        })
    }

    /// How long until the first caller can go, where that is known.
    fn next(&self, waits_for: Option<WaitsFor>, now: Instant) -> Option<Duration> {
        let is_known = matches!(waits_for, Some(WaitsFor::Limit | WaitsFor::Pause));
        let next = self.waiters.first_start().or(self.next_slot).filter(|_| is_known)?;
        Some(next.saturating_duration_since(now))
    }

    /// Seats that calls use, where there are seats: those of slots which are some caller's are none's yet.
    fn seats_in_flight(&self) -> Option<usize> {
        let used = self.seats.as_ref()?.used();
        Some((used as usize).saturating_sub(self.waiters.slots()))
    }
}
