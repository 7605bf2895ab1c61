//! Log time: a store's clock, corrected so that it never runs backwards. Pure: time is an argument.
//!
//! `log_time` in `lua/prelude.lua` says the same in Redis.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Stamp;
use super::{Ask, Home};

/// By how much the log time of each upstream differs from the store's clock: mostly by nothing.
#[derive(Debug, Default)]
pub(crate) struct Corrections {
    /// Whether any differs.
    any: AtomicBool,
    of: Mutex<HashMap<Box<str>, i64>>,
}

impl Corrections {
    /// The log time of a home, when the clock shows `clock`.
    pub(crate) fn log_time(&self, home: &Home, clock: Stamp) -> Stamp {
        if !self.any.load(Ordering::Acquire) {
            return clock;
        }
        clock.plus(self.lock().get(home.split().0).copied().unwrap_or(0))
    }

    /// The same for an ask, whose process may know that it is later, or not as late. What is known counts more.
    pub(crate) fn correct(&self, ask: &Ask, clock: Stamp) -> Stamp {
        if ask.known.is_none() && ask.latest.is_none() {
            return self.log_time(&ask.home, clock);
        }
        let (upstream, mut corrections) = (ask.home.split().0, self.lock());
        let time = clock.plus(corrections.get(upstream).copied().unwrap_or(0));
        let now = ask.latest.map_or(time, |latest| time.min(latest));
        let now = ask.known.map_or(now, |known| now.max(known));
        if now != time {
            corrections.insert(upstream.into(), now.as_micros().saturating_sub(clock.as_micros()));
            self.any.store(true, Ordering::Release);
        }
        now
    }

    /// No upstream's log time is earlier.
    pub(crate) fn earliest(&self, clock: Stamp) -> Stamp {
        if !self.any.load(Ordering::Acquire) {
            return clock;
        }
        clock.plus(self.lock().values().copied().min().unwrap_or(0).min(0))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, i64>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
