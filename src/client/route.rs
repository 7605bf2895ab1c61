//! Where a call belongs, what it costs and how long it waits.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use reqwest::Url;
use tokio::time::Instant;

use crate::client::auth_breaker::Pass;
use crate::client::connections::InFlight;
use crate::client::estimate::Estimate;
use crate::client::estimated::Reserves;
use crate::client::permit::Permit;
use crate::client::retry::Retry;
use crate::client::throttle::Throttle;
use crate::config::call::Call;
use crate::config::charges::{CALLS, Scopes};
use crate::config::costs::Costs;
use crate::config::limit::Limit;
use crate::config::plan::Registered;
use crate::config::priority::Priority;
use crate::config::request_head::RequestHead;
use crate::error::Error;
use crate::ledger::ScopeId;
use crate::queue::Queue;
use crate::queue::crowd::Member;
use crate::queue::waiters::{Waiter, Wish};
use crate::store::WithoutStore;

/// Where a call belongs, what it costs and how long it waits.
pub(crate) struct Route {
    pub(crate) registered: Arc<Registered>,
    pub(crate) scopes: Scopes,
    /// What it takes of each log, or why it can never go.
    charges: Result<Costs, Box<Error>>,
    /// Which calls use about as much as it, and what it reserves by estimates.
    kind: Option<Arc<str>>,
    reserves: Reserves,
    /// As how many calls it counts.
    pub(super) cost: u32,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) now_or_never: bool,
    priority: Priority,
    /// Whether its response will be seen: only then has a breaker a say.
    pub(crate) is_seen: bool,
    /// Whether it asks for the head of a response alone.
    is_head: bool,
    /// Since when it waits: a call made again has no more time than the first.
    pub(crate) since: Instant,
    /// How often its call was made again.
    retries: u32,
    /// That it is to be made again.
    retry: Option<Retry>,
}

impl Route {
    /// Of a call through the middleware, which also says by its `request` what the call leaves open; or of another.
    #[inline]
    pub(crate) fn new(registered: Arc<Registered>, call: &Call, request: Option<&RequestHead<'_>>) -> Self {
        let max_wait = call.max_wait.or(registered.upstream.max_wait);
        let now_or_never = max_wait == Some(Duration::ZERO);
        let mut scopes = registered.charges.scopes(call, request);
        let mut call = Cow::Borrowed(call);
        let estimated = registered.estimated.as_ref();
        let reserves = estimated.map_or_else(Vec::new, |estimated| estimated.fill(call.to_mut()));
        let charges = registered.charges.of(&registered.upstream, &call).map_err(Box::new);
        scopes.untouched = charges.as_ref().map_or(0, |costs| registered.charges.untouched_by(costs));
        let is_head = request.is_some_and(|request| request.method() == Method::HEAD);
        let (is_seen, since) = (request.is_some(), Instant::now());
        let (cost, priority) = (call.cost_in(CALLS), call.priority);
        let kind = call.own_kind().cloned().filter(|_| registered.estimated.is_some());
        Self {
            registered,
            scopes,
            charges,
            kind,
            reserves,
            cost,
            max_wait,
            now_or_never,
            priority,
            is_seen,
            is_head,
            since,
            retries: 0,
            retry: None,
        }
    }

    /// Of a request that belongs to an upstream.
    #[inline]
    pub(crate) fn of_request(registered: Arc<Registered>, request: &RequestHead<'_>, call: Option<&Call>) -> Self {
        let mut call = call.cloned().unwrap_or_default();
        if let Some(costs) = registered.upstream.costs_of(request) {
            call.or_costs_of(costs);
        }
        Self::new(registered, &call, Some(request))
    }

    /// Whoever gives up on the whole call after its timeout is not served by waiting longer.
    pub(crate) fn give_up_after(&mut self, timeout: Option<&Duration>) {
        if let Some(timeout) = timeout {
            self.max_wait = Some(self.max_wait.map_or(*timeout, |max_wait| max_wait.min(*timeout)));
        }
    }

    /// The route of a call that has waited by another: it has no more time, and no retry again.
    pub(crate) fn instead_of(self, before: &mut Self) -> Self {
        Self { since: before.since, retries: before.retries, retry: before.retry.take(), ..self }
    }

