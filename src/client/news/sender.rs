//! The task that sends the messages of an errand.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use tokio::runtime::Handle;
use tokio::select;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::place::Place;
use crate::client::throttle::Throttle;
use crate::queue::news::{Errand, Event, Next, ROUND};

impl Throttle {
    /// What to do next about an errand, and the place of its message among those that are under way.
    async fn next_about<'a>(&'a self, errand: &'a Errand) -> (Next, Option<Place<'a>>) {
        let turn = || {
            let id = || self.process().next_message(errand.whom.stream());
            self.outgoing().lock().news.turn(errand, Instant::now(), id)
        };
        let next = turn();
        // Of whole upstreams there are few: nobody is to wait until all shards know.
        if !errand.whom.is_scope() || !matches!(next, Next::Send(_)) {
            return (next, None);
        }
        let place = Place::taken(self.outgoing(), errand).await;
        // There may have been none for long: what is left of a pause by now is told.
        (turn(), Some(place))
    }

    /// Sends the messages of an errand: the first by hand, as memory answers at once; the rest in a task.
    pub(super) fn begin(&self, errand: Errand) {
        let mut sending: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(Sender::new(self, errand).run());
        let is_done = sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if let Some(runtime) = Handle::try_current().ok().filter(|_| !is_done) {
            runtime.spawn(sending);
        }
    }
}

/// Whoever sends the messages of an errand. Dropped with its runtime, it says so.
struct Sender {
    throttle: Throttle,
    errand: Errand,
    done: bool,
}

impl Sender {
    fn new(throttle: &Throttle, errand: Errand) -> Self {
        Self { throttle: throttle.clone(), errand, done: false }
    }

    /// Sends until nothing is left to send, and comes round meanwhile; not where another has taken its place, as it was not polled for long.
    async fn run(mut self) {
        let done = {
            let (mut sends, mut round) = (pin!(self.send()), None::<Pin<Box<Sleep>>>);
            poll_fn(|cx| {
                loop {
                    // First of all: what it was about to send may be long out of date.
                    if !self.throttle.outgoing().lock().news.goes_on(&self.errand, Instant::now()) {
                        return Poll::Ready(true);
                    }
                    if let Poll::Ready(done) = sends.as_mut().poll(cx) {
                        return Poll::Ready(done);
                    }
                    // A timer that finds no runtime panics; without one nobody polls it again.
                    if Handle::try_current().is_err() {
                        return Poll::Pending;
                    }
                    ready!(round.get_or_insert_with(|| Box::pin(sleep(ROUND))).as_mut().poll(cx));
                    round = None;
                }
            })
            .await
        };
        self.done = done;
    }

    /// Sends until nothing is left to send; says `false` where it has to wait for that, and there is no runtime to wait in.
    async fn send(&self) -> bool {
        let Self { throttle, errand, .. } = self;
        loop {
            let hurried = throttle.outgoing().hurry.notified();
            let (next, _place) = throttle.next_about(errand).await;
            match next {
                Next::Send(message) => {
                    let answer = message.send(&errand.whom, throttle.outlook(&errand.whom), throttle.store()).await;
                    throttle.take_in(Event::Answered(errand.clone(), answer), Instant::now());
                }
                Next::Over => throttle.take_in(Event::Over(errand.clone()), Instant::now()),
                Next::Wait(_) if Handle::try_current().is_err() => return false,
                Next::Wait(at) => select! {
                    () = sleep_until(at) => {}
                    () = hurried => {}
                },
                Next::Idle => {
                    throttle.outgoing().answered.notify_waiters();
                    return true;
                }
            }
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.done {
            self.throttle.take_in(Event::Lost(self.errand.clone()), Instant::now());
        }
    }
}
