//! What calls used in truth, where answers of the store are lost.

use std::time::Duration;

use outgate::testing::Mode;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scene::{Outcome, Scene, plenty};
use crate::traces::Recorder;

#[tokio::test]
async fn a_settlement_acts_once_however_often_its_connection_is_cut_before_the_reply() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    let mut holds = 1;
    for cuts in [1, 2, 3] {
        // Those who ask together get the same stamp.
        let mut callers = JoinSet::new();
        for _ in 0..5 {
            let throttle = throttle.clone();
            callers.spawn(async move { throttle.acquire("up").cost(5).await });
        }
        let permits = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
        scene.log_holds(holds + 25).await?;
        scene.proxy.set(Mode::CutBeforeReply(cuts));
        for (permit, used) in permits.iter().zip([3, 9, 0]) {
            permit.settle("calls", used);
        }
        while scene.proxy.mode() != Mode::Pass {
            sleep(Duration::from_millis(5)).await;
        }
        holds += 3 + 9 + 5 + 5;
        scene.log_holds(holds).await?;
        // Another message of the queue, whose answer is not lost.
        drop(throttle.acquire("up").await?);
        holds += 1;
        scene.log_holds(holds).await?;
    }
    assert!(!recorder.news().iter().any(|line| line.contains("same name")), "nobody else has its name");
    Ok(())
}

#[tokio::test]
async fn what_calls_used_is_told_when_the_store_is_back() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    let permits = [throttle.acquire("up").cost(5).await?, throttle.acquire("up").cost(5).await?];
    scene.proxy.set(Mode::CutBeforeReply(usize::MAX));
    permits[0].settle("calls", 2);
    sleep(Duration::from_millis(600)).await;
    permits[1].settle("calls", 12);
    permits[0].settle("calls", 1);
    sleep(Duration::from_millis(600)).await;
    scene.proxy.set(Mode::Pass);
    scene.log_holds(13).await
}
