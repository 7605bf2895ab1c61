//! A server that is there but refuses: its callers are told why, and served once it no longer does.

use std::time::Duration;

use outgate::store::StoreErrorKind;
use outgate::testing::RedisServer;
use outgate::{Error, Limit, RedisStore};
use tokio::time::sleep;

use crate::scene::{AT_ONCE, LOG, Metronome, Outcome, PATIENCE, Scene, brief, plenty, throttle, timed, unavailable};

/// Enough for a refusal, and for the same once more.
const MAX_WAIT: Duration = Duration::from_millis(300);

/// Callers are refused within their longest wait because of `code` until `cure` is run, then served at once.
async fn refused_until(scene: &Scene, cause: &str, code: &str, cure: &str) -> Outcome {
    refused_by(scene, plenty(), cause, code, cure).await
}

async fn refused_by(scene: &Scene, limit: Limit, cause: &str, code: &str, cure: &str) -> Outcome {
    let metronome = Metronome::start();
    let throttle = scene.throttle(limit)?;
    drop(throttle.acquire("up").await?);
    let before = scene.log()?.len();
    if !cause.is_empty() {
        scene.redis(cause)?;
    }
    for _ in 0..3 {
        let (outcome, took) = timed(throttle.acquire("up").max_wait(MAX_WAIT)).await;
        assert!(took <= MAX_WAIT + metronome.margin().await, "{code}: {took:?}");
        let why = unavailable(outcome);
        assert!(why.contains(code), "{code}: {why}");
    }
    scene.redis(cure)?;
    let (outcome, took) = timed(throttle.acquire("up")).await;
    drop(outcome?);
    assert!(took <= AT_ONCE + metronome.margin().await, "{code}: {took:?}");
    // Nothing was booked while the server refused.
    if scene.log()?.len() > before {
        scene.log_holds(before + 1).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_server_without_memory_refuses_until_it_has_some() -> Outcome {
    refused_until(&Scene::new()?, "CONFIG SET maxmemory 1", "OOM", "CONFIG SET maxmemory 0").await
}

#[tokio::test]
async fn a_server_without_replicas_refuses_until_it_needs_none() -> Outcome {
    let (cause, cure) = ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0");
    refused_until(&Scene::new()?, cause, "NOREPLICAS", cure).await
}

#[tokio::test]
async fn a_server_that_was_made_a_replica_refuses_until_it_is_none() -> Outcome {
    let (scene, primary) = (Scene::new()?, RedisServer::start()?);
    let cause = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    // It has its primary's data then, and has lost its own: of windows that count for long calls would go on 6 s later.
    refused_by(&scene, brief(), &cause, "ReadOnly", "REPLICAOF NO ONE").await?;
    refused_by(&scene, brief(), &cause, "ReadOnly", "REPLICAOF NO ONE").await
}

#[tokio::test]
async fn a_replica_that_has_lost_its_primary_refuses_until_it_needs_none() -> Outcome {
    let scene = Scene::with(&["--replica-serve-stale-data", "no"])?;
    refused_until(&scene, "REPLICAOF 127.0.0.1 1", "MasterDown", "REPLICAOF NO ONE").await
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_refuses_until_it_is_done() -> Outcome {
    let metronome = Metronome::start();
    let scene = Scene::with(&["--busy-reply-threshold", "20"])?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    let mut endless = scene.redis.client()?;
    endless.send(&["EVAL", "while true do end", "0"])?;
    sleep(Duration::from_millis(50)).await;
    for _ in 0..3 {
        let why = unavailable(throttle.acquire("up").max_wait(MAX_WAIT).await);
        assert!(why.contains("BUSY"), "{why}");
    }
    scene.redis("SCRIPT KILL")?;
    // It is answered before the script has ended.
    while scene.redis("PING").is_err() {}
    let (outcome, took) = timed(throttle.acquire("up")).await;
    drop(outcome?);
    assert!(took <= AT_ONCE + metronome.margin().await, "{took:?}");
    scene.log_holds(2).await
}

#[tokio::test]
async fn a_server_that_reads_its_data_refuses_until_it_has() -> Outcome {
    // 2 ms for each of 1,200 keys.
    let scene = Scene::with(&["--loading-process-events-interval-bytes", "1024"])?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    scene.redis("DEBUG POPULATE 1200 key 1500")?;
    scene.redis("CONFIG SET key-load-delay 2000")?;
    let mut reloading = scene.redis.client()?;
    reloading.send(&["DEBUG", "RELOAD"])?;
    sleep(Duration::from_millis(200)).await;
    let why = unavailable(throttle.acquire("up").max_wait(PATIENCE / 4).await);
    assert!(why.contains("BusyLoading"), "{why}");
    drop(throttle.acquire("up").await?);
    assert_eq!(reloading.receive()?.text(), Some("OK"));
    scene.log_holds(2).await
}

#[tokio::test]
async fn a_log_of_another_type_is_refused_with_its_reason_and_nothing_else_is() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    scene.redis(&format!("SET {LOG} mine"))?;
    let (other, usage) =
        tokio::join!(async { throttle.acquire("up").scope("other").await }, async { throttle.usage("up").await },);
    drop(other?);
    assert!(unavailable(usage).contains("WRONGTYPE"));
    let caller = throttle.clone();
    let caller = tokio::spawn(async move { timed(caller.acquire("up")).await });
    let Err(Error::StoreUnavailable { source, .. }) = throttle.acquire("up").max_wait(MAX_WAIT).await else {
        return Err("it was not refused".into());
    };
    assert_eq!(source.kind(), StoreErrorKind::Refused);
    scene.redis(&format!("DEL {LOG}"))?;
    drop(caller.await?.0?);
    let (outcome, took) = timed(throttle.acquire("up")).await;
    drop(outcome?);
    assert!(took <= AT_ONCE, "{took:?}");
    scene.log_holds(2).await
}

#[tokio::test]
async fn keys_of_another_type_beside_the_log_book_nothing() -> Outcome {
    for key in ["state", "replay:0:"] {
        let scene = Scene::new()?;
        let throttle = scene.throttle(plenty())?;
        scene.redis(&format!("SET outgate:v1:{{up}}:{key} x"))?;
        let booked = usize::from(throttle.acquire("up").max_wait(PATIENCE / 4).await.is_ok());
        assert_eq!(scene.log()?.len(), booked, "{key}");
        scene.redis(&format!("DEL outgate:v1:{{up}}:{key}"))?;
        drop(throttle.acquire("up").await?);
        assert_eq!(scene.log()?.len(), booked + 1, "{key}");
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_refused_until_it_is_right() -> Outcome {
    let scene = Scene::new()?;
    let url = format!("redis://:letmein@{}", scene.proxy.addr());
    let throttle = throttle(RedisStore::open(&url)?, plenty())?;
    scene.redis("CONFIG SET requirepass other")?;
    let why = unavailable(throttle.acquire("up").max_wait(MAX_WAIT).await);
    assert!(why.contains("assword") || why.contains("uthentication"), "{why}");
    assert!(!why.contains("letmein"), "{why}");
    let mut client = scene.redis.client()?;
    client.command(&["AUTH", "other"])?;
    client.command(&["CONFIG", "SET", "requirepass", "letmein"])?;
    let (outcome, took) = timed(throttle.acquire("up")).await;
    drop(outcome?);
    assert!(took <= AT_ONCE, "{took:?}");
    Ok(())
}

#[tokio::test]
async fn a_password_that_is_missing_is_refused_until_none_is_needed() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    scene.redis("CONFIG SET requirepass secret")?;
    let why = unavailable(throttle.acquire("up").max_wait(MAX_WAIT).await);
    assert!(why.contains("NOAUTH Authentication required"), "{why}");
    let mut client = scene.redis.client()?;
    client.command(&["AUTH", "secret"])?;
    client.command(&["CONFIG", "SET", "requirepass", ""])?;
    let (outcome, took) = timed(throttle.acquire("up")).await;
    drop(outcome?);
    assert!(took <= AT_ONCE, "{took:?}");
    Ok(())
}
