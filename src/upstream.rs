//! A remote API that limits us: its name, its limits, and which requests belong to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Request};

use crate::backoff::Backoff;
use crate::error::ConfigError;
use crate::feedback::Dialect;
use crate::host::{canonical, is_below, is_host, is_pattern};
use crate::limit::Limit;
use crate::scope::Scope;

/// The longest recovery after a hold.
const MAX_RECOVERY: Duration = Duration::from_secs(3_600);

type Predicate = Arc<dyn Fn(&Request) -> bool + Send + Sync>;

/// A remote API that limits us.
///
/// A request belongs to an upstream when everything said of it holds: one of the hosts, one of the path prefixes, one of
/// the methods, the closure. An upstream of which nothing is said is used by name only.
///
/// # Default
///
/// * scope: the whole upstream shares one log
/// * max wait: none, a call waits as long as it takes
/// * dialect: the general one; backoff: that of [`Backoff`]; recovery: 10 s
/// * refused calls are not made again; if they are, then a tenth of the calls at most
/// * nothing is learned from responses that are no refusals
/// * calls go on however many responses are 401 or 403
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
    pub(crate) scope: Scope,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) dialect: Dialect,
    pub(crate) backoff: Backoff,
    pub(crate) recovery: Duration,
    pub(crate) retries: u32,
    /// Retries for each thousand calls.
    pub(crate) retry_share: u32,
    pub(crate) learns: bool,
    pub(crate) break_after: Option<u32>,
    hosts: Vec<String>,
    paths: Vec<String>,
    methods: Vec<Method>,
    predicate: Option<Predicate>,
}

