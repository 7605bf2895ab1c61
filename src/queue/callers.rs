//! One queue: who waits in it, and who drives it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::crowd::Crowd;
use super::driver::Driver;
use super::engine::Engine;
use super::in_flight::micros;
use super::log_time::LogTime;
use super::pacing::Rest;
use super::table::Key;
use super::waiters::{Slot, Waiter, Wish};
use crate::config::plan::Registered;
use crate::error::Error;
use crate::ledger::ScopeId;
use crate::ledger::Term;
use crate::ledger::{Ask, Cause, Grant, Log, Message, MessageId, Run, Verdict};
use crate::queue::process::Process;

/// One queue: a process, a home, and the logs that everybody in it needs a slot in.
pub(crate) struct Queue {
    pub(super) process: Arc<Process>,
    pub(super) upstream: Arc<str>,
    key: Key,
    /// The stream of its messages.
    pub(super) stream: Arc<str>,
    pub(super) logs: Arc<[Log]>,
    /// What a call of cost 1 takes of each log.
    pub(super) one: Arc<[u32]>,
    /// The message of a caller of cost 1 who does not wait.
    now_or_never: Message,
    pub(super) stale_after: Duration,
    /// Everybody who waits for the upstream.
    pub(super) crowd: Arc<Crowd>,
    pub(super) time: Arc<LogTime>,
    pub(super) state: Mutex<Engine>,
    /// Whoever drives in a caller's own task, while its message is under way.
    pub(super) by_hand: Mutex<Option<Driver>>,
    /// Wakes the driver when something came up that it does not sleep for.
    pub(super) nudge: Notify,
    /// Tells that nothing is left to do.
    pub(super) idled: Notify,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    pub(crate) wish: Wish,
    /// No answer after this is of use. `None`: as long as the store answers.
    pub(crate) until: Option<Instant>,
}

impl Queue {
    /// The queue of the callers of a scope of an upstream.
    pub(crate) fn new(process: &Arc<Process>, registered: &Registered, scope: Option<ScopeId>) -> Self {
        let logs = registered.logs_of(scope);
        Self {
            now_or_never: now_or_never(&registered.upstream.name, &logs, &registered.one),
            process: Arc::clone(process),
            upstream: Arc::clone(&registered.upstream.name),
            key: registered.key(scope),
            stream: scope.map_or_else(|| "".into(), |scope| scope.to_string().into()),
            logs,
            one: Arc::clone(&registered.one),
            stale_after: registered.stale_after,
            crowd: Arc::clone(&registered.crowd),
            time: Arc::clone(&registered.time),
            state: Mutex::default(),
            by_hand: Mutex::default(),
            nudge: Notify::new(),
            idled: Notify::new(),
        }
    }

    /// What a call of this cost takes of each log.
    pub(crate) fn costs(&self, cost: u32) -> Arc<[u32]> {
        if cost == 1 { Arc::clone(&self.one) } else { [cost].into() }
    }

    /// A slot that starts now, or how long until there is one, where nobody is before the caller and the store has its answer at
    /// hand.
    pub(crate) fn at_hand(&self, cost: u32, now: Instant) -> Option<Result<Slot, Duration>> {
        if !self.process.answers_at_hand() || !self.lock().is_quiet(now) {
            return None;
        }
        let costs = self.costs(cost);
        let answer = if cost == 1 {
            self.process.store.apply(&self.now_or_never).at_hand()
        } else {
            self.process.store.apply(&now_or_never(&self.upstream, &self.logs, &costs)).at_hand()
        };
        if answer.is_none() {
            self.process.answers_later();
        }
        let grant = answer?.ok()?.grant()?;
        let answer = grant.answers(1).next()?;
        match answer.verdict {
            Verdict::Granted => Some(Ok(Slot {
                stamp: answer.start,
                start: now,
                costs,
                excess: Duration::ZERO,
                sender: self.process.id(),
            })),
            // Who is paused, or left what is free to others, is told so in the queue.
            _ if grant.paused.is_some() || answer.start <= grant.now => None,
            _ => Some(Err(answer.start.since(grant.now))),
        }
    }

    /// Waits for a slot that starts now, for a caller that comes at `joined`.
    ///
    /// Dropped while waiting, the caller's place goes to those behind it.
    pub(crate) async fn slot(
        self: &Arc<Self>,
        costs: Arc<[u32]>,
        patience: Patience,
        joined: Instant,
    ) -> Result<Slot, Error> {
        let Some(_member) = self.crowd.enter() else {
            return Err(Error::TooManyWaiting { upstream: Arc::clone(&self.upstream), max_waiting: self.crowd.most() });
        };
        let (mut now, mut ticket) = (joined, None);
        loop {
            let (mut place, driver) = self.join(Arc::clone(&costs), patience, joined, ticket, now)?;
            ticket = Some(place.ticket);
            match place.told(driver, patience.until).await {
                Some(Ok(slot)) if slot.is_stale(Instant::now(), self.stale_after) => {
                    tracing::debug!(upstream = &*self.upstream, "slot stale, asking again");
                    self.give_back(slot);
                }
                Some(told) => return told,
                // Whoever drove the queue has gone, or stands still, with its runtime. This caller keeps its ticket, so its place.
                None => {}
            }
            now = Instant::now();
        }
    }

