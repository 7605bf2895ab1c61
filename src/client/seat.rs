//! The seat of a call in flight, and how long it is.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use reqwest::{Response, ResponseBuilderExt as _, Url};

use crate::queue::Queue;

/// A seat of a call. Dropped, it is the next caller's.
pub(crate) struct Seat {
    queue: Option<Arc<Queue>>,
    /// Its call has no permit any more.
    outlives: bool,
}

impl Seat {
    /// The seat that came with a slot, where the queue has seats.
    #[inline]
    pub(crate) fn of(queue: &Arc<Queue>) -> Option<Self> {
        queue.has_seats().then(|| {
            queue.keeps_leases();
            Self { queue: Some(Arc::clone(queue)), outlives: false }
        })
    }

    /// It outlives its permit.
    pub(crate) fn outliving(mut self) -> Self {
        self.queue.iter().for_each(|queue| queue.body_begins());
        self.outlives = true;
        self
    }

    /// It goes back with its slot.
    pub(crate) fn go_with_slot(mut self) {
        self.queue.take().iter().for_each(Queue::keeps_leases);
    }

    /// A response that keeps the seat until its body has ended, or is dropped.
    pub(crate) fn until_body_ends(self, response: Response) -> Response {
        let url = response.url().clone();
        let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
        if body.is_end_stream() {
            return named(parts, url, body);
        }
        named(parts, url, reqwest::Body::wrap(Seated { body, seat: Some(self) }))
    }
}

/// A response that knows its URL: the way through `http::Response` loses it.
fn named(mut parts: http::response::Parts, url: Url, body: reqwest::Body) -> Response {
    if let Ok(named) = http::Response::builder().url(url).body(()) {
        parts.extensions.extend(named.into_parts().0.extensions);
    }
    http::Response::from_parts(parts, body).into()
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            if self.outlives {
                queue.body_ended();
            }
            queue.leave_seat();
            queue.keeps_leases();
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat")
    }
}

/// A body whose call has a seat until it ends.
struct Seated {
    body: reqwest::Body,
    seat: Option<Seat>,
}

impl Body for Seated {
    type Data = <reqwest::Body as Body>::Data;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream() {
            self.seat = None;
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
