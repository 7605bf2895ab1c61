//! What a store decides, and how. Pure: time is an argument.
//!
//! A [`Ledger`] holds what is known of one upstream, and [applies](Ledger::apply) messages to it. Whoever writes a
//! [store](crate::Store) of their own brings a clock, and sees to it that messages are applied one after another.
//!
//! ```
//! use outgate::ledger::{Ask, Ledger, Log, Message, MessageId, Run, Stamp, Term};
//!
//! let mut ledger = Ledger::new();
//! let logs = [Log::new("calls", [Term::new(2, 1_000_000)])]; // two calls in any second
//! let ask = Ask::new(logs, vec![Run::new(3, [1])]); // three callers
//! let now = Stamp::from_micros(5_000_000);
//! let reply = ledger.apply(now, &Message::new("gateway", MessageId::new(1, "", 1), ask)).unwrap();
//!
//! let grant = reply.grant().unwrap();
//! assert_eq!((grant.answered(3), grant.next), (2, Stamp::from_micros(6_000_000))); // the third waits for a second
//! ```

mod added;
mod again;
mod ask;
mod at_once;
mod book;
mod boundaries;
mod bucket;
mod calendar;
mod charge;
mod claims;
mod cold;
mod constraints;
mod contenders;
mod debt;
mod evidence;
mod grant;
mod in_force;
mod life;
mod log;
mod log_time;
mod logs;
mod loss;
mod message;
#[cfg(test)]
mod model;
mod named_terms;
mod outside_use;
mod pause;
mod priority;
mod processes;
mod rate;
mod release;
mod replay;
mod reply;
mod report;
mod reset;
mod rule;
mod scope;
mod scope_id;
mod seats;
mod shares;
mod slots;
mod slower;
mod stamp;
mod usage;
mod view;

use std::collections::HashMap;

pub use self::again::Again;
pub use self::ask::{Ask, Run};
pub use self::bucket::Bucket;
pub use self::calendar::{Boundary, Calendar};
pub use self::charge::Log;
pub use self::cold::Cold;
pub use self::evidence::Evidence;
pub use self::grant::{Answer, Grant, Verdict};
pub use self::log::SlidingLog;
use self::log_time::LogTime;
pub use self::loss::Remembered;
pub(crate) use self::loss::{BEYOND, SHORT};
pub use self::message::{Body, Message, MessageId, NOBODY, Refused};
pub use self::pause::{Cause, Pause, PauseLeft, Reason};
pub use self::priority::Priority;
use self::processes::Registry;
pub use self::processes::{Presence, ProcessSeen, Processes, Renewal, ScopePresence};
pub use self::release::Looked;
use self::replay::Replays;
pub use self::reply::Reply;
pub use self::report::{Learned, Paused, QuotaReport, Report};
pub use self::rule::{Shape, Term};
use self::scope::Scope;
pub(crate) use self::scope_id::ScopeHasher;
pub use self::scope_id::ScopeId;
pub(crate) use self::seats::renewed_after;
pub use self::seats::{SeatLimit, Seated, Seats};
pub use self::slots::Slots;
pub use self::slower::Slower;
pub use self::stamp::Stamp;
pub(crate) use self::stamp::micros;
pub use self::usage::{LogUsage, PauseUsage, TermUsage};

/// Callers that one ask carries at most.
pub(crate) const MAX_CALLERS: usize = 1_000;
/// Units that one ask carries at most, unless its first caller alone wants more.
pub(crate) const MAX_UNITS: u32 = 10_000;
/// The weight of a process at most.
pub(crate) const MAX_WEIGHT: u32 = 100;
/// The longest time for which a store remembers the answer to a message.
pub(crate) const MAX_MEMORY: i64 = 60_000_000;
/// The longest that a queue which waits for a slot says nothing to the store.
pub(crate) const MAX_SILENCE: i64 = 30_000_000;

/// For so many microseconds more a scope is kept: a clock that has leapt ahead may be set back.
const LEAP: i64 = 11_000_000;

/// How many parts the scopes are in, so that looking for those that fell silent takes no long time at once.
const PARTS: usize = 16;

/// Everything that a store keeps of one upstream.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub struct Ledger {
    time: LogTime,
    /// The whole upstream's.
    upstream: Scope,
    scopes: [Scopes; PARTS],
    replays: Replays,
    /// Which processes use it.
    registry: Registry,
    next_part: usize,
}

type Scopes = HashMap<ScopeId, Box<Scope>, ScopeHasher>;

impl Ledger {
    /// The ledger of an upstream that nothing is known of.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a message when the store's clock shows `clock`, and says what to answer. A message that comes twice acts once.
    ///
    /// # Errors
    ///
    /// When nothing is decided: see [`Refused`].
    pub fn apply(&mut self, clock: Stamp, message: &Message) -> Result<Reply, Refused> {
        message.check()?;
        let now = self.time.corrected(clock, message);
        if let Some(reply) = self.replays.recall(now, &message.id)? {
            return Ok(reply.clone().again(now));
        }
        let (reply, memory) = match &message.body {
            Body::Ask(ask) => {
                let (grant, memory) = self.book(now, message.known, &message.id, ask);
                (Reply::Grant(grant), memory)
            }
            Body::Pause { scope, pause } => {
                let released = scope.map_or(Stamp::NEVER, |_| self.upstream.constraints().releases.by_hand());
                let (paused, memory) = self.scope_mut(*scope).constrain(|of, logs| {
                    let entries = pause.log_of_calls().and_then(|of| logs.get(&of.log.unit));
                    of.pause(now, pause, released, entries)
                });
                (Reply::Paused(paused), memory)
            }
            Body::Release { scope, served } => {
                let memory = if self.release(now, *scope, *served) { MAX_MEMORY } else { 0 };
                (Reply::Done(now), memory)
            }
            Body::SlowDown { scope, factor, lasting } => {
                self.slow_down(now, *scope, i64::from(*factor), micros(*lasting));
                (Reply::Done(now), MAX_MEMORY)
            }
            Body::Reset { scope, units } => {
                self.reset(now, *scope, units);
                (Reply::Done(now), MAX_MEMORY)
            }
            Body::Look { scopes, since } => (Reply::Looked(self.look(now, *since, scopes)), 0),
            Body::Report { log, report } => self.learn(now, log, report),
            Body::Usage { logs, seats } => {
                (Reply::Usage { logs: self.usage(now, logs), seats: self.seats_taken(now, seats) }, 0)
            }
            Body::Renew(renewal) => {
                let (processes, is_described) = self.registry.renew(now, message.id.sender, renewal);
                (Reply::Renewed { processes, is_described }, MAX_MEMORY)
            }
            Body::Processes { upstream } => (Reply::Processes(self.registry.processes(now, upstream)), 0),
        };
        if memory > 0 && !message.id.is_nobodys() {
            self.replays.remember(now, message, memory, reply.clone());
        }
        Ok(reply)
    }

