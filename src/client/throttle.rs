//! The throttle: upstreams, and the queues of callers before them.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::OnceLock;

use tokio::join;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::client::acquire::Acquire;
use crate::client::builder::ThrottleBuilder;
use crate::client::middleware::Middleware;
use crate::client::news::Outgoing;
use crate::client::observing::Observer;
use crate::client::reachability::Reachability;
use crate::client::registry::Current;
use crate::client::route::Route;
use crate::client::unmatched::{Strangers, Unmatched};
use crate::client::usage::Usage;
use crate::config::call::Call;
use crate::config::name::shown;
use crate::config::plan::Registered;
use crate::config::request_head::RequestHead;
#[cfg(feature = "metrics")]
use crate::counts::Watch;
use crate::error::{Error, StoreError};
use crate::ledger::{Body, MessageId, Reply, Slower};
use crate::queue::presence::Attendance;
use crate::queue::process::Process;
use crate::queue::table::{CLOSE_PATIENCE, Queues};
use crate::store::{Store, WithoutStore};

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

/// A throttle that is there as long as anybody else has it.
#[derive(Debug)]
pub(crate) struct Weak(std::sync::Weak<Inner>);

impl Weak {
    pub(crate) fn upgrade(&self) -> Option<Throttle> {
        self.0.upgrade().map(Throttle)
    }
}

struct Inner {
    upstreams: Current,
    /// For upstreams that say nothing of it.
    without_store: WithoutStore,
    strangers: Strangers,
    process: Arc<Process>,
    queues: Queues,
    /// What upstreams said, on its way to the store.
    outgoing: Outgoing,
    reachability: Reachability,
    /// Looks at the gauges that change by themselves, of all upstreams.
    #[cfg(feature = "metrics")]
    watch: OnceLock<Arc<Watch>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.upstreams.get().upstreams.iter().for_each(|of| of.counts.gone());
    }
}

impl Throttle {
    pub(crate) fn new(upstreams: Current, process: Process, unmatched: Unmatched, without_store: WithoutStore) -> Self {
        let throttle = Self(Arc::new(Inner {
            upstreams,
            without_store,
            strangers: Strangers::new(unmatched),
            process: Arc::new(process),
            queues: Queues::default(),
            outgoing: Outgoing::new(),
            reachability: Reachability::default(),
            #[cfg(feature = "metrics")]
            watch: OnceLock::new(),
        }));
        throttle.process().let_tell(throttle.downgrade());
        throttle
    }

    /// Begins a throttle.
    pub fn builder() -> ThrottleBuilder {
        ThrottleBuilder::default()
    }

