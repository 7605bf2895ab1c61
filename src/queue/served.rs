//! The call that looked whether a pause still holds was served: the pause is over, for everybody.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::Queue;
use super::waiters::Slot;
use crate::config::upstream::MAX_PAUSE;
use crate::ledger::{Body, Log, Stamp};

/// How long until the store is told again that a pause is over; twice as long each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Queue {
    /// The call of a slot was served. Where it was the one that looked whether a pause still holds, that is over for everybody: the
    /// store is told in the background, until it knows.
    #[inline]
    pub(crate) fn served(self: &Arc<Self>, slot: &Slot) {
        if !slot.looks {
            return;
        }
        let (queue, served) = (Arc::clone(self), slot.stamp);
        let mut ending: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { queue.end_pauses(served).await });
        // By hand at first, as memory answers at once; the rest in a task.
        let is_done = ending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if let Some(runtime) = Handle::try_current().ok().filter(|_| !is_done) {
            runtime.spawn(ending);
        }
    }

    /// When the pause began that was last known here.
    pub(crate) fn paused_at(&self) -> Option<Instant> {
        self.known()?.engine.paused_at
    }

    /// It may have been the pause of a scope, or of the whole upstream.
    async fn end_pauses(self: &Arc<Self>, served: Stamp) {
        let scopes = Log::scopes(&self.logs).flatten().map(Some).chain([None]);
        let (begun, mut is_told) = (Instant::now(), true);
        let (of_all, own) = (self.crowd.paused(begun), self.paused(begun));
        for scope in scopes {
            let (mut wait, body) = (FIRST_WAIT, Body::Release { scope, served: Some(served) });
            while let Err(error) = self.shard.tell_once(&self.process, body.clone()).await {
                // By then the pause may be over all the same.
                let is_over = begun.elapsed() > MAX_PAUSE || (wait == LONGEST_WAIT && self.is_closed());
                if is_over || Handle::try_current().is_err() {
                    let upstream = &**self.upstream();
                    tracing::warn!(upstream, %error, "the others do not know that a pause is over");
                    is_told = false;
                    break;
                }
                sleep(wait).await;
                wait = LONGEST_WAIT.min(2 * wait);
            }
        }
        if !is_told {
            return;
        }
        // Another may have begun meanwhile.
        self.crowd.note_release();
        if let Some((until, _)) = of_all {
            self.crowd.release_until(until);
            self.shard.looks.release();
        }
        if let Some(until) = own.into_iter().chain(of_all).map(|(until, _)| until).max() {
            self.release_until(until);
        }
    }
}
