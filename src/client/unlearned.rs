//! Reports from which nothing is learned.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::feedback::Quota;
use crate::queue::reports::Useless;

/// Tells whoever reads traces why an upstream's reports teach nothing: once for each reason.
#[derive(Debug, Default)]
pub(crate) struct Unlearned(AtomicU16);

impl Unlearned {
    /// Nothing is learned from what a response said of this quota.
    pub(crate) fn tell(&self, upstream: &str, quota: &Quota, why: Useless) {
        let bit = 1 << why as u16;
        if self.0.load(Ordering::Relaxed) & bit == 0 && self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            // Not its name: some put a hash or a key into it.
            let (header, unit) = (quota.header().map(ToString::to_string), quota.unit());
            let (limit, window) = (quota.limit(), quota.window());
            tracing::info!(
                upstream,
                header,
                ?unit,
                limit,
                ?window,
                "nothing is learned from a report: {}",
                why.words()
            );
        }
    }
}
