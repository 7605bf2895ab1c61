//! A store of your own: whoever keeps [`Ledger`]s brings a clock and an order of messages, and the ledger does the rest.
//!
//! ```text
//! cargo run --release --example own_store
//! ```
//!
//! This one keeps the ledgers of a program in a `BTreeMap`, on the machine's clock. Two throttles share it, and their calls keep
//! one quota. Then the suite that comes with the crate checks the laws of a store, which takes 12 s: one of them waits until
//! everything is forgotten.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::{Ledger, Message, Stamp};
use outgate::store::Applying;
use outgate::testing::conformance::{self, Subject};
use outgate::testing::{ManualClock, oracle};
use outgate::{Limit, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often the next sixteenth of an upstream's scopes is looked through for what fell silent, in microseconds.
const SWEEP_EVERY: i64 = 1_000_000;

/// A ledger for each upstream. Clones share them.
#[derive(Clone, Debug)]
struct Shelf {
    ledgers: Arc<Mutex<BTreeMap<Arc<str>, Kept>>>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Kept {
    ledger: Ledger,
    sweep_at: i64,
}

/// A store whose answers are ready has a clock that does not step.
#[derive(Clone, Debug)]
enum Clock {
    Machine(Instant),
    /// For the suite, which moves it.
    Manual(ManualClock),
}

impl Clock {
    fn now(&self) -> Stamp {
        match self {
            Self::Machine(epoch) => {
                let since = epoch.elapsed();
                Stamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
            }
            Self::Manual(clock) => clock.now(),
        }
    }
}

impl Shelf {
    fn on(clock: Clock) -> Self {
        Self { ledgers: Arc::default(), clock }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Kept>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that a store has to do.
impl Store for Shelf {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let mut ledgers = self.lock();
        // Read under the lock, so that messages are applied in the order of their times.
        let now = self.clock.now();
        let kept = ledgers.entry(Arc::clone(&message.upstream)).or_default();
        let answer = kept.ledger.apply(now, message);
        if now.as_micros() >= kept.sweep_at {
            kept.ledger.sweep(now);
            kept.sweep_at = now.as_micros() + SWEEP_EVERY;
        }
        // It is there already. One that takes its time is `Applying::pending`.
        Applying::ready(answer.map_err(Into::into))
    }
}

/// What the suite has to know of it.
struct Check {
    store: Shelf,
    clock: ManualClock,
    running: Shelf,
}

#[async_trait]
impl Subject for Check {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn running(&self) -> &dyn Store {
        &self.running
    }

    async fn kept(&self) -> Vec<String> {
        let now = self.running.clock.now();
        let scopes = |(upstream, kept): (&Arc<str>, &Kept)| vec![upstream.to_string(); kept.ledger.scopes_in_use(now)];
        self.running.lock().iter().flat_map(scopes).collect()
    }

    async fn age(&self, by: Duration) {
        tokio::time::pause();
        tokio::time::advance(by).await;
        tokio::time::resume();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (store, began, mut calls) = (Shelf::on(Clock::Machine(Instant::now())), Instant::now(), JoinSet::new());
    for caller in 0..2 {
        let gateway = Upstream::new("gateway").limit(Limit::new(5, Duration::from_millis(100)));
        let throttle = Throttle::builder().store(store.clone()).upstream(gateway).build()?;
        for call in 0..8 {
            let throttle = throttle.clone();
            calls.spawn(async move {
                drop(throttle.acquire("gateway").await?);
                println!("throttle {caller}, call {call}: {:3} ms", began.elapsed().as_millis());
                Ok::<_, outgate::Error>(i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX))
            });
        }
    }
    let starts = calls.join_all().await.into_iter().collect::<Result<Vec<i64>, _>>()?;
    oracle::assert_never_more_than(5, 100_000, &starts);

    let clock = ManualClock::new(Stamp::from_micros(0));
    let store = Shelf::on(Clock::Manual(clock.clone()));
    conformance::check_all(&Check { store, clock, running: Shelf::on(Clock::Machine(Instant::now())) }).await;
    println!("{} calls kept the quota, and all laws hold", starts.len());
    Ok(())
}
