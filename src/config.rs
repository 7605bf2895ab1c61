//! What a user says: checked once, and compiled into a plan.

pub(crate) mod backoff;
mod bucket;
pub(crate) mod call;
pub(crate) mod charges;
mod civil;
pub(crate) mod costs;
pub(crate) mod description;
mod estimate;
#[cfg(feature = "serde")]
mod file;
pub(crate) mod host;
pub(crate) mod limit;
pub(crate) mod name;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod priority;
pub(crate) mod request_head;
pub(crate) mod reset;
pub(crate) mod scope;
pub(crate) mod settle_by;
mod text;
pub(crate) mod upstream;