    /// Takes a place in queue, and the duty to drive it where nobody has that yet.
    fn join(
        self: &Arc<Self>,
        costs: Arc<[u32]>,
        patience: Patience,
        joined: Instant,
        ticket: Option<u64>,
        now: Instant,
    ) -> Result<(Place, Option<Driver>), Error> {
        let (tell, told) = oneshot::channel();
        let mut state = self.lock();
        let ticket = ticket.unwrap_or_else(|| state.next_ticket());
        let waiter = Waiter { ticket, costs, joined, wish: patience.wish, tell };
        if state.join(waiter, self, now)? {
            self.nudge.notify_one();
        }
        let driver = state.must_be_driven(now).map(|number| Driver::new(Arc::clone(self), number));
        drop(state);
        if driver.is_none() {
            self.leave_to_a_task();
        }
        Ok((Place { queue: Arc::clone(self), ticket, told }, driver))
    }

    /// Takes back a slot that its caller does not want: for the next in queue, else for the log.
    pub(crate) fn give_back(self: &Arc<Self>, slot: Slot) {
        let mut state = self.lock();
        state.give(slot, self, Instant::now());
        self.see_to(state);
    }

    /// Lets nobody here send for a while.
    pub(crate) fn withhold(self: &Arc<Self>, wait: Duration, cause: Cause) {
        let now = Instant::now();
        let mut state = self.lock();
        state.withhold(now + wait, cause, self, now);
        self.see_to(state);
    }

    /// Whether its callers belong to a scope of an upstream, or to the upstream where no scope is said.
    pub(crate) fn belongs_to(&self, (upstream, scope): Key) -> bool {
        self.key.0 == upstream && (scope.is_none() || self.key.1 == scope)
    }

    pub(crate) const fn upstream(&self) -> &Arc<str> {
        &self.upstream
    }

    pub(crate) const fn scope(&self) -> Option<ScopeId> {
        self.key.1
    }

