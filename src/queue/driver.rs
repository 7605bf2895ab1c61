//! Whoever drives a queue: sends its messages one by one, and has its engine take turns.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Queue;
use super::bounds::{Exchange, MOST_EXCHANGES};
use super::duty::ByHand;
use super::events::Event;
use super::in_flight::{Answered, Message, Reply, ask_for_time};
use super::outbox::Outbox;
use super::places::Outcome;

/// A message that was taken over from another runtime is sent again after so long: well before its callers are refused.
const SENT_AGAIN: Duration = Duration::from_millis(500);

type InFlight = Pin<Box<dyn Future<Output = (Reply, Exchange)> + Send>>;

/// The right, and the duty, to drive a queue. There is one at most. Dropped, the duty goes on to a task of its own, with the
/// message that is under way: a caller that drove and was cancelled leaves no message without its answer.
///
/// Whoever polls the message owns it meanwhile: a store may call back whatever it likes, as no lock is held.
pub(super) struct Driver {
    queue: Arc<Queue>,
    number: u64,
    in_flight: Option<InFlight>,
    /// Whether the queue has places in the lines for seats.
    has_places: bool,
    /// Of its task: when that is dropped its runtime is gone, and nothing can be spawned.
    runtime: Option<Id>,
    /// Where the message that is under way was sent by hand.
    sent_in: Option<Handle>,
    /// When it was taken over from there, where nothing may be polled any more.
    taken_over: Option<Instant>,
    done: bool,
}

