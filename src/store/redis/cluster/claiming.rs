//! Whether another release keeps another format under the prefix. One node knows, and each new connection to another asks for it anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::slots::slot_of;
use super::{Cluster, SILENCE, lock};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::format;
use crate::store::redis::link::served_within;

/// How often the node is asked that knows, while it does not say.
const CLAIM_AGAIN: Duration = Duration::from_secs(5);

impl Cluster {
    /// Fails where another release keeps another format. While the node that knows does not say, calls go on: it holds up the first ones
    /// alone, and no more than briefly.
    pub(super) async fn refuse_another_format(self: &Arc<Self>) -> Result<(), StoreError> {
        if !self.is_to_claim.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (claim_at, now) = (*lock(&self.claim_at), Instant::now());
        if claim_at.is_none() {
            match timeout(SILENCE, self.claiming()).await {
                Ok(claimed) => claimed.unwrap_or(Ok(()))?,
                // It is asked still.
                Err(_) => *lock(&self.claim_at) = Some(now + CLAIM_AGAIN),
            }
        } else if claim_at.is_some_and(|at| at <= now) {
            *lock(&self.claim_at) = Some(now + CLAIM_AGAIN);
            drop(self.claiming());
        }
        // As it was found last, until it is found otherwise.
        lock(&self.other_format).clone().map_or(Ok(()), Err)
    }

    /// Asks the node that knows, whoever waits for it.
    fn claiming(self: &Arc<Self>) -> JoinHandle<Result<(), StoreError>> {
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            let claimed = cluster.claim(served_within(cluster.response_timeout)).await;
            if let Err(error) = &claimed {
                *lock(&cluster.other_format) = Some(error.clone());
                *lock(&cluster.claim_at) = None;
            }
            claimed
        })
    }

    async fn claim(&self, patience: Duration) -> Result<(), StoreError> {
        let Ok(node) = self.owner(slot_of(format::NAME)).await else { return Ok(()) };
        let claim = format::claim(&self.prefix);
        let again = match timeout(patience, node.link.ask(&claim, |kept| Some(kept.clone()))).await {
            Ok(Ok(kept)) => {
                format::judge(&self.prefix, &kept)?;
                *lock(&self.other_format) = None;
                self.is_to_claim.store(false, Ordering::Relaxed);
                Duration::ZERO
            }
            // Found as it was connected to. What a server says is the cause of another error.
            Ok(Err(error)) if error.kind() == StoreErrorKind::Refused && !error.has_cause() => return Err(error),
            _ => {
                self.nodes().doubt_for(&node.address, Instant::now());
                CLAIM_AGAIN
            }
        };
        // Whoever connects anew has it asked beside the calls.
        *lock(&self.claim_at) = Some(Instant::now() + again);
        Ok(())
    }
}
