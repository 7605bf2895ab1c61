//! What is known of the primary.

use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::primary::Primary;
use super::{AGAIN, SILENCE};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::link::Failure;

/// What is known of the primary.
#[derive(Default)]
pub(super) struct Known {
    pub(super) primary: Option<Arc<Primary>>,
    /// It was reviewed, and nothing has happened since.
    is_believed: bool,
    /// How often it was looked up.
    pub(super) looks: u64,
    /// Why it is not believed, and until when it is not looked up again for that.
    failure: Option<Failure>,
    rests_until: Option<Instant>,
    /// How long after further failures, since an answer counted.
    backoff: Option<ExponentialBackoff>,
}

impl Known {
    pub(super) fn believed(&self) -> Option<Arc<Primary>> {
        self.primary.clone().filter(|_| self.is_believed)
    }

    /// What a look has shown that was made after so many others, or why none is made now; `None` where one is due.
    pub(super) fn outcome(&self, looks: u64, now: Instant) -> Option<Result<Arc<Primary>, Failure>> {
        if let Some(primary) = self.believed() {
            return Some(Ok(primary));
        }
        let is_news = self.looks > looks || self.rests_until.is_some_and(|until| now < until);
        self.failure.clone().filter(|_| is_news).map(Err)
    }

    /// Until when nothing is looked up.
    pub(super) const fn rests_until(&self) -> Option<Instant> {
        self.rests_until
    }

    /// Takes note of a look, and says what it means.
    pub(super) fn looked(
        &mut self,
        outcome: Result<Arc<Primary>, StoreError>,
        now: Instant,
    ) -> Result<Arc<Primary>, Failure> {
        self.looks += 1;
        self.is_believed = outcome.is_ok();
        outcome.map_err(|error| {
            let passes = error.kind() != StoreErrorKind::Refused;
            self.rest(error, passes, now)
        })
    }

    /// It may be another one by now.
    pub(super) fn doubt(&mut self, error: &StoreError, now: Instant) {
        if self.is_believed {
            self.rest(error.clone(), true, now);
        }
    }

    /// It is to be looked up at once.
    pub(super) fn forget(&mut self) {
        (self.is_believed, self.failure, self.rests_until, self.backoff) = (false, None, None, None);
    }

    /// An answer of it counted.
    pub(super) fn answered(&mut self) {
        self.backoff = None;
    }

    /// Nothing is asked for a while, which doubles with each failure: servers that elect one of them have many clients. Each comes at a time of its own.
    fn rest(&mut self, error: StoreError, passes: bool, now: Instant) -> Failure {
        let backoff = self.backoff.get_or_insert_with(|| {
            let backoff = ExponentialBuilder::new().with_min_delay(AGAIN).with_max_delay(SILENCE / 2);
            backoff.without_max_times().with_jitter().with_jitter_seed(fastrand::u64(..)).build()
        });
        self.rests_until = backoff.next().map(|pause| now + pause);
        let failure = Failure { error, heals_by_connecting: false, passes };
        (self.is_believed, self.failure) = (false, Some(failure.clone()));
        failure
    }
}
