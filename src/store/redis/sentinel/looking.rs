//! Who is the primary is looked up: by one call of a process at a time, whose outcome goes for all.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::news::News;
use super::primary::Primary;
use super::{SILENCE, Sentinel};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::address::Address;
use crate::store::redis::link::Failure;

impl Sentinel {
    /// The primary that is to be believed.
    pub(super) async fn primary(&self) -> Result<Arc<Primary>, Failure> {
        if let Some(primary) = self.known().believed() {
            return Ok(primary);
        }
        let looks = self.known().looks;
        let _looking = self.looking.turn().await;
        if let Some(outcome) = self.known().outcome(looks, Instant::now()) {
            return outcome;
        }
        let mut alarm = self.alarm.subscribe();
        loop {
            let outcome = tokio::select! {
                outcome = self.look() => outcome,
                _ = alarm.changed() => continue,
            };
            let mut known = self.known();
            if !alarm.has_changed().unwrap_or_default() {
                return known.looked(outcome, Instant::now());
            }
            alarm.mark_unchanged();
        }
    }

    /// Asks the Sentinels who is the primary, and whether that one is to be believed.
    async fn look(&self) -> Result<Arc<Primary>, StoreError> {
        loop {
            let news = self.sentinels.news().await;
            let primary = match &news {
                Ok(news) => self.named(&news.primary)?,
                Err(error) => {
                    // What may have taken the place of one that was never believed only they could say.
                    let known = self.known().primary.clone().filter(|primary| primary.was_believed());
                    let Some(known) = known else {
                        if error.kind() == StoreErrorKind::Refused {
                            self.health.complain("", &error.to_string(), error);
                        }
                        return Err(error.clone());
                    };
                    self.complain("no Sentinel", || {
                        let error = error as &dyn std::error::Error;
                        tracing::warn!(error, "no Sentinel answers: store goes on with the primary that it knows");
                    });
                    known
                }
            };
            let news = news.ok();
            tokio::select! {
                excused = primary.review(&self.like, news.as_ref(), self.response_timeout) => {
                    for (replica, error) in excused? {
                        self.complain(&replica.to_string(), || {
                            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
                            tracing::warn!(%replica, error, "store goes on without a replica, which lacks what is granted until it follows again");
                        });
                    }
                    return Ok(primary);
                }
                () = self.another(&primary.address) => {}
            }
        }
    }

    /// Learns which replicas most of the Sentinels have given up: once few can be heard nobody can learn it.
    pub(super) async fn learn_of_lost(&self) {
        let Some(primary) = self.known().believed() else { return };
        if let Ok(news) = self.sentinels.news().await
            && news.primary == primary.address
        {
            primary.leave_out(&news);
        }
    }

    /// Waits until the Sentinels name another one.
    async fn another(&self, than: &Address) {
        loop {
            sleep(SILENCE).await;
            if let Ok(News { primary, .. }) = self.sentinels.news().await
                && primary != *than
            {
                return;
            }
        }
    }

    /// The server at an address that Sentinels name as the primary.
    pub(super) fn named(&self, address: &Address) -> Result<Arc<Primary>, StoreError> {
        let mut known = self.known();
        if let Some(primary) = known.primary.as_ref().filter(|primary| primary.address == *address) {
            return Ok(Arc::clone(primary));
        }
        let client = address.client(&self.like)?;
        let primary = Arc::new(Primary::new(address.clone(), client, &self.prefix, self.response_timeout));
        if let Some(before) = known.primary.replace(Arc::clone(&primary)) {
            before.link.health.retire();
            // It is given as long as any other before it is said to be down.
            self.in_vain().end();
            tracing::info!(primary = %address, before = %before.address, "store has another primary");
        }
        Ok(primary)
    }
}
