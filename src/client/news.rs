//! Has the store know what upstreams said: the rim of [`News`], with its lock, its tasks and its timers.

mod place;
mod sender;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use fastrand::Rng;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::client::throttle::{Throttle, Weak};
use crate::error::StoreError;
use crate::queue::log_time::Outlook;
use crate::queue::news::{Effect, Effects, Event, News, ROUND, Said, Whom};
use crate::queue::process::Teller;
use crate::queue::resend::PATIENCE;

type Outcome = Result<(), StoreError>;

/// What is on its way to the store.
#[derive(Debug)]
pub(crate) struct Outgoing {
    state: Mutex<State>,
    /// Who waits to send something again, or a pause that may wait, looks whether it is due by now; who waits until the store knows, whether anybody tells it.
    hurry: Notify,
    /// Who waits until all is told looks whether it is.
    answered: Notify,
}

#[derive(Debug)]
struct State {
    news: News,
    tickets: u64,
    reporters: HashMap<u64, oneshot::Sender<Outcome>>,
    /// Those who wait for a place for their message, by their claims.
    wakers: HashMap<u64, Waker>,
}

/// Somebody waits until the store knows. Dropped, nobody does.
struct Ticket<'a> {
    outgoing: &'a Outgoing,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.outgoing.lock().reporters.remove(&self.number);
    }
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        let (reporters, wakers) = (HashMap::new(), HashMap::new());
        let state = State { news: News::new(Rng::new()), tickets: 0, reporters, wakers };
        Self { state: Mutex::new(state), hurry: Notify::new(), answered: Notify::new() }
    }

    /// Somebody waits until the store knows: with the ticket of that.
    fn expect(&self, reporter: oneshot::Sender<Outcome>) -> Ticket<'_> {
        let mut state = self.lock();
        state.tickets += 1;
        let number = state.tickets;
        state.reporters.insert(number, reporter);
        Ticket { outgoing: self, number }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Throttle {
    /// Takes in what an upstream said: this process knows it at once, and the store in the background.
    pub(crate) fn take_note_in_background(&self, said: Said) {
        self.note(said);
    }

    /// The same, and waits until the store knows.
    pub(crate) async fn take_note(&self, said: Said) -> Outcome {
        let (tell, mut known) = oneshot::channel();
        let ticket = self.outgoing().expect(tell);
        let whom = self.note(Said { ticket: Some(ticket.number), ..said });
        // Memory has answered by now. Here is no timer that ends the wait for another store, nor for a runtime where another tells it.
        if Handle::try_current().is_err() {
            return known.try_recv().unwrap_or_else(|_| Err(StoreError::late()));
        }
        let mut known = pin!(async { known.await.unwrap_or_else(|_| Err(StoreError::late())) });
        let known = async {
            loop {
                let hurried = self.outgoing().hurry.notified();
                select! {
                    outcome = known.as_mut() => return outcome,
                    () = sleep(ROUND) => {}
                    () = hurried => {}
                }
                self.see_to(Some(&whom));
            }
        };
        timeout(PATIENCE, known).await.unwrap_or_else(|_| Err(StoreError::late()))
    }

    /// Waits until the store knows all that upstreams said, also what may wait. Outside of a runtime nobody waits.
    pub(crate) async fn tell_all(&self) {
        let outgoing = self.outgoing();
        outgoing.lock().news.hurry();
        outgoing.hurry.notify_waiters();
        self.see_to(None);
        loop {
            let answered = outgoing.answered.notified();
            if outgoing.lock().news.is_told() || Handle::try_current().is_err() {
                return;
            }
            select! {
                () = answered => {}
                () = sleep(ROUND) => {}
            }
            self.see_to(None);
        }
    }

    /// Takes in what an upstream said, and says of whom the store has to be told.
    fn note(&self, said: Said) -> Whom {
        let event = Event::Said(Box::new(said));
        let whom = event.whom().clone();
        self.take_in(event, Instant::now());
        self.see_to(Some(&whom));
        whom
    }

    /// Takes over what nobody tells the store any more, as the runtime of whoever did is gone, or stands still.
    fn see_to(&self, about: Option<&Whom>) {
        if Handle::try_current().is_err() {
            return;
        }
        let (now, mut effects) = (Instant::now(), Effects::new());
        self.outgoing().lock().news.replace_overdue(about, now, &mut effects);
        self.act(effects, now);
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
}

impl Teller for Weak {
    fn see_to_news(&self) {
        if let Some(throttle) = self.upgrade() {
            throttle.see_to(None);
        }
    }
}
