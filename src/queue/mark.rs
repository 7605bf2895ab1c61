//! Whether a queue stands in a list of its shard already: most of what happens has nothing to enter, and then takes no lock.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Id;

use super::places::Spread;

/// Whether a queue stands in a list, and in which runtime anything happened last that the list is kept for.
#[derive(Debug, Default)]
pub(super) struct Mark(AtomicU64);

impl Mark {
    const NOWHERE: u64 = 0;

    /// Something happens in it here. Says whether it stands there already; `None` where what happened last did here, too.
    pub(super) fn set(&self, here: Option<Id>) -> Option<bool> {
        let mut hash = Spread::default();
        here.inspect(|id| id.hash(&mut hash));
        let here = hash.finish().max(1);
        if self.0.load(Ordering::Relaxed) == here {
            return None;
        }
        let before = self.0.swap(here, Ordering::Relaxed);
        (before != here).then_some(before != Self::NOWHERE)
    }

    /// What keeps the queue in the list. Where nothing does its mark goes.
    pub(super) fn kept_by<T>(&self, keeps: impl Fn() -> Option<T>) -> Option<T> {
        keeps().or_else(|| {
            self.0.store(Self::NOWHERE, Ordering::Relaxed);
            // What came just now may not have entered it, as it stood here.
            keeps().filter(|_| self.0.compare_exchange(Self::NOWHERE, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok())
        })
    }
}