impl Driver {
    pub(super) fn new(queue: &Arc<Queue>, number: u64) -> Self {
        Self {
            queue: Arc::clone(queue),
            number,
            in_flight: None,
            has_places: false,
            runtime: None,
            sent_in: None,
            taken_over: None,
            done: false,
        }
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Sends a message, as soon as it is polled.
    pub(super) fn send(&mut self, message: Arc<Message>) {
        self.in_flight = Some(send(Arc::clone(&self.queue), message));
    }

    /// Waits for the answer in the caller's own task, and says what the caller is told by that, if anything. As soon as anybody
    /// else comes, or there is more to do, a task drives: this caller may be polled no more.
    pub(super) async fn by_hand(self, ticket: u64, wake: Option<Instant>) -> Option<Outcome> {
        let queue = Arc::clone(&self.queue);
        let mut parked = Parked(Some(&queue));
        let mut first = Some(self);
        let answer = poll_fn(|cx| {
            let driver = match first.take() {
                Some(driver) => driver,
                None => match queue.pick_up(ticket, cx) {
                    Ok(driver) => driver,
                    Err(outcome) => return Poll::Ready(outcome),
                },
            };
            driver.poll_by_hand(ticket, cx)
        });
        let answer = match wake {
            Some(wake) => timeout_at(wake, answer).await.ok(),
            None => Some(answer.await),
        };
        if answer.is_some() {
            parked.0 = None;
        }
        answer.flatten()
    }

    fn poll_by_hand(mut self, ticket: u64, cx: &mut Context<'_>) -> Poll<Option<Outcome>> {
        let Some(in_flight) = &mut self.in_flight else { return Poll::Ready(None) };
        let answer = in_flight.as_mut().poll(cx);
        let queue = Arc::clone(&self.queue);
        let Poll::Ready((reply, exchange)) = answer else {
            self.sent_in = self.sent_in.take().or_else(|| Handle::try_current().ok());
            let given_back = queue.lock().park(self);
            return given_back.map_or(Poll::Pending, |driver| {
                driver.spawn();
                Poll::Ready(None)
            });
        };
        (self.in_flight, self.sent_in) = (None, None);
        let answered = Answered::new(reply, exchange, &queue.shard.time, queue.settings());
        let mut out = Outbox::of(ticket);
        let mut state = queue.lock();
        self.done = !state.duty.is_driven_by(self.number);
        if self.done {
            // It was given up on.
            return Poll::Ready(None);
        }
        state.duty.by_hand = ByHand::Nobody;
        state.handle(Event::Answered(answered), exchange.arrived, &queue, &mut out);
        let outcome = state.places.poll(ticket, cx);
        self.done = state.stop_if_idle();
        drop(state);
        out.wake_all(&queue, exchange.arrived);
        if self.done {
            queue.idled.notify_waiters();
        } else {
            self.spawn();
        }
        Poll::Ready(if let Poll::Ready(outcome) = outcome { Some(outcome) } else { None })
    }

    /// Leaves the driving to a task. The message under way stays where it was sent: its alarms are there, and its connection may be.
    pub(super) fn spawn(mut self) {
        let sent_in = self.sent_in.take();
        let Some(runtime) = Handle::try_current().ok().or_else(|| sent_in.clone()) else { return self.abandon() };
        let mut driver = self.moved(Some(runtime.id()));
        if let Some(there) = sent_in.filter(|there| there.id() != runtime.id()) {
            let now = Instant::now();
            driver.taken_over = Some(now);
            driver.in_flight = driver.in_flight.take().map(|message| polled_in(&there, message));
            driver.queue.lock().is_taken_over(self.number, now);
        }
        // The task may never be polled.
        driver.queue.lock().duty.is_to_be_polled_in(self.number, runtime.id());
        runtime.spawn(driver.run());
    }

    /// The same driver elsewhere; this one is done.
    fn moved(&mut self, runtime: Option<Id>) -> Self {
        self.done = true;
        let (queue, in_flight) = (Arc::clone(&self.queue), self.in_flight.take());
        Self {
            queue,
            number: self.number,
            in_flight,
            has_places: false,
            runtime,
            sent_in: self.sent_in.take(),
            taken_over: None,
            done: false,
        }
    }

    async fn run(mut self) {
        let mut out = Outbox::default();
        let mut alarm = pin!(sleep_until(Instant::now()));
        while self.turn(&mut out) {
            let wake = out.wake.into_iter().chain(self.taken_over.map(|at| at + SENT_AGAIN)).min();
            if let Some(at) = wake.filter(|at| *at != alarm.deadline()) {
                alarm.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                // What another driver has sent by now is not polled any more: it would go out twice.
                () = poll_fn(|_| self.queue.poll_replaced(self.number)) => {}
                (reply, exchange) = answer(&mut self.in_flight) => {
                    (self.in_flight, self.taken_over) = (None, None);
                    self.receive(reply, exchange, &mut out);
                }
                told = poll_fn(|cx| self.queue.poll_places(self.number, cx)), if self.has_places => self.tell(told, &mut out),
                () = alarm.as_mut(), if wake.is_some() => {}
                () = self.queue.nudge.notified() => {}
            }
            // Whoever was just served may be back at once: then it goes into the next message, and not into one of its own.
            yield_now().await;
        }
    }

    /// Does what is to be done now. Says whether there will ever be more to do for this driver: not if somebody else drives
    /// meanwhile, because this one was not heard of for too long.
    fn turn(&mut self, out: &mut Outbox) -> bool {
        let now = Instant::now();
        let is_lost = self.taken_over.is_some_and(|at| at + SENT_AGAIN <= now);
        if is_lost {
            (self.in_flight, self.taken_over) = (None, None);
        }
        let mut state = self.queue.lock();
        self.done = !state.duty.is_driven_by(self.number);
        if self.done {
            return false;
        }
        if is_lost {
            // It is sent again: the store acts once.
            state.handle(Event::Lost, now, &self.queue, out);
        }
        state.duty.is_polled_in(self.runtime);
        state.turn(&self.queue, now, out);
        let is_told = state.engine.is_closed_and_told();
        let waits = !state.engine.waiters.is_empty();
        self.has_places = !state.duty.wants.is_empty();
        drop(state);
        if waits && !self.queue.is_line() && !self.queue.is_local() && !self.queue.is_observed() {
            self.queue.registered().attendance.waited_in(&self.queue, now);
        }
        if let Some(message) = out.send.take() {
            self.send(message);
        }
        out.wake_all(&self.queue, now);
        self.done = out.idle;
        if self.done || is_told {
            self.queue.idled.notify_waiters();
        }
        !self.done
    }

    fn receive(&self, reply: Reply, exchange: Exchange, out: &mut Outbox) {
        let answered = Answered::new(reply, exchange, &self.queue.shard.time, self.queue.settings());
        let mut state = self.queue.lock();
        if state.duty.is_driven_by(self.number) {
            state.handle(Event::Answered(answered), exchange.arrived, &self.queue, out);
        }
        drop(state);
        out.wake_all(&self.queue, exchange.arrived);
    }

    /// Tells what came of places in the lines for seats. Whoever drives knows of these seats from now on.
    fn tell(&self, told: Vec<Event>, out: &mut Outbox) {
        let now = Instant::now();
        let mut told = told.into_iter();
        let mut state = self.queue.lock();
        if state.duty.is_driven_by(self.number) {
            told.by_ref().for_each(|event| state.handle(event, now, &self.queue, out));
        }
        drop(state);
        out.wake_all(&self.queue, now);
        // Whoever drives by now is to know, too.
        told.for_each(|event| self.queue.happen(|_| Some(event)));
    }

    /// Nobody can drive any more: whoever waits looks, and drives.
    fn abandon(&mut self) {
        self.done = true;
        let (now, mut out) = (Instant::now(), Outbox::default());
        let mut state = self.queue.lock();
        if state.duty.is_driven_by(self.number) {
            state.abandon(now, &self.queue, &mut out);
        }
        drop(state);
        out.wake_all(&self.queue, now);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.runtime.is_some() {
            self.abandon();
        } else {
            self.moved(None).spawn();
        }
    }
}

impl Queue {
    /// Ready where another than this driver drives, or nobody.
    fn poll_replaced(&self, driver: u64) -> Poll<()> {
        if self.lock().duty.is_driven_by(driver) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// What its driver is to be told of its places in the lines for seats. The driver owns them while they are polled, as a line may have to ask the
    /// store.
    fn poll_places(self: &Arc<Self>, driver: u64, cx: &mut Context<'_>) -> Poll<Vec<Event>> {
        let mut state = self.lock();
        if !state.duty.is_driven_by(driver) {
            return Poll::Pending;
        }
        let mut wants = std::mem::take(&mut state.duty.wants);
        drop(state);
        let told = wants.poll_told(cx);
        let (now, mut out) = (Instant::now(), Outbox::default());
        let mut state = self.lock();
        if state.duty.is_driven_by(driver) {
            state.duty.wants = std::mem::take(&mut wants);
            // Somebody may have left meanwhile; of seats that were told just now the engine does not know yet.
            if told.is_pending() && state.engine.has_seats_to_spare(state.duty.wants.len()) {
                state.leave_lines(now, &mut out);
            }
        }
        drop(state);
        let is_news = out.wake.is_some();
        out.wake_all(self, now);
        // Whoever left may have been the last: the driver looks.
        if is_news { Poll::Ready(Vec::new()) } else { told }
    }
}

/// Sees to it that a driver is not left alone by a caller that waits no more.
struct Parked<'a>(Option<&'a Queue>);

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            queue.leave_to_a_task();
        }
    }
}

