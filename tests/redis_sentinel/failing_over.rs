//! The primary is replaced while four workers share a quota: it is killed, stands still, or goes on to accept what is written.

use std::time::{Duration, Instant};

use outgate::testing::{Mode, RedisSentinel};
use tokio::time::sleep;

use crate::fleet::{Fleet, QUICK, WORKERS, another_is_named};
use crate::{Outcome, until};

/// How long after the Sentinels name another primary calls go on.
const SOON: Duration = Duration::from_secs(2);

fn role(redis: &RedisSentinel, server: usize, role: &str) -> bool {
    // A server that changes its role hangs up on everybody.
    let Ok(report) = redis.servers()[server].command(&["INFO", "replication"]) else { return false };
    report.text().is_some_and(|report| report.contains(role))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_the_primary_is_killed_and_comes_back() -> Outcome {
    let redis = RedisSentinel::start(1)?;
    let fleet = Fleet::start(&redis).await?;
    let killed = Instant::now();
    redis.servers()[0].stop();
    let named = another_is_named(&redis, 0).await?;
    let took = fleet.all_go_on(0..WORKERS, named).await?;
    // It takes itself for a primary, and is empty. When it is told otherwise is up to the Sentinels.
    redis.servers()[0].restart()?;
    sleep(SOON).await;
    fleet.all_go_on(0..WORKERS, Instant::now()).await?;
    let (calls, refused) = fleet.stop().await?;
    let down = named.duration_since(killed);
    println!("killed: {refused} of {calls} calls refused; another primary after {down:?}, calls go on {took:?} later");
    assert!(took < SOON, "{took:?}");
    assert_eq!(refused, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_the_primary_stands_still_and_goes_on_as_if_nothing_had_happened() -> Outcome {
    let redis = RedisSentinel::start(2)?;
    let fleet = Fleet::start(&redis).await?;
    redis.servers()[0].pause()?;
    let paused = Instant::now();
    // These hear of nothing.
    fleet.set(Mode::Blackhole);
    let named = another_is_named(&redis, 0).await?;
    let took = fleet.all_go_on(0..QUICK, named).await?;
    redis.servers()[0].resume()?;
    let resumed = Instant::now();
    until("the old primary is told", || Ok(role(&redis, 0, "role:slave"))).await?;
    let demoted = resumed.elapsed();
    fleet.set(Mode::Pass);
    let heard = Instant::now();
    let later = fleet.all_go_on(QUICK..WORKERS, heard).await?;
    fleet.all_go_on(0..WORKERS, Instant::now()).await?;
    let (calls, refused) = fleet.stop().await?;
    let down = named.duration_since(paused);
    println!(
        "stood still: {refused} of {calls} calls refused; another primary after {down:?}, calls go on {took:?} later; the old one \
         was told {demoted:?} after it went on; who could not ask goes on {later:?} after he can"
    );
    assert!(took < SOON && later < 2 * SOON, "{took:?}, {later:?}");
    assert_eq!(refused, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_when_half_of_the_workers_do_not_hear_that_a_primary_which_runs_was_replaced() -> Outcome {
    let redis = RedisSentinel::start(2)?;
    let fleet = Fleet::start(&redis).await?;
    // These hear of nothing, and the old primary accepts what they write.
    fleet.set(Mode::Blackhole);
    redis.fail_over()?;
    let named = another_is_named(&redis, 0).await?;
    let took = fleet.all_go_on(0..QUICK, named).await?;
    sleep(Duration::from_secs(4)).await;
    assert!(role(&redis, 0, "role:master"), "nobody has told it yet");
    let by_old: usize = (QUICK..WORKERS).map(|worker| fleet.since(worker, named)).sum();
    fleet.set(Mode::Pass);
    let later = fleet.all_go_on(QUICK..WORKERS, Instant::now()).await?;
    until("the old primary is told", || Ok(role(&redis, 0, "role:slave"))).await?;
    fleet.all_go_on(0..WORKERS, Instant::now()).await?;
    let (calls, refused) = fleet.stop().await?;
    println!(
        "replaced while it runs: {refused} of {calls} calls refused; calls go on {took:?} after another primary was named; who could \
         not ask made {by_old} calls until then, and goes on {later:?} after he can"
    );
    assert!(took < SOON && later < 2 * SOON, "{took:?}, {later:?}");
    assert_eq!(refused, 0);
    Ok(())
}
