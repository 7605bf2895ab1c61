//! A caller: it takes a place in queue, and waits there for its slot.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::Queue;
use super::crowd::Member;
use super::driver::Driver;
use super::duty::{ByHand, Duty};
use super::events::Event;
use super::outbox::Outbox;
use super::places::Outcome;
use super::waiters::{Slot, Waiter};
use crate::error::Error;

/// A driver whose message a caller waits for itself. Boxed, as everybody who waits would have room for it.
type DrivenByHand = Pin<Box<dyn Future<Output = Option<Outcome>> + Send>>;

/// How a caller that has just joined waits.
enum Begins {
    Driving(DrivenByHand),
    /// It is woken when it is told anything, and nobody has to be looked after: there is nothing to look for before.
    Asleep,
    Looking,
}

impl Queue {
    /// Takes a caller in, or the shadow of one.
    pub(crate) fn enter(&self) -> Result<Member, Error> {
        self.crowd.admit(self.is_observed(), self.upstream())
    }

    /// Waits from `now` on for a slot that starts, and says when that is.
    ///
    /// Dropped while waiting, the caller's place goes to those behind it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] where nobody is served here any more: another queue may have taken the place of this one.
    pub(crate) async fn slot(self: &Arc<Self>, waiter: &Waiter, mut now: Instant) -> Result<(Slot, Instant), Error> {
        let mut caller = Caller { queue: self, ticket: waiter.ticket, waits: false };
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let mut begins = caller.join(waiter.clone(), waker, now, None);
        loop {
            let slot = caller.outcome(begins, waiter.until()).await?;
            now = Instant::now();
            let is_sure = self.is_sure_of_seat(&slot, now);
            if is_sure && !slot.is_stale(now, self.stale_after()) {
                return Ok((slot, now));
            }
            // It comes back with its ticket, and so to its place.
            let upstream = &**self.upstream();
            if is_sure {
                tracing::debug!(upstream, "slot stale, asking again");
            } else {
                tracing::debug!(upstream, "seat may be lost, asking again");
            }
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            let again = if is_sure { Event::Missed(slot) } else { Event::Distrusted(slot) };
            begins = caller.join(waiter.clone(), waker, now, Some(again));
            self.successors.look();
        }
    }

    /// The driver that a caller left here when it was polled last, else what that caller was told meanwhile: nothing where a task
    /// drives.
    pub(super) fn pick_up(&self, ticket: u64, cx: &Context<'_>) -> Result<Driver, Option<Outcome>> {
        let mut state = self.lock();
        if let Poll::Ready(outcome) = state.places.poll(ticket, cx) {
            let driver = state.duty.put_by_hand(ByHand::Nobody);
            drop(state);
            driver.into_iter().for_each(Driver::spawn);
            return Err(Some(outcome));
        }
        let driver = state.duty.put_by_hand(ByHand::Polled { wanted: false });
        if driver.is_none() {
            state.duty.by_hand = ByHand::Nobody;
        }
        driver.ok_or(None)
    }

    /// What a caller is told. Where nobody drives any more, it has a task drive; a driver in another runtime is looked after.
    fn poll_outcome(self: &Arc<Self>, ticket: u64, cx: &Context<'_>) -> (Poll<Outcome>, Option<Instant>) {
        let mut state = self.lock();
        let outcome = state.places.poll(ticket, cx);
        if outcome.is_ready() {
            return (outcome, None);
        }
        let looks_again = Duty::looks_again_after(state.engine.waiters.len());
        let overdue_at = state.duty.overdue_at(here()).map(|at| at.min(Instant::now() + looks_again));
        let undriven = if state.duty.is_undriven() { state.take_duty(Instant::now()) } else { None };
        drop(state);
        if let Some(number) = undriven {
            Driver::new(self, number).spawn();
        }
        (Poll::Pending, overdue_at)
    }

    /// A caller's time is up: takes what it was told in this very moment, else says why there was nothing.
    fn give_up(self: &Arc<Self>, ticket: u64) -> Outcome {
        self.happen(|_| Some(Event::TimeUp(ticket)));
        match self.lock().places.leave(ticket).unwrap_or(Err(Error::Closed)) {
            Err(Error::Throttled { .. }) if let Some(unavailable) = self.seats_unavailable() => Err(unavailable),
            outcome => outcome,
        }
    }

