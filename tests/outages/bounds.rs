//! Every call ends, and in time.

use std::time::{Duration, Instant};

use outgate::store::StoreErrorKind;
use outgate::{Error, Limit, RedisStore, Throttle};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::scene::{AT_ONCE, Metronome, Outage, Outcome, PATIENCE, Scene, plenty, throttle, timed, unavailable};

const MAX_WAIT: Duration = Duration::from_millis(700);

/// 200 callers of one line and one of each of 50 scopes, with a longest wait and without in turns.
async fn crowd_is_told_in_time(throttle: Throttle, what: String) {
    let metronome = Metronome::start();
    let mut callers = JoinSet::new();
    for caller in 0..250_u32 {
        let (throttle, what, metronome) = (throttle.clone(), what.clone(), metronome.clone());
        callers.spawn(async move {
            let bound = if caller % 2 == 0 { MAX_WAIT } else { PATIENCE };
            let mut acquire = if caller % 5 == 4 { throttle.try_acquire("up") } else { throttle.acquire("up") };
            if caller % 5 != 4 && bound == MAX_WAIT {
                acquire = acquire.max_wait(bound);
            }
            if caller >= 200 {
                acquire = acquire.scope(format!("scope {caller}"));
            }
            let bound = if caller % 5 == 4 { PATIENCE } else { bound };
            let (outcome, took) = timed(acquire).await;
            unavailable(outcome);
            assert!(
                took <= bound + metronome.margin().await,
                "{what}: caller {caller} waited {took:?}, {bound:?} at most"
            );
        });
    }
    callers.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_outage_everybody_is_told_within_the_longest_wait_or_5_s() -> Outcome {
    let mut crowds = JoinSet::new();
    let mut scenes = Vec::new();
    for outage in Outage::ALL {
        for cold in [true, false] {
            let scene = Scene::new()?;
            let throttle = scene.throttle(plenty())?;
            if !cold {
                drop(throttle.acquire("up").await?);
            }
            outage.begin(&scene)?;
            crowds.spawn(crowd_is_told_in_time(throttle, format!("{outage:?}, cold: {cold}")));
            scenes.push(scene);
        }
    }
    crowds.join_all().await;
    Ok(())
}

#[tokio::test]
async fn a_slow_response_timeout_does_not_make_a_caller_wait_longer() -> Outcome {
    let metronome = Metronome::start();
    let scene = Scene::new()?;
    let throttle =
        throttle(RedisStore::builder(&scene.proxy.url()).response_timeout(Duration::from_secs(20)).open()?, plenty())?;
    drop(throttle.acquire("up").await?);
    Outage::Paused.begin(&scene)?;
    let (outcome, took) = timed(throttle.acquire("up")).await;
    unavailable(outcome);
    assert!(took <= PATIENCE + metronome.margin().await, "{took:?}");
    Ok(())
}

#[tokio::test]
async fn a_caller_that_waits_for_a_slot_far_away_is_told_5_s_after_the_store_fell_silent() -> Outcome {
    let metronome = Metronome::start();
    let scene = Scene::new()?;
    let throttle = scene.throttle(Limit::new(1, Duration::from_secs(1)))?;
    drop(throttle.acquire("up").await?);
    let far = throttle.clone();
    let far = tokio::spawn(async move { timed(far.acquire("up")).await });
    sleep(Duration::from_millis(100)).await;
    Outage::Blackholed.begin(&scene)?;
    let (outcome, took) = far.await?;
    unavailable(outcome);
    // It asks again before the second is over.
    assert!(took <= Duration::from_secs(1) + PATIENCE + metronome.margin().await, "{took:?}");
    Ok(())
}

#[tokio::test]
async fn a_slot_that_is_booked_is_used_though_the_store_has_gone() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(Limit::new(1, Duration::from_millis(200)).guard(Duration::from_millis(40)))?;
    drop(throttle.acquire("up").await?);
    let booked = throttle.clone();
    let booked = tokio::spawn(async move { booked.acquire("up").await });
    scene.log_holds(2).await?;
    scene.redis.stop();
    drop(booked.await??);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_to_a_server_that_is_not_there_fails_soon() -> Outcome {
    let metronome = Metronome::start();
    for outage in Outage::ALL {
        let scene = Scene::new()?;
        outage.begin(&scene)?;
        let since = Instant::now();
        let error = RedisStore::connect(&scene.proxy.url()).await.err().ok_or("connected")?;
        assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{outage:?}");
        let took = since.elapsed();
        assert!(took <= Duration::from_secs(2) + metronome.margin().await, "{outage:?}: {took:?}");
    }
    let error = RedisStore::connect("http://127.0.0.1").await.err().ok_or("connected")?;
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_within_5_s_and_refuses_whoever_waits_at_once() -> Outcome {
    let metronome = Metronome::start();
    let mut closings = JoinSet::new();
    for outage in Outage::ALL {
        let metronome = metronome.clone();
        closings.spawn(async move {
            let scene = Scene::new()?;
            let throttle = scene.throttle(plenty())?;
            let permit = throttle.acquire("up").await?;
            outage.begin(&scene)?;
            let mut callers = JoinSet::new();
            for caller in 0..20 {
                let throttle = throttle.clone();
                callers.spawn(async move { throttle.acquire("up").scope(format!("{}", caller % 3)).await.err() });
            }
            permit.hand_back();
            sleep(Duration::from_millis(200)).await;
            let since = Instant::now();
            let closing = tokio::spawn(async move { throttle.close().await });
            let refused = timeout(AT_ONCE + metronome.margin().await, callers.join_all()).await?;
            assert!(refused.iter().all(|error| matches!(error, Some(Error::Closed))), "{outage:?}: {refused:?}");
            closing.await?;
            let took = since.elapsed();
            assert!(took <= PATIENCE + metronome.margin().await, "{outage:?}: {took:?}");
            Outcome::Ok(())
        });
    }
    closings.join_all().await.into_iter().collect()
}
