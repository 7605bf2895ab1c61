//! When the throttle let a call go. How long it was on its way after that no throttle can help.

use std::time::{SystemTime, UNIX_EPOCH};

use outgate::testing::Arrival;

/// What a request's query says before the number of microseconds.
const LEFT_AT: &str = "left-at=";

/// The query of a request that leaves now.
pub(crate) fn departure(now: SystemTime) -> String {
    format!("{LEFT_AT}{}", now.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros())
}

/// When a call left, in µs by the clock of the machine.
pub(crate) fn left_at(arrival: &Arrival) -> Option<i64> {
    arrival.path.split_once(LEFT_AT)?.1.parse().ok()
}
