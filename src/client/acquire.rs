//! Asking for a permit: what for, how long, and the wait for it.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use reqwest::Url;
use tokio::runtime::Handle;
use tokio::task::coop::{consume_budget, poll_proceed};
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::client::auth_breaker::Pass;
use crate::client::connections::InFlight;
use crate::client::estimate::Estimate;
use crate::client::estimated::Places;
use crate::client::observing::Shadow;
use crate::client::permit::Permit;
use crate::client::throttle::Throttle;
use crate::config::call::Call;
use crate::config::charges::{CALLS, Scopes};
use crate::config::name::shown;
use crate::config::plan::Registered;
use crate::config::priority::Priority;
use crate::config::request_head::RequestHead;
use crate::error::Error;
use crate::ledger::ScopeId;
use crate::queue::waiters::Wish;
use crate::queue::{Patience, Queue};
use crate::store::WithoutStore;

/// How long a call for now or never waits for the store's answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// Asks for a permit when awaited.
#[derive(Debug)]
#[must_use = "nothing is asked for until this is awaited: write `throttle.acquire(\"up\").await?`"]
pub struct Acquire {
    throttle: Throttle,
    /// The upstream; if there is none, what it was called.
    registered: Result<Arc<Registered>, Arc<str>>,
    call: Call,
    now_or_never: bool,
}

impl Acquire {
    pub(crate) fn new(throttle: &Throttle, upstream: &str, now_or_never: bool) -> Self {
        let registered = throttle.find(upstream).map(Arc::clone).ok_or_else(|| shown(upstream));
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
        self.call = self.call.scope(value);
        self
    }

    /// The value of the scope of this name, where the upstream has several: see [`Call::scope_of`].
    pub fn scope_of(mut self, name: impl Into<Arc<str>>, value: impl AsRef<[u8]>) -> Self {
        self.call = self.call.scope_of(name, value);
        self
    }

    /// Is refused at once when the slot is further away than this. Zero is [`Throttle::try_acquire`]: a slot now or never.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.call = self.call.max_wait(max_wait);
        self
    }

    /// Goes before calls of lower priority that wait in this process: see [`Call::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.call = self.call.priority(priority);
        self
    }

    /// Uses about as much as other calls of this kind: see [`Call::kind`].
    pub fn kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.call = self.call.kind(kind);
        self
    }

    fn route(&self) -> Result<Route, Error> {
        let registered = self.registered.clone().map_err(|name| Error::UnknownUpstream { name })?;
        let mut route = Route::new(registered, &self.call, None);
        route.now_or_never |= self.now_or_never;
        Ok(route)
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Permit, Error>;
    type IntoFuture = Acquiring;

    fn into_future(self) -> Self::IntoFuture {
        Acquiring(Stage::Begun(self))
    }
}

/// An [`Acquire`] that is awaited.
#[derive(Debug)]
#[must_use = "nothing is asked for until this is awaited: write `.await?` behind it"]
pub struct Acquiring(Stage);

enum Stage {
    Begun(Acquire),
    Waiting(Pin<Box<dyn Future<Output = Result<Permit, Error>> + Send>>),
}

impl Future for Acquiring {
    type Output = Result<Permit, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Begun(acquire) = &mut self.0 {
            // Where slots are free for ever a loop of callers must let others run.
            let progress = ready!(poll_proceed(cx));
            let route = acquire.route()?;
            match acquire.throttle.ask(&route, route.since)?.at_hand() {
                Ok(outcome) => {
                    progress.made_progress();
                    return Poll::Ready(outcome);
                }
                Err(Asked { queue, pass, since, .. }) => {
                    self.0 = Stage::Waiting(Box::pin(async move { wait_in_queue(queue, &route, pass, since).await }));
                }
            }
        }
        match &mut self.0 {
            Stage::Begun(_) => Poll::Pending,
            Stage::Waiting(waiting) => waiting.as_mut().poll(cx),
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

/// Where a call belongs, what it costs and how long it waits.
pub(crate) struct Route {
    pub(crate) registered: Arc<Registered>,
    pub(crate) scopes: Scopes,
    /// What it takes of each log, or why it can never go.
    charges: Result<Arc<[u32]>, Error>,
    /// Which calls use about as much as it, and of which units it takes estimates.
    kind: Option<Arc<str>>,
    estimated: Places,
    /// As how many calls it counts.
    cost: u32,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) now_or_never: bool,
    priority: Priority,
    /// Whether its response will be seen: only then has a breaker a say.
    pub(crate) is_seen: bool,
    /// Since when it waits: a call made again has no more time than the first.
    pub(crate) since: Instant,
    retries_left: u32,
}

impl Route {
    /// Of a call through the middleware, which also says by its `request` what the call leaves open; or of another.
    pub(crate) fn new(registered: Arc<Registered>, call: &Call, request: Option<&RequestHead<'_>>) -> Self {
        let max_wait = call.max_wait.or(registered.upstream.max_wait);
        let now_or_never = max_wait == Some(Duration::ZERO);
        let retries = if registered.observer.is_some() { 0 } else { registered.upstream.retries };
        let scopes = registered.charges.scopes(call, request);
        let mut call = Cow::Borrowed(call);
        let estimated = registered.estimated.as_ref().map_or(0, |estimated| estimated.fill(call.to_mut()));
        let charges = registered.charges.of(&registered.upstream, &call);
        let (is_seen, retries_left, since) = (request.is_some(), retries, Instant::now());
        let (cost, priority) = (call.cost_in(CALLS), call.priority);
        let kind = call.kind.clone().filter(|_| registered.estimated.is_some());
        Self {
            registered,
            scopes,
            charges,
            kind,
            estimated,
            cost,
            max_wait,
            now_or_never,
            priority,
            is_seen,
            since,
            retries_left,
        }
    }

