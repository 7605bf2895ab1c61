//! Whoever drives a queue: sends its messages one by one, hands out its slots as they start.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Queue;
use super::bounds::Exchange;
use super::engine::Step;
use super::in_flight::{InFlight, Reply};
use crate::error::StoreError;
use crate::ledger::{Ask, MessageId};
use crate::store::Applied;

type Sending = Pin<Box<dyn Future<Output = (Reply, Exchange)> + Send>>;

/// The right, and the duty, to drive a queue. There is one at most. Dropped, the duty goes on to a task of its own, with the
/// message that is under way: a caller that drove and was cancelled leaves no message without its answer.
pub(super) struct Driver {
    queue: Arc<Queue>,
    number: u64,
    in_flight: Option<Sending>,
    /// In a task already: when that is dropped its runtime is gone, and nothing can be spawned.
    in_task: bool,
    done: bool,
}

impl Driver {
    pub(super) fn new(queue: Arc<Queue>, number: u64) -> Self {
        Self { queue, number, in_flight: None, in_task: false, done: false }
    }

    /// The same driver elsewhere; this one is done.
    fn moved(&mut self, in_task: bool) -> Self {
        self.done = true;
        Self {
            queue: Arc::clone(&self.queue),
            number: self.number,
            in_flight: self.in_flight.take(),
            in_task,
            done: false,
        }
    }

    /// Sends the first message, at once, and waits for its answer in the caller's own task. As soon as anybody else comes, or
    /// there is more to do, a task drives: this caller may be polled no more.
    pub(super) fn by_hand(self) -> impl Future<Output = ()> + Send {
        let queue = Arc::clone(&self.queue);
        let parked = self.park();
        async move {
            let Some((parked, until)) = parked else { return };
            let answer = poll_fn(|cx| {
                let mut by_hand = queue.driver_by_hand();
                // Where a task drives already, nothing is left to wait for here.
                let Some(in_flight) = by_hand.as_mut().and_then(|driver| driver.in_flight.as_mut()) else {
                    return Poll::Pending;
                };
                in_flight.as_mut().poll(cx).map(|answer| (by_hand.take(), answer))
            });
            let answered = match until {
                Some(until) => timeout_at(until, answer).await.ok(),
                None => Some(answer.await),
            };
            drop(parked);
            if let Some((Some(mut driver), (reply, exchange))) = answered {
                driver.in_flight = None;
                driver.receive(reply, exchange);
                // Dropped, it ends where nothing is left to do.
            }
        }
    }

    /// Sends the first message, and leaves the driver where whoever comes next finds it; with when to look again. Where
    /// others wait already, a task drives.
    fn park(mut self) -> Option<(Parked, Option<Instant>)> {
        let queue = Arc::clone(&self.queue);
        let mut state = queue.lock();
        let step = state.is_driven_by(self.number).then(|| state.step(&queue, Instant::now(), false));
        let Some(Step { send: Some(message), wake, .. }) = step else {
            drop(state);
            queue.idled.notify_waiters();
            return None;
        };
        self.in_flight = Some(send(Arc::clone(&queue), message));
        if state.waiters.len() > 1 {
            drop(state);
            return None;
        }
        let before = queue.driver_by_hand().replace(self);
        drop(state);
        drop(before);
        Some((Parked(queue), wake))
    }

    fn receive(&self, reply: Reply, exchange: Exchange) {
        let mut state = self.queue.lock();
        if state.is_driven_by(self.number) {
            state.receive(reply, &self.queue, Instant::now(), exchange);
        }
    }

    /// Leaves the driving to a task.
    pub(super) fn spawn(mut self) {
        let Ok(runtime) = Handle::try_current() else {
            self.abandon();
            return;
        };
        let driver = self.moved(true);
        runtime.spawn(driver.run());
    }

    async fn run(mut self) {
        while self.turn().await {
            // Whoever was just served may be back at once: then it goes into the next message, and not into one of its own.
            yield_now().await;
        }
    }

    /// Does what is to be done now, then waits until there is more. Says whether there ever will be.
    async fn turn(&mut self) -> bool {
        let queue = Arc::clone(&self.queue);
        let Some(step) = self.step() else { return false };
        if let Some(message) = step.send {
            self.in_flight = Some(send(Arc::clone(&queue), message));
        }
        let wake = async {
            match step.wake {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        match &mut self.in_flight {
            None if step.idle => {
                self.done = true;
                queue.idled.notify_waiters();
                return false;
            }
            None => tokio::select! {
                () = wake => {}
                () = queue.nudge.notified() => {}
            },
            Some(in_flight) => tokio::select! {
                biased;
                (reply, exchange) = in_flight => {
                    self.in_flight = None;
                    self.receive(reply, exchange);
                }
                () = wake => {}
                () = queue.nudge.notified() => {}
            },
        }
        true
    }

    /// What is to be done now; nothing if somebody else drives meanwhile, because this one was not heard of for too long.
    fn step(&mut self) -> Option<Step> {
        let mut state = self.queue.lock();
        self.done = !state.is_driven_by(self.number);
        (!self.done).then(|| state.step(&self.queue, Instant::now(), self.in_flight.is_some()))
    }

    /// Ends where nothing is left to do, or somebody else drives.
    fn stop_if_idle(&self) -> bool {
        let mut state = self.queue.lock();
        if !state.is_driven_by(self.number) {
            return true;
        }
        let idle = state.stop_if_idle();
        drop(state);
        if idle {
            self.queue.idled.notify_waiters();
        }
        idle
    }

    /// Nobody can drive any more: whoever waits learns it, and the next caller to come drives again.
    fn abandon(&mut self) {
        self.done = true;
        let mut state = self.queue.lock();
        if state.is_driven_by(self.number) {
            state.abandon();
        }
    }
}

/// Sees to it that a driver is not left alone by a caller that waits no more.
struct Parked(Arc<Queue>);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.leave_to_a_task();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.in_task {
            self.abandon();
        } else if self.in_flight.is_none() && self.stop_if_idle() {
            self.done = true;
        } else {
            self.moved(false).spawn();
        }
    }
}

/// A message on its way, on the store's own time: it outlives the caller that sent it.
fn send(queue: Arc<Queue>, message: Arc<InFlight>) -> Sending {
    Box::pin(async move {
        for _ in 0..queue.time.missing_exchanges(queue.fine()) {
            let sent = Instant::now();
            if let Err(error) = learn_the_time(&queue).await {
                return (Err(error), Exchange { sent, arrived: Instant::now() });
            }
        }
        let sent = Instant::now();
        let reply = grant_of(queue.process.store.apply(&message.message).await);
        (reply, Exchange { sent, arrived: Instant::now() })
    })
}

/// An exchange for the sake of the store's clock alone: an ask of nobody for nothing.
async fn learn_the_time(queue: &Queue) -> Result<(), StoreError> {
    let sent = Instant::now();
    let ask = Ask::new(Arc::clone(&queue.logs), Vec::new());
    let message = queue.message(MessageId::nobodys(), ask, sent);
    let grant = grant_of(queue.process.store.apply(&message).await)?;
    queue.time.exchanged(Exchange { sent, arrived: Instant::now() }, grant.now, queue.fine());
    Ok(())
}

/// The answer to an ask.
fn grant_of(answer: Applied) -> Reply {
    answer?.grant().ok_or_else(StoreError::senseless)
}
