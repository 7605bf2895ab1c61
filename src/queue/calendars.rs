//! The calendar windows of some logs: which boundaries are around the store's now.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::reset::Reset;
use crate::ledger::{Log, Shape, Stamp, micros};

/// The terms of an upstream's logs that are calendar windows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendars(Arc<[Placed]>);

/// Where a term lies, and when it resets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// The place of its log, and its place among the terms of that.
    pub(crate) log: usize,
    pub(crate) term: usize,
    pub(crate) reset: Reset,
}

impl Calendars {
    pub(crate) fn new(all: Vec<Placed>) -> Self {
        Self(all.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The logs with the boundaries around what is known of the store's clock, which counts since 1970. Where nothing is known yet
    /// the process's own clock has to do: where that is wrong by more than a window, the store lets nobody start, and says what
    /// time it is.
    pub(crate) fn around(&self, logs: &Arc<[Log]>, known: Option<Stamp>) -> Arc<[Log]> {
        if self.is_empty() {
            return Arc::clone(logs);
        }
        let now =
            known.unwrap_or_else(|| Stamp::from_micros(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)));
        let of_log = |(at, log): (usize, &Log)| {
            let mut terms = log.terms.to_vec();
            for placed in self.0.iter().filter(|placed| placed.log == at) {
                if let Some(term) = terms.get_mut(placed.term)
                    && let Shape::Calendar(calendar) = &mut term.shape
                {
                    *calendar = placed.reset.calendar(now, calendar.guard);
                }
            }
            Log { terms: terms.into(), ..log.clone() }
        };
        logs.iter().enumerate().map(of_log).collect()
    }
}