    /// What its call reserves by estimates, and tells about others once it is settled.
    pub(crate) fn estimate(&self) -> Option<Arc<Estimate>> {
        let of = self.registered.estimated.as_ref()?;
        Some(Estimate::new(of, self.kind.clone(), self.estimated))
    }

    /// When its time is up; a wait too long for the clock is no bound.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.max_wait.and_then(|max_wait| self.since.checked_add(max_wait))
    }

    /// How long it waits in a queue that it comes to at `since`.
    pub(crate) fn patience(&self, queue: &Queue, since: Instant) -> Patience {
        if self.now_or_never {
            return Patience {
                wish: Wish::AtOnce { within: queue.ahead(since) },
                until: Some(since + ANSWER_PATIENCE),
                priority: self.priority,
            };
        }
        let until = self.deadline();
        Patience { wish: until.map_or(Wish::Soon, Wish::By), until, priority: self.priority }
    }

    /// Whether a call that is refused could be made again.
    pub(crate) const fn may_retry(&self) -> bool {
        self.retries_left > 0 && !self.now_or_never
    }

    /// Takes one of the retries, if one is left and the upstream's budget allows it.
    pub(crate) fn take_retry(&mut self) -> bool {
        let taken = self.may_retry() && self.registered.budget.take();
        self.retries_left -= u32::from(taken);
        if taken {
            self.registered.counts.retried();
        }
        taken
    }

    /// The pass for its call, unless the upstream's breaker is open.
    pub(crate) fn admit(&self, scope: Option<ScopeId>, pass: Pass) -> Result<Pass, Error> {
        match &self.registered.breaker {
            Some(breaker) if self.is_seen => breaker.admit(scope, pass, Instant::now()),
            _ => Ok(pass),
        }
    }

    /// Its call goes out: in flight until what this returns is dropped. One that probably opens a connection counts longer.
    pub(crate) fn depart(&self, permit: &Permit, url: &Url) -> Option<InFlight> {
        let in_flight = self.registered.connections.as_ref()?.begin(url, Instant::now());
        if in_flight.is_cold() {
            permit.tell_cold();
        }
        Some(in_flight)
    }

    /// Whether its seat is the call's until its response's body has ended; else until the headers come.
    pub(crate) fn keeps_seat_for_body(&self) -> bool {
        self.registered.upstream.in_flight.iter().any(|limit| !limit.ends_with_headers())
    }

    /// Whether it goes where the store cannot be asked.
    fn goes_without_store(&self) -> bool {
        self.registered.contact.policy() == WithoutStore::SendUnthrottled
    }

    /// Its call gets an error.
    pub(crate) fn told(&self, error: Error) -> Error {
        self.registered.counts.failed(&error);
        error
    }

    /// What it takes of each log, where the limits can ever admit it.
    pub(crate) fn charges(&self) -> Result<&Arc<[u32]>, Error> {
        self.charges.as_ref().map_err(Clone::clone)
    }
}

