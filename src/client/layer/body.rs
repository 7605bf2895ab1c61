//! What is left to do when the body of a response ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::client::answer::{Answer, ReadHead};
use crate::client::on_response::read_head;
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

/// The head of a response. What it says that the call used counts at once, as the stream may last for hours, or break.
struct Unread {
    throttle: Throttle,
    status: StatusCode,
    headers: HeaderMap,
    head: ReadHead,
}

impl Ending {
    /// Of a call that was not throttled.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// The body is lost.
    fn lose(&mut self) {
        (self.permit, self.unread) = (None, None);
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
        let head = read_head(&permit, status, headers);
        let (throttle, headers) = (throttle.clone(), headers.clone());
        let unread = Some(Unread { throttle, status, headers, head });
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
        if let (Some(permit), Some(Unread { throttle, status, mut headers, head })) = (&self.permit, self.unread.take())
        {
            headers.extend(trailers.clone());
            throttle.learn_from(permit, &Answer { head: Some(&head), ..Answer::direct(status, &headers) });
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.has_message {
            self.end();
        }
    }
}

/// Whether trailers tell how the call ended; those of gRPC-Web are in the body.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    kind.is_some_and(|rest| rest.first().is_none_or(|first| b"+; ".contains(first)))
}
