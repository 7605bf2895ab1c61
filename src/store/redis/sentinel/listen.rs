//! Hears of a new primary at once.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::sleep;

use super::{AGAIN, Sentinel};

/// A Sentinel that is subscribed to has to say something so often.
const ALIVE: Duration = Duration::from_secs(1);

/// Subscribes to one Sentinel after another, for as long as the store is there.
pub(super) async fn listen(sentinel: Weak<Sentinel>) {
    for n in fastrand::usize(..1_000).. {
        let Some(subscribing) = sentinel.upgrade() else { return };
        let outcome = subscribing.sentinels.subscribe(n).await;
        let count = subscribing.sentinels.count();
        drop(subscribing);
        let ended = match outcome {
            Ok(mut subscription) => {
                let mut is_changed = Ok(true);
                loop {
                    match is_changed {
                        // At first as well: something may have happened before.
                        Ok(true) => {
                            let Some(sentinel) = sentinel.upgrade() else { return };
                            sentinel.alarmed();
                        }
                        Ok(false) => {}
                        Err(error) => break error,
                    }
                    is_changed = subscription.changed(ALIVE).await;
                }
            }
            Err(error) => error,
        };
        let Some(sentinel) = sentinel.upgrade() else { return };
        sentinel.complain("subscription", || {
            let error = &ended as &dyn std::error::Error;
            tracing::warn!(error, "a Sentinel cannot be heard any more: another one is subscribed to");
        });
        drop(sentinel);
        // All of them once in a while, and the next one at once.
        sleep(if n % count.max(1) == 0 { ALIVE } else { AGAIN }).await;
    }
}
