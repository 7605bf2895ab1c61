//! A process that another one has the name of: a machine was cloned while it ran.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::Term;
use outgate::ledger::{Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MessageId, Run};
use outgate::{Feedback, Limit, MemoryStore, Store, StoreError, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// A store that remembers who sent the last message, and its number.
#[derive(Clone, Debug, Default)]
struct Overheard {
    inner: MemoryStore,
    last: Arc<Mutex<(u64, u64)>>,
}

impl Overheard {
    fn note(&self, sender: u64, number: u64) {
        // Nobody's messages ask for the time.
        if sender != 0 {
            *self.last.lock().unwrap() = (sender, number);
        }
    }

    fn sender(&self) -> u64 {
        self.last.lock().unwrap().0
    }

    fn number(&self) -> u64 {
        self.last.lock().unwrap().1
    }
}

#[async_trait]
impl Store for Overheard {
    async fn book(&self, ask: &Ask) -> Result<Grant, StoreError> {
        self.note(ask.sender, ask.number);
        self.inner.book(ask).await
    }

    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError> {
        self.note(message.sender, message.number);
        self.inner.hand_back(message).await
    }

    async fn hold(&self, home: &Home, id: MessageId, hold: &Hold) -> Result<Incident, StoreError> {
        self.note(id.sender, id.number);
        self.inner.hold(home, id, hold).await
    }

    async fn learn(&self, home: &Home, id: MessageId, log: &Log, lesson: &Lesson) -> Result<Learned, StoreError> {
        self.note(id.sender, id.number);
        self.inner.learn(home, id, log, lesson).await
    }

    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError> {
        self.inner.usage(home, logs).await
    }
}

const SPAN: Duration = Duration::from_millis(100);

fn throttle(store: &Overheard) -> Throttle {
    let up = Upstream::new("up").limit(Limit::new(1, SPAN).guard(Duration::ZERO));
    Throttle::builder().store(store.clone()).upstream(up).build().unwrap()
}

/// Another process of the same name gets a slot.
async fn clone_asks(store: &Overheard) {
    let logs = [Log::new("calls", [Term::new(1, 100_000)])];
    let ask = Ask::new(Home::new("up", None), store.sender(), store.number() + 1_000_000, logs, vec![Run::new(1, [1])]);
    store.inner.book(&ask).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_name_that_another_process_has_are_neither_used_nor_handed_back() {
    let store = Overheard::default();
    let throttle = throttle(&store);
    let begin = Instant::now();
    let permit = throttle.acquire("up").await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let throttle = throttle.clone();
        callers.spawn(async move {
            drop(throttle.acquire("up").await.unwrap());
            begin.elapsed()
        });
    }
    // Slots are booked for two of them by now, at 100 and at 200 ms. The clone has no part in those, and gets the next.
    sleep(Duration::from_millis(20)).await;
    let name = store.sender();
    sleep(Duration::from_millis(40)).await;
    clone_asks(&store).await;
    let mut starts = callers.join_all().await;
    starts.sort_unstable();
    assert_ne!(store.sender(), name, "it goes on under another name");
    assert!(starts.windows(2).all(|pair| pair[1] >= pair[0] + SPAN), "{starts:?}");
    assert_eq!(starts.len(), 4, "everybody is served in the end");
    sleep(Duration::from_millis(10)).await;
    let next = throttle.usage("up").await.unwrap().limits[0].next;
    permit.hand_back();
    sleep(Duration::from_millis(10)).await;
    let later = throttle.usage("up").await.unwrap().limits[0].next;
    assert_eq!(next, later + Duration::from_millis(10), "a permit of the old name takes nothing out of the log");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_under_another_name_where_the_store_has_heard_more_of_this_one() {
    let store = Overheard::default();
    let throttle = throttle(&store);
    drop(throttle.acquire("up").await.unwrap());
    let (name, number) = (store.sender(), store.number() + 1_000_000);
    let hold = Hold::new(Duration::from_millis(1));
    store.inner.hold(&Home::new("up", None), MessageId::new(name, number), &hold).await.unwrap();
    throttle.report("up", &Feedback::refused(Duration::from_secs(9))).await.unwrap();
    assert_ne!(store.sender(), name);
    assert!(throttle.usage("up").await.unwrap().limits[0].next >= Duration::from_secs(9), "and it is known");
}

#[tokio::test(start_paused = true)]
async fn a_process_of_its_own_name_keeps_it_whatever_it_asks() {
    let store = Overheard::default();
    let throttle = throttle(&store);
    let mut names = Vec::new();
    for turn in 0..200_u64 {
        match turn % 5 {
            0 => drop(throttle.try_acquire("up").await),
            1 => drop(throttle.acquire("up").max_wait(Duration::from_millis(turn % 130)).await),
            2 => throttle.acquire("up").await.unwrap().hand_back(),
            3 => {
                let asked = throttle.clone();
                let asks = tokio::spawn(async move { drop(asked.acquire("up").await) });
                sleep(Duration::from_millis(turn % 70)).await;
                asks.abort();
            }
            _ => sleep(Duration::from_millis(turn % 900 * turn % 1_100)).await,
        }
        names.push(store.sender());
    }
    names.dedup();
    assert_eq!(names.len(), 1);
}
