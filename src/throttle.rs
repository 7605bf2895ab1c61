//! The throttle: upstreams, and the lines of callers before them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::{Request, Response};

use crate::acquire::{Acquire, Asked, Route};
use crate::call::Call;
use crate::error::{ConfigError, Error};
use crate::feedback::{Feedback, Refusal};
use crate::lines::Lines;
use crate::middleware::Middleware;
use crate::permit::Permit;
use crate::process::Process;
use crate::refusing;
use crate::registered::Registered;
use crate::scope::Digest128;
use crate::store::{Home, MemoryStore, Store};
use crate::upstream::Upstream;
use crate::usage::Usage;

/// Throttles calls to upstreams: for requests by its [`middleware`](Throttle::middleware), for anything else by
/// [`acquire`](Throttle::acquire). Clones are one throttle.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::{Limit, Throttle, Upstream};
///
/// let throttle = Throttle::builder()
///     .upstream(Upstream::new("stripe").host("api.stripe.com").limit(Limit::per_second(100).burst(20)))
///     .build()?;
///
/// let permit = throttle.acquire("stripe").await?; // now make the call
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Throttle(Arc<Inner>);

struct Inner {
    upstreams: Vec<Arc<Registered>>,
    by_name: HashMap<Arc<str>, Arc<Registered>>,
    process: Arc<Process>,
    lines: Lines,
}

/// Collects what a throttle is made of.
///
/// # Default
///
/// * store: a [`MemoryStore`] of its own, for one process
/// * horizon: 250 ms
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct ThrottleBuilder {
    store: Option<Arc<dyn Store>>,
    upstreams: Vec<Upstream>,
    horizon: Option<Duration>,
}

impl ThrottleBuilder {
    /// Keeps the logs here: a `RedisStore` makes one throttle of all processes that share it.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Registers an upstream. A request belongs to the first that it matches.
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.upstreams.push(upstream);
        self
    }

    /// Registers several upstreams.
    pub fn upstreams(mut self, upstreams: impl IntoIterator<Item = Upstream>) -> Self {
        self.upstreams.extend(upstreams);
        self
    }

    /// How far ahead of now slots are booked: 10 ms to 10 s. A process that crashes wastes at most what it booked within
    /// it; a shorter one means more store calls.
    pub const fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// The throttle.
    ///
    /// # Errors
    ///
    /// A mistake in the configuration, which names the upstream and the field.
    pub fn build(self) -> Result<Throttle, ConfigError> {
        let horizon = self.horizon.unwrap_or(Duration::from_millis(250));
        if horizon < Duration::from_millis(10) || horizon > Duration::from_secs(10) {
            return Err(ConfigError::new("", "horizon", format!("{horizon:?} is not between 10 ms and 10 s")));
        }
        let upstreams = self.upstreams.into_iter().map(Registered::new).collect::<Result<Vec<_>, _>>()?;
        let mut by_name = HashMap::new();
        for registered in &upstreams {
            let name = &registered.upstream.name;
            if by_name.insert(Arc::clone(name), Arc::clone(registered)).is_some() {
                return Err(ConfigError::new(name, "name", "two upstreams have this name"));
            }
        }
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let process = Arc::new(Process::new(store, horizon));
        Ok(Throttle(Arc::new(Inner { upstreams, by_name, process, lines: Lines::default() })))
    }
}

impl Throttle {
    /// Begins a throttle.
    pub fn builder() -> ThrottleBuilder {
        ThrottleBuilder::default()
    }

    /// The middleware that throttles every request of a client which belongs to one of the upstreams.
    #[must_use]
    pub fn middleware(&self) -> Middleware {
        Middleware::new(self.clone())
    }

    /// Waits until the upstream may be called. Costs, scope and a longest wait can be said before `.await`.
    ///
    /// First come, first served. Dropped while waiting, its place goes to those behind.
    ///
    /// # Errors
    ///
    /// [`Error::Throttled`] at once when the slot would be later than the longest wait; [`Error::StoreUnavailable`] after
    /// the longest wait, or 5 s where none is set, without an answer from the store; [`Error::CostExceedsQuota`],
    /// [`Error::UnknownUpstream`], [`Error::Barred`], [`Error::Closed`].
    pub fn acquire(&self, upstream: &str) -> Acquire {
        Acquire::new(self.clone(), upstream, false)
    }

    /// A permit for now, or in [`Error::Throttled`] how long until there is one. Waits for nothing but the store's answer, and for
    /// that no longer than a second. In a loop, sleep for what it tells.
    ///
    /// # Errors
    ///
    /// As for [`Throttle::acquire`].
    pub fn try_acquire(&self, upstream: &str) -> Acquire {
        Acquire::new(self.clone(), upstream, true)
    }

    /// How much of an upstream's quota is used by callers without a scope; those of a scope are in
    /// [`usage_in`](Throttle::usage_in).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`], [`Error::StoreUnavailable`].
    pub async fn usage(&self, upstream: &str) -> Result<Usage, Error> {
        self.usage_of(upstream, None).await
    }

    /// How much of an upstream's quota is used by the callers of one scope value: a token, a merchant.
    ///
    /// # Errors
    ///
    /// As for [`Throttle::usage`].
    pub async fn usage_in(&self, upstream: &str, scope: impl AsRef<[u8]>) -> Result<Usage, Error> {
        self.usage_of(upstream, Some(Digest128::of(scope.as_ref()))).await
    }