/// The answer to the message under way; without one, there is none.
async fn answer(in_flight: &mut Option<InFlight>) -> (Reply, Exchange) {
    match in_flight {
        Some(in_flight) => in_flight.as_mut().await,
        None => std::future::pending().await,
    }
}

/// The same message, polled in another runtime. Where that is gone it is never answered, and is sent again.
fn polled_in(there: &Handle, message: InFlight) -> InFlight {
    let mut polled = JoinSet::new();
    polled.spawn_on(message, there);
    Box::pin(async move {
        match polled.join_next().await {
            Some(Ok(answer)) => answer,
            _ => std::future::pending().await,
        }
    })
}

/// A message on its way, on the store's own time: it outlives the caller that sent it.
fn send(queue: Arc<Queue>, message: Arc<Message>) -> InFlight {
    Box::pin(async move {
        let (store, settings, time) = (&*queue.process.store, queue.settings(), &queue.shard.time);
        for _ in 0..MOST_EXCHANGES {
            if !time.is_vague(settings.fine()) {
                break;
            }
            let sent = Instant::now();
            let outlook = time.outlook(settings.stale_after, sent);
            let reply = ask_for_time(store, settings, &outlook).await;
            let exchange = Exchange { sent, arrived: Instant::now() };
            match reply {
                Ok(shown) => {
                    queue.shard.contact.heard(exchange.arrived);
                    settings.calendars.hear(&shown);
                    time.exchanged(exchange, shown.now, settings.fine())
                }
                Err(error) => return (Err(error), exchange),
            };
        }
        let sent = Instant::now();
        let reply = message.send(store).await.inspect(|grant| settings.calendars.hear(grant));
        (reply, Exchange { sent, arrived: Instant::now() })
    })
}
