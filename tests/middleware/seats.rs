//! Calls in flight: when a call through the middleware leaves its seat.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::{Extensions, Method};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Bytes;
use outgate::testing::Fault;
use outgate::{Limit, Passage, Scope, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::client;

/// Long enough for whatever is about to happen.
const SOON: Duration = Duration::from_millis(300);

fn throttle(limit: Limit) -> Throttle {
    let loopback = Upstream::new("loopback").host("127.0.0.1").limit(limit);
    Throttle::builder().upstream(loopback).build().unwrap()
}

/// A server that sends the body of each response when it is told to: `true` as it should be, `false` broken off.
async fn server() -> (String, mpsc::UnboundedReceiver<mpsc::UnboundedSender<bool>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/calls?q=1", listener.local_addr().unwrap());
    let (tell, calls) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4_096]).await;
                let head = "HTTP/1.1 203 x\r\ncontent-length: 5\r\nx-one: 1\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(head.as_bytes()).await;
                let (go, mut told) = mpsc::unbounded_channel();
                let _ = tell.send(go);
                if let Some(whole) = told.recv().await {
                    let _ = stream.write_all(if whole { b"hello" } else { b"he" }).await;
                }
            });
        }
    });
    (url, calls)
}

fn call(client: &ClientWithMiddleware, url: &str) -> JoinHandle<Response> {
    let call = client.get(url).send();
    tokio::spawn(async move { call.await.unwrap() })
}

#[tokio::test]
async fn a_call_has_its_seat_until_its_body_has_ended() {
    let (throttle, (url, mut calls)) = (throttle(Limit::in_flight(1)), server().await);
    let client = client(&throttle);
    let first = call(&client, &url).await.unwrap();
    let go = calls.recv().await.unwrap();
    let second = call(&client, &url);
    assert!(timeout(SOON, calls.recv()).await.is_err(), "headers came, the body has not ended");
    go.send(true).unwrap();
    let body = first.bytes().await.unwrap();
    assert_eq!(&body[..], b"hello");
    let go = timeout(SOON, calls.recv()).await.expect("the seat is free").unwrap();
    go.send(true).unwrap();
    assert_eq!(second.await.unwrap().text().await.unwrap(), "hello");
}

/// Also where another limit is shared by other callers than the seats.
#[tokio::test]
async fn a_call_whose_body_is_not_read_yet_is_seen_in_flight() {
    let (url, mut calls) = server().await;
    for others in [None, Some(Limit::per_hour(9).each(Scope::header("x-merchant")))] {
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::in_flight(2));
        let up = if let Some(limit) = others { up.limit(limit) } else { up };
        let throttle = Throttle::builder().upstream(up).build().unwrap();
        let client = client(&throttle);
        let in_flight = || {
            let queues = &throttle.snapshot().upstreams[0].queues;
            queues.iter().map(|queue| queue.in_flight).collect::<Vec<_>>()
        };
        let response = call(&client, &url).await.unwrap();
        let go = calls.recv().await.unwrap();
        assert_eq!(in_flight(), [1]);
        go.send(true).unwrap();
        response.bytes().await.unwrap();
        assert!(in_flight().is_empty());
    }
}

#[tokio::test]
async fn a_call_whose_response_is_dropped_leaves_its_seat() {
    let (throttle, (url, mut calls)) = (throttle(Limit::in_flight(1)), server().await);
    let client = client(&throttle);
    for _ in 0..3 {
        let response = timeout(SOON, call(&client, &url)).await.expect("a seat is free").unwrap();
        let _go = calls.recv().await.unwrap();
        drop(response);
    }
}

#[tokio::test]
async fn until_headers_a_call_leaves_its_seat_when_they_come() {
    let (throttle, (url, mut calls)) = (throttle(Limit::in_flight(1).until_headers()), server().await);
    let client = client(&throttle);
    let mut responses = Vec::new();
    for _ in 0..3 {
        responses
            .push((timeout(SOON, call(&client, &url)).await.expect("a seat is free").unwrap(), calls.recv().await));
    }
}

