//! Observing an upstream: its calls go on at once, and a shadow of each takes its place in queue, so that it is known how long
//! the call would have waited.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::client::charge::Charge;
use crate::client::estimate::Estimate;
use crate::client::route::Route;
use crate::config::plan::Registered;
use crate::counts::Counts;
use crate::error::Error;
use crate::queue::Queue;
use crate::queue::pacing::late_at_most;
use crate::queue::waiters::Slot;
use crate::store::WithoutStore;

/// What would have become of the calls to an upstream that is [observed](crate::Upstream::observe): of this process, all scopes
/// together, since the throttle was built.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::{Limit, Throttle, Upstream};
///
/// let gateway = Upstream::new("gateway").limit(Limit::per_hour(1)).observe();
/// let throttle = Throttle::builder().upstream(gateway).build()?;
/// for _ in 0..2 {
///     drop(throttle.acquire("gateway").await?); // neither waits
/// }
/// assert_eq!(throttle.usage("gateway").await?.observed.map(|observed| observed.calls), Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// Calls that went on at once.
    pub calls: u64,
    /// Those of them whose slot has not started yet: they are in none of the counts below. Nor are those whose slot had not when the
    /// upstream was [replaced](crate::Throttle::update), the throttle closed, or their runtime shut down; nor those that would have gone
    /// by the part of this process, as [`ThrottleLocally`](WithoutStore::ThrottleLocally) has it: nobody knows how long they would
    /// have waited.
    pub undecided: u64,
    /// How many would have waited, for longer than a slot may be late.
    pub waited: u64,
    /// How long all of them would have waited together, the store's answers included.
    pub wait: Duration,
    /// How long one would have waited at most.
    pub longest_wait: Duration,
    /// How many would have been refused, as no slot came in time or for another reason but the store.
    pub refused: u64,
    /// How many would have failed with [`Error::StoreUnavailable`] or [`Error::OutsideRuntime`]. Those that
    /// [`SendUnthrottled`](WithoutStore::SendUnthrottled) lets go would not: they would have waited for the store until then.
    pub failed: u64,
}

/// Counts what would have become of the calls to an upstream.
#[derive(Debug, Default)]
pub(crate) struct Observer(Mutex<Observed>);

impl Observer {
    pub(crate) fn observed(&self) -> Observed {
        *self.lock()
    }

    fn begin(&self) {
        let mut observed = self.lock();
        observed.calls += 1;
        observed.undecided += 1;
    }

