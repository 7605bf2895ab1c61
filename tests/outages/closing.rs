//! What a process tells the store before it ends.

use std::thread;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use outgate::testing::Mode;
use outgate::{Error, Limit, RedisStore};
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::scene::{Outcome, PATIENCE, Scene, throttle};

/// Why a call of another process may not go, while nothing polls this one's tasks any more.
fn refused_elsewhere(scene: &Scene, limit: Limit) -> Result<Option<Error>, Box<dyn std::error::Error + Send + Sync>> {
    let url = scene.redis.url();
    let elsewhere = thread::spawn(move || {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let throttle = throttle(RedisStore::open(&url)?, limit)?;
            Ok(throttle.acquire("up").max_wait(Duration::ZERO).await.err())
        })
    });
    elsewhere.join().map_err(|_| "it panicked")?
}

#[tokio::test]
async fn what_an_upstream_said_just_before_its_throttle_is_closed_is_known_to_all() -> Outcome {
    for mode in [Mode::Pass, Mode::CutBeforeReply(1)] {
        let (scene, limit) = (Scene::new()?, Limit::per_minute(100));
        let throttle = scene.throttle(limit.clone())?;
        let permit = throttle.acquire("up").await?;
        scene.proxy.set(mode);
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("30"))]);
        throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &headers);
        drop(permit);
        throttle.close().await;
        let refused = refused_elsewhere(&scene, limit)?;
        assert!(matches!(refused, Some(Error::Throttled { paused: Some(_), .. })), "{refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn closing_does_not_wait_for_ever_for_a_store_that_is_gone() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(Limit::per_minute(100))?;
    let permit = throttle.acquire("up").await?;
    scene.proxy.set(Mode::Refuse);
    throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new());
    drop(permit);
    let begun = Instant::now();
    throttle.close().await;
    assert!(begun.elapsed() <= PATIENCE + Duration::from_secs(1), "{:?}", begun.elapsed());
    Ok(())
}
