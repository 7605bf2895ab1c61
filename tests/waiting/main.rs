//! How callers wait: on paused time, over a memory store a millisecond away.

mod cancelling;
mod ending;
mod order;
mod refusing;
mod sharing;
mod support;
