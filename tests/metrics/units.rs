//! What is reserved by estimates, and what calls are settled at.

use std::time::Duration;

use outgate::Limit;
use outgate::store::WithoutStore;

use crate::counted::{millis, on, up};
use crate::support::{Board, Distant, client};

#[tokio::test(start_paused = true)]
async fn units_are_counted_as_they_are_estimated_and_settled() {
    let tokens = Limit::per_minute(1_000).of("tokens");
    let (throttle, board) = Board::of(on(&Distant::default(), up().limit(tokens).estimate("tokens", 100)));
    let permit = throttle.acquire("up").await.unwrap();
    permit.settle("tokens", 40);
    permit.settle("nonsense", 7);
    drop(permit);
    let unit = [("unit", "tokens")];
    assert_eq!(board.count("outgate_units_estimated_total", &unit), 100);
    assert_eq!(board.count("outgate_units_settled_total", &unit), 40);
    assert_eq!(board.count("outgate_units_settled_total", &[("unit", "calls")]), 0);
    let units = board.series().into_iter().filter_map(|(_, _, labels)| labels.get("unit").cloned());
    assert!(units.into_iter().all(|unit| unit == "tokens" || unit == "calls"), "no other unit is a label");
}

#[tokio::test(start_paused = true)]
async fn units_are_settled_of_calls_that_no_slot_was_booked_for() {
    let settled = |board: &Board| board.count("outgate_units_settled_total", &[("unit", "tokens")]);
    let tokens = || up().limit(Limit::per_minute(1_000).of("tokens")).estimate("tokens", 100);
    let store = Distant::default();
    let (throttle, board) = Board::of(on(&store, tokens().without_store(WithoutStore::SendUnthrottled)));
    store.silence(true);
    let permit = throttle.acquire("up").await.unwrap();
    assert!(permit.went_without_store());
    permit.settle("tokens", 40);
    permit.settle("nonsense", 7);
    assert_eq!(settled(&board), 40);

    let (throttle, board) = Board::of(on(&Distant::default(), tokens().observe()));
    for _ in 0..6 {
        let permit = throttle.acquire("up").max_wait(Duration::from_millis(10)).await.unwrap();
        permit.settle("tokens", 40);
    }
    millis(100).await;
    assert_eq!(settled(&board), 240);
    assert_eq!(throttle.usage("up").await.unwrap().observed.map(|observed| observed.refused), Some(4));
    throttle.acquire("up").await.unwrap().hand_back();
    assert_eq!(settled(&board), 240);
}

#[tokio::test(start_paused = true)]
async fn units_are_estimated_of_calls_that_get_their_permit_and_of_each_that_is_sent_again() {
    let tokens = Limit::per_minute(1_000).of("tokens");
    let up = up().limit(tokens).estimate("tokens", 100);
    let (throttle, board) = Board::of(on(&Distant::default(), up.retry_refused(2)));
    let estimated = || board.count("outgate_units_estimated_total", &[("unit", "tokens")]);
    drop((throttle.acquire("up").await.unwrap(), throttle.acquire("up").await.unwrap()));
    assert_eq!(estimated(), 200);
    throttle.try_acquire("up").await.unwrap_err();
    throttle.acquire("up").max_wait(Duration::from_millis(10)).await.unwrap_err();
    tokio::time::timeout(Duration::from_millis(10), throttle.acquire("up").into_future()).await.unwrap_err();
    assert_eq!(estimated(), 200, "who is refused reserves nothing, nor who gives up");
    client(&throttle).get("http://up.example/429/1").send().await.unwrap();
    assert_eq!(estimated(), 500);
}
