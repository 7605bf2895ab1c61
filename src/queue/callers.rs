//! One queue: what happens to it goes to its engine, and what follows is done.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::crowd::Crowd;
use super::driver::Driver;
use super::engine::Engine;
use super::events::Event;
use super::handover::Successors;
use super::mark::Mark;
use super::outbox::Outbox;
use super::process::Process;
use super::seats::SeatRules;
use super::settings::Settings;
use super::settling::{Correction, Settling};
use super::shard::Shard;
use super::state::State;
use super::waiters::Slot;
use crate::config::charges::Scopes;
use crate::config::plan::Registered;
use crate::counts::Counts;
use crate::error::Error;
use crate::ledger::{Log, Reason, ScopeId};

/// One queue: a process, and the logs that everybody in it needs a slot in. Those who take nothing of a unit are in another.
///
/// Beside many scopes a call costs as much as it finds in no cache of the processor. So what each reads lies together, in this order.
#[repr(C)]
pub(crate) struct Queue {
    /// By whose limits: those of other editions hold no more, or not yet.
    registered: Arc<Registered>,
    scopes: Scopes,
    /// What everybody in it needs a slot in.
    pub(crate) logs: Arc<[Log]>,
    pub(super) process: Arc<Process>,
    /// Everybody who waits for the upstream.
    pub(super) crowd: Arc<Crowd>,
    /// Where its logs lie.
    pub(super) shard: Arc<Shard>,
    /// Permits that are given, and not dropped yet.
    pub(super) permits: AtomicUsize,
    /// Calls that have a seat, and no permit any more: their bodies have not ended.
    pub(super) bodies: AtomicUsize,
    /// Used since the store was told last who uses the upstream.
    pub(super) is_used: AtomicBool,
    /// Stands among those of which the store is told.
    pub(super) is_listed: AtomicBool,
    /// Called again since it was looked for idle ones.
    pub(super) again: AtomicBool,
    /// Once anybody waits, or anything else has happened that is to be known: there are as many queues as scopes.
    core: OnceLock<Box<Core>>,
    /// The lines for seats that the process shares among several queues, one for each limit on calls in flight.
    pub(super) lines: Arc<[Arc<Self>]>,
    /// And a seat, where there are limits on calls in flight: of its callers alone, or of those of other queues, whose line it is.
    pub(super) seats: Option<SeatRules>,
    /// Those to which its callers went when it was closed.
    pub(super) successors: Successors,
    /// Of those who throttle by themselves while the store cannot answer, as long as there are any.
    pub(super) local: Mutex<Weak<Self>>,
    /// Of those who go by the store, where its callers do not.
    pub(super) shared: Option<Arc<Self>>,
    /// Among those that would say again what they were granted.
    pub(super) mark: Mark,
    /// Among those whose leases are looked after.
    pub(super) lease_mark: Mark,
    /// Wakes the driver when something came up that it does not sleep for.
    pub(super) nudge: Notify,
    /// Tells that nothing is left to do.
    pub(super) idled: Notify,
}

/// What changes about a queue, and what is known of it for that.
struct Core {
    settings: Arc<Settings>,
    state: Mutex<State>,
}

impl Queue {
    /// The queue of the callers of an upstream that are charged in the logs of these scopes, and borrow seats from these lines; not of an
    /// upstream whose place another has taken.
    pub(crate) fn new(
        process: &Arc<Process>,
        registered: &Arc<Registered>,
        scopes: &Scopes,
        lines: Vec<Arc<Self>>,
    ) -> Result<Self, Error> {
        let logs = registered.charges.logs_of(scopes);
        let mut queue = Self::of(process, registered, scopes.clone(), logs)?;
        if lines.is_empty() {
            queue.seats = registered.seats_of(scopes);
        } else {
            queue.lines = lines.into();
        }
        Ok(queue)
    }

    /// One whose calls need no seat.
    pub(super) fn of(
        process: &Arc<Process>,
        registered: &Arc<Registered>,
        scopes: Scopes,
        logs: Arc<[Log]>,
    ) -> Result<Self, Error> {
        if registered.is_replaced() {
            return Err(Error::Closed);
        }
        // Who is in a line for seats waits in its queue, and is counted there.
        let nobodys = || Crowd::new(usize::MAX, Counts::default()).into();
        let crowd = if logs.is_empty() { nobodys() } else { Arc::clone(&registered.crowd) };
        Ok(Self {
            shard: Arc::clone(registered.shard(scopes.narrowest)),
            registered: Arc::clone(registered),
            successors: Successors::default(),
            scopes,
            logs,
            seats: None,
            process: Arc::clone(process),
            crowd,
            // An empty one takes no allocation by default.
            lines: Arc::default(),
            core: OnceLock::new(),
            local: Mutex::default(),
            shared: None,
            permits: AtomicUsize::new(0),
            bodies: AtomicUsize::new(0),
            is_used: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            again: AtomicBool::new(false),
            mark: Mark::default(),
            lease_mark: Mark::default(),
            nudge: Notify::new(),
            idled: Notify::new(),
        })
    }

