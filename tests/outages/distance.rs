//! A Redis that is far away, or not always equally far.

use std::time::{Duration, Instant};

use outgate::Limit;
use outgate::testing::{Mode, oracle};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scene::{Outcome, Scene, plenty};
use crate::traces::Recorder;

const WINDOW: Duration = Duration::from_millis(900);
const GUARD: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_redis_80_ms_away_gives_the_full_quota_and_no_slot_comes_late() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    scene.proxy.set(Mode::Delay(Duration::from_millis(80)));
    let throttle = scene.throttle(Limit::new(50, WINDOW).guard(GUARD))?;
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..200 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
    }
    drop(callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?);
    // Four times the quota takes three spans of a second; a fourth would have begun.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let stamps = scene.log()?;
    oracle::assert_never_more_than(50, 1_000_000, &stamps);
    let late: Vec<_> = recorder.all().into_iter().filter(|(_, text)| text.contains("stale")).collect();
    assert!(late.is_empty(), "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a_delay_that_varies_within_the_guard_loses_nobody_and_no_slot() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty().guard(Duration::from_secs(1)))?;
    let mut random = fastrand::Rng::with_seed(7);
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        scene.proxy.set(Mode::Delay(Duration::from_millis(random.u64(5..40))));
        for _ in 0..random.usize(1..5) {
            let throttle = throttle.clone();
            callers.spawn(async move { throttle.acquire("up").await });
        }
        sleep(Duration::from_millis(random.u64(0..20))).await;
    }
    let permits = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    scene.log_holds(permits.len()).await
}

#[tokio::test]
async fn a_delay_that_varies_by_more_than_the_guard_still_serves_everybody() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty().guard(Duration::from_millis(10)))?;
    let mut random = fastrand::Rng::with_seed(8);
    let mut callers = JoinSet::new();
    for _ in 0..60 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
        scene.proxy.set(Mode::Delay(Duration::from_millis(random.u64(0..100))));
        sleep(Duration::from_millis(random.u64(0..30))).await;
    }
    scene.proxy.set(Mode::Pass);
    let permits = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    scene.log_holds(permits.len()).await
}
