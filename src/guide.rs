//! Prose, for whoever wants to know why.

#[doc = include_str!("../guide/responses.md")]
pub mod responses {}

#[doc = include_str!("../guide/limits.md")]
pub mod limits {}
