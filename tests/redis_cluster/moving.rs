//! Slots are moved from node to node while their upstreams are called.

use std::time::Duration;

use outgate::testing::RedisCluster;
use tokio::time::sleep;

use crate::fleet::{Fleet, all_go_on};
use crate::{Outcome, until};

const SOON: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_refused_while_the_slots_of_all_upstreams_are_moved() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let fleet = Fleet::start(&cluster, 3).await?;
    for round in 1..=2 {
        for called in fleet.upstreams.iter() {
            let (from, to) = ((called.node + round - 1) % 3, (called.node + round) % 3);
            cluster.begin_move(called.slot, from, to)?;
            sleep(Duration::from_millis(50)).await;
            let moved = cluster.move_keys(called.slot, from, to)?;
            assert!(moved > 0, "{} has keys", called.name);
            sleep(Duration::from_millis(50)).await;
            cluster.move_keys(called.slot, from, to)?;
            cluster.end_move(called.slot, to)?;
            until(|| Ok(cluster.primary(called.slot)? == Some(to))).await?;
        }
        all_go_on(&fleet, SOON).await?;
    }
    assert_eq!(fleet.stop().await?, 0, "nobody waited for longer than 5 s");
    Ok(())
}
