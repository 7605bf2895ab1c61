//! A call that waits for its permit: in its queue, and in the one that takes its place where the upstream's limits are replaced.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::coop::{consume_budget, has_budget_remaining};
use tokio::time::Instant;
use tracing::Span;

use crate::client::acquire::{Asked, span};
use crate::client::auth_breaker::Pass;
use crate::client::permit::Permit;
use crate::client::route::Route;
use crate::client::throttle::Throttle;
use crate::config::plan::Registered;
use crate::error::Error;
use crate::queue::Queue;
use crate::queue::waiters::Slot;

impl Throttle {
    /// The upstream as it is registered by now.
    pub(crate) fn latest(&self, registered: Arc<Registered>) -> Result<Arc<Registered>, Error> {
        if !registered.is_replaced() {
            return Ok(registered);
        }
        let name = &registered.upstream.name;
        let latest = self.find(name).filter(|latest| latest.is_same(&registered));
        latest.ok_or_else(|| Error::UnknownUpstream { name: Arc::clone(name) })
    }

    /// The permit for a route, of a call that asks at `now`. Where the upstream is replaced meanwhile, the route becomes what `anew` makes of
    /// it.
    pub(crate) async fn permit(
        &self,
        route: &mut Route,
        now: Instant,
        anew: impl Fn(Arc<Registered>) -> Route,
    ) -> Result<Permit, Error> {
        // Where slots are free for ever a loop of callers must let others run, and asks when they have.
        let asks_at_once = has_budget_remaining();
        consume_budget().await;
        let now = if asks_at_once { now } else { Instant::now() };
        let asked = match self.ask(route, now) {
            Err(Error::Closed) if route.registered.is_replaced() => {
                let entered = self.ask_anew(route, Pass::default(), now, &anew);
                let (queue, pass) = entered.map_err(|error| route.told(error))?;
                Asked::new(queue, route, pass, now)
            }
            asked => asked?,
        };
        let entered = match asked.at_hand() {
            Ok(outcome) => return outcome,
            Err(asked) => asked.into_entered(),
        };
        // Boxed, as every call would have room for it.
        Box::pin(self.wait(route, entered, now, anew)).await
    }

    /// Waits in the queue, as one that came at `since`, until the slot starts.
    pub(crate) async fn wait(
        &self,
        route: &mut Route,
        entered: (Arc<Queue>, Pass),
        since: Instant,
        anew: impl Fn(Arc<Registered>) -> Route,
    ) -> Result<Permit, Error> {
        // A timer that finds no runtime panics.
        Handle::try_current().map_err(|_| route.told(Error::OutsideRuntime))?;
        let span = span(route);
        if !span.is_disabled() {
            span.record("ahead", entered.0.waiting());
        }
        let outcome = {
            let mut stands = pin!(self.stand(route, entered, since, anew, &span));
            poll_fn(|cx| span.in_scope(|| stands.as_mut().poll(cx))).await
        };
        let waited = outcome.as_ref().map_or_else(|_| since.elapsed(), Permit::waited);
        span.record("waited_us", u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
        if let Err(error) = &outcome {
            let upstream = &*route.registered.upstream.name;
            span.in_scope(|| tracing::debug!(upstream, %error, "refused"));
        }
        outcome.map_err(|error| route.told(error))
    }

    async fn stand(
        &self,
        route: &mut Route,
        (mut queue, mut pass): (Arc<Queue>, Pass),
        since: Instant,
        anew: impl Fn(Arc<Registered>) -> Route,
        span: &Span,
    ) -> Result<Permit, Error> {
        let (member, mut now) = (queue.enter()?, since);
        loop {
            let waiter = route.waiter(&queue, &member, since)?;
            let lost = match queue.slot(&waiter, now).await {
                Ok((slot, now)) => return permit(route, queue, Some(slot), pass, (since, now), span),
                Err(error) if route.is_outdated_by(&error) => None,
                Err(Error::StoreUnavailable { .. }) if route.goes_without_store() => {
                    return permit(route, queue, None, pass, (since, Instant::now()), span);
                }
                Err(error @ Error::StoreUnavailable { .. }) if route.throttles_locally() => Some(error),
                Err(error) => return Err(error),
            };
            if let Some(error) = lost {
                // Boxed, as everybody who waits would have room for it.
                match Box::pin(queue.slot_apart(&waiter, error)).await {
                    Ok(Some((local, slot, now))) => {
                        return permit(route, local, Some(slot), pass, (since, now), span);
                    }
                    // The store is back.
                    Ok(None) => {
                        now = Instant::now();
                        continue;
                    }
                    Err(error) if route.is_outdated_by(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            now = Instant::now();
            let before = queue;
            (queue, pass) = self.ask_anew(route, pass, now, &anew)?;
            before.succeeded_by(&queue);
            tracing::debug!(upstream = &**queue.upstream(), "the limits are replaced, asking by those of now");
            if route.registered.observer.is_some() {
                match Asked::new(queue, route, pass, now).at_hand() {
                    Ok(outcome) => return outcome.map(|permit| permit.after(now.saturating_duration_since(since))),
                    Err(asked) => (queue, pass) = asked.into_entered(),
                }
            }
        }
    }

    /// Asks by the limits of now.
    fn ask_anew(
        &self,
        route: &mut Route,
        mut pass: Pass,
        now: Instant,
        anew: impl Fn(Arc<Registered>) -> Route,
    ) -> Result<(Arc<Queue>, Pass), Error> {
        loop {
            *route = anew(self.latest(Arc::clone(&route.registered))?).instead_of(route);
            match self.asked(&mut pass, route, now) {
                Err(error) if route.is_outdated_by(&error) => {}
                asked => return asked.map(Asked::into_entered),
            }
        }
    }
}

/// The permit for a slot, or for none where a call goes without the store; of a call that came at one time, and goes at another.
fn permit(
    route: &Route,
    queue: Arc<Queue>,
    slot: Option<Slot>,
    pass: Pass,
    (since, now): (Instant, Instant),
    span: &Span,
) -> Result<Permit, Error> {
    if let Some(slot) = &slot {
        span.record("waits_for", slot.waited_for.as_str());
    }
    let waited = now.saturating_duration_since(since);
    // The breaker may have opened meanwhile.
    let permit = match (route.admit(queue.scope(), pass), slot) {
        (Ok(pass), Some(slot)) => Permit::new(queue, slot, pass, waited, now),
        (Ok(pass), None) => Permit::without_store(queue, pass, waited),
        (Err(error), slot) => {
            if let Some(slot) = slot {
                queue.give_back(slot);
            }
            return Err(error);
        }
    };
    route.registered.counts.waited(waited, permit.late());
    Ok(permit.estimated(route.estimate()))
}
