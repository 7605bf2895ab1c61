//! Has the store know what upstreams said: the rim of [`News`], with its lock, its tasks and its timers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use fastrand::Rng;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use crate::client::throttle::{Throttle, Weak};
use crate::error::StoreError;
use crate::queue::log_time::Outlook;
use crate::queue::news::{Effect, Effects, Errand, Event, News, Next, ROUND, Said, Whom};
use crate::queue::process::Teller;
use crate::queue::resend::PATIENCE;

type Outcome = Result<(), StoreError>;

/// What is on its way to the store.
#[derive(Debug)]
pub(crate) struct Outgoing {
    state: Mutex<State>,
    /// Who waits to send something again, or a pause that may wait, looks whether it is due by now.
    hurry: Notify,
    /// A place for a message under way is free.
    freed: Notify,
}

#[derive(Debug)]
struct State {
    news: News,
    tickets: u64,
    reporters: HashMap<u64, oneshot::Sender<Outcome>>,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        let state = State { news: News::new(Rng::new()), tickets: 0, reporters: HashMap::new() };
        Self { state: Mutex::new(state), hurry: Notify::new(), freed: Notify::new() }
    }

    /// Somebody waits until the store knows: with the ticket of that.
    fn expect(&self, reporter: oneshot::Sender<Outcome>) -> u64 {
        let mut state = self.lock();
        state.tickets += 1;
        let ticket = state.tickets;
        state.reporters.insert(ticket, reporter);
        ticket
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Throttle {
    /// Takes in what an upstream said: this process knows it at once, and the store in the background.
    pub(crate) fn take_note_in_background(&self, said: Said) {
        self.take_in(Event::Said(Box::new(said)), Instant::now());
        self.see_to_news();
    }

    /// The same, and waits until the store knows.
    pub(crate) async fn take_note(&self, said: Said) -> Outcome {
        let (tell, known) = oneshot::channel();
        let ticket = self.outgoing().expect(tell);
        self.take_in(Event::Said(Box::new(Said { ticket: Some(ticket), ..said })), Instant::now());
        let mut known = pin!(async { known.await.unwrap_or_else(|_| Err(StoreError::late())) });
        // A timer that finds no runtime panics; without one nobody else sends.
        if Handle::try_current().is_err() {
            return known.await;
        }
        let known = async {
            loop {
                self.see_to_news();
                if let Ok(outcome) = timeout(ROUND, known.as_mut()).await {
                    return outcome;
                }
            }
        };
        let outcome = timeout(PATIENCE, known).await.unwrap_or_else(|_| Err(StoreError::late()));
        self.outgoing().lock().reporters.remove(&ticket);
        outcome
    }

    /// Takes over what nobody tells the store any more, as the runtime of whoever did is gone, or stands still.
    pub(crate) fn see_to_news(&self) {
        if Handle::try_current().is_ok() {
            let (now, mut effects) = (Instant::now(), Effects::new());
            self.outgoing().lock().news.replace_overdue(now, &mut effects);
            self.act(effects, now);
        }
    }

    /// What is known of an upstream's log time.
    fn outlook(&self, whom: &Whom) -> Outlook {
        let outlook = self.find(whom.upstream()).and_then(|registered| {
            let shard = registered.shard_called(whom.ledger())?;
            Some(shard.time.outlook(registered.stale_after, Instant::now()))
        });
        outlook.unwrap_or_default()
    }

    fn take_in(&self, event: Event, now: Instant) {
        let (whom, mut effects) = (event.whom().clone(), Effects::new());
        let registered = self.find(whom.upstream());
        let shard = registered.as_ref().and_then(|registered| registered.shard_called(whom.ledger()));
        {
            let news = &mut self.outgoing().lock().news;
            news.handle(event, now, &mut effects);
            // Reports of other logs tell of no pause.
            if let Some(shard) = shard.filter(|_| whom.may_be_paused()) {
                shard.looks.awaits(whom.key().1, news.has_untold_pause(&whom, now));
            }
        }
        self.act(effects, now);
    }

    /// Does what is to be done.
    fn act(&self, effects: Effects, now: Instant) {
        for effect in effects {
            match effect {
                Effect::Pause(whom, wait, reason) => {
                    let Some(registered) = self.find(whom.upstream()) else { continue };
                    self.queues().pause(whom.key(), &registered.crowd, (wait, reason), now);
                }
                Effect::Took(whom, said, releases) => self.has_taken(&whom, said, releases, now),
                Effect::Release(whom, until) => {
                    let Some(registered) = self.find(whom.upstream()) else { continue };
                    if let Some(shard) = registered.shard_called(whom.ledger()) {
                        shard.looks.unsee(|of| of == whom.key().1);
                    }
                    // Of some of its scopes there may be pauses that the store has not heard of: looks end that of the whole before long.
                    if whom.is_scope() || !registered.charges.has_scopes() {
                        self.queues().release_until(whom.key(), &registered.crowd, until);
                    }
                }
                Effect::Begin(errand) => self.begin(errand),
                Effect::Hurry => self.outgoing().hurry.notify_waiters(),
                Effect::Tell(ticket, outcome) => {
                    let reporter = self.outgoing().lock().reporters.remove(&ticket);
                    // Who waits no more needs no news.
                    let _ = reporter.map(|reporter| reporter.send(outcome));
                }
                Effect::Rename(sender) => self.process().rename(sender),
            }
        }
    }

    /// The store has taken a pause that was said then, when so many releases were known: whoever looks sees whether it loses that.
    fn has_taken(&self, whom: &Whom, said: Instant, releases: u64, now: Instant) {
        let Some(registered) = self.find(whom.upstream()) else { return };
        // Of what was released meanwhile the store knows no more.
        let Some(shard) = registered.shard_called(whom.ledger()).filter(|_| registered.crowd.releases() == releases)
        else {
            return;
        };
        let paused = registered.crowd.paused(now).filter(|_| !whom.is_scope() && shard.looks.is_idle());
        if let Some((until, reason)) = paused {
            // Nobody waits, so that no queue knows of it yet: one is to look.
            let index = whom.key().0;
            let queues = self.queues().all(|key, queue| key.0 == index && queue.may_look(whom.ledger()));
            if let Some(queue) = queues.first() {
                queue.pause(until - now, reason, now);
            }
        }
        shard.looks.saw(whom.key().1, said, now);
    }

    /// What to do next about an errand, and the place of its message among those that are under way.
    async fn next_about(&self, errand: &Errand) -> (Next, Option<Place<'_>>) {
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
    fn begin(&self, errand: Errand) {
        let mut sending: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(Sender::new(self, errand).run());
        let is_done = sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if let Some(runtime) = Handle::try_current().ok().filter(|_| !is_done) {
            runtime.spawn(sending);
        }
    }
}

impl Teller for Weak {
    fn see_to_news(&self) {
        if let Some(throttle) = self.upgrade() {
            throttle.see_to_news();
        }
    }
}

/// The place of a message among those that are under way.
struct Place<'a> {
    outgoing: &'a Outgoing,
    errand: Errand,
}

impl<'a> Place<'a> {
    /// Waits for one. Who comes round looks anew: the news of a free one may have gone where nothing is polled any more.
    async fn taken(outgoing: &'a Outgoing, errand: &Errand) -> Self {
        let mut freed = pin!(outgoing.freed.notified());
        poll_fn(|cx| {
            while !outgoing.lock().news.take_place(errand, Instant::now()) {
                ready!(freed.as_mut().poll(cx));
                freed.set(outgoing.freed.notified());
            }
            Poll::Ready(())
        })
        .await;
        Self { outgoing, errand: errand.clone() }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.outgoing.lock().news.free_place(&self.errand);
        self.outgoing.freed.notify_one();
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

    /// Says whether nothing is left to send.
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
                Next::Idle => return true,
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
