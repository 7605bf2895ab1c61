//! What one call reserved by estimates, and what it tells about the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::estimated::{Estimated, Places};

/// The estimates of one call. When it is dropped, the call is over and nobody can settle it any more.
#[derive(Debug)]
pub(crate) struct Estimate {
    of: Arc<Estimated>,
    kind: Option<Arc<str>>,
    /// The units that it reserved estimates of.
    reserved: Places,
    /// The units that it has told of: each once.
    told: AtomicU32,
}

impl Estimate {
    /// Of a call of a kind that gets its permit, and reserves estimates of some units.
    pub(crate) fn new(of: &Arc<Estimated>, kind: Option<Arc<str>>, reserves: &[(usize, u64)]) -> Arc<Self> {
        Arc::new(Self { of: Arc::clone(of), kind, reserved: of.reserved(reserves), told: AtomicU32::new(0) })
    }

    /// The call used so many units: later calls of its kind reserve accordingly, whether this one said its cost or not. Its first
    /// settlement counts.
    ///
    /// One that used nothing failed, or was refused: it says nothing about those that are served, but that calls are settled. Else they
    /// would reserve nothing once an upstream was down for a while.
    pub(crate) fn settled(&self, unit: &str, used: u64) {
        let Some(place) = self.of.place(unit) else { return };
        if used == 0 {
            self.of.settled_at_nothing(place);
        } else if self.told.fetch_or(1 << place, Ordering::Relaxed) & (1 << place) == 0 {
            self.of.settled(place, self.kind.as_deref().unwrap_or_default(), used);
        }
    }

    /// The call was never sent.
    pub(crate) fn hand_back(&self) {
        self.told.store(Places::MAX, Ordering::Relaxed);
    }
}

impl Drop for Estimate {
    fn drop(&mut self) {
        let unsettled = self.reserved & !*self.told.get_mut();
        if unsettled != 0 {
            self.of.unsettled(unsettled);
        }
    }
}