impl Upstream {
    /// An upstream of this name: letters, digits, `.`, `-` and `_`, at most 64 of them. Keys, errors and traces show it.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            limits: Vec::new(),
            scope: Scope::upstream(),
            max_wait: None,
            dialect: Dialect::GENERAL,
            backoff: Backoff::default(),
            recovery: Duration::from_secs(10),
            retries: 0,
            retry_share: 100,
            learns: false,
            break_after: None,
            hosts: Vec::new(),
            paths: Vec::new(),
            methods: Vec::new(),
            predicate: None,
        }
    }

    /// Requests to this host: `api.example.com`, `*.example.com` for every host below, or either with `:port`. May be said
    /// of several hosts.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(canonical(&host.into()));
        self
    }

    /// Requests whose path is this, or begins with it and a `/`. May be said of several paths.
    #[must_use]
    pub fn path(mut self, prefix: impl Into<String>) -> Self {
        self.paths.push(prefix.into());
        self
    }

    /// Requests of this method. May be said of several methods.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    /// Requests that a closure says yes to.
    #[must_use]
    pub fn matching(mut self, predicate: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Who shares the quota.
    #[must_use]
    pub fn scope_by(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// A limit. May be said several times: all limits hold at once.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// How long a call waits for its slot, unless it says otherwise. A call whose slot is further away is refused at once.
    #[must_use]
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// How its responses are read, where they differ from what their headers seem to say.
    #[must_use]
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// How long nobody sends after a refusal that names no time. With the feature `backoff`, a policy of that crate will do.
    #[must_use]
    pub fn backoff(mut self, backoff: impl Into<Backoff>) -> Self {
        self.backoff = backoff.into();
        self
    }

    /// How long after a hold calls come slower than the limits allow: at first at a tenth of the rate. At most an hour.
    /// After what is no matter of pace, such as a lock or a ban, they come at full rate.
    #[must_use]
    pub const fn recovery(mut self, recovery: Duration) -> Self {
        self.recovery = recovery;
        self
    }

    /// Makes a call again that the upstream refused for its quota, up to `retries` times: safe for any method, as it was not
    /// executed.
    ///
    /// Each time is a full call, which waits out the hold in line, within the longest wait of the first. The request is sent
    /// as it was, an `Idempotency-Key` included; one whose body cannot be cloned is not sent again.
    #[must_use]
    pub const fn retry_refused(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// How many retries there may be for each thousand calls of a process; ten may be saved up.
    #[must_use]
    pub const fn retries_per_thousand(mut self, share: u32) -> Self {
        self.retry_share = share;
        self
    }

    /// Learns from what responses say of the quota, where others spend it too: the limits given here are never exceeded, but
    /// fewer calls may be made.
    ///
    /// * Where the upstream reports fewer units remaining than the log allows, the difference, and a sixteenth more, counts as
    ///   used by others until a sixteenth of the window after the reset that it tells, for a window and its guard at most. A
    ///   wrong report costs no more than that. More remaining is ignored.
    /// * A response that took longer than a sixteenth of the window is held against all calls since, so that those in flight
    ///   do not look like others'; one that took longer than the window reports nothing.
    /// * A refusal that nothing explains widens the guard of every limit: by a twentieth of the window, then twice as much
    ///   each time, by a whole window at most. It narrows evenly, over a hundred windows, a minute at least and a day at most.
    ///
    /// A report belongs to the limit of its window, else to the only one, else to the one with the least quota that is no less
    /// than the limit reported. It costs a store call for each response that reports, one at a time.
    #[must_use]
    pub const fn learn_from_responses(mut self) -> Self {
        self.learns = true;
        self
    }

    /// Refuses a scope's calls with [`Error::Unauthorized`](crate::Error::Unauthorized), at the cost of no slot, once its
    /// last `in_a_row` responses were 401 or 403: some upstreams ban an address that goes on. After a pause one call is let
    /// through to see. If it gets 401 or 403 as well, the next pause is longer, as those of [`backoff`](Upstream::backoff)
    /// are; any other response below 500 lets all calls through again.
    ///
    /// A refusal for a limit, a 403 included, and a failure of the upstream's neither count nor end a row. Only calls through the middleware count and are
    /// refused: of others nobody sees the response. Each process counts for itself, and forgets a row after an hour of silence.
    #[must_use]
    pub const fn break_after_unauthorized(mut self, in_a_row: u32) -> Self {
        self.break_after = Some(in_a_row);
        self
    }

    /// Whether a request belongs to this upstream.
    pub(crate) fn matches(&self, request: &Request) -> bool {
        let said =
            !self.hosts.is_empty() || !self.paths.is_empty() || !self.methods.is_empty() || self.predicate.is_some();
        let any = |all: &[String], is: &dyn Fn(&str) -> bool| all.is_empty() || all.iter().any(|one| is(one));
        said && (self.methods.is_empty() || self.methods.contains(request.method()))
            && any(&self.hosts, &|host| is_host(host, request.url()))
            && any(&self.paths, &|path| is_below(path, request.url().path()))
            && self.predicate.as_ref().is_none_or(|predicate| predicate(request))
    }

    /// What is wrong with the configuration, limits aside.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field, reason: &str| Err(ConfigError::new(&self.name, field, reason));
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(named) {
            return wrong("name", "must be 1 to 64 letters, digits, '.', '-' or '_'");
        }
        if self.limits.is_empty() {
            return wrong("limit", "an upstream needs at least one limit");
        }
        if let Some(fault) = self.backoff.fault() {
            return wrong("backoff", fault);
        }
        if self.retry_share > 1_000 {
            return wrong("retries_per_thousand", "is more than one for each call");
        }
        if self.break_after == Some(0) {
            return wrong("break_after_unauthorized", "must be at least 1 response in a row");
        }
        if self.recovery > MAX_RECOVERY {
            return wrong("recovery", &format!("{:?} is longer than an hour", self.recovery));
        }
        if let Some(host) = self.hosts.iter().find(|host| !is_pattern(host)) {
            let form =
                "write api.example.com, *.example.com or [::1], with :port or without, but no scheme and no path";
            return wrong("host", &format!("{host:?} is no host: {form}; for every host, use matching(|_| true)"));
        }
        match self.paths.iter().find(|path| !path.starts_with('/')) {
            Some(path) => wrong("path", &format!("{path:?} does not begin with '/'")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .field("scope", &self.scope)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
