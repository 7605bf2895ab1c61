//! Hears of a new primary at once.

use std::sync::Weak;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{AGAIN, Sentinel};

/// A Sentinel that is subscribed to has to say something so often.
const ALIVE: Duration = Duration::from_secs(1);
/// Who is given up is asked so often.
const LOST: Duration = Duration::from_secs(10);
/// Where nobody has called for so long, nobody listens.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// The task that listens, as long as there are calls.
#[derive(Default)]
pub(super) struct Listener {
    task: Option<JoinHandle<()>>,
    called_at: Option<Instant>,
}

impl Listener {
    /// There is a call: has it run, if it does not.
    pub(super) fn called<F: Future<Output = ()> + Send + 'static>(&mut self, listen: impl FnOnce() -> F) {
        self.called_at = Some(Instant::now());
        // It ends with the runtime in which it was begun.
        if !self.runs() {
            self.task = Some(tokio::spawn(listen()));
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Whether it ends now, so that the next call has another one run.
    fn ends(&mut self) -> bool {
        let is_idle = self.called_at.is_none_or(|at| at.elapsed() >= IDLE);
        if is_idle {
            self.task = None;
        }
        is_idle
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Subscribes to one Sentinel after another, for as long as the store is there and called.
pub(super) async fn listen(sentinel: Weak<Sentinel>) {
    for n in fastrand::usize(..1_000).. {
        let Some(subscribing) = sentinel.upgrade().filter(|sentinel| !sentinel.is_idle()) else { return };
        let outcome = subscribing.sentinels.subscribe(n).await;
        let count = subscribing.sentinels.count();
        drop(subscribing);
        let ended = match outcome {
            Ok(mut subscription) => {
                let (mut is_changed, mut asked) = (Ok(true), Instant::now());
                loop {
                    let Some(sentinel) = sentinel.upgrade().filter(|sentinel| !sentinel.is_idle()) else { return };
                    match is_changed {
                        // At first as well: something may have happened before.
                        Ok(true) => sentinel.alarmed(),
                        Ok(false) if asked + LOST <= Instant::now() => {
                            sentinel.learn_of_lost().await;
                            asked = Instant::now();
                        }
                        Ok(false) => {}
                        Err(error) => break error,
                    }
                    drop(sentinel);
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

impl Sentinel {
    /// Whether nobody calls any more. What is known then is looked up by the next call.
    fn is_idle(&self) -> bool {
        let is_idle = self.listener().ends();
        if is_idle {
            self.known().forget();
        }
        is_idle
    }
}