    /// Lets go of everybody who waits, and of every slot.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut state = self.lock();
        state.close();
        self.see_to(state);
    }

    /// Callers that wait for a slot to be booked or to start.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiters.len()
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn idle(&self) {
        let mut idled = std::pin::pin!(self.idled.notified());
        while !self.is_idle() {
            idled.as_mut().enable();
            if self.is_idle() {
                return;
            }
            idled.as_mut().await;
            idled.set(self.idled.notified());
        }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// The terms of the first log, whose units places in queue are counted in.
    pub(super) fn terms(&self) -> impl Iterator<Item = &Term> {
        self.logs.iter().take(1).flat_map(|log| log.terms.iter())
    }

    /// How long until this queue asks again for a caller that may start `next` from now at the earliest, while the callers of so
    /// many other processes wait.
    pub(super) fn rest(&self, next: Duration, grant: &Grant, now: Instant) -> Duration {
        let rest = self.rest_of(next, grant.contenders, now);
        Rest { horizon: rest.horizon.min(grant.within), ..rest }.length(fastrand::f64())
    }

    /// How long until this queue asks again that has just got so many units, while the callers of so many other processes wait.
    pub(super) fn rest_after(&self, units: u64, contenders: u32, now: Instant) -> Duration {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.rest_of(Duration::ZERO, contenders, now).after(units, fastrand::f64())
    }

    fn rest_of(&self, next: Duration, contenders: u32, now: Instant) -> Rest {
        let interval_of = |term: &Term| micros(1, term.span) / term.quota.max(1);
        let narrowest = self.terms().min_by_key(|term| term.span);
        let interval = narrowest.map(interval_of).unwrap_or_default();
        // A share is counted at the rate of the slowest term. Where a narrow span lets go out more for a while, it is asked for more often.
        let is_faster = self.terms().any(|term| interval_of(term) > interval * 10 / 9);
        let span = narrowest.filter(|_| is_faster).map_or(Duration::MAX, |term| micros(1, term.span));
        // Of slots that come one by one none may pass while everybody rests.
        let turns = if interval < self.process.horizon { contenders.saturating_add(1) } else { 0 };
        let turn = interval.saturating_mul(turns);
        let (ahead, round_trip) = (self.ahead(now), self.time.round_trip());
        let answer = round_trip.max(ahead + round_trip / 2);
        Rest { next, horizon: self.horizon(), span, turn, answer }
    }

    /// A message about these logs, with what is known of their time at `now`.
    pub(super) fn message(&self, id: MessageId, ask: Ask, now: Instant) -> Message {
        let message = Message::new(Arc::clone(&self.upstream), id, ask);
        Message { known: self.time.known(), latest: self.time.latest_before_leap(now), ..message }
    }

    /// How far ahead slots are booked: further where every answer takes long, else slots would run out meanwhile.
    pub(super) fn horizon(&self) -> Duration {
        self.process.horizon.max(self.time.round_trip() * 5 / 4)
    }

    /// How far ahead of now a start has to be, so that it has not passed when the answer is here.
    pub(crate) fn ahead(&self, now: Instant) -> Duration {
        self.time.ahead(self.stale_after, now)
    }

    /// Bounds of the store's clock no wider than this place slots well enough.
    pub(super) fn fine(&self) -> Duration {
        self.stale_after / 2
    }

    pub(super) fn throttled(&self, retry_after: Duration) -> Error {
        Error::Throttled { upstream: Arc::clone(&self.upstream), retry_after }
    }

    /// Gives up on a driver that did not look when it had promised: its runtime stands still. Everybody comes back, and one drives.
    fn look_after(&self, overdue_at: Instant) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.overdue_at(now) <= overdue_at {
            state.abandon();
        }
    }

    /// Makes sure that somebody does what has come up.
    fn see_to(self: &Arc<Self>, mut state: MutexGuard<'_, Engine>) {
        if let Some(number) = state.must_be_driven(Instant::now()) {
            drop(state);
            Driver::new(Arc::clone(self), number).spawn();
        } else {
            drop(state);
            // On a thread without a runtime nothing can be spawned: what came up is seen to when the answer is there.
            if Handle::try_current().is_ok() {
                self.leave_to_a_task();
            }
            self.nudge.notify_one();
        }
    }

    /// Has a task drive where a caller did so far: there is more to do now than to wait for that caller's answer.
    pub(super) fn leave_to_a_task(&self) {
        let driver = self.driver_by_hand().take();
        if let Some(driver) = driver {
            driver.spawn();
        }
    }

    pub(super) fn driver_by_hand(&self) -> MutexGuard<'_, Option<Driver>> {
        self.by_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An ask of one caller of these charges who does not wait.
fn now_or_never(upstream: &Arc<str>, logs: &Arc<[Log]>, charges: &Arc<[u32]>) -> Message {
    let run = Run::new(1, Arc::clone(charges)).max_wait(Duration::ZERO);
    Message::new(Arc::clone(upstream), MessageId::nobodys(), Ask::new(Arc::clone(logs), vec![run]))
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("upstream", &self.upstream).field("scope", &self.key.1).finish_non_exhaustive()
    }
}

/// A caller's place in queue. Dropped, it goes to those behind.
struct Place {
    queue: Arc<Queue>,
    ticket: u64,
    told: oneshot::Receiver<Result<Slot, Error>>,
}

impl Place {
    /// What the caller is told in the end; `None` when nobody is left to tell it anything.
    ///
    /// Whoever finds the queue undriven sends its first message, and takes the answer, itself, so that a caller alone pays for no
    /// other task.
    async fn told(&mut self, driver: Option<Driver>, until: Option<Instant>) -> Option<Result<Slot, Error>> {
        let told = async {
            if let Some(driver) = driver {
                let by_hand = driver.by_hand();
                select! {
                    biased;
                    told = &mut self.told => return told.ok(),
                    () = by_hand => {}
                }
            }
            loop {
                let overdue_at = self.queue.lock().overdue_at(Instant::now());
                match timeout_at(overdue_at, &mut self.told).await {
                    Ok(told) => return told.ok(),
                    Err(_) => self.queue.look_after(overdue_at),
                }
            }
        };
        let Some(until) = until else {
            return told.await;
        };
        match timeout_at(until, told).await {
            Ok(told) => told,
            Err(_) => Some(self.give_up()),
        }
    }

    /// The time is up: takes what was told in this very moment, else says why nothing was.
    fn give_up(&mut self) -> Result<Slot, Error> {
        let mut state = self.queue.lock();
        let error = state.why_nothing(self.ticket, &self.queue, Instant::now());
        state.leave(self.ticket, Instant::now());
        self.queue.see_to(state);
        self.told.try_recv().unwrap_or(Err(error))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.told.close();
        let told = self.told.try_recv();
        let mut state = self.queue.lock();
        let left = state.leave(self.ticket, Instant::now());
        if let Ok(Ok(slot)) = told {
            state.give(slot, &self.queue, Instant::now());
        } else if !left {
            return;
        }
        self.queue.see_to(state);
    }
}