    fn learn(&mut self, now: Stamp, log: &Log, report: &Report) -> (Reply, i64) {
        let learn = |constraints: &mut constraints::Constraints, logs: &logs::Logs| {
            constraints.learn(now, log, logs.get(&log.unit), report)
        };
        let scope = self.scope_mut(log.scope);
        let (mut outside, mut entered) = scope.constrain(learn);
        let filled = scope.logs.fill_others(now, log, report);
        (outside, entered) = (outside.max(filled), entered || filled > 0);
        let longest = report.quotas.iter().map(|quota| quota.term.span).max().unwrap_or(0);
        // Who learned nothing may learn more from the same message later.
        (Reply::Learned(Learned::new(outside)), if entered { longest } else { 0 })
    }

    /// Forgets what has expired some seconds ago in the next sixteenth of all scopes, when the store's clock shows `clock`. A store
    /// calls this now and then.
    ///
    /// ```
    /// use outgate::ledger::{Ask, Ledger, Log, Message, MessageId, Run, Stamp, Term};
    ///
    /// let (mut ledger, now) = (Ledger::new(), Stamp::from_micros(0));
    /// let ask = Ask::new([Log::new("calls", [Term::new(2, 1_000_000)])], vec![Run::new(1, [1])]);
    /// ledger.apply(now, &Message::new("gateway", MessageId::new(7, "", 1), ask))?;
    /// assert_eq!(ledger.scopes_in_use(now), 1);
    ///
    /// let hours_later = Stamp::from_micros(9_000_000_000);
    /// ledger.sweep(hours_later); // now and then: what has expired is forgotten
    /// assert_eq!(ledger.scopes_in_use(hours_later), 0);
    /// # Ok::<(), outgate::ledger::Refused>(())
    /// ```
    pub fn sweep(&mut self, clock: Stamp) {
        // What is spent is remembered by others for a while: by a clock that has leapt ahead no less than by one that has not.
        let now = self.time.at(clock).plus(-LEAP - BEYOND);
        let part = &mut self.scopes[self.next_part];
        part.retain(|_, scope| !scope.is_spent(now));
        part.shrink_to(part.len() * 2);
        self.next_part = (self.next_part + 1) % PARTS;
        if self.upstream.is_spent(now) {
            self.upstream = Scope::default();
        }
        self.replays.sweep(now);
        self.registry.sweep(now);
    }

    /// How many scopes there are that anything is remembered of, the whole upstream's among them.
    #[must_use]
    pub fn scopes_in_use(&self, clock: Stamp) -> usize {
        let now = self.time.at(clock);
        let of_scopes = self.scopes.iter().flat_map(HashMap::values).filter(|scope| !scope.is_spent(now)).count();
        let is_spent = self.upstream.is_spent(now) && self.replays.is_spent(now) && self.registry.is_spent(now);
        of_scopes + usize::from(!is_spent)
    }

    /// Loses its logs alone: those in which nothing has started since then, or all.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn lose_logs(&mut self, since: Option<Stamp>) {
        let scopes = self.scopes.iter_mut().flat_map(HashMap::values_mut).map(Box::as_mut);
        scopes.chain([&mut self.upstream]).for_each(|scope| scope.logs.lose(since));
    }

    /// How many scopes it has room for.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.scopes.iter().map(HashMap::capacity).sum()
    }

    /// Whether nothing is left of it: all that fell silent has been swept.
    pub(crate) fn is_empty(&self, clock: Stamp) -> bool {
        self.scopes.iter().all(HashMap::is_empty) && self.scopes_in_use(clock.plus(-LEAP)) == 0
    }

    fn part(scope: ScopeId) -> usize {
        usize::from(scope.first_bits()) % PARTS
    }

    fn scope(&self, scope: Option<ScopeId>) -> Option<&Scope> {
        match scope {
            None => Some(&self.upstream),
            Some(scope) => self.scopes[Self::part(scope)].get(&scope).map(Box::as_ref),
        }
    }

    /// A log of a scope, to be changed, if anything was ever entered into it.
    fn log_mut(&mut self, log: &Log) -> Option<&mut SlidingLog> {
        let scope = match log.scope {
            None => &mut self.upstream,
            Some(scope) => self.scopes[Self::part(scope)].get_mut(&scope)?,
        };
        scope.logs.get_mut(&log.unit)
    }

    fn scope_mut(&mut self, scope: Option<ScopeId>) -> &mut Scope {
        match scope {
            None => &mut self.upstream,
            Some(scope) => self.scopes[Self::part(scope)].entry(scope).or_default(),
        }
    }
}
