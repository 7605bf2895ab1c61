//! A store whose messages are counted and timed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram};

use crate::error::StoreErrorKind;
use crate::ledger::{Body, Message};
use crate::store::{Applied, Applying, Store};

const MESSAGES: [&str; 10] =
    ["ask", "pause", "release", "slow_down", "look", "report", "usage", "renew", "processes", "reset"];
const FAILURES: [StoreErrorKind; 6] = [
    StoreErrorKind::Unreachable,
    StoreErrorKind::Unavailable,
    StoreErrorKind::Refused,
    StoreErrorKind::Malformed,
    StoreErrorKind::Outdated,
    StoreErrorKind::Duplicate,
];

/// Counts what a store is told. What a store in memory answers at once is no message, and costs nothing here.
pub(crate) fn counted(store: Arc<dyn Store>) -> Arc<dyn Store> {
    super::describe::describe();
    let seconds = MESSAGES.map(|of| metrics::histogram!("outgate_store_seconds", "message" => of));
    let failures = FAILURES.map(|of| metrics::counter!("outgate_store_failures_total", "failure" => word(of)));
    Arc::new(Counted { store, seconds, failures })
}

struct Counted {
    store: Arc<dyn Store>,
    seconds: [Histogram; 10],
    failures: [Counter; 6],
}

impl Counted {
    fn answered(&self, message: usize, took: Duration, answer: &Applied) {
        self.seconds[message].record(took);
        let failure = answer.as_ref().err().and_then(|error| FAILURES.iter().position(|of| *of == error.kind()));
        if let Some(counter) = failure.and_then(|failure| self.failures.get(failure)) {
            counter.increment(1);
        }
    }
}

impl Store for Counted {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let of = place(&message.body);
        self.store.apply(message).seen_by(move |took, answer| self.answered(of, took, answer))
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// The place of a message among all.
const fn place(body: &Body) -> usize {
    match body {
        Body::Ask(_) => 0,
        Body::Pause { .. } => 1,
        Body::Release { .. } => 2,
        Body::SlowDown { .. } => 3,
        Body::Look { .. } => 4,
        Body::Report { .. } => 5,
        Body::Usage { .. } => 6,
        Body::Renew(_) => 7,
        Body::Processes { .. } => 8,
        Body::Reset { .. } => 9,
    }
}

const fn word(failure: StoreErrorKind) -> &'static str {
    match failure {
        StoreErrorKind::Unreachable => "unreachable",
        StoreErrorKind::Unavailable => "unavailable",
        StoreErrorKind::Refused => "refused",
        StoreErrorKind::Malformed => "malformed",
        StoreErrorKind::Outdated => "outdated",
        StoreErrorKind::Duplicate => "duplicate",
    }
}