#[tokio::test]
async fn a_response_with_a_seat_tells_what_it_told_without() {
    let (url, mut calls) = server().await;
    let mut told = Vec::new();
    for limit in [Limit::in_flight(1), Limit::per_hour(9)] {
        let response = call(&client(&throttle(limit)), &url).await.unwrap();
        calls.recv().await.unwrap().send(true).unwrap();
        assert!(response.extensions().get::<Passage>().is_some() && response.remote_addr().is_some());
        let head = (response.status(), response.version(), response.headers().clone(), response.content_length());
        told.push((response.url().to_string(), head, response.text().await.unwrap()));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!((&*told[0].0, told[0].1.3), (&*url, Some(5)));
}

#[tokio::test]
async fn a_body_that_breaks_off_frees_the_seat_and_is_the_error_that_it_is_without_one() {
    let (url, mut calls) = server().await;
    let mut errors = Vec::new();
    for limit in [Limit::in_flight(1), Limit::per_hour(9)] {
        let client = client(&throttle(limit));
        for _ in 0..2 {
            let response = timeout(SOON, call(&client, &url)).await.expect("a seat is free").unwrap();
            calls.recv().await.unwrap().send(false).unwrap();
            let error = response.bytes().await.unwrap_err();
            errors.push((error.is_body(), error.is_decode(), error.is_timeout(), error.is_connect()));
        }
        let response = client.get(&url).timeout(SOON).send().await.unwrap();
        let _go = calls.recv().await.unwrap();
        let error = response.bytes().await.unwrap_err();
        errors.push((error.is_body(), error.is_decode(), error.is_timeout(), error.is_connect()));
    }
    assert_eq!(errors[..3], errors[3..]);
    assert!(errors[2].2, "{errors:?}");
}

#[tokio::test]
async fn whatever_becomes_of_a_call_its_seat_is_free() {
    for fault in [Fault::RefuseConnection, Fault::CloseAfterRequest, Fault::CloseAtOnce, Fault::NeverAnswer] {
        let (upstream, throttle) = (fault.start().unwrap(), throttle(Limit::in_flight(1)));
        let client = client(&throttle);
        for _ in 0..2 {
            let call = client.get(upstream.url()).timeout(SOON).send();
            let error = timeout(4 * SOON, call).await.expect("a seat is free").unwrap_err();
            assert!(outgate::Error::find(&error).is_none(), "{error:?}");
        }
        let call = client.get(upstream.url()).send();
        let _ = timeout(SOON, call).await;
        sleep(Duration::from_millis(50)).await;
        assert!(throttle.try_acquire("loopback").await.is_ok(), "{fault:?}");
    }
}

/// The URL of a server whose answers are heads without bodies.
async fn answering(head: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await;
        }
    });
    url
}

/// A body that does not say whether it has ended, as one that may have to be decompressed; nor how long it is, if it has to.
struct Wrapped {
    body: reqwest::Body,
    is_compressed: bool,
}

impl Body for Wrapped {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_compressed { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// Wraps the bodies of responses, as reqwest does with any of its features for compression.
struct Wraps {
    is_compressed: bool,
}

#[async_trait]
impl Middleware for Wraps {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let response: http::Response<reqwest::Body> = next.run(request, extensions).await?.into();
        let wrapped = |body| reqwest::Body::wrap(Wrapped { body, is_compressed: self.is_compressed });
        Ok(response.map(wrapped).into())
    }
}

#[tokio::test]
async fn a_wrapped_response_without_a_body_leaves_its_seat_at_once() {
    let cases = [
        (Method::HEAD, "HTTP/1.1 200 x\r\ncontent-length: 20\r\n", true),
        (Method::GET, "HTTP/1.1 204 x\r\n", true),
        (Method::GET, "HTTP/1.1 304 x\r\n", true),
        (Method::GET, "HTTP/1.1 200 x\r\ncontent-length: 0\r\n", false),
    ];
    for (method, head, is_compressed) in cases {
        let url = answering(head).await;
        let throttle = throttle(Limit::in_flight(1));
        let client = ClientBuilder::new(crate::plain()).with(throttle.middleware()).with(Wraps { is_compressed });
        let client = client.build();
        let mut responses = Vec::new();
        for _ in 0..3 {
            let call = client.request(method.clone(), &url).send();
            responses.push(timeout(SOON, call).await.unwrap_or_else(|_| panic!("a seat is free: {method} {head}")));
        }
        assert!(responses.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn a_response_without_a_body_leaves_its_seat_at_once() {
    let url = answering("HTTP/1.1 204 x\r\n").await;
    let client = client(&throttle(Limit::in_flight(1)));
    let mut responses = Vec::new();
    for _ in 0..3 {
        responses.push(timeout(SOON, call(&client, &url)).await.expect("a seat is free").unwrap());
    }
}
