//! A thousand refusals at once: what they cost the store, and the callers who have nothing to do with them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod counted;
#[cfg(feature = "redis")]
mod down;
#[cfg(feature = "redis")]
mod figures;
mod late;
mod scene;
