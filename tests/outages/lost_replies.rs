//! Replies that are lost at random: what is booked is what was granted, call for call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outgate::ledger::{Body, Message};
use outgate::store::{Applying, StoreError, StoreErrorKind};
use outgate::{Limit, MemoryStore, Store};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scene::{Outcome, throttle};

const PROCESSES: usize = 10;
const ASKS: usize = 1_000;
/// Of a hundred replies.
const LOST: u8 = 30;

/// A store that acts, and three of whose ten answers to asks are lost.
#[derive(Clone, Debug)]
struct Lossy {
    inner: MemoryStore,
    asked: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Store for Lossy {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            sleep(Duration::from_millis(1)).await;
            let answer = self.inner.apply(message).await;
            if !matches!(&message.body, Body::Ask(ask) if !(ask.runs.is_empty() && ask.back.is_empty())) {
                return answer;
            }
            self.asked.fetch_add(1, Ordering::Relaxed);
            if fastrand::u8(0..100) < LOST {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return Err(StoreError::new(StoreErrorKind::Unreachable, "the reply is lost"));
            }
            answer
        })
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_asks_with_three_of_ten_replies_lost_slots_booked_are_slots_granted() -> Outcome {
    let store = Lossy { inner: MemoryStore::new(), asked: Arc::default(), lost: Arc::default() };
    // The log keeps all that ever started.
    let limit = Limit::new(10_000, Duration::from_secs(3_600));
    let mut processes = JoinSet::new();
    for _ in 0..PROCESSES {
        let throttle = throttle(store.clone(), limit.clone())?;
        processes.spawn(async move {
            let (mut granted, mut handed_back) = (0, 0);
            for _ in 0..ASKS / PROCESSES {
                let permit = throttle.acquire("up").max_wait(Duration::from_secs(25)).await?;
                granted += 1;
                if fastrand::u8(0..2) == 0 {
                    permit.hand_back();
                    handed_back += 1;
                }
            }
            // What goes back has its time to do so.
            sleep(Duration::from_secs(20)).await;
            throttle.close().await;
            Ok::<_, outgate::Error>((granted, handed_back))
        });
    }
    let (mut granted, mut handed_back) = (0, 0);
    for process in processes.join_all().await {
        let (more, back) = process?;
        (granted, handed_back) = (granted + more, handed_back + back);
    }
    assert_eq!(granted, ASKS);
    let (asked, lost) = (store.asked.load(Ordering::Relaxed), store.lost.load(Ordering::Relaxed));
    assert!(lost * 10 > asked * 2 && lost > ASKS / 5, "{lost} of {asked} replies were lost");
    let booked = throttle(store.inner, limit)?.usage("up").await?.limits[0].used;
    assert_eq!(booked as usize, granted - handed_back, "{lost} of {asked} replies were lost");
    Ok(())
}