impl Throttle {
    /// Ask, at `now`: joins the queue of callers for the route's logs.
    pub(crate) fn ask<'a>(&self, route: &'a Route, now: Instant) -> Result<Asked<'a>, Error> {
        self.asked(route, now).map_err(|error| route.told(error))
    }

    fn asked<'a>(&self, route: &'a Route, now: Instant) -> Result<Asked<'a>, Error> {
        let Route { registered, scopes, .. } = route;
        if registered.observer.is_none() {
            route.charges()?;
        }
        let lines = registered.lines_of(scopes).into_iter().map(|rules| {
            let scopes = Scopes::line(rules.limits.first().and_then(|limit| limit.scope));
            let new = || Queue::line(self.process(), registered, &scopes, rules);
            self.queues().get(registered.key(scopes.narrowest), &scopes, now, new)
        });
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let new = || Queue::new(self.process(), registered, scopes, lines.into());
        let queue = self.queues().get(registered.key(scopes.narrowest), scopes, now, new)?;
        let pass = route.admit(queue.scope(), Pass::default())?;
        Ok(Asked { queue, route, pass, since: now })
    }
}

/// A caller that has asked.
pub(crate) struct Asked<'a> {
    queue: Arc<Queue>,
    route: &'a Route,
    pass: Pass,
    since: Instant,
}

impl Asked<'_> {
    /// The permit, or the refusal of a call for now or never, where nobody is before this caller and the store has its answer at
    /// hand.
    ///
    /// Where the upstream is observed, a permit for now in any case.
    pub(crate) fn at_hand(self) -> Result<Result<Permit, Error>, Self> {
        if self.route.registered.observer.is_some() {
            let shadow = Shadow::of(&self.queue, self.route, self.since);
            return Ok(Ok(Permit::observed(self.queue, shadow, self.pass)));
        }
        let Ok(charges) = &self.route.charges else { return Err(self) };
        match self.queue.at_hand(charges, self.since) {
            Some(Ok(slot)) => {
                span(self.route).record("waited_us", 0);
                let permit = Permit::new(self.queue, slot, self.pass, Duration::ZERO, self.since);
                Ok(Ok(permit.estimated(self.route.estimate())))
            }
            Some(Err(retry_after)) if self.route.now_or_never => {
                let upstream = Arc::clone(self.queue.upstream());
                let error = Error::Throttled { upstream, retry_after, paused: None };
                span(self.route).in_scope(|| tracing::debug!(upstream = &**self.queue.upstream(), %error, "refused"));
                Ok(Err(self.route.told(error)))
            }
            _ => Err(self),
        }
    }

    /// Waits in the queue until the slot starts.
    pub(crate) async fn wait(self) -> Result<Permit, Error> {
        // Where slots are free for ever a loop of callers must let others run.
        consume_budget().await;
        match self.at_hand() {
            Ok(outcome) => outcome,
            Err(Self { queue, route, pass, since }) => wait_in_queue(queue, route, pass, since).await,
        }
    }
}

async fn wait_in_queue(queue: Arc<Queue>, route: &Route, pass: Pass, since: Instant) -> Result<Permit, Error> {
    // A timer that finds no runtime panics.
    Handle::try_current().map_err(|_| route.told(Error::OutsideRuntime))?;
    let span = span(route);
    if !span.is_disabled() {
        span.record("ahead", queue.waiting());
    }
    let charges = Arc::clone(route.charges().map_err(|error| route.told(error))?);
    let outcome = queue.slot(charges, route.patience(&queue, since), since).instrument(span.clone()).await;
    let now = outcome.as_ref().map_or_else(|_| Instant::now(), |(_, now)| *now);
    let waited = now.saturating_duration_since(since);
    span.record("waited_us", u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    if let Ok((slot, _)) = &outcome {
        span.record("waits_for", slot.waited_for.as_str());
    }
    let slot = match outcome {
        Err(Error::StoreUnavailable { .. }) if route.goes_without_store() => Ok(None),
        outcome => outcome.map(|(slot, _)| Some(slot)),
    };
    // The breaker may have opened meanwhile.
    let admitted = slot.and_then(|slot| match route.admit(queue.scope(), pass) {
        Ok(pass) => Ok((slot, pass)),
        Err(error) => {
            if let Some(slot) = slot {
                queue.give_back(slot);
            }
            Err(error)
        }
    });
    match admitted {
        Ok((slot, pass)) => {
            let permit = match slot {
                Some(slot) => Permit::new(queue, slot, pass, waited, now),
                None => Permit::without_store(queue, pass, waited),
            };
            route.registered.counts.waited(waited, permit.late());
            Ok(permit.estimated(route.estimate()))
        }
        Err(error) => {
            let upstream = &*route.registered.upstream.name;
            span.in_scope(|| tracing::debug!(upstream, %error, "refused"));
            Err(route.told(error))
        }
    }
}

fn span(route: &Route) -> Span {
    let upstream = &*route.registered.upstream.name;
    tracing::debug_span!("acquire", upstream, cost = route.cost, ahead = Empty, waits_for = Empty, waited_us = Empty)
}
