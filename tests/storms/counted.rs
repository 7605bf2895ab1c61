//! How many messages a storm of refusals is, on paused time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use outgate::MemoryStore;
use tokio::time::sleep;

use crate::scene::{About, Counting, REFUSALS, storm, throttle};

/// How many pauses the store is told at once, and in all.
async fn pauses_told(about: About) -> [u64; 2] {
    let (store, counts) = Counting::new(MemoryStore::new(), Duration::from_millis(1));
    let throttle = throttle(store);
    storm(&throttle, about, true).await;
    sleep(Duration::from_secs(1)).await;
    let at_once = counts.pauses.load(Ordering::Relaxed);
    sleep(Duration::from_secs(9)).await;
    [at_once, counts.pauses.load(Ordering::Relaxed)]
}

#[tokio::test(start_paused = true)]
async fn a_thousand_refusals_of_one_scope_or_of_the_upstream_are_two_messages() {
    assert_eq!([pauses_told(About::One).await, pauses_told(About::All).await], [[2, 2]; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_scopes_that_are_refused_are_told_once_each() {
    assert_eq!(pauses_told(About::Each).await, [u64::from(REFUSALS); 2]);
}
