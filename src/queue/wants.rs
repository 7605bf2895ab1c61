//! Seats that the process shares among several queues: the lines in which these wait for one, and their places there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::borrowed::{Back, Want};
use super::callers::Queue;
use super::events::Event;
use super::process::Process;
use super::seats::SeatRules;
use super::waiters::{Slot, Waiter, Wish};
use crate::config::charges::Scopes;
use crate::config::costs::Costs;
use crate::config::plan::Registered;
use crate::error::Error;

impl Queue {
    /// The line for the seats of one limit: a queue whose callers, each on behalf of another queue, need nothing else.
    pub(crate) fn line(
        process: &Arc<Process>,
        registered: &Arc<Registered>,
        scopes: &Scopes,
        rules: SeatRules,
    ) -> Result<Self, Error> {
        let mut line = Self::of(process, registered, scopes.clone(), [].into())?;
        line.seats = Some(rules);
        Ok(line)
    }

    /// Whether each call needs a seat.
    pub(crate) fn has_seats(&self) -> bool {
        self.seats.is_some() || self.borrows()
    }

    /// Whether the seats of its calls are borrowed from lines.
    pub(super) fn borrows(&self) -> bool {
        !self.lines.is_empty()
    }

    /// A call has left its seat: for the next in queue, else for others.
    pub(crate) fn leave_seat(self: &Arc<Self>) {
        if self.borrows() {
            return self.give_back_seats(Back { free: 1, lost: 0 });
        }
        self.happen(|_| Some(Event::LeftSeats(1)));
    }

    /// Whether it is the line for the seats of one limit.
    pub(crate) fn is_line(&self) -> bool {
        self.logs.is_empty()
    }

    /// Seats that were borrowed are for the next in their lines, else for others.
    pub(super) fn give_back_seats(&self, Back { free, lost }: Back) {
        for line in self.lines.iter() {
            if free > 0 {
                line.happen(|_| Some(Event::LeftSeats(free)));
            }
            if lost > 0 {
                line.happen(|_| Some(Event::LostSeats(lost)));
            }
        }
    }

    /// Whether the store certainly holds the seat of a call that is about to begin.
    pub(super) fn is_sure_of_seat(&self, slot: &Slot, now: Instant) -> bool {
        let is_sure = |queue: &Self| {
            let state = queue.lock();
            state.engine.seats.as_ref().is_none_or(|seats| seats.is_sure(now) && state.is_awake_since(queue))
        };
        // A slot that the store has booked is of use for less time than a seat.
        self.lines.iter().all(|line| is_sure(line)) && (!slot.is_unbooked() || self.seats.is_none() || is_sure(self))
    }

    /// Why there are no seats, where the store does not answer.
    pub(super) fn seats_unavailable(&self) -> Option<Error> {
        self.lines.iter().find_map(|line| {
            let state = line.lock();
            let source = state.engine.resend.as_ref().filter(|resend| resend.has_failed())?.error();
            Some(Error::StoreUnavailable { upstream: Arc::clone(self.upstream()), source })
        })
    }
}

/// A place in each line in turn, for one caller.
struct Place {
    want: Want,
    seated: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

/// The places of a queue in the lines for seats. Whoever drives polls them, and owns them meanwhile. They are dropped without a lock: those
/// behind them are the next ones then.
#[derive(Default)]
pub(super) struct Wants(Vec<Place>);

impl Wants {
    /// Keeps the places of those who still wait, in their order, and takes others for the rest. Gives back those that nobody needs.
    #[must_use = "they are dropped without a lock"]
    pub(super) fn become_those(&mut self, mut wants: Vec<Want>, lines: &Arc<[Arc<Queue>]>) -> Self {
        let left = self.keep(&mut wants);
        self.0.extend(
            wants.into_iter().map(|want| Place { want, seated: Box::pin(one_of_each(Arc::clone(lines), want)) }),
        );
        left
    }

    /// Keeps the places of those who still wait, and gives back the others.
    #[must_use = "they are dropped without a lock"]
    pub(super) fn keep(&mut self, wants: &mut Vec<Want>) -> Self {
        let is_wanted = |place: &Place| {
            let at = wants.iter().position(|want| *want == place.want);
            at.map(|at| wants.remove(at)).is_some()
        };
        let (kept, left) = std::mem::take(&mut self.0).into_iter().partition(is_wanted);
        self.0 = kept;
        Self(left)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// What is to be told of some places; those are given up then. Seats come first: whoever has one is not refused.
    pub(super) fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Event>> {
        let (mut seated, mut errors) = (Vec::new(), Vec::new());
        self.0.retain_mut(|place| match place.seated.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                outcome.map_or_else(|error| errors.push(error), |()| seated.push(Event::Seated));
                false
            }
        });
        let left = self.0.iter().filter(|Place { want: (_, at_once), .. }| *at_once).count();
        let unseated = errors.into_iter().map(|error| Event::Unseated(error, left));
        let told: Vec<Event> = seated.into_iter().chain(unseated).collect();
        if told.is_empty() { Poll::Pending } else { Poll::Ready(told) }
    }
}

/// Waits for a seat of each line: that which most share is the last, so that who waits for others keeps none of it.
async fn one_of_each(lines: Arc<[Arc<Queue>]>, (priority, at_once): Want) -> Result<(), Error> {
    let mut held = Held { lines: &lines, seats: 0 };
    for line in &*lines {
        let now = Instant::now();
        let wish = if at_once { Wish::AtOnce { within: Duration::ZERO } } else { Wish::Soon };
        let member = line.enter()?;
        let waiter = Waiter { ticket: member.ticket, costs: Costs::OneEach(0), joined: now, wish, priority };
        line.slot(&waiter, now).await?;
        held.seats += 1;
    }
    held.seats = 0;
    Ok(())
}

/// Seats of the first lines. Dropped, they go back.
struct Held<'a> {
    lines: &'a [Arc<Queue>],
    seats: usize,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lines.iter().take(self.seats).for_each(Queue::leave_seat);
    }
}
