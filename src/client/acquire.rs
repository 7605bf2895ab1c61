//! Asking for a permit: what for, how long, and the wait for it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop::poll_proceed;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use crate::client::auth_breaker::Pass;
use crate::client::observing::Shadow;
use crate::client::permit::Permit;
use crate::client::route::Route;
use crate::client::throttle::Throttle;
use crate::config::call::Call;
use crate::config::charges::Scopes;
use crate::config::name::shown;
use crate::config::plan::Registered;
use crate::config::priority::Priority;
use crate::error::Error;
use crate::ledger::ScopeId;
use crate::queue::Queue;

/// Asks for a permit when awaited.
///
/// ```
/// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::Priority;
/// use std::time::Duration;
///
/// let asked = throttle.acquire("model").kind("small-model").cost(1).cost_of("tokens", 1_500);
/// let asked = asked.scope("token-7").scope_of("x-merchant", "m-17").priority(Priority::High);
/// let permit = asked.max_wait(Duration::from_secs(5)).await?; // now make the call
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is asked for until this is awaited: write `throttle.acquire(\"up\").await?`"]
pub struct Acquire {
    throttle: Throttle,
    /// The upstream, until it is asked; if there is none, what it was called.
    registered: Result<Option<Arc<Registered>>, Arc<str>>,
    call: Call,
    now_or_never: bool,
}

impl Acquire {
    pub(crate) fn new(throttle: &Throttle, upstream: &str, now_or_never: bool) -> Self {
        let registered = throttle.find(upstream).map(Some).ok_or_else(|| shown(upstream));
        Self { throttle: throttle.clone(), registered, call: Call::new(), now_or_never }
    }

    /// Counts as so many calls: see [`Call::cost`].
    pub fn cost(mut self, calls: u32) -> Self {
        self.call = self.call.cost(calls);
        self
    }

    /// Takes so many of a unit: see [`Call::cost_of`].
    pub fn cost_of(mut self, unit: impl Into<Arc<str>>, units: u32) -> Self {
        self.call = self.call.cost_of(unit, units);
        self
    }

    /// Shares the quota with every call of this value: see [`Call::scope`].
    pub fn scope(mut self, value: impl AsRef<[u8]>) -> Self {
        self.call.scope = Some(ScopeId::of(value.as_ref()));
        self
    }

    /// The value of the scope of this name, where the upstream has several: see [`Call::scope_of`].
    pub fn scope_of(mut self, name: impl Into<Arc<str>>, value: impl AsRef<[u8]>) -> Self {
        self.call = self.call.scope_of(name, value);
        self
    }

    /// Is refused at once when the slot is further away than this. Zero is [`Throttle::try_acquire`], which does
    /// not wait; of such a call it changes nothing.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.call.max_wait = Some(max_wait);
        self
    }

    /// Goes before calls of lower priority: see [`Call::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.call.priority = priority;
        self
    }

    /// Uses about as much as other calls of this kind: see [`Call::kind`].
    pub fn kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.call = self.call.kind(kind);
        self
    }

    /// The upstream, which the route has from then on: polled after its end, a future finds none.
    fn take_registered(&mut self) -> Result<Arc<Registered>, Error> {
        let unknown = |name: &mut Arc<str>| Error::UnknownUpstream { name: Arc::clone(name) };
        self.registered.as_mut().map_err(unknown)?.take().ok_or(Error::Closed)
    }

    fn route_to(&self, registered: Arc<Registered>) -> Route {
        let mut route = Route::new(registered, &self.call, None);
        route.now_or_never |= self.now_or_never;
        route
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Permit, Error>;
    type IntoFuture = Acquiring;

    fn into_future(self) -> Self::IntoFuture {
        Acquiring(Stage::Begun(Some(self)))
    }
}

/// An [`Acquire`] that is awaited.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::{Limit, Throttle, Upstream};
/// use std::future::IntoFuture;
///
/// let throttle = Throttle::builder().upstream(Upstream::new("mail").limit(Limit::per_second(5))).build()?;
/// let acquiring = throttle.acquire("mail").into_future(); // asks when it is polled
/// let permit = tokio::time::timeout(std::time::Duration::from_secs(1), acquiring).await??;
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is asked for until this is awaited: write `.await?` behind it"]
pub struct Acquiring(Stage);

enum Stage {
    /// Until it waits.
    Begun(Option<Acquire>),
    Waiting(Pin<Box<dyn Future<Output = Result<Permit, Error>> + Send>>),
}

impl Future for Acquiring {
    type Output = Result<Permit, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Where all is decided at hand a loop of callers must let others run.
        let progress = if self.0.is_waiting() { None } else { Some(ready!(poll_proceed(cx))) };
        let outcome = self.0.poll(cx);
        if let Some(progress) = progress.filter(|_| outcome.is_ready()) {
            progress.made_progress();
        }
        outcome
    }
}

