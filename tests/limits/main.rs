//! Limits that are no windows, each judged by an upstream that counts so: on paused time, for an hour and more.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod buckets;
mod calendars;
mod skew;
#[allow(dead_code, reason = "others use it")]
#[path = "../waiting/support.rs"]
mod support;
mod three_logs;
