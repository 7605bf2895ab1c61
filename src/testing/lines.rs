//! A body that comes line by line, as a language model writes.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::{Body, Frame};
use hyper::body::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

/// The lines of a body, one after another. What it holds besides is dropped with it, when the body has ended or nobody wants it.
pub(super) struct Lines<T> {
    rest: VecDeque<Bytes>,
    /// From one line to the next.
    every: Duration,
    due: Pin<Box<Sleep>>,
    _held: T,
}

impl<T> Lines<T> {
    /// The last line comes when so much time has passed.
    pub(super) fn of(body: &Bytes, over: Duration, held: T) -> Self {
        let rest: VecDeque<Bytes> =
            body.split_inclusive(|byte| *byte == b'\n').map(|line| body.slice_ref(line)).collect();
        let every = over / u32::try_from(rest.len()).unwrap_or(u32::MAX).max(1);
        Self { rest, every, due: Box::pin(sleep_until(Instant::now() + every)), _held: held }
    }
}

impl<T: Unpin> Body for Lines<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            return Poll::Ready(None);
        }
        ready!(this.due.as_mut().poll(context));
        // By when the last one was due, so that lateness does not add up.
        let next = this.due.deadline() + this.every;
        this.due.as_mut().reset(next);
        Poll::Ready(this.rest.pop_front().map(|line| Ok(Frame::data(line))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }
}
