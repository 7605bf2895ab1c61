//! What a store is told that could not be reached for longer than the pauses of many scopes last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outgate::ledger::{Body, Message};
use outgate::store::{Applying, StoreError, StoreErrorKind};
use outgate::{Feedback, MemoryStore, Store};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::scene::{REFUSALS, throttle};

const SECOND: Duration = Duration::from_secs(1);
/// For how long the store cannot be reached.
const DEAD: Duration = Duration::from_secs(30);

/// A store that cannot be reached at first, which each message finds out after four seconds.
#[derive(Debug)]
struct Dead {
    inner: MemoryStore,
    since: Instant,
    /// Pauses that it was told of when it was back, and how many milliseconds were left of the longest.
    told: Arc<[AtomicU64; 2]>,
}

impl Store for Dead {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            if self.since.elapsed() < DEAD {
                sleep(4 * SECOND).await;
                return Err(StoreError::new(StoreErrorKind::Unreachable, "it is dead"));
            }
            if let Body::Pause { pause, .. } = &message.body {
                let left = u64::try_from(pause.waits[0].as_millis()).unwrap();
                self.told[0].fetch_add(1, Ordering::Relaxed);
                self.told[1].fetch_max(left, Ordering::Relaxed);
            }
            self.inner.apply(message).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_that_are_over_when_the_store_is_back_are_told_no_more() {
    let (begin, told) = (Instant::now(), Arc::<[AtomicU64; 2]>::default());
    let throttle = throttle(Dead { inner: MemoryStore::new(), since: begin, told: Arc::clone(&told) });
    let mut reports = JoinSet::new();
    for scope in 0..REFUSALS {
        let throttle = throttle.clone();
        let wait = if scope < REFUSALS / 10 { 60 * SECOND } else { 10 * SECOND };
        reports.spawn(async move { throttle.report_in("up", scope.to_string(), &Feedback::refused(wait)).await });
    }
    assert!(reports.join_all().await.iter().all(Result::is_err), "nobody waits for longer than 5 s");
    sleep(40 * SECOND).await;
    let [pauses, longest] = [0, 1].map(|at| told[at].load(Ordering::Relaxed));
    println!("of {REFUSALS} pauses {pauses} are told, with {longest} ms left at most");
    assert_eq!(pauses, u64::from(REFUSALS) / 10, "those that last");
    assert!(longest <= 30_000, "what is left of them: {longest} ms");
}
