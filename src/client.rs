//! The life of a call: route, ask, wait, send, settle.

pub(crate) mod acquire;
pub(crate) mod answer;
mod any_client;
pub(crate) mod auth_breaker;
pub(crate) mod builder;
mod change;
pub(crate) mod charge;
mod clock;
pub(crate) mod connections;
mod estimate;
pub(crate) mod estimated;
mod estimates;
#[cfg(feature = "metrics")]
mod gauges;
mod given;
#[cfg(feature = "tower")]
pub(crate) mod layer;
pub(crate) mod middleware;
mod news;
pub(crate) mod observing;
mod on_response;
pub(crate) mod permit;
pub mod processes;
mod reachability;
mod refusal;
mod registry;
mod release;
pub(crate) mod retry;
pub(crate) mod route;
pub(crate) mod router;
mod seat;
pub mod snapshot;
pub(crate) mod throttle;
pub(crate) mod together;
pub(crate) mod unlearned;
pub(crate) mod unmatched;
mod url;
pub(crate) mod usage;
mod waiting;
