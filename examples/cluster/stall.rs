//! How long this machine stood still.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(5);

/// Watches for stalls: a call that is under way in one arrives as much later, and no throttle can make up for it.
pub(crate) struct Stalls(Arc<AtomicU64>);

impl Stalls {
    /// Watches from now on.
    pub(crate) fn watch() -> Self {
        let longest = Arc::new(AtomicU64::new(0));
        let seen = Arc::downgrade(&longest);
        thread::spawn(move || {
            let mut woken = Instant::now();
            while let Some(longest) = seen.upgrade() {
                thread::sleep(NAP);
                let late = woken.elapsed().saturating_sub(NAP);
                longest.fetch_max(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
                woken = Instant::now();
            }
        });
        Self(longest)
    }

    /// The longest stall so far, in milliseconds.
    pub(crate) fn longest(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
