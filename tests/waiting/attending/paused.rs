//! As long as a process knows of a pause others know of the process.

use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::{Limit, Scope, Upstream};
use tokio::time::sleep;

use super::{Told, callers, refused};

/// As a consumer does that puts its message back for as long as it is told.
#[tokio::test(start_paused = true)]
async fn a_process_is_known_to_be_there_for_as_long_as_a_pause_that_it_knows_whoever_calls_meanwhile() {
    for (served, calls_again) in [(40, true), (0, true), (0, false)] {
        let store = Told::new();
        let up = || Upstream::new("up").limit(Limit::per_second(100)).recovery(Duration::ZERO);
        let (there, looks) = (store.process(up()), store.process(up()));
        for _ in 0..served {
            drop(there.acquire("up").await.unwrap());
        }
        refused(&there, None, 3_600).await;
        if calls_again {
            let error = there.acquire("up").max_wait(Duration::from_secs(30)).await.unwrap_err();
            assert!(error.retry_after().is_some_and(|wait| wait > Duration::from_secs(3_500)), "{error:?}");
        }
        for _ in 0..36 {
            sleep(Duration::from_secs(100)).await;
            assert_eq!(callers(&looks).await, [0], "{served}, {calls_again}: {:?}", store.begin.elapsed());
        }
        let told = store.said().len();
        assert!((60..=61).contains(&told), "{served}, {calls_again}: {told} times in an hour");
        sleep(Duration::from_secs(190)).await;
        assert_eq!((callers(&looks).await, store.said().len()), (vec![], told), "and no longer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_over_within_a_second_is_worth_no_message() {
    let store = Told::new();
    let throttle =
        store.process(Upstream::new("up").limit(Limit::per_second(100)).max_pause(Duration::from_millis(900)));
    refused(&throttle, None, 5).await;
    sleep(Duration::from_secs(90)).await;
    assert_eq!(store.said(), []);
}

#[tokio::test(start_paused = true)]
async fn scopes_that_are_paused_are_in_use_meanwhile() {
    let store = Told::new();
    let up = || Upstream::new("up").limit(Limit::per_second(100).each(Scope::bearer_token()));
    let (there, looks) = (store.process(up()), store.process(up()));
    for scope in ["token-a", "token-b", "token-c"] {
        if scope == "token-c" {
            drop(there.acquire("up").scope(scope).await.unwrap());
        } else {
            refused(&there, Some(scope), 3_600).await;
        }
    }
    sleep(Duration::from_secs(1_800)).await;
    assert_eq!(looks.scopes("up").await.unwrap().len(), 2);
    assert!(store.said().len() <= 31, "{}", store.said().len());
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_whole_upstream_has_a_process_known_that_calls_for_a_scope() {
    for is_told in [true, false] {
        let store = Told::new();
        let up = || Upstream::new("up").limit(Limit::per_second(100).each(Scope::bearer_token()));
        let [there, here, looks] = [(); 3].map(|()| store.process(up()));
        drop(there.acquire("up").scope("token").await.unwrap());
        let refused = if is_told { &there } else { &here };
        refused.report("up", &Feedback::refused(Duration::from_secs(3_600))).await.unwrap();
        if !is_told {
            there.acquire("up").scope("token").max_wait(Duration::ZERO).await.unwrap_err();
        }
        sleep(Duration::from_secs(1_800)).await;
        assert_eq!((callers(&looks).await, looks.scopes("up").await.unwrap().len()), (vec![0], 1), "{is_told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_becomes_longer_has_a_process_known_until_its_end() {
    let store = Told::new();
    let up = || Upstream::new("up").limit(Limit::per_second(100));
    let (there, looks) = (store.process(up()), store.process(up()));
    drop(there.acquire("up").await.unwrap());
    for seconds in [5, 3_600] {
        there.report("up", &Feedback::refused(Duration::from_secs(seconds))).await.unwrap();
    }
    sleep(Duration::from_secs(1_800)).await;
    assert_eq!(callers(&looks).await, [0]);
}
