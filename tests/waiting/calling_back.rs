//! A store that calls the throttle back while it is asked: it finds no lock that its own caller holds.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use outgate::ledger::{Body, Message};
use outgate::store::Applying;
use outgate::{Error, Feedback, Limit, MemoryStore, Store, Throttle, Upstream};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

/// What a store does with the throttle that it is the store of, as the first caller's message reaches it.
#[derive(Clone, Copy, Debug)]
enum Call {
    Usage,
    TryAcquire,
    Acquire,
    Report,
    Close,
}

#[derive(Clone, Debug)]
struct CallsBack {
    inner: MemoryStore,
    call: Call,
    throttle: Arc<OnceLock<Throttle>>,
    outcomes: Arc<Mutex<Vec<Result<(), Error>>>>,
}

impl CallsBack {
    async fn call(&self, throttle: Throttle) {
        let outcome = match self.call {
            Call::Usage => throttle.usage("up").await.map(drop),
            Call::TryAcquire => throttle.try_acquire("up").await.map(drop),
            Call::Acquire => throttle.acquire("up").max_wait(20 * MS).await.map(drop),
            Call::Report => throttle.report("up", &Feedback::refused(10 * MS)).await,
            Call::Close => timeout(20 * MS, throttle.close()).await.map_err(|_| Error::Closed),
        };
        self.outcomes.lock().unwrap().push(outcome);
    }
}

impl Store for CallsBack {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            let first = self.outcomes.lock().unwrap().is_empty();
            if let Some(throttle) = self.throttle.get().filter(|_| first && matches!(message.body, Body::Ask(_))) {
                self.call(throttle.clone()).await;
            }
            sleep(MS).await;
            self.inner.apply(message).await
        })
    }
}

/// What the store was told, and what became of the caller that it was asked for.
async fn called_back(call: Call) -> (Result<(), Error>, Result<(), Error>) {
    let store = CallsBack { inner: MemoryStore::new(), call, throttle: Arc::default(), outcomes: Arc::default() };
    let up = Upstream::new("up").limit(Limit::new(1, 100 * MS).guard(10 * MS));
    let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    store.throttle.set(throttle.clone()).unwrap();
    let caller = throttle.acquire("up").await.map(drop);
    // Closed, it does not wait for the store.
    while store.outcomes.lock().unwrap().is_empty() {
        sleep(MS).await;
    }
    let outcome = store.outcomes.lock().unwrap().remove(0);
    (outcome, caller)
}

#[test]
fn a_store_that_calls_back_while_it_is_asked_does_not_deadlock() {
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        for call in [Call::Usage, Call::TryAcquire, Call::Acquire, Call::Report, Call::Close] {
            done.send((call, runtime.block_on(called_back(call)))).unwrap();
        }
    });
    for _ in 0..5 {
        let (call, (stored, caller)) = outcome.recv_timeout(Duration::from_secs(10)).expect("no deadlock");
        match call {
            // Nobody answers those that wait behind the message: they are told when their time is up.
            Call::TryAcquire | Call::Acquire => assert!(stored.is_err(), "{call:?}: {stored:?}"),
            Call::Usage | Call::Report => assert!(stored.is_ok(), "{call:?}: {stored:?}"),
            Call::Close => assert!(matches!(caller, Err(Error::Closed)), "{caller:?}"),
        }
        assert_eq!(caller.is_ok(), !matches!(call, Call::Close), "{call:?}: {caller:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_behind_one_that_is_polled_no_more_are_served_by_a_store_that_calls_back() {
    let inner = MemoryStore::new();
    let store = CallsBack { inner, call: Call::TryAcquire, throttle: Arc::default(), outcomes: Arc::default() };
    let up = Upstream::new("up").limit(Limit::new(10, 100 * MS).guard(10 * MS));
    let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    store.throttle.set(throttle.clone()).unwrap();
    let begin = Instant::now();
    let mut first = Box::pin(async { throttle.acquire("up").await });
    assert!(timeout(10 * MS, &mut first).await.is_err(), "the store waits for whom it called");
    // The first is not polled any more, and the second waits behind it.
    drop(
        timeout(Duration::from_secs(3), async { throttle.acquire("up").await })
            .await
            .expect("it does not hang")
            .unwrap(),
    );
    // The first answer takes a second, so the next ask is for a slot so far ahead.
    assert!(begin.elapsed() < Duration::from_millis(2_100), "{:?}", begin.elapsed());
    drop(first.await.unwrap());
}
