//! Throttles any client that is a tower service of `http` requests: hyper's, tonic's, axum's.

mod body;

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use reqwest::Url;
use tower_layer::Layer;
use tower_service::Service;

use self::body::Ending;
pub use self::body::ThrottledBody;
use crate::client::permit::Permit;
use crate::client::reachability::Client;
use crate::client::route::Route;
use crate::client::throttle::Throttle;
use crate::client::url::Target;
use crate::config::call::Call;
use crate::config::request_head::RequestHead;

/// The error of a tower stack: ours are found in it by [`Error::find`](crate::Error::find).
type BoxError = Box<dyn StdError + Send + Sync>;
/// The host of a request that says none.
const NO_HOST: &str = "no.host.provided.local";

type NeverSent = dyn Fn(&(dyn StdError + 'static)) -> bool + Send + Sync;

/// Throttles the requests of a tower client: made by [`Throttle::layer`].
///
/// Put it innermost, so that each attempt of a retry asks for a slot of its own, and inside of whatever follows redirects. It waits until
/// the client is ready, then for its slot, and sends at once. So whatever bounds calls inside of it, as a limit on concurrency or the buffer
/// of a channel, counts those that wait: calls that wait for one upstream may use up the room of others. Bound them outside, by a client
/// for each upstream, or by [`max_wait`](crate::Upstream::max_wait).
///
/// A request belongs to the upstream that its [`Call`] names, or the layer, or else to the first that it matches by its URI; one without a host in
/// its URI by its `Host` header, as if it went by http: to port 80, where that names none. The response is read like one of the [middleware](crate::Middleware); of a gRPC call its trailers are read too, where `grpc-status: 8` is a refusal,
/// unless `grpc-message` says that a message is larger than is allowed, and `grpc-retry-pushback-ms` how long it lasts. No call is sent
/// again. What happened to a call is in its response's extensions, as a [`Passage`](crate::Passage).
///
/// ```
/// use outgate::{Limit, Throttle, Upstream};
/// use tower::{ServiceBuilder, service_fn};
///
/// let search = Upstream::new("search").limit(Limit::per_second(50));
/// let throttle = Throttle::builder().upstream(search).build()?;
/// let transfer = |_: http::Request<String>| async { Ok::<_, std::io::Error>(http::Response::new(String::new())) };
/// let client = ServiceBuilder::new().layer(throttle.layer().upstream("search")).service(service_fn(transfer));
/// # drop(client);
/// # Ok::<(), outgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ThrottleLayer {
    throttle: Throttle,
    client: Client,
    upstream: Option<Arc<str>>,
    never_sent: Option<Arc<NeverSent>>,
}

impl ThrottleLayer {
    pub(crate) fn new(throttle: Throttle) -> Self {
        let client = throttle.reachability().client();
        Self { throttle, client, upstream: None, never_sent: None }
    }

    /// Every request belongs to the upstream of this name, unless its [`Call`] names another: for clients of one service, whose requests
    /// may have a path and no host, as tonic's do.
    #[must_use]
    pub fn upstream(mut self, name: impl Into<Arc<str>>) -> Self {
        self.upstream = Some(name.into());
        self
    }

    /// Which errors of the client mean that nothing was sent, so that the slot goes back: those of connecting. Without it every call that
    /// fails counts as sent.
    ///
    /// ```
    /// # fn layer(throttle: outgate::Throttle) {
    /// use hyper_util::client::legacy::Error;
    ///
    /// let layer = throttle.layer().never_sent(|error| error.downcast_ref().is_some_and(Error::is_connect));
    /// # drop(layer);
    /// # }
    /// ```
    #[must_use]
    pub fn never_sent(mut self, is: impl Fn(&(dyn StdError + 'static)) -> bool + Send + Sync + 'static) -> Self {
        self.never_sent = Some(Arc::new(is));
        self
    }

    /// The call that a request says it is.
    fn call<B>(&self, request: &Request<B>) -> Call {
        let mut call = request.extensions().get::<Call>().cloned().unwrap_or_default();
        call.upstream = call.upstream.or_else(|| self.upstream.clone());
        call
    }

    fn was_never_sent(&self, error: &(dyn StdError + 'static)) -> bool {
        self.never_sent.as_ref().is_some_and(|is| is(error))
    }

    /// Keeps the slot of a call that may have been sent, hands back that of one that was not, and pauses everybody when the upstream
    /// refused.
    fn settle<B: Body>(
        &self,
        mut permit: Permit,
        route: &Route,
        outcome: Result<Response<B>, BoxError>,
    ) -> Result<Response<ThrottledBody<B>>, BoxError> {
        match outcome {
            Ok(mut response) => {
                response.extensions_mut().insert(permit.passage());
                if !route.keeps_seat_for_body(response.status(), response.body().size_hint().exact()) {
                    drop(permit.take_seat());
                }
                let mut ending = Ending::of(&self.throttle, permit, response.status(), response.headers());
                if response.body().is_end_stream() {
                    // Nothing comes behind the head of an empty response.
                    ending.end();
                }
                Ok(response.map(|body| ThrottledBody::new(body, ending)))
            }
            Err(error) => {
                if self.was_never_sent(&*error) {
                    permit.hand_back();
                }
                Err(error)
            }
        }
    }
}

impl fmt::Debug for ThrottleLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Throttled<S> {
        Throttled { layer: self.clone(), inner }
    }
}

/// A tower client whose requests are throttled.
///
/// ```
/// use outgate::tower::Throttled;
/// use tower::Layer as _;
///
/// fn throttled<S>(throttle: &outgate::Throttle, client: S) -> Throttled<S> {
///     throttle.layer().layer(client)
/// }
/// # let _ = throttled::<()>;
/// ```
#[derive(Clone, Debug)]
pub struct Throttled<S> {
    layer: ThrottleLayer,
    inner: S,
}

impl<S, A, B> Service<Request<A>> for Throttled<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    A: Send + 'static,
    B: Body,
{
    type Response = Response<ThrottledBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The clone that sends gets ready itself, before it asks for its slot.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (layer, mut inner) = (self.layer.clone(), self.inner.clone());
        Box::pin(async move {
            poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
            let call = layer.call(&request);
            let url = url_of(&request)
                .or_else(|error| if call.upstream.is_some() { nowhere(&request) } else { Err(error) })?;
            let head = RequestHead::new(request.method(), &url, request.headers());
            let Some(mut route) = layer.throttle.route(&head, Some(&call))? else {
                let response = inner.call(request).await.map_err(Into::into)?;
                return Ok(response.map(|body| ThrottledBody::new(body, Ending::none())));
            };
            let upstream = &route.registered.upstream.name;
            let target = if url.host_str() == Some(NO_HOST) {
                Target::somewhere(&url, Arc::clone(upstream))
            } else {
                Target::of(&url)
            };
            let visit = layer.throttle.reachability().visit(layer.client, &target, &route, route.since).await?;
            let anew = |registered| Route::of_request(registered, &head, Some(&call));
            let permit = layer.throttle.permit(&mut route, visit.since, anew).await?;
            let in_flight = route.depart(&permit, &url, visit.since + permit.waited());
            let outcome = inner.call(request).await.map_err(Into::into);
            drop(in_flight);
            match &outcome {
                Ok(_) => visit.connected(),
                Err(error) if layer.was_never_sent(&**error) => visit.failed(permit.upstream()),
                // Nobody knows whether it came as far as a connection.
                Err(_) => drop(visit),
            }
            layer.settle(permit, &route, outcome)
        })
    }
}

/// Where a request goes; one without a host is the named upstream's, or nobody's.
fn url_of<B>(request: &Request<B>) -> Result<Url, BoxError> {
    let uri = request.uri();
    if uri.authority().is_some() && uri.scheme().is_some() {
        return Ok(uri.to_string().parse()?);
    }
    let named = || {
        request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty())
    };
    // CONNECT names nothing but a host and a port, and OPTIONS may be about no path.
    let host = uri.authority().map(http::uri::Authority::as_str).or_else(named);
    Ok(format!("http://{}{}", host.unwrap_or(NO_HOST), path_of(uri)).parse()?)
}

/// The same of a request whose host makes no URL, and of which is known whose it is.
fn nowhere<B>(request: &Request<B>) -> Result<Url, BoxError> {
    Ok(format!("http://{NO_HOST}{}", path_of(request.uri())).parse()?)
}

fn path_of(uri: &http::Uri) -> &str {
    let path = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
    path.filter(|path| *path != "*").unwrap_or("/")
}

impl Throttle {
    /// The layer that throttles every request of a tower client which belongs to one of the upstreams. Make one for each client, and clone
    /// that: which hosts cannot be connected to is found out by each for itself.
    ///
    /// ```no_run
    /// # fn client(throttle: outgate::Throttle) {
    /// use hyper_util::client::legacy::Client;
    /// use hyper_util::rt::TokioExecutor;
    /// use tower::ServiceBuilder;
    ///
    /// let hyper = Client::builder(TokioExecutor::new()).build_http::<String>();
    /// let client = ServiceBuilder::new().layer(throttle.layer()).service(hyper);
    /// # drop(client);
    /// # }
    /// ```
    #[must_use]
    pub fn layer(&self) -> ThrottleLayer {
        ThrottleLayer::new(self.clone())
    }
}
