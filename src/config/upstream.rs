//! A remote API that limits us: its name, its limits, and which requests belong to it.

pub(crate) mod check;
mod responses;
pub(crate) mod shards;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use crate::config::backoff::Backoff;
use crate::config::call::Call;
use crate::config::host::HostPattern;
use crate::config::limit::Limit;
use crate::config::path::PathPrefix;
use crate::config::priority::Reserve;
use crate::config::request_head::RequestHead;
use crate::config::scope::Scope;
use crate::config::settle_by::SettleBy;
use crate::excerpt;
use crate::feedback::Dialect;
use crate::ledger::ScopeId;
use crate::store::WithoutStore;

/// How many calls of a process wait at once, unless the upstream says otherwise.
const MAX_WAITING: usize = 100_000;
/// How long one response is believed, whatever it asks for.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(3_600);

type Predicate = Arc<dyn Fn(&RequestHead<'_>) -> bool + Send + Sync>;
type CostBy = Arc<dyn Fn(&RequestHead<'_>) -> Call + Send + Sync>;

/// A remote API that limits us.
///
/// A request belongs to an upstream when everything said of it holds: one of the hosts, one of the path prefixes, one of
/// the methods, the closure. An upstream of which nothing is said is used by name only.
///
/// # Default
///
/// * scope: the whole upstream shares one log; all scopes lie in one shard
/// * max wait: none, a call waits as long as it takes; max waiting: 100,000 calls of a process
/// * while the store cannot answer, calls do what the throttle says
/// * dialect: the general one; backoff: that of [`Backoff`]; max pause: an hour
/// * refused calls are not sent again; with [`retry_refused`](Self::retry_refused) at most one for each ten calls, and ten in reserve
/// * nothing is learned from responses that are no refusals
/// * calls go on however many responses are 401 or 403
/// * calls wait for their slots: nothing is only observed
/// * a call counts for what it was charged, unless it is settled: by [`settle_by`](Self::settle_by), or by whoever made it
/// * a call that says no cost takes 1 of each unit; with [`estimate`](Self::estimate), what others of its kind used lately
/// * nothing is said of calls that wait for long
/// * calls of low priority wait while any of higher priority do; nothing is kept for those of high priority
///
/// ```
/// use outgate::{Limit, Scope, Upstream};
/// use std::time::Duration;
///
/// let upstream = Upstream::new("instagram")
///     .host("graph.instagram.com")
///     .scope_by(Scope::bearer_token())
///     .limit(Limit::per_hour(5_000))
///     .max_wait(Duration::from_secs(30));
/// # let _ = upstream;
/// ```
#[derive(Clone)]
pub struct Upstream {
    pub(crate) name: Arc<str>,
    pub(crate) limits: Vec<Limit>,
    /// Limits on calls in flight.
    pub(crate) in_flight: Vec<Limit>,
    pub(crate) scope: Scope,
    pub(crate) max_wait: Option<Duration>,
    /// None: as the throttle says.
    pub(crate) without_store: Option<WithoutStore>,
    pub(crate) max_waiting: usize,
    pub(crate) dialect: Dialect,
    pub(crate) backoff: Backoff,
    pub(crate) recovery: Option<Duration>,
    pub(crate) max_pause: Option<Duration>,
    pub(crate) retries: u32,
    /// Retries for each thousand calls.
    pub(crate) retry_share: u32,
    pub(crate) learns: bool,
    pub(crate) break_after: Option<u32>,
    pub(crate) observes: bool,
    /// Under which name others share some of its limits.
    shared: Option<Arc<str>>,
    /// Over how many parts of the store its scopes are spread.
    pub(crate) shards: Option<u32>,
    pub(crate) settles: Vec<SettleBy>,
    /// What the program calls some scopes.
    pub(crate) scope_names: Vec<(ScopeId, Arc<str>)>,
    /// The units that are estimated, and the most that a call can use of each.
    pub(crate) estimates: Vec<(Arc<str>, u32)>,
    /// For how many of a thousand calls an estimate is enough.
    pub(crate) warn_after: Option<Duration>,
    pub(crate) estimates_per_thousand: Option<u16>,
    pub(crate) promote_low_after: Option<Duration>,
    /// What is kept for some calls.
    pub(crate) reserve: Option<Reserve>,
    hosts: Vec<HostPattern>,
    paths: Vec<PathPrefix>,
    methods: Vec<Method>,
    predicate: Option<Predicate>,
    cost_by: Option<CostBy>,
    /// The first host or path that is none, and why.
    wrong_pattern: Option<(&'static str, String)>,
}

impl Upstream {
    /// An upstream of this name: letters, digits, `.`, `-` and `_`, at most 64 of them. Keys, errors and traces show it.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            limits: Vec::new(),
            in_flight: Vec::new(),
            scope: Scope::upstream(),
            max_wait: None,
            without_store: None,
            max_waiting: MAX_WAITING,
            dialect: Dialect::GENERAL,
            backoff: Backoff::default(),
            recovery: None,
            max_pause: None,
            retries: 0,
            retry_share: 100,
            learns: false,
            break_after: None,
            observes: false,
            shared: None,
            shards: None,
            settles: Vec::new(),
            scope_names: Vec::new(),
            estimates: Vec::new(),
            warn_after: None,
            estimates_per_thousand: None,
            promote_low_after: None,
            reserve: None,
            hosts: Vec::new(),
            paths: Vec::new(),
            methods: Vec::new(),
            predicate: None,
            cost_by: None,
            wrong_pattern: None,
        }
    }

    /// Requests to this host: `api.example.com`, `*.example.com` for every host below, or either with `:port`. May be said
    /// of several hosts.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        let host = host.into();
        match HostPattern::parse(&host) {
            Ok(pattern) => self.hosts.push(pattern),
            Err(fault) => self.refuse("host", &excerpt::of_host(&host, self.hosts.len() + 1), fault),
        }
        self
    }

    /// Requests whose path is this, or begins with it and a `/`. May be said of several paths.
    ///
    /// It is read as the path of a URL is: `/a b` is `/a%20b`, and `%c3` is `%C3`. It is a prefix and no template: where
    /// that does not do, use [`matching`](Upstream::matching).
    #[must_use]
    pub fn path(mut self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        match PathPrefix::parse(&prefix) {
            Ok(pattern) => self.paths.push(pattern),
            Err(fault) => self.refuse("path", &excerpt::of_path(&prefix, self.paths.len() + 1), fault),
        }
        self
    }

    /// Requests of this method. May be said of several methods.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    /// Requests that a closure says yes to.
    ///
    /// ```
    /// use http::Method;
    /// use outgate::{Limit, Upstream};
    ///
    /// let writes = Upstream::new("writes")
    ///     .host("api.example.com")
    ///     .path("/v1")
    ///     .method(Method::POST)
    ///     .matching(|request| request.headers().contains_key("x-tenant"))
    ///     .limit(Limit::per_second(5));
    /// # let _ = writes;
    /// ```
    #[must_use]
    pub fn matching(mut self, predicate: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Who shares the limits that do not [say so](Limit::each) themselves.
    ///
    /// A refusal is taken to be about this scope, unless the response says that it is about the whole upstream; where nothing is
    /// given here, about the last scope that a limit names, those on calls in flight after all others. What Stripe and Discord call `global`, which is about all calls of an account, is taken to
    /// be about this scope where it is by the token, or the only one and by a header; else about the whole upstream. Where this scope is the
    /// host, of an upstream that names no [host](Self::host), a refusal is about that host in any case. A scope that no limit of the upstream is
    /// shared by, as each names another, is an error.
    #[must_use]
    pub fn scope_by(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// What a scope's value is called in a [snapshot](crate::snapshot), where every other shows as a hash: a name like an upstream's. The value
    /// is that of [`scope_by`](Self::scope_by), else of the last scope that a limit [names](crate::Limit::each). May be said of several values; only their hashes are kept. Of one upstream the command `outgate`, and
    /// whoever else looks [from outside](crate::processes::Description), knows 100 names at most: of more those whose hashes come first.
    ///
    /// ```
    /// # use outgate::{Limit, Scope, Upstream};
    /// # let token = "s3cret";
    /// let github = Upstream::new("github")
    ///     .scope_by(Scope::bearer_token())
    ///     .name_scope(token, "release-bot")
    ///     .limit(Limit::per_hour(5_000));
    /// # let _ = github;
    /// ```
    #[must_use]
    pub fn name_scope(mut self, value: impl AsRef<[u8]>, name: impl Into<Arc<str>>) -> Self {
        self.scope_names.push((ScopeId::of(value.as_ref()), name.into()));
        self
    }

    /// A limit. May be said several times: all limits hold at once. Of limits on calls [in flight](Limit::in_flight) there is one at
    /// most for each scope; where an upstream is [observed](Upstream::observe), it holds nobody up.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Self {
        if limit.is_in_flight() { &mut self.in_flight } else { &mut self.limits }.push(limit);
        self
    }

    /// Limits that several upstreams share under one name, such as those of an account whose calls go to several hosts: each of these upstreams
    /// says the same. `name` is like an upstream's, and no upstream has it.
    ///
    /// What is [released](crate::Throttle::release), [slowed down](crate::Throttle::slow_down) or refused of a whole upstream concerns all that share. A
    /// refusal that does not say whom it concerns pauses the call's scope in that upstream. A call without a scope has it pause the upstream's own
    /// calls, where that has a limit of its own, else those of all that share.
    ///
    /// ```
    /// use outgate::{Limit, Throttle, Upstream};
    ///
    /// let account = [Limit::per_second(100)];
    /// let throttle = Throttle::builder()
    ///     .upstream(Upstream::new("files").host("files.example.com").limit(Limit::per_second(20)).shares("account", account.clone()))
    ///     .upstream(Upstream::new("mail").host("mail.example.com").shares("account", account))
    ///     .build()?;
    /// # drop(throttle);
    /// # Ok::<(), outgate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn shares(mut self, name: impl Into<Arc<str>>, limits: impl IntoIterator<Item = Limit>) -> Self {
        let name = name.into();
        if self.shared.as_ref().is_some_and(|before| *before != name) {
            self.wrong_pattern
                .get_or_insert_with(|| ("shares", "an upstream shares limits under one name only".to_owned()));
        }
        self.shared = Some(name);
        limits.into_iter().map(Limit::common).fold(self, Self::limit)
    }

    /// Whose logs its calls are charged in: those of all upstreams that share limits lie together.
    pub(crate) fn ledger(&self) -> &Arc<str> {
        self.shared.as_ref().unwrap_or(&self.name)
    }

    /// The limits that it shares, and under which name.
    pub(crate) fn common_limits(&self) -> Option<(&Arc<str>, Vec<&Limit>)> {
        let all = self.limits.iter().chain(&self.in_flight);
        self.shared.as_ref().map(|name| (name, all.filter(|limit| limit.is_common()).collect()))
    }

    /// What calls cost that do not say so by a [`Call`]: the closure sees a request's method, URL and headers, and the costs of the
    /// call that it gives count, unit by unit; nothing else of it does.
    ///
    /// ```
    /// use outgate::{Call, Limit, Upstream};
    ///
    /// let shop = Upstream::new("shop")
    ///     .limit(Limit::per_second(50).of("points"))
    ///     .cost_by(|request| Call::new().cost_of("points", if request.url().path().ends_with("/bulk") { 10 } else { 1 }));
    /// # let _ = shop;
    /// ```
    #[must_use]
    pub fn cost_by(mut self, cost: impl Fn(&RequestHead<'_>) -> Call + Send + Sync + 'static) -> Self {
        self.cost_by = Some(Arc::new(cost));
        self
    }

    /// How long a call waits for its slot, unless it says otherwise. A call whose slot is further away is refused at once.
    ///
    /// The store judges of it when the question arrives there: a call may start later than this by as long as that took, some milliseconds.
    #[must_use]
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// What becomes of its calls while the store cannot answer: by default what
    /// [the throttle says](crate::ThrottleBuilder::without_store).
    ///
    /// ```
    /// use outgate::store::WithoutStore;
    /// use outgate::{Limit, Upstream};
    ///
    /// let search = Upstream::new("search").limit(Limit::per_second(50)).without_store(WithoutStore::SendUnthrottled);
    /// # let _ = search;
    /// ```
    #[must_use]
    pub const fn without_store(mut self, policy: WithoutStore) -> Self {
        self.without_store = Some(policy);
        self
    }

    /// The same, where it says nothing of that.
    pub(crate) fn or_without_store(self, policy: WithoutStore) -> Self {
        let policy = self.without_store.unwrap_or(policy);
        self.without_store(policy)
    }

    /// Says by a warning, once for each queue, that calls have waited for longer than this, and why; again when nobody has waited in
    /// between. Its fields: the callers that wait, how long the first of them has, for
    /// [what](crate::snapshot::WaitsFor), the pause and its cause, and the scope as a hash.
    ///
    /// ```
    /// # use outgate::{Limit, Upstream};
    /// # use std::time::Duration;
    /// let gateway = Upstream::new("gateway").limit(Limit::per_second(100)).warn_after(Duration::from_secs(10));
    /// # let _ = gateway;
    /// ```
    #[must_use]
    pub const fn warn_after(mut self, wait: Duration) -> Self {
        self.warn_after = Some(wait);
        self
    }

    /// How many calls of a process may wait at once, those of all scopes together: 100,000 by default. One more is refused at
    /// once with [`Error::TooManyWaiting`](crate::Error::TooManyWaiting).
    ///
    /// ```
    /// # use outgate::{Limit, Upstream};
    /// let gateway = Upstream::new("gateway").limit(Limit::per_second(100)).max_waiting(1_000);
    /// # let _ = gateway;
    /// ```
    #[must_use]
    pub const fn max_waiting(mut self, calls: usize) -> Self {
        self.max_waiting = calls;
        self
    }

    /// Lets every call go on at once, and counts and reports what would have become of it: for whoever wants to see before they
    /// switch throttling on.
    ///
    /// A shadow of each call takes its place in the queue, for as long as the call would have waited, and its slot is kept, so the
    /// logs hold what would have been granted. What would have become of the calls is in
    /// [`Usage::observed`](crate::Usage::observed); each that would have waited, or got an error, is a debug event.
    /// [`max_waiting`](Upstream::max_waiting) bounds the shadows. Nobody waits there, and so say metrics, traces,
    /// [snapshots](crate::Throttle::snapshot) and [processes](crate::Throttle::processes). Beside processes that throttle by other limits those
    /// that are observed hold for nobody else: of the observed calls those count for all that would have gone by then.
    ///
    /// Permits are given at once; handing one back hands its shadow's slot back. Responses are read, and pauses are taken note of:
    /// shadows wait in them. The one that is to look whether a pause still holds does so by its call, if that went on in the pause and was
    /// served. Nothing is sent again, nobody is refused for 401 or 403, or because connects failed. Without the
    /// store, or outside of a Tokio runtime, calls go on as well. A throttle that is closed refuses them.
    ///
    /// ```
    /// # use outgate::{Limit, Upstream};
    /// let gateway = Upstream::new("gateway").limit(Limit::per_second(100)).observe(); // nobody waits
    /// # let _ = gateway;
    /// ```
    #[must_use]
    pub const fn observe(mut self) -> Self {
        self.observes = true;
        self
    }

    pub(crate) fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }

    pub(crate) fn paths(&self) -> &[PathPrefix] {
        &self.paths
    }

    /// Whether anything is said of the requests that belong to it.
    pub(crate) const fn is_routed(&self) -> bool {
        !self.hosts.is_empty() || !self.paths.is_empty() || !self.methods.is_empty() || self.predicate.is_some()
    }

    /// Whether all requests to its hosts belong to it.
    pub(crate) const fn has_whole_hosts(&self) -> bool {
        !self.hosts.is_empty() && self.paths.is_empty() && self.methods.is_empty() && self.predicate.is_none()
    }

    /// Whether a request that is on one of its hosts, below one of its paths, is the upstream's.
    pub(crate) fn accepts(&self, request: &RequestHead<'_>) -> bool {
        let by_closure = || self.predicate.as_ref().is_some_and(|predicate| predicate(request));
        self.accepts_by(request.method()).unwrap_or_else(by_closure)
    }

    /// Whether it accepts requests of a method; `None` where a closure decides, which is not asked.
    pub(crate) fn accepts_by(&self, method: &Method) -> Option<bool> {
        let has_method = self.methods.is_empty() || self.methods.contains(method);
        if has_method && self.predicate.is_some() { None } else { Some(has_method) }
    }

    /// Whether it accepts every request that another one does, on one of its hosts and below one of its paths.
    pub(crate) fn accepts_all_of(&self, other: &Self) -> bool {
        let has = |method| self.methods.contains(method);
        let has_methods = self.methods.is_empty() || (!other.methods.is_empty() && other.methods.iter().all(has));
        has_methods && self.predicate.is_none()
    }

    /// What a call of this request costs, where a closure says so.
    pub(crate) fn costs_of(&self, request: &RequestHead<'_>) -> Option<Call> {
        self.cost_by.as_ref().map(|cost| cost(request))
    }

    /// Keeps the first pattern that is wrong for the error, and nothing else of it: it may hold a secret.
    pub(super) fn refuse(&mut self, field: &'static str, which: &str, fault: &str) {
        self.wrong_pattern.get_or_insert_with(|| (field, format!("{which} {fault}")));
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .field("in_flight", &self.in_flight)
            .field("scope", &self.scope)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
