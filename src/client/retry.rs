//! Calls that the upstream refused to execute, made again: how often, and how many in all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::feedback::Refusal;

/// A retry, in the thousandths that calls pay in.
const RETRY: u32 = 1_000;
/// Retries that may be saved up, and that a process begins with.
const SAVED: u32 = 10 * RETRY;

/// Keeps the retries of an upstream to a share of its calls, so that they cannot become the load.
#[derive(Debug)]
pub(crate) struct Budget {
    credit: AtomicU32,
    /// What each call pays in.
    share: u32,
}

impl Budget {
    /// A budget of so many retries for each thousand calls: none at all where that is none.
    pub(crate) const fn new(share: u32) -> Self {
        let saved = if share == 0 { 0 } else { SAVED };
        Self { credit: AtomicU32::new(saved), share }
    }

    /// A call was made.
    pub(crate) fn pay_in(&self) {
        self.save(self.share);
    }

    fn save(&self, thousandths: u32) {
        let add = |credit: u32| (credit < SAVED).then(|| credit.saturating_add(thousandths).min(SAVED));
        let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Whether a retry may be made; it is taken out.
    fn take(&self) -> bool {
        let take = |credit: u32| credit.checked_sub(RETRY);
        self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// A retry that was taken out. Dropped before it is made, as its caller gives up, it is left to others.
#[derive(Debug)]
#[must_use = "a retry that is dropped is put back"]
pub(crate) struct Retry(Option<Arc<Budget>>);

impl Retry {
    /// One, where a budget allows it.
    pub(crate) fn of(budget: &Arc<Budget>) -> Option<Self> {
        budget.take().then(|| Self(Some(Arc::clone(budget))))
    }

    /// Its call is sent.
    pub(crate) fn make(mut self) {
        self.0 = None;
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.save(RETRY);
        }
    }
}

/// Whether a refusal of a call that was not executed is over when its pause is, so that the call is worth sending again.
pub(crate) const fn is_safe_after(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::Quota | Refusal::Shared | Refusal::Service | Refusal::Seats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_calls() {
        let budget = Budget::new(100);
        let taken = |budget: &Budget| (0..100).filter(|_| budget.take()).count();
        assert_eq!(taken(&budget), 10, "to begin with");
        (0..50).for_each(|_| budget.pay_in());
        assert_eq!(taken(&budget), 5, "a tenth of 50 calls");
        (0..1_000).for_each(|_| budget.pay_in());
        assert_eq!(taken(&budget), 10, "no more are saved up");
        assert_eq!(taken(&Budget::new(0)), 0, "none at all");
    }
}