    /// The middleware that throttles every request of a client which belongs to one of the upstreams. Make one for each client, and clone that:
    /// which hosts cannot be connected to is found out by each for itself.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// let plain = reqwest::Client::new();
    /// let client = reqwest_middleware::ClientBuilder::new(plain).with(throttle.middleware()).build();
    /// let response = client.get("https://api.example.com/things").send().await?; // waits for its slot
    /// # drop(response);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn middleware(&self) -> Middleware {
        Middleware::new(self.clone())
    }

    /// Waits until the upstream may be called. Costs, scope and a longest wait can be said before `.await`.
    ///
    /// First come, first served. Dropped while waiting, its place goes to those behind.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let permit = throttle.acquire("gateway").scope("m-17").max_wait(Duration::from_secs(5)).await?;
    /// // make the call
    /// permit.served();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Throttled`] at once when the slot would be later than the longest wait; [`Error::StoreUnavailable`] after
    /// the longest wait, or 5 s where none is set, without an answer from the store, unless another
    /// [policy](WithoutStore) says otherwise; [`Error::CostExceedsQuota`],
    /// [`Error::TooManyWaiting`], [`Error::UnknownUpstream`], [`Error::Barred`], [`Error::Closed`].
    /// [`Error::OutsideRuntime`] where a call that has to wait is first polled outside of a Tokio runtime. The runtime needs
    /// its timers (`enable_time`): without them, or polled elsewhere later, tokio panics.
    pub fn acquire(&self, upstream: &str) -> Acquire {
        Acquire::new(self, upstream, false)
    }

    /// A permit at once, or in [`Error::Throttled`] how long until there is one. Waits for nothing but the store's answer, and for
    /// that no longer than a second. In a loop, sleep for what it tells.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::{Error, Limit, Throttle, Upstream};
    ///
    /// let throttle = Throttle::builder().upstream(Upstream::new("mail").limit(Limit::per_hour(1))).build()?;
    /// let first = throttle.try_acquire("mail").await?;
    /// let Err(Error::Throttled { retry_after, .. }) = throttle.try_acquire("mail").await else { panic!("a second call") };
    /// assert!(retry_after.as_secs() >= 3_600);
    /// # drop(first);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Throttle::acquire`].
    pub fn try_acquire(&self, upstream: &str) -> Acquire {
        Acquire::new(self, upstream, true)
    }

    /// How much of an upstream's quota is used by callers without a scope; those of a scope are in
    /// [`usage_in`](Throttle::usage_in). Limits on calls in flight are shown, too: seats that are used and free, in all processes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::{Limit, Throttle, Upstream};
    ///
    /// let throttle = Throttle::builder().upstream(Upstream::new("mail").limit(Limit::per_hour(5))).build()?;
    /// drop(throttle.acquire("mail").await?);
    /// let usage = throttle.usage("mail").await?;
    /// assert_eq!((usage.limits[0].used, usage.limits[0].free, usage.waiting), (1, 4, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`], [`Error::StoreUnavailable`].
    pub async fn usage(&self, upstream: &str) -> Result<Usage, Error> {
        self.usage_of(upstream, &Call::new()).await
    }

    /// How much of an upstream's quota is used by the callers of one scope value: a token, a merchant.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::{Limit, Scope, Throttle, Upstream};
    ///
    /// let each = Limit::per_second(10).each(Scope::header("x-merchant"));
    /// let throttle = Throttle::builder().upstream(Upstream::new("pay").limit(each)).build()?;
    /// drop(throttle.acquire("pay").scope("m-17").await?);
    /// assert_eq!(throttle.usage_in("pay", "m-17").await?.limits[0].free, 9);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Throttle::usage`].
    pub async fn usage_in(&self, upstream: &str, scope: impl AsRef<[u8]>) -> Result<Usage, Error> {
        self.usage_of(upstream, &Call::new().scope(scope)).await
    }

    /// How much of an upstream's quota is used where a call would be charged that says so: by its
    /// [`scope`](Call::scope) and [`scope_of`](Call::scope_of).
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::Call;
    ///
    /// let of_both = Call::new().scope_of("x-merchant", "m-17").scope_of("host", "eu.example.com");
    /// println!("{:?}", throttle.usage_of("pay", &of_both).await?.limits);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Throttle::usage`], and [`Error::UnknownScope`].
    pub async fn usage_of(&self, upstream: &str, call: &Call) -> Result<Usage, Error> {
        let registered = self.registered(upstream)?;
        registered.charges.of(&registered.upstream, call)?;
        let scopes = registered.charges.scopes(call, None);
        let waiting = self.0.queues.waiting((registered.key(scopes.narrowest), registered.edition()), &scopes);
        let unavailable = |source| Error::StoreUnavailable { upstream: Arc::clone(&registered.upstream.name), source };
        let shard = registered.shard(scopes.narrowest);
        let known = shard.time.outlook(registered.stale_after, Instant::now()).known;
        let logs = shard.calendars.around(&registered.charges.logs_of(&scopes), known);
        let body = Body::Usage { logs, seats: registered.charges.seats_of(&scopes) };
        let message = shard.message(MessageId::nobodys(), body);
        let reply = self.0.process.store.apply(&message).await.map_err(unavailable)?;
        let Reply::Usage { logs, seats } = reply else { return Err(unavailable(StoreError::senseless())) };
        let observed = registered.observer.as_deref().map(Observer::observed);
        let limits = registered.upstream.limits.iter().zip(registered.charges.limits());
        let usage = Usage::new(limits, &logs, waiting, registered.learned_from());
        if !registered.is_replaced() {
            registered.counts.used(&usage);
        }
        let in_flight = registered.charges.in_flight(&registered.upstream).zip(seats);
        let slower = logs.iter().filter_map(|log| log.slower).reduce(Slower::and);
        let after_refusals = slower.map(|slower| registered.spans.after_refusals(slower));
        Ok(Usage { observed, after_refusals, ..usage.with_seats(in_flight) })
    }

    /// Ends: refuses whoever waits and whoever comes with [`Error::Closed`], hands back what is booked, and tells the store what upstreams
    /// said, as that they refuse calls.
    ///
    /// What a response says that comes later is told in the background.
    ///
    /// Returns when the store has been told, after 5 s at the latest; outside of a Tokio runtime it cannot be told. Permits
    /// already given stay valid.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::{Error, Limit, Throttle, Upstream};
    ///
    /// let throttle = Throttle::builder().upstream(Upstream::new("mail").limit(Limit::per_second(5))).build()?;
    /// throttle.close().await;
    /// assert!(matches!(throttle.acquire("mail").await, Err(Error::Closed)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) {
        let begun = Instant::now();
        self.0.queues.close().await;
        let left = CLOSE_PATIENCE.saturating_sub(begun.elapsed());
        let registry = self.0.upstreams.get();
        let all = registry.upstreams.iter().map(|registered| &registered.attendance);
        let tells = async {
            let is_late = Handle::try_current().is_ok() && timeout(left, self.tell_all()).await.is_err();
            if is_late && !left.is_zero() {
                tracing::warn!("closed without an answer from the store");
            }
        };
        join!(tells, Attendance::leave(all, left));
    }

    /// Route: which upstream, scope and cost a request belongs to.
    pub(crate) fn route(&self, request: &RequestHead<'_>, call: Option<&Call>) -> Result<Option<Route>, Error> {
        let named = call.and_then(|call| call.upstream.as_deref());
        let registered = match named {
            Some(name) => self.registered(name)?,
            None => match self.0.upstreams.first_match(request) {
                Some(registered) => registered,
                None => return self.0.strangers.meet(request.url()).map(|()| None),
            },
        };
        Ok(Some(Route::of_request(registered, request, call)))
    }

    pub(crate) fn downgrade(&self) -> Weak {
        Weak(Arc::downgrade(&self.0))
    }

    /// Where the logs are kept.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.process.store
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.0.process
    }

    pub(crate) fn outgoing(&self) -> &Outgoing {
        &self.0.outgoing
    }

    pub(crate) fn reachability(&self) -> &Reachability {
        &self.0.reachability
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn watch(&self) -> &OnceLock<Arc<Watch>> {
        &self.0.watch
    }

    /// What becomes of calls without the store, where their upstream does not say so.
    pub(crate) fn without_store(&self) -> WithoutStore {
        self.0.without_store
    }

    pub(crate) fn upstreams(&self) -> &Current {
        &self.0.upstreams
    }

    pub(crate) fn find(&self, upstream: &str) -> Option<Arc<Registered>> {
        self.0.upstreams.find(upstream)
    }

    pub(crate) fn registered(&self, name: &str) -> Result<Arc<Registered>, Error> {
        self.find(name).ok_or_else(|| Error::UnknownUpstream { name: shown(name) })
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registry = self.0.upstreams.get();
        let names: Vec<_> = registry.upstreams.iter().map(|registered| &registered.upstream.name).collect();
        f.debug_struct("Throttle").field("store", &self.0.process.store).field("upstreams", &names).finish()
    }
}