    /// Gives up on a driver that has been overdue for so long, or for as long as callers wait for it: its runtime stands still. Everybody looks, and
    /// one drives.
    pub(super) fn look_after(self: &Arc<Self>, patience: Option<Duration>, now: Instant) {
        let mut out = Outbox::default();
        let mut state = self.lock();
        let patience = patience.unwrap_or(state.duty.patience);
        if state.duty.overdue_after(patience, here()).is_some_and(|at| at <= now) {
            state.abandon(now, self, &mut out);
        }
        state.stands_by(now, &mut out);
        drop(state);
        out.wake_all(self, now);
    }
}

/// The runtime in which this is polled.
fn here() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// A caller. Dropped, its place goes to those behind.
struct Caller<'a> {
    queue: &'a Arc<Queue>,
    ticket: u64,
    /// Until it has been told something.
    waits: bool,
}

impl Caller<'_> {
    /// Takes its place. Where nobody drives the queue and nobody else waits, its message is to be sent by hand.
    ///
    /// Where it comes back, `again` says what came of the slot it had: nobody behind it is served between that and this.
    fn join(&mut self, waiter: Waiter, waker: Waker, now: Instant, again: Option<Event>) -> Begins {
        let (queue, mut out) = (self.queue, Outbox::default());
        let mut state = queue.lock();
        self.waits = true;
        state.places.take(self.ticket, waker);
        for event in again.into_iter().chain([Event::Joined(waiter)]) {
            state.handle(event, now, queue, &mut out);
        }
        let Some(number) = state.take_duty(now) else {
            // Whoever drives by hand may be polled no more.
            let (driver, nudge) = (state.duty.take_by_hand(), state.duty.hurry(out.wake));
            let (here, is_driven) = (here(), !state.duty.is_undriven());
            let sleeps = is_driven && state.duty.overdue_at(here).is_none() && state.places.is_undecided(self.ticket);
            if is_driven && state.duty.is_near(here) {
                out.leave_memory_to_driver();
            }
            drop(state);
            queue.see_to(driver, nudge, &mut out, now);
            return if sleeps { Begins::Asleep } else { Begins::Looking };
        };
        let mut driver = Driver::new(queue, number);
        state.turn(queue, now, &mut out);
        let message = out.send.take();
        let is_alone = message.is_some() && state.engine.waiters.len() == 1;
        let former = is_alone.then(|| state.duty.put_by_hand(ByHand::Polled { wanted: false })).flatten();
        drop(state);
        drop(former);
        if let Some(message) = message {
            driver.send(message);
        }
        out.wake_all(queue, now);
        if out.idle {
            queue.idled.notify_waiters();
        }
        if is_alone {
            return Begins::Driving(Box::pin(driver.by_hand(self.ticket, out.wake)));
        }
        driver.spawn();
        Begins::Looking
    }

    /// What the caller is told in the end.
    ///
    /// Whoever finds the queue undriven sends its first message, and takes the answer, itself, so that a caller alone pays for no
    /// other task.
    async fn outcome(&mut self, begins: Begins, until: Option<Instant>) -> Outcome {
        let outcome = async {
            let sleeps = matches!(begins, Begins::Asleep);
            if let Begins::Driving(by_hand) = begins
                && let Some(outcome) = by_hand.await
            {
                return outcome;
            }
            self.wait(sleeps).await
        };
        let outcome = match until {
            None => outcome.await,
            // Boxed, as everybody who waits would have room for its timer.
            Some(until) => {
                Box::pin(timeout_at(until, outcome)).await.unwrap_or_else(|_| self.queue.give_up(self.ticket))
            }
        };
        self.waits = false;
        outcome
    }

    async fn wait(&self, mut sleeps: bool) -> Outcome {
        // Where the driver is polled in this runtime it is as good as this caller itself.
        let mut watch: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            if std::mem::take(&mut sleeps) {
                return Poll::Pending;
            }
            loop {
                let overdue_at = match self.queue.poll_outcome(self.ticket, cx) {
                    (Poll::Pending, Some(overdue_at)) => overdue_at,
                    (outcome, _) => return outcome,
                };
                let watch = watch.get_or_insert_with(|| Box::pin(sleep_until(overdue_at)));
                if watch.deadline() != overdue_at {
                    watch.as_mut().reset(overdue_at);
                }
                if watch.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.queue.look_after(None, Instant::now());
            }
        })
        .await
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.queue.happen(|state| match state.places.leave(self.ticket) {
                Some(Ok(slot)) => Some(Event::Returned(slot)),
                Some(Err(_)) => None,
                None => Some(Event::Left(self.ticket)),
            });
            // Who is in a line is counted in the queue for which it stands there, and who throttles by itself where it does so. Last: what a
            // program counts with may panic.
            if !self.queue.is_observed() {
                self.queue.settings().counts.gave_up();
            }
        }
    }
}
