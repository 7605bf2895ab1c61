use std::{fmt, io, ops::Range, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::body::Bytes;

use super::{
    Judge, Shape, StrictUpstream,
    keyed_limit::{Charge, KeyedLimit},
};

/// Configures a [`StrictUpstream`].
///
/// # Default
///
/// * no limits: everything is admitted
/// * no delays, and bodies in one piece
/// * admitted calls get 200 and the body `ok`
/// * each call costs 1
/// * no response tells what is left
///
/// ```
/// use hyper::body::Bytes;
/// use http::Response;
/// use outgate::testing::{Shape, StrictUpstream};
/// use std::time::Duration;
///
/// let millis = Duration::from_millis;
/// let model = StrictUpstream::builder()
///     .limit(10_000, Duration::from_secs(60), Shape::TokenBucket)
///     .cost_by(|request| if request.uri().path() == "/long" { 400 } else { 40 })
///     .in_flight(8)
///     .telling_balance()
///     .opening_delay(millis(20)..millis(60)) // what a network and a server take
///     .arrival_delay(millis(1)..millis(5))
///     .response_delay(millis(50)..millis(200))
///     .body_delay(millis(10)..millis(40))
///     .handler(|_| Response::new(Bytes::from_static(b"{}")))
///     .start()?;
/// # drop(model);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "an upstream runs once it was started"]
pub struct StrictUpstreamBuilder {
    judge: Judge,
    keyed: Vec<KeyedLimit>,
    conduct: Conduct,
}

/// How an upstream treats calls, apart from its verdicts.
#[derive(Default)]
pub(super) struct Conduct {
    opening_delay: Range<Duration>,
    arrival_delay: Range<Duration>,
    response_delay: Range<Duration>,
    pub(super) body_delay: Option<Range<Duration>>,
    handler: Option<Handler>,
    cost: Option<Cost>,
    pub(super) tells_balance: bool,
    pub(super) most_in_flight: Option<u64>,
}

type Handler = Arc<dyn Fn(&Request<()>) -> Response<Bytes> + Send + Sync>;
type Cost = Arc<dyn Fn(&Request<()>) -> u64 + Send + Sync>;

impl StrictUpstreamBuilder {
    /// Adds a limit of `quota` units in any `window`, counted the way `shape` does. All limits
    /// must admit a call.
    pub fn limit(mut self, quota: u64, window: Duration, shape: Shape) -> Self {
        self.judge = self.judge.limit(quota, micros(window), shape);
        self
    }

    /// Adds a limit for each key by itself, in units of its own: the closure says whose call it is, and how many units it takes. Beside
    /// [`limit`](Self::limit), so that a call has to fit each merchant's limit as well, or the tokens of all as well as the calls.
    ///
    /// ```
    /// use outgate::testing::{Shape, StrictUpstream};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// let upstream = StrictUpstream::builder()
    ///     .limit(50, second, Shape::SlidingLog)
    ///     .limit_each(10, second, Shape::SlidingLog, |request| (request.uri().path().to_owned(), 1))
    ///     .start()?;
    /// # drop(upstream);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn limit_each(
        mut self,
        quota: u64,
        window: Duration,
        shape: Shape,
        charge: impl Fn(&Request<()>) -> (String, u64) + Send + Sync + 'static,
    ) -> Self {
        let (fresh, charge) = (Judge::new().limit(quota, micros(window), shape), Arc::new(charge) as Charge);
        self.keyed.push(KeyedLimit::new(fresh, charge));
        self
    }

    /// Holds each call back for a random time from `delay` before it is judged, as a network would.
    ///
    /// Delays are slept in whole milliseconds, rounded up. Calls on different connections may
    /// overtake each other.
    pub fn arrival_delay(mut self, delay: Range<Duration>) -> Self {
        self.conduct.arrival_delay = delay;
        self
    }

    /// Serves each new connection only after a random time from `delay`, as if it took so long to open it.
    pub fn opening_delay(mut self, delay: Range<Duration>) -> Self {
        self.conduct.opening_delay = delay;
        self
    }

    /// Holds each response back for a random time from `delay`, after the verdict.
    pub fn response_delay(mut self, delay: Range<Duration>) -> Self {
        self.conduct.response_delay = delay;
        self
    }

    /// Sends the body of each admitted call line by line, the last one after a random time from `delay`. A call is in flight until then.
    pub fn body_delay(mut self, delay: Range<Duration>) -> Self {
        self.conduct.body_delay = Some(delay);
        self
    }

    /// What admitted calls get. A handler that panics breaks the connection. It runs on the server's only thread: while it blocks, nobody is
    /// answered, and one that blocks for ever leaves the thread behind when the upstream is dropped.
    pub fn handler(mut self, handler: impl Fn(&Request<()>) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        self.conduct.handler = Some(Arc::new(handler));
        self
    }

    /// How many units a call costs, in all limits but those of [`limit_each`](Self::limit_each).
    pub fn cost_by(mut self, cost: impl Fn(&Request<()>) -> u64 + Send + Sync + 'static) -> Self {
        self.conduct.cost = Some(Arc::new(cost));
        self
    }

    /// Tells in every response what is left: in `X-RateLimit-Limit`, `X-RateLimit-Remaining` and, in whole seconds from then,
    /// rounded up, `X-RateLimit-Reset`.
    pub fn telling_balance(mut self) -> Self {
        self.conduct.tells_balance = true;
        self
    }

    /// Refuses each call that comes while so many are in flight: judged, and without their whole response yet.
    pub fn in_flight(mut self, most: u64) -> Self {
        self.conduct.most_in_flight = Some(most);
        self
    }

    /// Starts listening on a free port of the loopback interface.
    ///
    /// # Errors
    ///
    /// When no thread, runtime or port is to be had.
    pub fn start(self) -> io::Result<StrictUpstream> {
        StrictUpstream::start(self.judge, self.keyed, self.conduct)
    }
}

impl Conduct {
    pub(super) fn opening_delay(&self) -> Duration {
        random(&self.opening_delay)
    }

    pub(super) fn arrival_delay(&self) -> Duration {
        random(&self.arrival_delay)
    }

    pub(super) fn response_delay(&self) -> Duration {
        random(&self.response_delay)
    }

    pub(super) fn handle(&self, request: &Request<()>) -> Response<Bytes> {
        self.handler.as_ref().map_or_else(|| Response::new(Bytes::from_static(b"ok")), |handler| handler(request))
    }

    pub(super) fn cost(&self, request: &Request<()>) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(request))
    }
}

impl fmt::Debug for Conduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conduct")
            .field("opening_delay", &self.opening_delay)
            .field("arrival_delay", &self.arrival_delay)
            .field("response_delay", &self.response_delay)
            .finish_non_exhaustive()
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A range that holds nothing stands for its start.
pub(super) fn random(range: &Range<Duration>) -> Duration {
    let spread = micros(range.end.saturating_sub(range.start));
    range.start + Duration::from_micros(fastrand::u64(0..spread.unsigned_abs().max(1)))
}
