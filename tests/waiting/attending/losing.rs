//! Where the store has lost its data each process says again that it is there.

use std::time::Duration;

use outgate::{Limit, Scope, Upstream};
use tokio::time::sleep;

use super::{Told, minutely, refused};

/// Each with the upstream's description. The queue whose callers wait asks every 5 s.
#[tokio::test(start_paused = true)]
async fn a_process_is_known_again_as_soon_as_it_hears_that_the_store_has_lost_data() {
    let store = Told::new();
    let throttle = store.process(minutely());
    drop(throttle.acquire("up").await.unwrap());
    let waits = tokio::spawn(throttle.acquire("up").into_future());
    sleep(Duration::from_secs(20)).await;
    assert_eq!(store.said(), [(1, 1, 1, true), (16, 1, 16, false)]);
    store.store.lose_data();
    sleep(Duration::from_secs(6)).await;
    let said = store.said();
    assert!(said.len() == 3 && said[2].3, "{said:?}");
    sleep(Duration::from_secs(20)).await;
    let said: Vec<_> = store.said().iter().map(|(.., described)| *described).collect();
    assert_eq!(said, [true, false, true, false], "and then as ever");
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_paused_is_known_again_as_soon_as_the_store_is_found_to_have_lost_that() {
    let store = Told::new();
    let up = || Upstream::new("up").limit(Limit::per_second(100)).recovery(Duration::ZERO);
    let (there, looks) = (store.process(up()), store.process(up()));
    refused(&there, None, 3_600).await;
    sleep(Duration::from_secs(1_000)).await;
    store.store.lose_data();
    let told = store.said().len();
    sleep(Duration::from_secs(4)).await;
    let seen = looks.processes("up").await.unwrap();
    assert_eq!((seen.all.len(), seen.descriptions.len(), store.said().len()), (1, 1, told + 1));
    assert!(looks.usage("up").await.unwrap().paused.is_some(), "and the pause is told again");
}

#[tokio::test(start_paused = true)]
async fn a_description_that_the_store_knows_no_more_is_told_at_once() {
    let store = Told::new();
    let throttle = store.process(minutely());
    drop(throttle.acquire("up").await.unwrap());
    let waits = tokio::spawn(throttle.acquire("up").into_future());
    sleep(Duration::from_secs(20)).await;
    store.lose_processes();
    sleep(Duration::from_secs(30)).await;
    let expected = [(1, true), (16, false), (31, false), (31, true), (46, false)];
    assert_eq!(store.said().iter().map(|(at, .., described)| (*at, *described)).collect::<Vec<_>>(), expected);
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_process_tells_once_of_itself_however_many_scopes_the_store_has_lost() {
    let store = Told::new();
    let throttle = store.process(Upstream::new("up").limit(Limit::per_hour(9).each(Scope::bearer_token())));
    let call_each = async || {
        for scope in 0..300 {
            drop(throttle.acquire("up").scope(format!("token-{scope}")).await.unwrap());
        }
    };
    call_each().await;
    sleep(Duration::from_secs(2)).await;
    call_each().await;
    sleep(Duration::from_secs(2)).await;
    let told = store.said().len();
    store.store.lose_data();
    call_each().await;
    let lasted = store.begin.elapsed().as_secs();
    let said = store.said()[told..].iter().filter(|(.., described)| *described).count();
    assert!((1..=2).contains(&said) && lasted < 30, "{said} messages, until {lasted} s");
}