    /// A call would have waited so long, where a slot may be late by `tolerated`, or it would have got an error.
    fn end(&self, upstream: &str, outcome: Result<Duration, &Error>, tolerated: Duration) {
        let mut observed = self.lock();
        observed.undecided -= 1;
        match outcome {
            Ok(waited) => {
                observed.waited += u64::from(waited > tolerated);
                observed.wait += waited;
                observed.longest_wait = observed.longest_wait.max(waited);
            }
            Err(Error::StoreUnavailable { .. } | Error::OutsideRuntime) => observed.failed += 1,
            // Its limits were replaced, or the throttle is closed: nobody knows.
            Err(Error::Closed) => {}
            Err(_) => observed.refused += 1,
        }
        drop(observed);
        match outcome {
            Ok(waited) if waited > tolerated => {
                let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                tracing::debug!(upstream, waited_us, "observed: would have waited");
            }
            Ok(_) | Err(Error::Closed) => {}
            Err(error) => tracing::debug!(upstream, %error, "observed: would have been refused"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call of which it is not known yet what would have become of it. Dropped, nobody will ever know.
struct Undecided(Option<Arc<Observer>>);

impl Undecided {
    /// A call that goes on now.
    fn new(observer: Option<Arc<Observer>>) -> Self {
        observer.as_deref().into_iter().for_each(Observer::begin);
        Self(observer)
    }

    /// It is known now.
    fn end(mut self, upstream: &str, outcome: Result<Duration, &Error>, tolerated: Duration) {
        if let Some(observer) = self.0.take() {
            observer.end(upstream, outcome, tolerated);
        }
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        if let Some(observer) = &self.0 {
            observer.lock().undecided -= 1;
        }
    }
}

/// The slot that a call would have got.
pub(crate) struct Shadow {
    place: Mutex<Place>,
    /// When its call went on.
    since: Instant,
    /// Where its upstream estimates.
    estimate: Option<Arc<Estimate>>,
    counts: Counts,
}

/// Where it is.
enum Place {
    /// On its way; what the call has used, and whether it was served, as far as that is known already.
    Coming {
        settled: Vec<(Box<str>, u64)>,
        served: bool,
    },
    Here(Charge),
    /// The call was never sent: the slot goes back as soon as it comes.
    Unwanted,
}

impl Default for Place {
    fn default() -> Self {
        Self::Coming { settled: Vec::new(), served: false }
    }
}

impl Shadow {
    /// Has a shadow take the place in queue of a call that has asked just now.
    pub(crate) fn of(queue: &Arc<Queue>, route: &Route, since: Instant) -> Arc<Self> {
        let registered = &route.registered;
        let (estimate, counts) = (route.estimate(), registered.counts.clone());
        let shadow = Arc::new(Self { place: Mutex::default(), since, estimate, counts });
        let undecided = Undecided::new(registered.observer.clone());
        if let Some(outcome) = at_hand(queue, route, since) {
            shadow.end(queue, registered, undecided, outcome.map(|slot| (Some(slot), Duration::ZERO)));
            return shadow;
        }
        let Ok(runtime) = Handle::try_current() else {
            shadow.end(queue, registered, undecided, Err(Error::OutsideRuntime));
            return shadow;
        };
        let entered = queue.enter().and_then(|member| Ok((route.waiter(queue, &member, since)?, member)));
        let (waiter, member) = match entered {
            Ok(entered) => entered,
            Err(error) => {
                shadow.end(queue, registered, undecided, Err(error));
                return shadow;
            }
        };
        let (queue, registered, of) = (Arc::clone(queue), Arc::clone(registered), Arc::clone(&shadow));
        let mut waiting: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let outcome = queue.slot(&waiter, since).await;
            drop(member);
            let outcome = match (outcome, registered.policy()) {
                (Err(Error::StoreUnavailable { .. }), WithoutStore::SendUnthrottled) => Ok((None, since.elapsed())),
                (Err(Error::StoreUnavailable { .. }), WithoutStore::ThrottleLocally) => return,
                (outcome, _) => outcome.map(|(slot, now)| (Some(slot), now.saturating_duration_since(since))),
            };
            of.end(&queue, &registered, undecided, outcome);
        });
        // By hand at first, so that shadows stand in the order of their calls.
        if waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(waiting);
        }
        shadow
    }

    /// Gives the slot back, now or when it comes.
    pub(crate) fn hand_back(&self) {
        self.estimate.iter().for_each(|estimate| estimate.hand_back());
        let place = std::mem::replace(&mut *self.lock(), Place::Unwanted);
        if let Place::Here(charge) = place {
            charge.hand_back();
        }
    }

    /// The call used so many units: its slot is settled, now or when it comes.
    pub(crate) fn settle(&self, unit: &str, used: u64) {
        self.estimate.iter().for_each(|estimate| estimate.settled(unit, used));
        match &mut *self.lock() {
            Place::Coming { settled, .. } => settled.push((unit.into(), used)),
            Place::Here(charge) => charge.correct(unit, used),
            Place::Unwanted => return,
        }
        self.counts.settled(unit, used);
    }

    /// Its call was served. Where its slot is for looking whether a pause still holds, the call has done so.
    pub(crate) fn served(&self, queue: &Arc<Queue>) {
        match &mut *self.lock() {
            Place::Coming { served, .. } => *served = true,
            Place::Here(charge) => self.tell_served(queue, charge.slot()),
            Place::Unwanted => {}
        }
    }

    /// A call that went on before the pause began says nothing of it.
    fn tell_served(&self, queue: &Arc<Queue>, slot: &Slot) {
        if slot.looks && queue.paused_at().is_none_or(|began| self.since >= began) {
            queue.served(slot);
        }
    }

    /// Its slot has come, or none where its call would have gone without; and how long the call would have waited.
    fn end(
        &self,
        queue: &Arc<Queue>,
        registered: &Registered,
        undecided: Undecided,
        outcome: Result<(Option<Slot>, Duration), Error>,
    ) {
        let waited = outcome.as_ref().map(|(_, waited)| *waited);
        undecided.end(queue.upstream(), waited, late_at_most(registered.stale_after));
        let Ok((Some(slot), _)) = outcome else { return };
        let charge = Charge::new(queue, slot);
        let mut place = self.lock();
        let Place::Coming { settled, served } = &*place else {
            drop(place);
            charge.hand_back();
            return;
        };
        for (unit, used) in settled {
            charge.correct(unit, *used);
        }
        if *served {
            self.tell_served(queue, charge.slot());
        }
        *place = Place::Here(charge);
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the call would have been told at once.
fn at_hand(queue: &Queue, route: &Route, since: Instant) -> Option<Result<Slot, Error>> {
    match queue.at_hand(route.charges().ok()?, since)? {
        Ok(slot) => Some(Ok(slot)),
        Err(retry_after) => {
            let upstream = Arc::clone(queue.upstream());
            let refused = Error::Throttled { upstream, retry_after, paused: None, after_refusals: None };
            route.now_or_never.then_some(Err(refused))
        }
    }
}
