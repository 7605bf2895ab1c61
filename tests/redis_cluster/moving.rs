//! Slots are moved from node to node while their upstreams are called.

use std::time::{Duration, Instant};

use outgate::store::{StoreErrorKind, WithoutStore};
use outgate::testing::{RedisCluster, Reply};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};
use tokio::time::sleep;

use crate::fleet::{Fleet, all_go_on};
use crate::recorder::Recorder;
use crate::{Failure, Outcome, until};

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

#[test]
fn a_slot_is_moved_where_there_are_replicas_and_a_password() -> Outcome {
    let cluster = RedisCluster::start_with(2, 1, &["--requirepass", "word"])?;
    let slot = cluster.slot_of("key")?;
    let from = cluster.primary(slot)?.ok_or("nobody has the slot")?;
    cluster.nodes()[from].command(&["SET", "key", "value"])?;
    cluster.begin_move(slot, from, 1 - from)?;
    assert_eq!(cluster.move_keys(slot, from, 1 - from)?, 1);
    cluster.end_move(slot, 1 - from)?;
    assert_eq!(cluster.nodes()[1 - from].command(&["GET", "key"])?, Reply::Bulk(b"value".to_vec()));
    Ok(())
}

/// Nodes serve a slot that is open on its way only where they have all keys of a call; else they say to come again.
#[tokio::test]
async fn a_call_whose_keys_have_all_been_moved_follows_them_and_one_whose_keys_have_not_waits() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let up = |name: &str| Upstream::new(name).limit(Limit::new(1_000, Duration::from_secs(60)));
    let store = RedisStore::cluster(cluster.urls()).connect().await?;
    let throttle = Throttle::builder().store(store).upstream(up("up")).build()?;
    let slot = cluster.slot_of("{up}")?;
    let from = cluster.primary(slot)?.ok_or("nobody has the slot")?;
    let to = (from + 1) % 3;
    // So that there is a state, beside the log and what is remembered of the last message.
    throttle.slow_down("up", 0.5, Duration::from_secs(60)).await?;
    drop(throttle.acquire("up").await?);
    let log = |node: usize| -> Result<Reply, Failure> {
        let mut client = cluster.nodes()[node].client()?;
        client.command(&["ASKING"])?;
        Ok(client.command(&["LLEN", "outgate:v1:{up}:log:calls"])?)
    };
    cluster.begin_move(slot, from, to)?;
    drop(throttle.acquire("up").await?);
    assert_eq!(log(from)?, Reply::Int(2), "nothing has been moved yet");
    cluster.move_keys(slot, from, to)?;
    cluster.nodes()[to].command(&["SCRIPT", "FLUSH"])?;
    for granted in [3, 4] {
        drop(throttle.acquire("up").await?);
        assert_eq!(log(to)?, Reply::Int(granted));
    }
    // Another process has no key there yet.
    let store = RedisStore::cluster(cluster.urls()).open()?;
    let other = Throttle::builder().store(store).upstream(up("up")).build()?;
    let waiting = tokio::spawn(async move { other.acquire("up").await });
    sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    cluster.end_move(slot, to)?;
    drop(waiting.await??);
    drop(throttle.acquire("up").await?);
    assert_eq!(log(to)?, Reply::Int(6));
    Ok(())
}

#[tokio::test]
async fn a_slot_that_stays_on_its_way_is_an_error_and_a_warning() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let cluster = RedisCluster::start(3, 0)?;
    let slot = cluster.slot_of("{up}")?;
    let from = cluster.primary(slot)?.ok_or("nobody has the slot")?;
    // Its scope has no state: a key that is not there has no place while its slot moves.
    let up = Upstream::new("up").limit(Limit::per_second(100));
    let throttle =
        Throttle::builder().store(RedisStore::cluster(cluster.urls()).connect().await?).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    cluster.begin_move(slot, from, (from + 1) % 3)?;
    cluster.move_keys(slot, from, (from + 1) % 3)?;
    for _ in 0..2 {
        let Err(error @ Error::StoreUnavailable { .. }) = throttle.acquire("up").max_wait(SOON).await else {
            return Err("it was granted".into());
        };
        assert!(error.to_string().contains("on its way from one node of the Cluster to another"), "{error}");
    }
    assert_eq!(recorder.news(), ["WARN store refuses"]);
    Ok(())
}