    /// Takes back a slot that its caller does not want: for the next in queue, else for the log.
    pub(crate) fn give_back(self: &Arc<Self>, slot: Slot) {
        self.happen(|_| Some(Event::Returned(slot)));
        self.successors.look();
    }

    /// The call of a slot probably opens a connection: the store is told before long.
    pub(crate) fn cold(self: &Arc<Self>, slot: &Slot) {
        self.happen(|_| Some(Event::Cold(slot.stamp, (&slot.costs).into())));
    }

    /// It is known what a call used: the store is told before long.
    pub(crate) fn settle(self: &Arc<Self>, correction: Correction) {
        // The store may be back by now: all others wait for what was used beyond the charge, too.
        if let Some(shared) = self.shared.as_ref().filter(|_| correction.debts.iter().any(|&units| units > 0)) {
            shared.settle(Correction { back: vec![0; correction.back.len()], ..correction.clone() });
        }
        self.happen(|_| Some(Event::Settled(correction)));
        self.successors.look();
    }

    /// Callers went from here to another queue.
    pub(crate) fn succeeded_by(&self, other: &Arc<Self>) {
        self.successors.add(other);
    }

    /// The upstream, as it was when the queue was made.
    pub(crate) fn registered(&self) -> &Arc<Registered> {
        &self.registered
    }

    /// How calls are settled.
    pub(crate) fn settling(&self) -> &Settling {
        &self.registered.settling
    }

    /// Lets nobody here send for a while.
    pub(crate) fn pause(self: &Arc<Self>, wait: Duration, reason: Reason, now: Instant) {
        self.local().iter().for_each(|local| local.pause(wait, reason, now));
        self.happen(|_| Some(Event::Paused(now + wait, reason)));
    }

    /// The pause has ended before its time, or may have: whoever waits asks again.
    pub(crate) fn release(self: &Arc<Self>) {
        self.local().iter().for_each(Self::release);
        if self.known().is_some() {
            // A lowered rate is no pause: whoever rests by it asks again.
            self.happen(|state| Some(state.engine.paused.map_or(Event::Reset, |(until, _)| Event::Released(until))));
        }
    }

    /// The same of a pause that was to last until then, and of no longer one.
    pub(super) fn release_until(self: &Arc<Self>, until: Instant) {
        self.local().iter().for_each(|local| local.release_until(until));
        self.happen(|_| Some(Event::Released(until)));
    }

    /// What counted was forgotten by hand: whoever waits asks again.
    pub(crate) fn reset(self: &Arc<Self>) {
        if self.known().is_some() {
            self.happen(|_| Some(Event::Reset));
        }
    }

    /// Since when nobody here sends, until when and why; and whether anybody waits, or has come since this was asked for last.
    pub(super) fn paused_since(&self, now: Instant) -> Option<(Instant, (Instant, Reason), bool)> {
        // One of the whole upstream may have become longer since anybody came here.
        let of_all = self.crowd.paused(now);
        let engine = &mut self.known()?.engine;
        let came = std::mem::take(&mut engine.came) || !engine.waiters.is_empty();
        let since = engine.paused_at.unwrap_or(now);
        engine.lasting_pause(now).or(of_all).map(|pause| (since, pause, came))
    }

    /// Lets go of everybody who waits, and of every slot.
    pub(crate) fn close(self: &Arc<Self>) {
        self.happen(|_| Some(Event::Closed));
        self.local().iter().for_each(Self::close);
    }

    /// Takes in what has happened, and makes sure that somebody does what follows.
    pub(super) fn happen(self: &Arc<Self>, what: impl FnOnce(&mut State) -> Option<Event>) {
        let (now, mut out) = (Instant::now(), Outbox::default());
        let mut state = self.lock();
        let Some(event) = what(&mut state) else { return };
        state.handle(event, now, self, &mut out);
        let driver = match state.take_duty(now) {
            Some(number) => Some(Driver::new(self, number)),
            // On a thread without a runtime nothing can be spawned: what came up is seen to when the answer is there.
            None if state.duty.is_too_late(out.wake) && Handle::try_current().is_ok() => state.duty.take_by_hand(),
            None => None,
        };
        let nudge = state.duty.hurry(out.wake);
        drop(state);
        self.see_to(driver, nudge, &mut out, now);
    }

    /// Has a task drive, or whoever drives look.
    pub(super) fn see_to(self: &Arc<Self>, driver: Option<Driver>, nudge: bool, out: &mut Outbox, now: Instant) {
        out.wake_all(self, now);
        match driver {
            Some(driver) => driver.spawn(),
            None if nudge => self.nudge.notify_one(),
            None => {}
        }
    }

