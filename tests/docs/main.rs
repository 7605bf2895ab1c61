//! What is written of the crate: each public item has its example, and the README keeps to its measure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod examples;
mod items;
mod readme;
