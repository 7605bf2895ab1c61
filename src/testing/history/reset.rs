//! What counts is forgotten by hand.

use std::sync::Arc;

use fastrand::Rng;

use super::record::Record;
use super::world::World;
use crate::ledger::{Body, Log, ScopeId, Stamp};

impl World {
    /// Somebody has what counts in some logs of a scope forgotten.
    pub(super) fn reset(&self, rng: &mut Rng, _: Stamp) -> Body {
        let scope = self.logs[rng.usize(..self.logs.len())].scope;
        let some = self.logs.iter().filter(|log| log.scope == scope && rng.u8(0..4) > 0);
        Body::Reset { scope, units: some.map(|log| Arc::clone(&log.unit)).collect() }
    }
}

impl Record {
    /// What counted in some logs of a scope was forgotten by hand: it is nobody's any more.
    pub(super) fn forget(&mut self, scope: Option<ScopeId>, units: &[Arc<str>]) {
        let is_forgotten = |log: &Log| log.scope == scope && units.contains(&log.unit);
        for at in (0..self.logs.len()).filter(|&at| is_forgotten(&self.logs[at])) {
            self.debts[at].clear();
        }
        for (logs, slots) in &mut self.booked {
            let left = |(log, &units): (&Log, &u32)| if is_forgotten(log) { 0 } else { units };
            slots.charges = logs.iter().zip(slots.charges.iter()).map(left).collect();
        }
        self.booked.retain(|(_, slots)| slots.charges.iter().any(|&units| units > 0));
    }
}