    /// Whose logs its callers are charged in, as the store knows it.
    pub(crate) fn ledger(&self) -> &Arc<str> {
        &self.shard.ledger
    }

    pub(crate) fn upstream(&self) -> &Arc<str> {
        &self.registered.upstream.name
    }

    /// Of which edition of the upstream it is.
    pub(super) fn edition(&self) -> u64 {
        self.registered.edition()
    }

    /// Whether these are its callers, of some edition of the limits.
    pub(super) fn is_of(&self, edition: u64, scopes: &Scopes) -> bool {
        self.scopes.untouched == scopes.untouched && self.is_of_scopes(edition, scopes)
    }

    /// The same, whichever logs they take of.
    pub(super) fn is_of_scopes(&self, edition: u64, scopes: &Scopes) -> bool {
        self.edition() == edition && self.scopes.all == scopes.all
    }

    /// Whether others of the process may take of some of its logs, and not of all.
    pub(super) fn has_others_beside(&self) -> bool {
        let may_share = self.scopes.all.is_some() || self.scopes.untouched > 0 || self.logs.len() > 1;
        may_share && !self.is_line() && !self.is_local()
    }

    /// Whether it can look whether pauses hold in what the store calls so.
    pub(crate) fn may_look(&self, ledger: &str) -> bool {
        &*self.shard.ledger == ledger && !self.is_line() && !self.is_local()
    }

    /// Until when nobody here sends, and why.
    pub(super) fn paused(&self, now: Instant) -> Option<(Instant, Reason)> {
        self.known()?.engine.lasting_pause(now)
    }

    /// Whose logs its callers are charged in.
    pub(crate) const fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// The scope that few share.
    pub(crate) const fn scope(&self) -> Option<ScopeId> {
        self.scopes.narrowest
    }

    /// Whether shadows stand here, of callers that went on.
    pub(super) fn is_observed(&self) -> bool {
        self.registered.upstream.observes
    }

    /// Callers that wait for a slot to be booked or to start.
    pub(crate) fn waiting(&self) -> usize {
        let local = self.local().map_or(0, |local| local.waiting());
        local + self.known().filter(|_| !self.is_observed()).map_or(0, |state| state.engine.waiters.len())
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn idle(&self) {
        let mut idled = std::pin::pin!(self.idled.notified());
        while !self.is_done() {
            idled.as_mut().enable();
            if self.is_done() {
                return;
            }
            idled.as_mut().await;
            idled.set(self.idled.notified());
        }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.known().is_none_or(|state| state.is_idle())
    }

    /// Whether nobody is served here any more.
    pub(super) fn is_closed(&self) -> bool {
        self.known().is_some_and(|state| state.engine.closed)
    }

    /// Whether nothing is left to do, or it is closed and only calls in flight are left.
    pub(super) fn is_done(&self) -> bool {
        self.known().is_none_or(|state| state.is_done())
    }

    /// The same, where it can be seen at once.
    pub(super) fn is_seen_to_be_done(&self) -> bool {
        let Some(core) = self.core.get() else { return true };
        let state = match core.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        state.is_done()
    }

    /// How far ahead of now a start has to be, so that it has not passed when the answer is here.
    pub(crate) fn ahead(&self, now: Instant) -> Duration {
        self.shard.time.ahead(self.stale_after(), now)
    }

    /// Has a task drive where a caller did so far.
    pub(super) fn leave_to_a_task(&self) {
        let driver = self.lock().duty.take_by_hand();
        driver.into_iter().for_each(Driver::spawn);
    }

    /// Has a task of this runtime drive where a caller did that may be polled no more, and where whoever did has been overdue for so long.
    pub(super) fn is_driven_on(self: &Arc<Self>, patience: Duration) {
        let now = Instant::now();
        self.look_after(Some(patience), now);
        self.leave_to_a_task();
        let number = self.lock().take_duty(now);
        if let Some(number) = number {
            Driver::new(self, number).spawn();
        }
    }

    fn core(&self) -> &Core {
        self.core.get_or_init(|| {
            let settings = Arc::new(self.settings_anew());
            let engine = Engine::new(Arc::clone(&settings), self.process.id(), Rng::new());
            Box::new(Core { settings, state: Mutex::new(State::new(engine, self.shard.time.suspensions())) })
        })
    }

    /// What its engine knows of it.
    pub(super) fn settings(&self) -> &Settings {
        &self.core().settings
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.core().state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has changed about it, where anything ever has.
    pub(super) fn known(&self) -> Option<MutexGuard<'_, State>> {
        self.core.get().map(|core| core.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.known().is_some_and(|state| state.engine.lost.is_refused()) {
            self.shard.contact.refuse_no_more();
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("upstream", self.upstream()).field("scope", &self.scope()).finish_non_exhaustive()
    }
}
