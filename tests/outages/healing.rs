//! Once the cause has gone, the next call succeeds.

use std::time::Duration;

use outgate::{RedisStore, Throttle};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::doubled::heals;
use crate::scene::{AT_ONCE, Metronome, Outage, Outcome, Scene, brief, plenty, timed, unavailable};

/// Long enough for several failures in a row: the pauses between them have grown by then.
const MAX_WAIT: Duration = Duration::from_millis(1_800);
/// So long after a loss of what counts for long nobody starts.
const SETTLING: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_any_outage_the_next_call_succeeds_at_once() -> Outcome {
    let metronome = Metronome::start();
    let mut outages = JoinSet::new();
    for outage in Outage::ALL {
        for (cold, waiting) in [(true, false), (false, false), (false, true)] {
            let metronome = metronome.clone();
            outages.spawn(async move {
                let scene = Scene::new()?;
                let throttle = scene.throttle(plenty())?;
                if !cold {
                    drop(throttle.acquire("up").await?);
                }
                outage.begin(&scene)?;
                // A server that was stopped has lost its data: who was granted nothing in a log does not wait for those who were.
                let acquire = |throttle: &Throttle| throttle.acquire("up").scope("since");
                unavailable(acquire(&throttle).max_wait(MAX_WAIT).await);
                let other = acquire(&throttle);
                let other = tokio::spawn(async move { other.await });
                if !waiting {
                    other.abort();
                }
                sleep(Duration::from_millis(300)).await;
                outage.end(&scene)?;
                let (outcome, took) = timed(acquire(&throttle)).await;
                drop(outcome?);
                assert!(
                    took <= AT_ONCE + metronome.margin().await,
                    "{outage:?}, cold: {cold}, waiting: {waiting}: {took:?}"
                );
                if waiting {
                    drop(other.await??);
                }
                Outcome::Ok(())
            });
        }
    }
    outages.join_all().await.into_iter().collect()
}

#[tokio::test]
async fn whoever_waits_is_served_when_the_store_is_back() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    scene.redis.stop();
    let mut callers = JoinSet::new();
    for _ in 0..200 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
    }
    sleep(Duration::from_millis(400)).await;
    scene.redis.restart()?;
    drop(callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?);
    assert_eq!(scene.log()?.len(), 200);
    Ok(())
}

#[tokio::test]
async fn a_server_that_starts_anew_with_nothing_is_used_at_once() -> Outcome {
    let scene = Scene::new()?;
    // What was lost counts no more by then; where it counts for long calls go on 6 s later: see below.
    let throttle = scene.throttle(brief())?;
    for _ in 0..3 {
        drop(throttle.acquire("up").await?);
        scene.redis.restart()?;
        let (outcome, took) = timed(throttle.acquire("up")).await;
        drop(outcome?);
        assert!(took <= AT_ONCE, "{took:?}");
        assert_eq!(scene.log()?.len(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_starts_anew_with_nothing_is_told_again_what_counts_for_long() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    let before = scene.log()?;
    for calls in 2..4 {
        scene.redis.restart()?;
        let (outcome, took) = timed(throttle.acquire("up")).await;
        drop(outcome?);
        assert!(took + AT_ONCE >= SETTLING && took <= SETTLING + AT_ONCE, "{took:?}");
        assert_eq!((scene.log()?.len(), &scene.log()?[..1]), (calls, &before[..]));
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_forgets_its_scripts_is_told_them_again() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    for granted in [2, 4, 6] {
        drop(throttle.acquire("up").await?);
        scene.redis("SCRIPT FLUSH")?;
        drop(throttle.acquire("up").await?);
        assert_eq!(scene.log()?.len(), granted);
        scene.redis("SCRIPT FLUSH")?;
        throttle.usage("up").await?;
        scene.redis("SCRIPT FLUSH")?;
        throttle.acquire("up").await?.hand_back();
        scene.log_holds(granted).await?;
    }
    assert_eq!(scene.proxy.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn an_idle_connection_that_was_dropped_is_replaced() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    for connections in 1..=5 {
        drop(throttle.acquire("up").await?);
        assert_eq!(scene.proxy.connections(), connections);
        scene.proxy.cut();
        sleep(Duration::from_millis(20)).await;
    }
    drop(throttle.acquire("up").await?);
    scene.redis("CLIENT KILL TYPE normal")?;
    drop(throttle.acquire("up").await?);
    assert_eq!(scene.log()?.len(), 7);
    Ok(())
}

#[tokio::test]
async fn a_silent_server_is_not_left_with_a_pile_of_connections() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    Outage::Paused.begin(&scene)?;
    unavailable(throttle.acquire("up").max_wait(MAX_WAIT).await);
    Outage::Paused.end(&scene)?;
    drop(throttle.acquire("up").await?);
    sleep(Duration::from_millis(100)).await;
    let clients = scene.redis("CLIENT LIST TYPE normal")?;
    // That of the throttle, and the one that asks.
    assert_eq!(clients.text().map(|list| list.lines().count()), Some(2), "{clients:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_replies_are_no_longer_doubled_every_answer_is_its_own() -> Outcome {
    let scene = Scene::new()?;
    heals(RedisStore::open(&scene.proxy.url())?, &[scene.proxy]).await
}

#[tokio::test]
async fn which_upstreams_there_are_is_told_again_after_a_connection_was_lost() -> Outcome {
    let scene = Scene::new()?;
    let store = RedisStore::connect(&scene.proxy.url()).await?;
    assert_eq!(store.upstreams().await?, []);
    scene.proxy.cut();
    // Whoever asks first may find that out.
    let _lost = store.upstreams().await;
    assert_eq!(store.upstreams().await?, []);
    Ok(())
}
