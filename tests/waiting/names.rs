//! A process that another one has the name of: a machine was cloned while it ran.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::ledger::{Ask, Body, Log, Message, MessageId, NOBODY, Pause, Run, SeatLimit, Seats, Term};
use outgate::store::Applying;
use outgate::{Feedback, Limit, MemoryStore, Scope, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// A store that remembers which message came last.
#[derive(Clone, Debug, Default)]
struct Overheard {
    inner: MemoryStore,
    last: Arc<Mutex<Option<MessageId>>>,
}

impl Overheard {
    fn last(&self) -> MessageId {
        self.last.lock().unwrap().clone().unwrap()
    }

    fn sender(&self) -> u64 {
        self.last().sender
    }

    /// A later message of the same name and stream.
    async fn clone_says(&self, body: impl Into<Body>) {
        let last = self.last();
        let id = MessageId::new(last.sender, last.stream, last.number + 1_000_000);
        self.inner.apply(&Message::new("up", id, body)).await.unwrap();
    }
}

impl Store for Overheard {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        // Nobody's messages ask for the time.
        if message.id.sender != NOBODY {
            *self.last.lock().unwrap() = Some(message.id.clone());
        }
        self.inner.apply(message)
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
    store.clone_says(Ask::new(logs, vec![Run::new(1, [1])])).await;
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
    throttle.report("up", &Feedback::refused(Duration::from_millis(1))).await.unwrap();
    let name = store.sender();
    store.clone_says(Body::Pause { scope: None, pause: Pause::new(Duration::from_millis(1)) }).await;
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
        // Who does not wait says no name.
        names.extend(store.last.lock().unwrap().as_ref().map(|last| last.sender));
    }
    names.dedup();
    assert_eq!(names.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn seats_in_use_are_said_again_under_another_name() {
    let store = Overheard::default();
    let up = || Upstream::new("up").limit(Limit::in_flight(3));
    let throttle = Throttle::builder().store(store.clone()).upstream(up()).build().unwrap();
    let permits = [throttle.acquire("up").await.unwrap(), throttle.acquire("up").await.unwrap()];
    let name = store.sender();
    let mut ask = Ask::new([Log::new("calls", [])], Vec::new());
    ask.seats = Some(Seats::new([SeatLimit::new(None, 3)]).keeping(1, 0));
    store.clone_says(ask).await;
    // With the next renewal it hears of the clone.
    sleep(Duration::from_secs(21)).await;
    assert_ne!(store.sender(), name, "it goes on under another name");
    let other = Throttle::builder().store(store.inner.clone()).upstream(up()).build().unwrap();
    assert!(other.try_acquire("up").await.is_err(), "two, and that of the clone");
    sleep(Duration::from_secs(40)).await;
    let permit = other.try_acquire("up").await.unwrap();
    assert!(other.try_acquire("up").await.is_err(), "the clone's lease has ended, and two are in use");
    drop((permits, permit));
}

#[tokio::test(start_paused = true)]
async fn so_are_seats_that_several_queues_share() {
    let store = Overheard::default();
    let up = || {
        let each = Limit::per_second(50).each(Scope::header("x-merchant"));
        Upstream::new("up").limit(Limit::in_flight(3)).limit(each)
    };
    let throttle = Throttle::builder().store(store.clone()).upstream(up()).build().unwrap();
    let acquire = |throttle: &Throttle, merchant: &str| throttle.try_acquire("up").scope_of("x-merchant", merchant);
    let permits = [acquire(&throttle, "1").await.unwrap(), acquire(&throttle, "2").await.unwrap()];
    // The last to be told of is the line for seats.
    sleep(Duration::from_secs(21)).await;
    let name = store.sender();
    let mut ask = Ask::new([], Vec::new());
    ask.seats = Some(Seats::new([SeatLimit::new(None, 3)]).keeping(1, 0));
    store.clone_says(ask).await;
    sleep(Duration::from_secs(21)).await;
    assert_ne!(store.sender(), name, "it goes on under another name");
    let other = Throttle::builder().store(store.inner.clone()).upstream(up()).build().unwrap();
    assert!(acquire(&other, "3").await.is_err(), "two, and that of the clone");
    sleep(Duration::from_secs(40)).await;
    let permit = acquire(&other, "3").await.unwrap();
    assert!(acquire(&other, "4").await.is_err(), "the clone's lease has ended, and two are in use");
    drop((permits, permit));
    sleep(Duration::from_secs(1)).await;
    assert!(acquire(&other, "5").await.is_ok());
    assert!(acquire(&throttle, "5").await.is_ok());
}
