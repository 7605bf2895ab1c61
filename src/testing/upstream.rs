use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;

use super::{
    Arrival, Balance, Judge, Shape, StrictUpstreamBuilder, Verdict,
    keyed_limit::KeyedLimit,
    lines::Lines,
    loopback::Loopback,
    upstream_builder::{Conduct, micros, random},
};

/// An HTTP/1.1 server on the loopback interface that answers 429 to every call beyond its limits
/// and remembers all of them.
///
/// It judges calls one by one, in the order and at the instants at which they arrive. A call
/// counts once it was read completely, even when its caller has hung up by the time it is judged.
/// A refusal carries `Retry-After` in whole seconds, rounded up, unless no wait would help.
///
/// It runs on a thread of its own until dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::testing::{Arrival, Shape, StrictUpstream, oracle};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let upstream = StrictUpstream::builder().limit(1, second, Shape::SlidingLog).start()?;
/// upstream.refuse_next(); // as if others had spent the quota
/// let url = upstream.url();
/// let statuses = [reqwest::get(&url).await?.status(), reqwest::get(&url).await?.status()];
/// assert_eq!(statuses.map(|status| status.as_u16()), [429, 200]);
/// assert_eq!((upstream.admitted(), upstream.refused()), (1, 1));
///
/// let arrivals: Vec<Arrival> = upstream.arrivals();
/// assert!(arrivals[1].admitted && arrivals[1].at <= upstream.now());
/// oracle::assert_never_more_than(2, 1_000_000, &upstream.stamps()); // refused ones too
///
/// upstream.set_limit(5, second, Shape::SlidingLog);
/// upstream.reset();
/// assert_eq!((upstream.arrivals().len(), upstream.addr().ip().is_loopback()), (0, true));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StrictUpstream {
    server: Loopback,
    desk: Arc<Desk>,
}

/// Where calls are judged.
#[derive(Debug)]
struct Desk {
    started: Instant,
    conduct: Conduct,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    judge: Judge,
    keyed: Vec<KeyedLimit>,
    arrivals: Vec<Arrival>,
    /// The next call is refused for no reason.
    stray: bool,
    /// How many calls were admitted and have not left.
    in_flight: u64,
    /// How often all calls were forgotten.
    resets: u64,
}

/// A body in one piece, or as it comes.
type Answer = Response<Either<Full<Bytes>, Lines<InFlight>>>;

/// A call in flight, until this is dropped.
struct InFlight {
    desk: Arc<Desk>,
    place: usize,
    resets: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut record = self.desk.record();
        let now = self.desk.now();
        if record.resets != self.resets {
            return;
        }
        let Some(arrival) = record.arrivals.get_mut(self.place) else { return };
        arrival.left = Some(now);
        record.in_flight -= u64::from(arrival.admitted);
    }
}

impl StrictUpstream {
    /// An upstream to be configured.
    pub fn builder() -> StrictUpstreamBuilder {
        StrictUpstreamBuilder::default()
    }

    pub(super) fn start(judge: Judge, keyed: Vec<KeyedLimit>, conduct: Conduct) -> io::Result<Self> {
        let record = Mutex::new(Record { judge, keyed, arrivals: Vec::new(), stray: false, in_flight: 0, resets: 0 });
        let desk = Arc::new(Desk { started: Instant::now(), conduct, record });
        let behind = Arc::clone(&desk);
        let server = Loopback::start("strict-upstream", move |stream| {
            let desk = Arc::clone(&behind);
            async move {
                sleep(desk.conduct.opening_delay()).await;
                let service = service_fn(|request| answer(Arc::clone(&desk), request));
                // half_close: a caller that hangs up behind its request has sent it all the same.
                // How a connection ends is the caller's business.
                let _ = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(stream), service).await;
            }
        })?;
        Ok(Self { server, desk })
    }

    /// Where to call, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// The upstream's clock: µs since it started.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.desk.now()
    }

    /// All calls since the start or the last [`reset`](Self::reset), in the order of their arrival.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.desk.record().arrivals.clone()
    }

    /// The instants of all [`arrivals`](Self::arrivals), admitted or not: what the
    /// [oracle](super::oracle) wants.
    #[must_use]
    pub fn stamps(&self) -> Vec<i64> {
        self.desk.record().arrivals.iter().map(|arrival| arrival.at).collect()
    }

    /// How many calls were admitted.
    #[must_use]
    pub fn admitted(&self) -> usize {
        self.desk.record().arrivals.iter().filter(|arrival| arrival.admitted).count()
    }

    /// How many calls were refused.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.desk.record().arrivals.iter().filter(|arrival| !arrival.admitted).count()
    }

    /// Forgets all calls: nothing has arrived, and nothing counts. The limits stay, and the clock
    /// runs on.
    pub fn reset(&self) {
        let mut record = self.desk.record();
        record.arrivals.clear();
        record.judge.reset();
        record.keyed.iter_mut().for_each(KeyedLimit::reset);
        (record.in_flight, record.resets) = (0, record.resets + 1);
    }

    /// Refuses the next call whatever has been admitted, with a wait of a second: a stray refusal.
    pub fn refuse_next(&self) {
        self.desk.record().stray = true;
    }

    /// Replaces all limits by one, but for those of each key. The calls admitted so far count against it.
    pub fn set_limit(&self, quota: u64, window: Duration, shape: Shape) {
        let mut record = self.desk.record();
        let mut judge = Judge::new().limit(quota, micros(window), shape);
        for arrival in record.arrivals.iter().filter(|arrival| arrival.admitted) {
            judge.count(arrival.at, arrival.cost);
        }
        record.judge = judge;
    }
}

