//! What is counted, against the guide's page and against what happened. Time is paused; the store is in memory, a millisecond away.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::float_cmp, reason = "gauges are set to whole numbers")]

mod counted;
mod documented;
mod looking;
mod support;
mod units;
