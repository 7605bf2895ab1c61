//! Whoever drives a line: sends its messages one by one, hands out its slots as they start.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Line;
use super::bounds::Exchange;
use super::message::{Message, Reply};
use super::state::Step;
use crate::error::StoreError;

type InFlight = Pin<Box<dyn Future<Output = (Reply, Exchange)> + Send>>;

/// Whose asks for nothing are: a store remembers nothing of them.
const NOBODY: u64 = 0;

/// The right, and the duty, to drive a line. There is one at most. Dropped, the duty goes on to a task of its own, with the
/// message that is under way: a caller that drove and was cancelled leaves no message without its answer.
pub(super) struct Driver {
    line: Arc<Line>,
    number: u64,
    in_flight: Option<InFlight>,
    /// In a task already: when that is dropped its runtime is gone, and nothing can be spawned.
    in_task: bool,
    done: bool,
}

impl Driver {
    pub(super) fn new(line: Arc<Line>, number: u64) -> Self {
        Self { line, number, in_flight: None, in_task: false, done: false }
    }

    /// The same driver elsewhere; this one is done.
    fn moved(&mut self, in_task: bool) -> Self {
        self.done = true;
        Self {
            line: Arc::clone(&self.line),
            number: self.number,
            in_flight: self.in_flight.take(),
            in_task,
            done: false,
        }
    }

    /// Sends the first message, at once, and waits for its answer in the caller's own task. As soon as anybody else comes, or
    /// there is more to do, a task drives: this caller may be polled no more.
    pub(super) fn by_hand(self) -> impl Future<Output = ()> + Send {
        let line = Arc::clone(&self.line);
        let parked = self.park();
        async move {
            let Some((parked, until)) = parked else { return };
            let answer = poll_fn(|cx| {
                let mut by_hand = line.driver_by_hand();
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
        let line = Arc::clone(&self.line);
        let mut state = line.lock();
        let step = state.is_driven_by(self.number).then(|| state.step(&line, Instant::now(), false));
        let Some(Step { send: Some(message), wake, .. }) = step else {
            drop(state);
            line.idled.notify_waiters();
            return None;
        };
        self.in_flight = Some(send(Arc::clone(&line), message));
        if state.queue.len() > 1 {
            drop(state);
            return None;
        }
        let before = line.driver_by_hand().replace(self);
        drop(state);
        drop(before);
        Some((Parked(line), wake))
    }

    fn receive(&self, reply: Reply, exchange: Exchange) {
        let mut state = self.line.lock();
        if state.is_driven_by(self.number) {
            state.receive(reply, &self.line, Instant::now(), exchange);
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
        let line = Arc::clone(&self.line);
        let Some(step) = self.step() else { return false };
        if let Some(message) = step.send {
            self.in_flight = Some(send(Arc::clone(&line), message));
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
                line.idled.notify_waiters();
                return false;
            }
            None => tokio::select! {
                () = wake => {}
                () = line.nudge.notified() => {}
            },
            Some(in_flight) => tokio::select! {
                biased;
                (reply, exchange) = in_flight => {
                    self.in_flight = None;
                    self.receive(reply, exchange);
                }
                () = wake => {}
                () = line.nudge.notified() => {}
            },
        }
        true
    }

    /// What is to be done now; nothing if somebody else drives meanwhile, because this one was not heard of for too long.
    fn step(&mut self) -> Option<Step> {
        let mut state = self.line.lock();
        self.done = !state.is_driven_by(self.number);
        (!self.done).then(|| state.step(&self.line, Instant::now(), self.in_flight.is_some()))
    }

    /// Ends where nothing is left to do, or somebody else drives.
    fn stop_if_idle(&self) -> bool {
        let mut state = self.line.lock();
        if !state.is_driven_by(self.number) {
            return true;
        }
        let idle = state.stop_if_idle();
        drop(state);
        if idle {
            self.line.idled.notify_waiters();
        }
        idle
    }

    /// Nobody can drive any more: whoever waits learns it, and the next caller to come drives again.
    fn abandon(&mut self) {
        self.done = true;
        let mut state = self.line.lock();
        if state.is_driven_by(self.number) {
            state.abandon();
        }
    }
}

/// Sees to it that a driver is not left alone by a caller that waits no more.
struct Parked(Arc<Line>);

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
fn send(line: Arc<Line>, message: Arc<Message>) -> InFlight {
    Box::pin(async move {
        for _ in 0..line.time.missing_exchanges(line.fine()) {
            let sent = Instant::now();
            if let Err(error) = learn_the_time(&line).await {
                return (Err(error), Exchange { sent, arrived: Instant::now() });
            }
        }
        let sent = Instant::now();
        let reply = match &*message {
            Message::Ask(ask, _) => line.process.store.book(ask).await.map(Some),
            Message::HandBack(hand_back) => line.process.store.hand_back(hand_back).await.map(|()| None),
        };
        (reply, Exchange { sent, arrived: Instant::now() })
    })
}

/// An exchange for the sake of the store's clock alone: an ask of nobody for nothing.
async fn learn_the_time(line: &Line) -> Result<(), StoreError> {
    let sent = Instant::now();
    let ask = line.ask_of(NOBODY, 0, Vec::new(), sent);
    let grant = line.process.store.book(&ask).await?;
    line.time.exchanged(Exchange { sent, arrived: Instant::now() }, grant.now, line.fine());
    Ok(())
}