    /// What its call, which gets its permit, reserves by estimates, and tells about others once it is settled.
    pub(crate) fn estimate(&self) -> Option<Arc<Estimate>> {
        let of = self.registered.estimated.as_ref()?;
        Some(Estimate::new(of, self.kind.clone(), &self.reserves))
    }

    /// When its time is up; a wait too long for the clock is no bound.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.max_wait.and_then(|max_wait| self.since.checked_add(max_wait))
    }

    /// Its caller, who has come to a queue at `joined`.
    pub(crate) fn waiter(&self, queue: &Queue, member: &Member, joined: Instant) -> Result<Waiter, Error> {
        let wish = if self.now_or_never {
            Wish::AtOnce { within: queue.ahead(joined) }
        } else {
            self.deadline().map_or(Wish::Soon, Wish::By)
        };
        let costs = self.charges()?.clone();
        Ok(Waiter { ticket: member.ticket, costs, joined, wish, priority: self.priority })
    }

    /// Whether a call that is refused could be made again.
    pub(crate) fn may_retry(&self) -> bool {
        !self.now_or_never && self.retries < retries_of(&self.registered)
    }

    /// Takes one of the retries, if one is left by what is said of the upstream by now, and its budget allows it.
    pub(crate) fn take_retry(&mut self, throttle: &Throttle) -> bool {
        let latest = throttle.latest(Arc::clone(&self.registered));
        let may = self.may_retry() && latest.is_ok_and(|latest| self.retries < retries_of(&latest));
        self.retry = if may { Retry::of(&self.registered.budget) } else { None };
        self.retries += u32::from(self.retry.is_some());
        self.retry.is_some()
    }

    /// Its call is sent, perhaps again.
    pub(crate) fn is_sent(&mut self) {
        if let Some(retry) = self.retry.take() {
            retry.make();
            self.registered.counts.retried();
        }
    }

    /// The pass for its call, unless the upstream's breaker is open.
    #[inline]
    pub(crate) fn admit(&self, scope: Option<ScopeId>, pass: Pass) -> Result<Pass, Error> {
        match &self.registered.breaker {
            Some(breaker) if self.is_seen => breaker.admit(scope, pass, Instant::now()),
            _ => Ok(pass),
        }
    }

    /// Its call goes out at `now`: in flight until what this returns is dropped. One that probably opens a connection counts longer.
    #[inline]
    pub(crate) fn depart(&self, permit: &Permit, url: &Url, now: Instant) -> Option<InFlight<'_>> {
        let in_flight = self.registered.connections.as_ref()?.begin(url, now);
        if in_flight.is_cold() {
            permit.tell_cold();
        }
        Some(in_flight)
    }

    /// Whether its seat is the call's until the body has ended of a response of this status, whose length is known or not; else until the
    /// headers come. A body that whoever decompresses it has wrapped does not say that it is empty.
    pub(crate) fn keeps_seat_for_body(&self, status: StatusCode, length: Option<u64>) -> bool {
        let is_empty =
            self.is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || length == Some(0);
        let ends_with_body = |limit: &Limit| !limit.ends_with_headers();
        !is_empty && self.registered.upstream.in_flight.first().is_some_and(ends_with_body)
    }

    /// Whether it goes where the store cannot be asked.
    pub(super) fn goes_without_store(&self) -> bool {
        self.registered.policy() == WithoutStore::SendUnthrottled
    }

    /// Whether it goes by the part of this process where the store cannot be asked.
    pub(super) fn throttles_locally(&self) -> bool {
        self.registered.policy() == WithoutStore::ThrottleLocally
    }

    /// Its call gets an error.
    pub(crate) fn told(&self, error: Error) -> Error {
        self.registered.counts.failed(&error);
        error
    }

    /// Whether an error says no more than that its upstream is replaced.
    pub(crate) fn is_outdated_by(&self, error: &Error) -> bool {
        matches!(error, Error::Closed) && self.registered.is_replaced()
    }

    /// What it takes of each log, where the limits can ever admit it.
    #[inline]
    pub(crate) fn charges(&self) -> Result<&Costs, Error> {
        self.charges.as_ref().map_err(|error| Error::clone(error))
    }
}

/// How often a call to an upstream is made again that is refused.
fn retries_of(registered: &Registered) -> u32 {
    if registered.observer.is_some() { 0 } else { registered.upstream.retries }
}
