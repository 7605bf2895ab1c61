//! Whoever drives a line: sends its messages one by one, hands out its slots as they start.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::Line;
use super::message::{Message, Reply};
use super::state::Step;

type InFlight = Pin<Box<dyn Future<Output = (Reply, Duration)> + Send>>;

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

    /// Sends the first message, and takes the answer of a store that has it at hand. For any other a task waits: its caller
    /// may be polled no more, while others wait behind it.
    pub(super) async fn first_turn(mut self) {
        let mut turn = pin!(self.turn());
        poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx).is_ready())).await;
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
            // A store in memory never lets anybody else run.
            tokio::task::coop::consume_budget().await;
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
                (reply, round_trip) = in_flight => {
                    self.in_flight = None;
                    let mut state = line.lock();
                    if state.is_driven_by(self.number) {
                        state.receive(reply, &line, Instant::now(), round_trip);
                    }
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
        let sent = Instant::now();
        let reply = match &*message {
            Message::Ask(ask, _) => line.process.store.book(ask).await.map(Some),
            Message::HandBack(hand_back) => line.process.store.hand_back(hand_back).await.map(|()| None),
        };
        (reply, sent.elapsed())
    })
}