impl Desk {
    fn now(&self) -> i64 {
        micros(self.started.elapsed())
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(self: &Arc<Self>, request: &Request<()>) -> (Verdict, Option<Balance>, InFlight) {
        let cost = self.conduct.cost(request);
        let caller =
            request.headers().get("x-caller").map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let method = request.method().clone();
        let path = request.uri().path_and_query().map_or_else(|| request.uri().path().to_owned(), ToString::to_string);
        let mut record = self.record();
        // The clock is read under the lock, so that instants follow the order of the record.
        let at = self.now();
        let is_stray = std::mem::take(&mut record.stray);
        let stray = Verdict { admitted: false, retry_after: Some(1_000_000) };
        let is_full = self.conduct.most_in_flight.is_some_and(|most| record.in_flight >= most);
        let verdict = if is_stray || is_full { stray } else { record.admit(at, cost, request) };
        record.arrivals.push(Arrival { at, admitted: verdict.admitted, cost, caller, method, path, left: None });
        let balance = if self.conduct.tells_balance { record.judge.balance(at) } else { None };
        record.in_flight += u64::from(verdict.admitted);
        // Last: dropped, it takes the lock.
        let in_flight = InFlight { desk: Arc::clone(self), place: record.arrivals.len() - 1, resets: record.resets };
        (verdict, balance, in_flight)
    }

    async fn serve(self: &Arc<Self>, request: Request<()>) -> Answer {
        sleep(self.conduct.arrival_delay()).await;
        let (verdict, balance, in_flight) = self.judge(&request);
        let mut response = if verdict.admitted { self.conduct.handle(&request) } else { refusal(verdict) };
        if let Some(balance) = balance {
            tell(balance, response.headers_mut());
        }
        sleep(self.conduct.response_delay()).await;
        response.map(|body| match &self.conduct.body_delay {
            Some(delay) if verdict.admitted => Either::Right(Lines::of(&body, random(delay), in_flight)),
            _ => Either::Left(Full::new(body)),
        })
    }
}

impl Record {
    /// What all limits say of a call, which counts in each of them or in none.
    fn admit(&mut self, now: i64, cost: u64, request: &Request<()>) -> Verdict {
        let asked: Vec<_> = self.keyed.iter_mut().map(|limit| limit.ask(now, request)).collect();
        let verdict = asked.iter().fold(self.judge.ask(now, cost), |all, (verdict, _)| all.and(*verdict));
        if verdict.admitted {
            self.judge.count(now, cost);
            self.keyed.iter_mut().zip(&asked).for_each(|(limit, (_, charge))| limit.count(now, charge));
        }
        verdict
    }
}

async fn answer(desk: Arc<Desk>, request: Request<Incoming>) -> Result<Answer, hyper::Error> {
    let (head, body) = request.into_parts();
    body.collect().await?;
    Ok(desk.serve(Request::from_parts(head, ())).await)
}

fn refusal(verdict: Verdict) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"too many requests"));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if let Some(wait) = verdict.retry_after {
        let seconds = wait.unsigned_abs().div_ceil(1_000_000);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn tell(balance: Balance, headers: &mut HeaderMap) {
    let seconds = balance.reset.unsigned_abs().div_ceil(1_000_000);
    let lines =
        [("x-ratelimit-limit", balance.quota), ("x-ratelimit-remaining", balance.left), ("x-ratelimit-reset", seconds)];
    for (name, value) in lines {
        headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
    }
}

/// Even an empty sleep lasts until the timer's next millisecond.
async fn sleep(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}
