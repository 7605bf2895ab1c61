//! The life of a request: route, ask, wait, send, settle.

use std::error::Error as StdError;
use std::iter::successors;
use std::pin::Pin;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware as ReqwestMiddleware, Next, Result};
use tokio::time::Instant;

use crate::client::answer::Answer;
use crate::client::permit::Permit;
use crate::client::reachability::{Client, Visit};
use crate::client::route::Route;
use crate::client::throttle::Throttle;
use crate::client::url::Target;
use crate::config::call::Call;
use crate::error::Error;

/// Throttles the requests of a reqwest-middleware client: made by [`Throttle::middleware`].
///
/// Put it innermost. A retry middleware outside it makes every attempt ask for a slot of its own; inside it, attempts
/// would escape the count. Redirects and reqwest's own protocol retries happen below every middleware: turn them off with
/// `redirect::Policy::none()` and `retry::never()` to have each call counted. With redirects or such retries on, a call that was sent,
/// and then redirected to a host that cannot be reached, or could not be sent again, looks like one that was never sent: its slot is
/// handed back, and its own host looks as if it could not be reached; and a redirect to the request's own URL cannot be told from none.
///
/// A response from another host or port than the request's, after a redirect, says nothing about the upstream; nor does one from a path of
/// that host which surely belongs to another upstream. But where it was a success, the call was served.
///
/// Where three connects in a row to a host and port fail, calls of this client wait before they ask for a slot, and one at a time tries: after
/// 50 ms, then each time after twice as long, up to a second or a little more. As soon as one gets a response, all go on. A client of its own
/// is whatever has a middleware of its own, as it may have another proxy or certificate; clones are the same. A call whose
/// longest wait ends before that gets [`Error::Unreachable`]; one without any goes in its turn, after 5 s at the latest, and gets
/// reqwest's own error if it fails. Where connects failed already in the last minute, this begins only a second after the last response.
///
/// A request that belongs to no upstream passes through, with a warning for each host, unless
/// [`unmatched`](crate::ThrottleBuilder::unmatched) says otherwise. A request's own timeout bounds how long it waits. What
/// happened to a call is in its response's extensions, as a [`Passage`](crate::Passage); what a call costs, how long it
/// may wait, which upstream it belongs to can be said by `with_extension` of a [`Call`].
///
/// ```
/// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest::redirect::Policy;
///
/// let plain = reqwest::Client::builder().redirect(Policy::none()).build()?;
/// let client = reqwest_middleware::ClientBuilder::new(plain)
///     // a retry middleware stands here, outside of it
///     .with(throttle.middleware())
///     .build();
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Middleware {
    throttle: Throttle,
    client: Client,
}

impl Middleware {
    pub(crate) fn new(throttle: Throttle) -> Self {
        let client = throttle.reachability().client();
        Self { throttle, client }
    }
}

impl ReqwestMiddleware for Middleware {
    // By hand, as `async_trait` keeps the request in two places: without the second the future is allocated from a cache of its thread.
    fn handle<'a, 'b, 'c, 'f>(
        &'a self,
        mut request: Request,
        extensions: &'b mut Extensions,
        next: Next<'c>,
    ) -> Pin<Box<dyn Future<Output = Result<Response>> + Send + 'f>>
    where
        'a: 'f,
        'b: 'f,
        'c: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let Some(mut route) = self.route(&request, extensions).map_err(throttled)? else {
                return next.run(request, extensions).await;
            };
            let mut now = route.since;
            loop {
                // Boxed, as every call would have room for it.
                let again = if route.may_retry() { request.try_clone().map(Box::new) } else { None };
                let target =
                    again.as_ref().map_or_else(|| Target::kept(request.url()), |again| Target::of(again.url()));
                let visit = self.throttle.reachability().visit(self.client, &target, &route, now).await;
                let visit = visit.map_err(throttled)?;
                let anew = |registered| {
                    let mut route = Route::of_request(registered, &(&request).into(), extensions.get::<Call>());
                    route.give_up_after(request.timeout());
                    route
                };
                let permit = self.throttle.permit(&mut route, visit.since, anew).await;
                let permit = permit.map_err(throttled)?;
                route.is_sent();
                let in_flight = route.depart(&permit, request.url(), visit.since + permit.waited());
                let outcome = next.clone().run(request, extensions).await;
                drop(in_flight);
                let (response, may_send_again) = self.settle(permit, visit, &target, &route, outcome)?;
                match again.filter(|_| may_send_again && route.take_retry(&self.throttle)) {
                    Some(again) => (request, now) = (*again, Instant::now()),
                    None => return Ok(response),
                }
            }
        })
    }
}

impl Middleware {
    fn route(&self, request: &Request, extensions: &Extensions) -> std::result::Result<Option<Route>, Error> {
        let mut route = self.throttle.route(&request.into(), extensions.get::<Call>())?;
        if let Some(route) = &mut route {
            route.give_up_after(request.timeout());
        }
        Ok(route)
    }

    /// Keeps the slot of a call that may have been sent, hands back that of one that never left this machine, and pauses
    /// everybody when the upstream refused. Says whether the same call may be sent again.
    fn settle(
        &self,
        mut permit: Permit,
        visit: Visit<'_>,
        target: &Target<'_>,
        route: &Route,
        outcome: Result<Response>,
    ) -> Result<(Response, bool)> {
        match outcome {
            Ok(mut response) => {
                visit.connected();
                let upstreams = self.throttle.upstreams();
                let answer = Answer::to(target, &response, |from, to| upstreams.leaves(permit.upstream(), from, to));
                let may_send_again = self.throttle.learn_from(&permit, &answer);
                response.extensions_mut().insert(permit.passage());
                let keeps_seat = route.keeps_seat_for_body(response.status(), response.content_length());
                match permit.take_seat().filter(|_| keeps_seat) {
                    Some(seat) => Ok((seat.until_body_ends(response), may_send_again)),
                    None => Ok((response, may_send_again)),
                }
            }
            Err(error) => {
                // That of another server says nothing of this one.
                let (is_ours, never_sent) = (target.is_failed_by(&error), never_sent(&error, target));
                if is_ours && could_not_connect(&error) {
                    visit.failed(permit.upstream());
                } else if is_ours && !never_sent && error.url().is_some() && !error.is_builder() && !error.is_timeout()
                {
                    // One without a URL is of no call, and a timeout may have come before the connection did.
                    visit.connected();
                }
                if never_sent {
                    permit.hand_back();
                }
                Err(error)
            }
        }
    }
}

/// Whether nothing of the request can have reached the upstream. When nobody knows, it may have.
fn never_sent(error: &reqwest_middleware::Error, target: &Target<'_>) -> bool {
    (could_not_connect(error) || error.is_builder()) && target.is_meant_by(error)
}

/// Whether there was no connection for the request. What its body is made of may come from another call, and fail as that does.
fn could_not_connect(error: &reqwest_middleware::Error) -> bool {
    let is_of_body = |cause: &(dyn StdError + 'static)| cause.downcast_ref().is_some_and(reqwest::Error::is_body);
    error.is_connect() && !successors(error.source(), |&cause| cause.source()).any(is_of_body)
}

fn throttled(error: Error) -> reqwest_middleware::Error {
    reqwest_middleware::Error::middleware(Refused(error))
}

/// Around our error, so that it is the source of something: wrappers that are transparent show the source of what they wrap.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(#[source] Error);
