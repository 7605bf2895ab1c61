//! What is known of the primary.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::primary::Primary;
use crate::error::StoreError;

/// What was looked up so lately is not looked up again.
const FRESH: Duration = Duration::from_millis(50);

/// What is known of the primary.
#[derive(Default)]
pub(super) struct Known {
    pub(super) primary: Option<Arc<Primary>>,
    /// It was reviewed, and nothing has happened since.
    pub(super) is_believed: bool,
    /// How often it was looked up, when that was last, and what came of it.
    pub(super) looks: u64,
    pub(super) looked_at: Option<Instant>,
    failure: Option<StoreError>,
}

impl Known {
    pub(super) fn believed(&self) -> Option<Arc<Primary>> {
        self.primary.clone().filter(|_| self.is_believed)
    }

    /// What a look has shown that was made after so many others, or just now; `None` where there was none.
    pub(super) fn outcome(&self, looks: u64) -> Option<Result<Arc<Primary>, StoreError>> {
        let is_news = self.looks > looks || self.looked_at.is_some_and(|at| at.elapsed() < FRESH);
        match (&self.failure, self.believed()) {
            (_, Some(primary)) => Some(Ok(primary)),
            (Some(failure), None) if is_news => Some(Err(failure.clone())),
            _ => None,
        }
    }

    /// Takes note of a look.
    pub(super) fn looked(&mut self, outcome: &Result<Arc<Primary>, StoreError>, now: Instant) {
        (self.is_believed, self.failure) = (outcome.is_ok(), outcome.as_ref().err().cloned());
        (self.looks, self.looked_at) = (self.looks + 1, Some(now));
    }
}
