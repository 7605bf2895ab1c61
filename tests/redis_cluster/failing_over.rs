//! A primary is lost while its upstreams are called, and a replica takes over.

use std::time::{Duration, Instant};

use outgate::testing::RedisCluster;
use tokio::time::sleep;

use crate::fleet::{Fleet, all_go_on};
use crate::recorder::Recorder;
use crate::{Failure, Outcome, until};

/// How long after the replica has taken over calls go on, beyond the window in which nobody starts.
const SOON: Duration = Duration::from_secs(2);
/// For how long nobody starts where the replica lacks what was granted last: a window, its guard, and as long as may be booked ahead.
const LACKING: Duration = Duration::from_millis(2_300);
const REPLICA: usize = 3;

/// Whether a report of a node contains this.
fn says(cluster: &RedisCluster, node: usize, words: &[&str], what: &str) -> Result<bool, Failure> {
    let report = cluster.nodes()[node].command(words)?;
    Ok(report.text().is_some_and(|report| report.contains(what)))
}

/// Waits until the replica has taken over, as the other nodes say.
async fn taken_over(cluster: &RedisCluster) -> Outcome {
    until(|| {
        let failed = |node| says(cluster, node, &["CLUSTER", "NODES"], "master,fail ");
        Ok(failed(1)? && failed(2)? && says(cluster, REPLICA, &["INFO", "replication"], "role:master")?)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_a_primary_is_killed_and_comes_back() -> Outcome {
    let cluster = RedisCluster::start(3, 1)?;
    let fleet = Fleet::start(&cluster, 3).await?;
    let killed = Instant::now();
    cluster.nodes()[0].stop();
    taken_over(&cluster).await?;
    let lost = Instant::now();
    for called in fleet.on(0) {
        let took = called.goes_on(lost).await?;
        assert!(took < LACKING + SOON, "{}: {took:?} after the replica took over", called.name);
    }
    for called in fleet.on(1).chain(fleet.on(2)) {
        assert!(called.since(killed) > 0, "{} lies elsewhere", called.name);
    }
    cluster.nodes()[0].restart()?;
    until(|| says(&cluster, 0, &["INFO", "replication"], "role:slave")).await?;
    all_go_on(&fleet, SOON).await?;
    fleet.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_holds_up_nobody_else_and_is_left_when_a_replica_takes_over() -> Outcome {
    let cluster = RedisCluster::start(3, 1)?;
    let fleet = Fleet::start(&cluster, 3).await?;
    cluster.nodes()[0].pause()?;
    let paused = Instant::now();
    for called in fleet.on(1).chain(fleet.on(2)) {
        let took = called.goes_on(paused).await?;
        assert!(took < 2 * SOON, "{} lies elsewhere: {took:?}", called.name);
    }
    taken_over(&cluster).await?;
    let lost = Instant::now();
    for called in fleet.on(0) {
        let took = called.goes_on(lost).await?;
        assert!(took < LACKING + SOON, "{}: {took:?} after the replica took over", called.name);
    }
    cluster.nodes()[0].resume()?;
    sleep(Duration::from_millis(500)).await;
    all_go_on(&fleet, SOON).await?;
    fleet.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_node_that_goes_down_and_one_that_serves_in_its_place_are_traced_once() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let cluster = RedisCluster::start(3, 1)?;
    let fleet = Fleet::start(&cluster, 3).await?;
    cluster.nodes()[0].stop();
    taken_over(&cluster).await?;
    let lost = Instant::now();
    for called in fleet.on(0) {
        called.goes_on(lost).await?;
    }
    fleet.stop().await?;
    let down = "WARN store down".to_owned();
    let up = "INFO store up: other nodes serve in place of this one".to_owned();
    // What the replica had not heard when the node stopped is lost, and traced by who misses it.
    let mut news = recorder.news();
    news.retain(|text| !text.starts_with("WARN store lost data"));
    // Each of two processes.
    assert_eq!(news, [down.clone(), down, up.clone(), up]);
    let port = cluster.nodes()[0].port().to_string();
    assert!(recorder.all().iter().any(|(_, text)| text.starts_with("store down") && text.contains(&port)));
    Ok(())
}
