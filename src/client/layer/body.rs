//! What is left to do when the body of a response ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http::header::{CONTENT_TYPE, DATE};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::client::answer::{Answer, Head};
use crate::client::on_response::{read_head, settle_by_head};
use crate::client::permit::Permit;
use crate::client::throttle::Throttle;

/// The body of a throttled call's response. Its call keeps its seat, where calls in flight are limited, until the body has ended or is
/// dropped.
///
/// ```
/// use http_body_util::BodyExt as _;
/// use outgate::tower::ThrottledBody;
///
/// async fn read<B: http_body::Body + Unpin>(body: ThrottledBody<B>) -> Result<usize, B::Error> {
///     Ok(body.collect().await?.to_bytes().len()) // the seat is free from here on
/// }
/// # let _ = read::<String>;
/// ```
pub struct ThrottledBody<B> {
    body: B,
    ending: Ending,
}

impl<B> ThrottledBody<B> {
    pub(super) const fn new(body: B, ending: Ending) -> Self {
        Self { body, ending }
    }
}

impl<B> fmt::Debug for ThrottledBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThrottledBody")
    }
}

impl<B: Body + Unpin> Body for ThrottledBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => match frame.trailers_ref() {
                Some(trailers) => self.ending.read(trailers),
                None if frame.data_ref().is_some_and(Buf::has_remaining) => self.ending.take_message(),
                None => {}
            },
            Poll::Ready(Some(Err(_))) => self.ending.lose(),
            Poll::Ready(None) => self.ending.end(),
            Poll::Pending => {}
        }
        if self.body.is_end_stream() {
            self.ending.end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A permit that lasts as long as its call's body, and the head of a response that says only in its trailers whether it is a refusal:
/// both are read together. Where none come the head is read alone, unless the body is lost, or dropped before its first message: then nobody
/// knows what became of the call.
#[derive(Default)]
pub(super) struct Ending {
    permit: Option<Permit>,
    unread: Option<Unread>,
    has_message: bool,
}

/// The head of a response. That of a breaker's probe is judged already: a stream may last for hours, and would shut all others out.
struct Unread {
    throttle: Throttle,
    status: StatusCode,
    headers: HeaderMap,
    is_judged: bool,
    at: Instant,
}

impl Ending {
    /// Of a call that was not throttled.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// The body is lost: what its head says that the call used counts where that is more than it was charged.
    fn lose(&mut self) {
        if let (Some(permit), Some(Unread { status, headers, .. })) = (self.permit.take(), self.unread.take()) {
            settle_by_head(&permit, status, &headers);
        }
    }

    /// The body is over.
    pub(super) fn end(&mut self) {
        self.read(&HeaderMap::new());
        self.permit = None;
    }

    /// Of a response whose head is here.
    pub(super) fn of(throttle: &Throttle, permit: Permit, status: StatusCode, headers: &HeaderMap) -> Self {
        let says_later = is_grpc(headers) && status.is_success() && !headers.contains_key("grpc-status");
        if !says_later {
            throttle.answered(&permit, status, headers);
            return Self { permit: Some(permit), unread: None, has_message: false };
        }
        let is_judged = read_head(&permit, status, headers);
        let (throttle, headers, at) = (throttle.clone(), headers.clone(), Instant::now());
        let unread = Some(Unread { throttle, status, headers, is_judged, at });
        Self { permit: Some(permit), unread, has_message: false }
    }

    /// A message is no refusal: who looks whether a pause holds was served, though its stream may last for hours.
    fn take_message(&mut self) {
        if let (false, Some(permit), Some(_)) = (self.has_message, &self.permit, &self.unread) {
            permit.tell_served();
        }
        self.has_message = true;
    }

    fn read(&mut self, trailers: &HeaderMap) {
        if let (Some(permit), Some(Unread { throttle, status, headers, is_judged, at })) =
            (&self.permit, self.unread.take())
        {
            let age = if trailers.contains_key(DATE) { Duration::ZERO } else { at.elapsed() };
            let head = Some(Head { headers: &headers, is_judged, age });
            let mut all = headers.clone();
            all.extend(trailers.clone());
            throttle.learn_from(permit, &Answer { head, ..Answer::direct(status, &all) });
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.has_message { self.end() } else { self.lose() }
    }
}

/// Whether trailers tell how the call ended; those of gRPC-Web are in the body.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    kind.is_some_and(|rest| rest.first().is_none_or(|first| b"+; ".contains(first)))
}