impl Stage {
    const fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Error>> {
        if let Self::Begun(begun) = self
            && let Some(acquire) = begun
        {
            let mut registered = acquire.take_registered()?;
            let (mut route, entered) = loop {
                let route = acquire.route_to(acquire.throttle.latest(registered)?);
                match acquire.throttle.ask(&route, route.since) {
                    Err(error) if route.is_outdated_by(&error) => registered = route.registered,
                    asked => match asked?.at_hand() {
                        Ok(outcome) => return Poll::Ready(outcome),
                        Err(asked) => {
                            let entered = asked.into_entered();
                            break (route, entered);
                        }
                    },
                }
            };
            if let Some(acquire) = begun.take() {
                *self = Self::Waiting(Box::pin(async move {
                    let (throttle, since) = (&acquire.throttle, route.since);
                    throttle.wait(&mut route, entered, since, |registered| acquire.route_to(registered)).await
                }));
            }
        }
        match self {
            Self::Begun(_) => Poll::Pending,
            Self::Waiting(waiting) => waiting.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun(acquire) => acquire.fmt(f),
            Self::Waiting(_) => f.write_str("Waiting"),
        }
    }
}

impl Throttle {
    /// Ask, at `now`: joins the queue of callers for the route's logs.
    pub(crate) fn ask<'a>(&self, route: &'a Route, now: Instant) -> Result<Asked<'a>, Error> {
        let asked = self.asked(&mut Pass::default(), route, now);
        asked.map_err(|error| if route.is_outdated_by(&error) { error } else { route.told(error) })
    }

    /// The same of a call that has a pass of before; an error is not counted.
    pub(crate) fn asked<'a>(&self, pass: &mut Pass, route: &'a Route, now: Instant) -> Result<Asked<'a>, Error> {
        let Route { registered, scopes, .. } = route;
        if registered.observer.is_none() {
            route.charges()?;
        }
        let queue = self.queue_of(registered, scopes, now)?;
        registered.attendance.called(&queue, now);
        let pass = route.admit(queue.scope(), std::mem::take(pass))?;
        Ok(Asked::new(queue, route, pass, now))
    }

    /// The queue of these scopes.
    #[inline]
    pub(crate) fn queue_of(
        &self,
        registered: &Arc<Registered>,
        scopes: &Scopes,
        now: Instant,
    ) -> Result<Arc<Queue>, Error> {
        let key = |scopes: &Scopes| (registered.key(scopes.narrowest), registered.edition());
        let mut lines = Vec::new();
        for rules in registered.lines_of(scopes) {
            let scopes = Scopes::line(rules.limits.first().and_then(|limit| limit.scope));
            let new = || Queue::line(self.process(), registered, &scopes, rules);
            lines.push(self.queues().get(key(&scopes), &scopes, now, new)?);
        }
        let new = || Queue::new(self.process(), registered, scopes, lines);
        self.queues().get(key(scopes), scopes, now, new)
    }
}

/// A caller that has asked.
pub(crate) struct Asked<'a> {
    queue: Arc<Queue>,
    route: &'a Route,
    pass: Pass,
    since: Instant,
}

impl<'a> Asked<'a> {
    /// One that stands in a queue since then.
    pub(crate) const fn new(queue: Arc<Queue>, route: &'a Route, pass: Pass, since: Instant) -> Self {
        Self { queue, route, pass, since }
    }

    /// The queue in which it waits, with its pass.
    pub(crate) fn into_entered(self) -> (Arc<Queue>, Pass) {
        (self.queue, self.pass)
    }

    /// The permit, or the refusal of a call for now or never, where nobody is before this caller and the store has its answer at
    /// hand.
    ///
    /// Where the upstream is observed, a permit for now in any case.
    pub(crate) fn at_hand(self) -> Result<Result<Permit, Error>, Self> {
        if self.route.registered.observer.is_some() {
            let shadow = Shadow::of(&self.queue, self.route, self.since);
            return Ok(Ok(Permit::observed(self.queue, shadow, self.pass)));
        }
        let Ok(charges) = self.route.charges() else { return Err(self) };
        match self.queue.at_hand(charges, self.since) {
            Some(Ok(slot)) => {
                span(self.route).record("waited_us", 0);
                let permit = Permit::new(self.queue, slot, self.pass, Duration::ZERO, self.since);
                Ok(Ok(permit.estimated(self.route.estimate())))
            }
            Some(Err(retry_after)) if self.route.now_or_never => {
                let upstream = Arc::clone(self.queue.upstream());
                let error = Error::Throttled { upstream, retry_after, paused: None, after_refusals: None };
                span(self.route).in_scope(|| tracing::debug!(upstream = &**self.queue.upstream(), %error, "refused"));
                Ok(Err(self.route.told(error)))
            }
            _ => Err(self),
        }
    }
}

pub(crate) fn span(route: &Route) -> Span {
    let upstream = &*route.registered.upstream.name;
    tracing::debug_span!("acquire", upstream, cost = route.cost, ahead = Empty, waits_for = Empty, waited_us = Empty)
}
