//! A loop of callers lets others run, however its calls are decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outgate::store::{StoreErrorKind, WithoutStore};
use outgate::testing::{FailingStore, StoreFault};
use outgate::{Limit, MemoryStore, Throttle, Upstream};

/// Whether another task runs while calls are made and ended at once, again and again.
async fn lets_others_run(throttle: &Throttle) -> bool {
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    tokio::spawn(async move { runs.store(true, Ordering::Relaxed) });
    for _ in 0..10_000 {
        _ = throttle.acquire("up").await;
        if ran.load(Ordering::Relaxed) {
            return true;
        }
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_callers_lets_others_run() {
    let up = || Upstream::new("up");
    let in_memory = [up().limit(Limit::per_second(1_000_000)), up().limit(Limit::in_flight(5))];
    for upstream in in_memory {
        let throttle = Throttle::builder().upstream(upstream).build().unwrap();
        assert!(lets_others_run(&throttle).await, "{throttle:?}");
    }
    for without_store in [WithoutStore::Refuse, WithoutStore::SendUnthrottled] {
        let upstream = up().limit(Limit::per_second(10)).without_store(without_store);
        let store = FailingStore::new(MemoryStore::new());
        store.fail(StoreFault::Error(StoreErrorKind::Unreachable));
        let throttle = Throttle::builder().store(store).upstream(upstream).build().unwrap();
        _ = throttle.acquire("up").await;
        assert!(lets_others_run(&throttle).await, "{without_store:?}");
    }
}
