//! Callers that go away while the store does not answer take nothing with them.

use std::future::IntoFuture as _;
use std::pin::pin;
use std::time::Duration;

use outgate::testing::Mode;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::scene::{Outage, Outcome, PATIENCE, Scene, plenty};

#[tokio::test]
async fn a_caller_cancelled_while_its_message_is_under_way_loses_no_slot() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    throttle.acquire("up").await?.hand_back();
    scene.log_holds(0).await?;
    scene.proxy.set(Mode::Delay(Duration::from_millis(100)));
    let mut callers = JoinSet::new();
    for _ in 0..30 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
    }
    // The server has acted, and its reply is on its way.
    while scene.log()?.is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    callers.shutdown().await;
    scene.log_holds(0).await
}

#[tokio::test]
async fn the_slots_of_those_who_went_away_go_to_those_who_stay() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    throttle.acquire("up").await?.hand_back();
    scene.log_holds(0).await?;
    scene.proxy.set(Mode::Delay(Duration::from_millis(60)));
    let mut callers = Vec::new();
    for _ in 0..60 {
        let throttle = throttle.clone();
        callers.push(tokio::spawn(async move { throttle.acquire("up").await }));
    }
    sleep(Duration::from_millis(20)).await;
    let (gone, stay): (Vec<_>, Vec<_>) = callers.into_iter().enumerate().partition(|(caller, _)| caller % 3 == 0);
    for (_, caller) in gone {
        caller.abort();
    }
    for (_, caller) in stay {
        drop(caller.await??);
    }
    scene.log_holds(40).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_cancelled_during_an_outage_leave_nothing_in_the_log() -> Outcome {
    let mut outages = JoinSet::new();
    for outage in [Outage::Blackholed, Outage::Paused, Outage::Swallowed, Outage::Refused] {
        outages.spawn(async move {
            let scene = Scene::new()?;
            let throttle = scene.throttle(plenty())?;
            throttle.acquire("up").await?.hand_back();
            scene.log_holds(0).await?;
            outage.begin(&scene)?;
            let mut callers = JoinSet::new();
            for _ in 0..30 {
                let throttle = throttle.clone();
                callers.spawn(async move { throttle.acquire("up").await });
            }
            sleep(Duration::from_millis(200)).await;
            callers.shutdown().await;
            sleep(Duration::from_millis(800)).await;
            outage.end(&scene)?;
            throttle.acquire("up").await?.hand_back();
            scene.log_holds(0).await
        });
    }
    outages.join_all().await.into_iter().collect()
}

#[tokio::test]
async fn a_caller_that_is_no_longer_polled_holds_nobody_up() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    scene.proxy.set(Mode::Delay(Duration::from_millis(50)));
    let mut first = pin!(throttle.acquire("up").into_future());
    assert!(timeout(Duration::from_millis(10), &mut first).await.is_err());
    drop(timeout(PATIENCE, throttle.acquire("up").into_future()).await??);
    drop(timeout(PATIENCE, first).await??);
    Ok(())
}
