//! Throttles any client that is a tower service of `http` requests: [`Throttle::layer`](crate::Throttle::layer). Feature `tower`.

pub use crate::client::layer::{ThrottleLayer, Throttled, ThrottledBody};