/// A process whose callers do not wait for the store.
async fn refusing(cluster: &RedisCluster) -> Result<Throttle, Failure> {
    let store = RedisStore::cluster(cluster.urls()).connect().await?;
    let up = Upstream::new("up").limit(Limit::per_second(100)).without_store(WithoutStore::Refuse);
    Ok(Throttle::builder().store(store).upstream(up).build()?)
}

/// Until then the store is not lost to anybody.
#[tokio::test]
async fn a_call_that_does_not_wait_for_the_store_waits_for_a_slot_on_its_way() -> Outcome {
    let cluster = RedisCluster::start(2, 0)?;
    let slot = cluster.slot_of("{up}")?;
    let from = cluster.primary(slot)?.ok_or("nobody has the slot")?;
    drop(refusing(&cluster).await?.acquire("up").await?);
    cluster.begin_move(slot, from, 1 - from)?;
    cluster.move_keys(slot, from, 1 - from)?;
    // It has no key there yet.
    let other = refusing(&cluster).await?;
    let waiting = tokio::spawn(async move { other.acquire("up").await });
    sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    cluster.end_move(slot, 1 - from)?;
    drop(waiting.await??);
    Ok(())
}

/// As where the one that the slot goes to has forgotten that it does.
#[tokio::test]
async fn two_nodes_that_send_a_call_to_each_other_are_not_asked_back_to_back() -> Outcome {
    let cluster = RedisCluster::start(2, 0)?;
    let slot = cluster.slot_of("{up}")?;
    let from = cluster.primary(slot)?.ok_or("nobody has the slot")?;
    let throttle = refusing(&cluster).await?;
    let to = cluster.nodes()[1 - from].command(&["CLUSTER", "MYID"])?;
    let to = to.text().ok_or("it has no name")?;
    cluster.nodes()[from].command(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", to])?;
    let began = Instant::now();
    let Err(Error::StoreUnavailable { source, .. }) = throttle.acquire("up").await else {
        return Err("it was granted".into());
    };
    // Others, which have their keys still where the slot was, may be served.
    assert_eq!(source.kind(), StoreErrorKind::Refused, "{source}");
    assert!(source.to_string().contains("on its way from one node of the Cluster to another"), "{source}");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(80), "four pauses of 20 ms at least: {took:?}");
    Ok(())
}

#[tokio::test]
async fn who_may_not_ask_for_a_slot_on_its_way_is_told_so() -> Outcome {
    let cluster = RedisCluster::start(2, 0)?;
    let slot = cluster.slot_of("{up}")?;
    let from = cluster.primary(slot)?.ok_or("nobody has the slot")?;
    let throttle = refusing(&cluster).await?;
    cluster.begin_move(slot, from, 1 - from)?;
    cluster.nodes()[1 - from].command(&["ACL", "SETUSER", "default", "-asking"])?;
    let Err(Error::StoreUnavailable { source, .. }) = throttle.acquire("up").await else {
        return Err("it was granted".into());
    };
    assert_eq!(source.kind(), StoreErrorKind::Refused, "{source}");
    assert!(source.to_string().contains("'asking' command"), "{source}");
    Ok(())
}

/// As where each is to announce the host that its certificate is for, and has not yet.
#[tokio::test]
async fn nodes_whose_hosts_are_not_known_yet_are_reached_by_their_addresses() -> Outcome {
    let cluster = RedisCluster::start_with(2, 0, &["--cluster-preferred-endpoint-type", "hostname"])?;
    let store = RedisStore::cluster([&cluster.urls()[0]]).connect().await?;
    let up = Upstream::new("up").limit(Limit::new(1_000, Duration::from_secs(60)));
    let throttle = Throttle::builder().store(store).upstream(up).build()?;
    let slot = cluster.slot_of("{up}")?;
    let from = cluster.primary(slot)?.ok_or("nobody has the slot")?;
    drop(throttle.acquire("up").await?);
    cluster.begin_move(slot, from, 1 - from)?;
    cluster.move_keys(slot, from, 1 - from)?;
    cluster.end_move(slot, 1 - from)?;
    drop(throttle.acquire("up").await?);
    let log = cluster.nodes()[1 - from].command(&["LLEN", "outgate:v1:{up}:log:calls"])?;
    assert_eq!(log, Reply::Int(2));
    Ok(())
}