    async fn usage_of(&self, upstream: &str, scope: Option<Digest128>) -> Result<Usage, Error> {
        let registered = self.registered(upstream)?;
        let home = registered.home(scope.as_ref());
        let waiting = self.0.lines.find(&home).map_or(0, |line| line.waiting());
        let logs =
            self.0.process.store.usage(&home, &registered.logs).await.map_err(|source| Error::StoreUnavailable {
                upstream: Arc::clone(&registered.upstream.name),
                source,
            })?;
        let none = crate::store::LogUsage::new(Vec::new());
        Ok(Usage::new(&registered.upstream.limits, logs.first().unwrap_or(&none), waiting))
    }

    /// Takes note of what an upstream said: after a refusal nobody in the cluster sends for a while, then slowly.
    ///
    /// The middleware does so for every response by its status and headers. This is for verdicts that stand in bodies, and
    /// for calls made without the middleware. Returns when the store has been told.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`], [`Error::StoreUnavailable`].
    pub async fn report(&self, upstream: &str, feedback: &Feedback) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.learn(registered, &registered.home, feedback).await
    }

    /// The same for the calls of one scope value: a token, a merchant.
    ///
    /// # Errors
    ///
    /// As for [`Throttle::report`].
    pub async fn report_in(&self, upstream: &str, scope: impl AsRef<[u8]>, feedback: &Feedback) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        let home = registered.home(Some(&Digest128::of(scope.as_ref())));
        self.learn(registered, &home, feedback).await
    }

    async fn learn(&self, registered: &Registered, home: &Home, feedback: &Feedback) -> Result<(), Error> {
        let upstream = &registered.upstream;
        let Some((home, hold)) = refusing::hold(upstream, home, feedback, fastrand::f64()) else { return Ok(()) };
        // This process falls silent at once, the others when the store knows.
        self.0.lines.withhold(&home, hold.waits.first().copied().unwrap_or_default(), hold.cause);
        match self.0.process.store.hold(&home, &hold).await {
            Ok(wait) => {
                tracing::warn!(upstream = &*upstream.name, ?wait, refusal = ?feedback.refusal(), "refused, all hold");
                self.0.lines.withhold(&home, wait, hold.cause);
                Ok(())
            }
            Err(source) => Err(Error::StoreUnavailable { upstream: Arc::clone(&upstream.name), source }),
        }
    }

    /// Settle: takes note of a response, in the background where the store has to be told. Says why it was refused.
    pub(crate) fn read(&self, permit: &Permit, response: &Response) -> Option<Refusal> {
        let registered = self.registered(permit.upstream()).ok()?;
        registered.budget.pay_in();
        let dialect = &registered.upstream.dialect;
        let feedback = Feedback::read_as(dialect, response.status(), response.headers(), SystemTime::now());
        let refusal = feedback.refusal()?;
        let (throttle, registered, home) = (self.clone(), Arc::clone(registered), permit.home().clone());
        let mut learning = Box::pin(async move {
            if let Err(error) = throttle.learn(&registered, &home, &feedback).await {
                tracing::warn!(upstream = &*registered.upstream.name, %error, "the hold is not known to the others");
            }
        });
        // Once by hand, so that this process is silent before the response is seen; the rest whatever becomes of the caller.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if learning.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(learning);
        }
        Some(refusal)
    }

    /// Ends: refuses whoever waits and whoever comes with [`Error::Closed`], and hands back what is booked.
    ///
    /// Returns when the store has been told, after 5 s at the latest. Permits already given stay valid.
    pub async fn close(&self) {
        self.0.lines.close().await;
    }

    /// Route: which upstream, scope and cost a request belongs to.
    pub(crate) fn route(&self, request: &Request, call: Option<&Call>) -> Result<Option<Route>, Error> {
        let named = call.and_then(|call| call.upstream.as_deref());
        let registered = match named {
            Some(name) => self.registered(name)?,
            None => match self.0.upstreams.iter().find(|registered| registered.upstream.matches(request)) {
                Some(registered) => registered,
                None => return Ok(None),
            },
        };
        let mut call = call.cloned().unwrap_or_default();
        call.scope = call.scope.or_else(|| registered.upstream.scope.of(request));
        let mut route = Route::new(Arc::clone(registered), call);
        // A caller who gives up on the whole call after its timeout is not served by waiting longer.
        if let Some(timeout) = request.timeout() {
            route.max_wait = Some(route.max_wait.map_or(*timeout, |max_wait| max_wait.min(*timeout)));
        }
        Ok(Some(route))
    }

    /// Ask: joins the line of callers for the route's logs.
    pub(crate) fn ask<'a>(&self, route: &'a Route) -> Result<Asked<'a>, Error> {
        route.check()?;
        let Route { registered, scope, .. } = route;
        let home = registered.home(scope.as_ref());
        let (process, name) = (&self.0.process, &registered.upstream.name);
        let line = self.0.lines.get(home, |home| {
            let logs = Arc::clone(&registered.logs);
            crate::line::Line::new(Arc::clone(process), Arc::clone(name), home, logs, registered.stale_after)
        })?;
        Ok(Asked::new(line, route))
    }

    pub(crate) fn registered(&self, name: &str) -> Result<&Arc<Registered>, Error> {
        self.0.by_name.get(name).ok_or_else(|| Error::UnknownUpstream { name: name.into() })
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.upstreams.iter().map(|registered| &registered.upstream.name).collect();
        f.debug_struct("Throttle").field("store", &self.0.process.store).field("upstreams", &names).finish()
    }
}
