//! Section 3's table: kept where the call may have been sent, handed back where it never left this machine.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use http_body::{Body, Frame};
use hyper::body::Bytes;
use outgate::testing::{Fault, Shape, StrictUpstream};
use outgate::{Limit, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
use tokio::time::timeout;

use crate::{client, plain, throttle, used};

fn strict() -> StrictUpstream {
    StrictUpstream::builder().limit(1, Duration::from_secs(60), Shape::SlidingLog).start().unwrap()
}

#[tokio::test]
async fn a_response_keeps_the_slot_whatever_its_status() {
    let (upstream, throttle) = (strict(), throttle());
    let client = client(&throttle);
    let statuses = [client.get(upstream.url()).send().await, client.get(upstream.url()).send().await];
    assert_eq!(statuses.map(|response| response.unwrap().status().as_u16()), [200, 429]);
    assert_eq!(used(&throttle).await, 2);
}

/// Around the middleware: shows how large its future is.
struct Weighs {
    inner: outgate::Middleware,
    bytes: Arc<AtomicUsize>,
}

#[async_trait]
impl Middleware for Weighs {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let future = self.inner.handle(request, extensions, next);
        self.bytes.store(size_of_val(&*future), Ordering::Relaxed);
        future.await
    }
}

#[tokio::test]
async fn the_future_of_a_call_is_small_enough_for_a_cache_of_its_thread() {
    let (upstream, bytes) = (strict(), Arc::default());
    let weighs = Weighs { inner: throttle().middleware(), bytes: Arc::clone(&bytes) };
    let client = ClientBuilder::new(plain()).with(weighs).build();
    assert_eq!(client.get(upstream.url()).send().await.unwrap().status(), 200);
    let bytes = bytes.load(Ordering::Relaxed);
    // The largest that the allocator of glibc keeps for each thread is 1,032.
    assert!(bytes <= 1_032, "{bytes}");
}

#[tokio::test]
async fn a_refused_connection_hands_the_slot_back() {
    let (upstream, throttle) = (Fault::RefuseConnection.start().unwrap(), throttle());
    for _ in 0..5 {
        assert!(client(&throttle).get(upstream.url()).send().await.unwrap_err().is_connect());
        assert_eq!(used(&throttle).await, 0);
    }
}

/// What comes from another call: some of it, and then that cannot connect.
struct Fetched(Vec<std::result::Result<Frame<Bytes>, reqwest::Error>>);

impl Body for Fetched {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, reqwest::Error>>> {
        Poll::Ready(self.0.pop())
    }
}

#[tokio::test]
async fn a_body_that_could_not_be_fetched_keeps_the_slot() {
    let (upstream, elsewhere) = (strict(), Fault::RefuseConnection.start().unwrap());
    let loopback = Upstream::new("loopback").host("127.0.0.1").limit(Limit::per_hour(5));
    let throttle = Throttle::builder().upstream(loopback).build().unwrap();
    for calls in 1..=5 {
        let cause = plain().get(elsewhere.url()).send().await.unwrap_err();
        assert!(cause.is_connect());
        let body = Fetched(vec![Err(cause), Ok(Frame::data(Bytes::from_static(b"the first of it")))]);
        let call = client(&throttle).put(upstream.url()).body(reqwest::Body::wrap(body)).send();
        let error = timeout(Duration::from_secs(5), call).await.expect("its host is not taken for one that is down");
        assert!(outgate::Error::find(&error.unwrap_err()).is_none());
        assert_eq!(used(&throttle).await, calls);
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_hands_the_slot_back() {
    let throttle = throttle();
    let request =
        client(&throttle).get("http://no-such-host.invalid/").with_extension(outgate::Call::new().upstream("loopback"));
    assert!(request.send().await.unwrap_err().is_connect());
    assert_eq!(used(&throttle).await, 0);
}

#[tokio::test]
async fn a_request_that_cannot_be_built_hands_the_slot_back() {
    let throttle = throttle();
    let request = client(&throttle).get("ftp://127.0.0.1/").send().await;
    assert!(request.unwrap_err().is_builder());
    assert_eq!(used(&throttle).await, 0);
}

#[tokio::test]
async fn a_connection_that_times_out_hands_the_slot_back() {
    let throttle = throttle();
    // A listener whose queue is full: it accepts nobody, so that connecting takes for ever.
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = full.local_addr().unwrap();
    let _full = full.listen(1).unwrap();
    let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(tokio::net::TcpStream::connect(address))).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let hasty = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_millis(100)).build().unwrap();
    let hasty = reqwest_middleware::ClientBuilder::new(hasty).with(throttle.middleware()).build();
    let error = hasty.get(format!("http://{address}/")).send().await.unwrap_err();
    assert!(error.is_connect() && error.is_timeout(), "{error:?}");
    assert_eq!(used(&throttle).await, 0);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_connection_that_breaks_keeps_the_slot_because_nobody_knows() {
    for fault in [Fault::CloseAfterRequest, Fault::CloseAtOnce] {
        let (upstream, throttle) = (fault.start().unwrap(), throttle());
        assert!(client(&throttle).get(upstream.url()).send().await.is_err());
        assert_eq!(used(&throttle).await, 1);
    }
}

#[tokio::test]
async fn a_call_that_times_out_keeps_the_slot_because_nobody_knows() {
    let (upstream, throttle) = (Fault::NeverAnswer.start().unwrap(), throttle());
    let timeout = Duration::from_millis(200);
    let error = client(&throttle).get(upstream.url()).timeout(timeout).send().await.unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(used(&throttle).await, 1);
}

#[tokio::test]
async fn a_caller_cancelled_after_sending_began_keeps_the_slot() {
    let (upstream, throttle) = (Fault::NeverAnswer.start().unwrap(), throttle());
    let call = client(&throttle).get(upstream.url()).send();
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    assert_eq!(upstream.requests(), 1);
    assert_eq!(used(&throttle).await, 1);
}

#[tokio::test]
async fn a_caller_cancelled_while_waiting_holds_no_slot() {
    let (upstream, throttle) = (strict(), throttle());
    drop(throttle.acquire("loopback").cost(2).await.unwrap());
    let call = client(&throttle).get(upstream.url()).send();
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
    assert_eq!((used(&throttle).await, upstream.arrivals().len()), (2, 0));
}

#[tokio::test]
async fn a_refused_caller_sends_nothing() {
    let (upstream, throttle) = (strict(), throttle());
    drop(throttle.acquire("loopback").cost(2).await.unwrap());
    let call = client(&throttle).get(upstream.url()).timeout(Duration::from_secs(1)).send().await;
    assert!(matches!(outgate::Error::find(&call.unwrap_err()), Some(outgate::Error::Throttled { .. })));
    assert_eq!((used(&throttle).await, upstream.arrivals().len()), (2, 0));
}

#[tokio::test]
async fn a_middleware_within_that_fails_keeps_the_slot_because_nobody_knows() {
    struct Failing;
    #[async_trait::async_trait]
    impl reqwest_middleware::Middleware for Failing {
        async fn handle(
            &self,
            _: reqwest::Request,
            _: &mut http::Extensions,
            _: reqwest_middleware::Next<'_>,
        ) -> reqwest_middleware::Result<reqwest::Response> {
            Err(reqwest_middleware::Error::middleware(std::io::Error::other("within")))
        }
    }
    let throttle = throttle();
    let client = reqwest_middleware::ClientBuilder::new(plain()).with(throttle.middleware()).with(Failing).build();
    assert!(client.get("http://127.0.0.1:1/").send().await.is_err());
    assert_eq!(used(&throttle).await, 1);
}
