//! A Redis Cluster, and a primary that Sentinels name.

use std::sync::Arc;
use std::time::Duration;

use outgate::testing::{RedisCluster, RedisSentinel};
use outgate::{Limit, RedisStore, Scope, Throttle, Upstream};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{json, run};

const MERCHANTS: usize = 24;

fn shop() -> Upstream {
    Upstream::new("shop").limit(Limit::per_hour(100).each(Scope::header("x-merchant"))).shards(8)
}

fn throttle(store: RedisStore) -> Throttle {
    let github = Upstream::new("github").limit(Limit::per_hour(5));
    Throttle::builder().store(store).upstreams([shop(), github]).build().unwrap()
}

/// Of a sharded upstream: what is used in all scopes, and how many processes there are.
fn used(seen: &Value) -> (usize, u64, usize) {
    let limits = seen["limits"].as_array().unwrap();
    let used = limits.iter().map(|limit| limit["used"].as_u64().unwrap() + limit["booked"].as_u64().unwrap()).sum();
    (limits.len(), used, seen["processes"].as_array().unwrap().len())
}

#[tokio::test]
async fn all_nodes_of_a_cluster_are_seen_paused_and_released_by_the_url_of_one() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let url = &cluster.urls()[1];
    let mut processes = Vec::new();
    for _ in 0..2 {
        processes.push(throttle(RedisStore::cluster(cluster.urls()).connect().await.unwrap()));
    }
    for process in &processes {
        for merchant in 0..MERCHANTS {
            drop(process.acquire("shop").scope(merchant.to_string()).await.unwrap());
        }
        drop(process.acquire("github").await.unwrap());
        for name in ["shop", "github"] {
            process.processes(name).await.unwrap();
        }
    }
    let said = run(url, &["status", "--cluster", "--json", "--scopes", "24"], "").await.well();
    let seen = json(&said);
    assert_eq!((&seen[0]["upstream"], &seen[1]["upstream"]), (&"github".into(), &"shop".into()), "{said}");
    assert_eq!((used(&seen[0]), used(&seen[1])), ((1, 2, 2), (MERCHANTS, 48, 2)), "{said}");

    run(url, &["pause", "--cluster", "shop", "10m"], "").await.well();
    let text = run(url, &["status", "--cluster", "shop"], "").await.well();
    assert!(text.contains("paused for 9m"), "{text}");
    let calls = processes.iter().flat_map(|process| (0..MERCHANTS).map(move |merchant| (process, merchant)));
    let calls: Vec<_> = calls.map(|(process, merchant)| process.acquire("shop").scope(merchant.to_string())).collect();
    let calls: Vec<_> = calls.into_iter().map(|call| tokio::spawn(call.into_future())).collect();
    let waiting =
        || processes.iter().map(|process| process.snapshot().upstream("shop").unwrap().callers).sum::<usize>();
    while waiting() < 2 * MERCHANTS {
        sleep(Duration::from_millis(5)).await;
    }
    run(url, &["release", "--cluster", "shop"], "").await.well();
    for call in calls {
        drop(timeout(Duration::from_secs(30), call).await.expect("not for ten minutes").unwrap().unwrap());
    }
    let wrong = run(url, &["status"], "").await.wrong();
    assert!(wrong.contains("one of 3 masters") && wrong.contains("--cluster"), "{wrong}");
}

#[tokio::test]
async fn the_primary_that_sentinels_name_is_seen_and_paused_and_so_is_the_next_one() {
    let all = RedisSentinel::start(1).unwrap();
    let url = &all.urls()[0];
    let process = throttle(RedisStore::sentinel(RedisSentinel::NAME, all.urls()).connect().await.unwrap());
    drop(process.acquire("github").await.unwrap());
    process.processes("github").await.unwrap();
    let by = ["--sentinel", RedisSentinel::NAME];
    run(url, &[&["pause", "github", "10m"][..], &by].concat(), "").await.well();
    all.fail_over().unwrap();
    let text = run(url, &[&["status", "github"][..], &by].concat(), "").await.well();
    assert!(text.starts_with("github: 1 process") && text.contains("paused for 9m"), "{text}");
    let apart = [&["--servers", "redis://any", "release", "github"][..], &by].concat();
    run(url, &apart, "").await.well();
    assert!(process.usage("github").await.unwrap().paused.is_none());
    let wrong = run(url, &["status", "--sentinel", "nobody"], "").await.wrong();
    assert!(wrong.contains("nobody"), "{wrong}");
}

#[tokio::test]
async fn who_is_named_is_found_while_another_master_is_down() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let lies_on = |node: usize| {
        let lies = |name: &String| {
            let slot = cluster.slot_of(&format!("outgate:v1:{{{name}}}")).unwrap();
            cluster.primary(slot).unwrap() == Some(node)
        };
        (0..1_000).map(|number| format!("up-{number}")).find(lies).unwrap()
    };
    let (here, lost) = (lies_on(0), lies_on(2));
    let ups = [&here, &lost].map(|name| Upstream::new(name.as_str()).limit(Limit::per_hour(5)));
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let process = Throttle::builder().store(store).upstreams(ups).build().unwrap();
    for name in [&here, &lost] {
        drop(process.acquire(name).await.unwrap());
        process.processes(name).await.unwrap();
    }
    cluster.nodes()[2].stop();
    let url = &cluster.urls()[0];
    run(url, &["pause", "--cluster", &here, "10m"], "").await.well();
    let text = run(url, &["status", "--cluster", &here], "").await.well();
    assert!(text.starts_with(&here) && text.contains("paused for 9m"), "{text}");
    run(url, &["slow", "--cluster", &here, "50%", "10m"], "").await.well();
    run(url, &["release", "--cluster", &here], "").await.well();
    run(url, &["reset", "--cluster", &here, "--yes"], "").await.well();
    // It may be there, or any other.
    for args in [&["pause", "--cluster", &lost, "10m"][..], &["status", "--cluster"]] {
        let wrong = run(url, args, "").await.wrong();
        assert!(wrong.contains("cannot be connected to"), "{wrong}");
    }
}

/// Merchants lie on all masters, of which one is down.
#[tokio::test]
async fn of_an_upstream_with_shards_all_are_told_that_can_be_and_how_many_are_not_is_said() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let process = throttle(store.clone());
    for merchant in 0..10 * MERCHANTS {
        drop(process.acquire("shop").scope(merchant.to_string()).await.unwrap());
    }
    process.processes("shop").await.unwrap();
    let shards = store.ledgers_of("shop").await.unwrap();
    assert_eq!(shards.len(), 8);
    let home = cluster.primary(cluster.slot_of("outgate:v1:{shop}").unwrap()).unwrap().unwrap();
    let lost = (home + 1) % 3;
    let lies_there = |shard: &&Arc<str>| {
        let slot = cluster.slot_of(&format!("outgate:v1:{{{shard}}}")).unwrap();
        cluster.primary(slot).unwrap() == Some(lost)
    };
    let away = shards.iter().filter(lies_there).count();
    assert!(away > 0, "none of the shards lies there");
    cluster.nodes()[lost].stop();
    let url = &cluster.urls()[home];
    let wrong = run(url, &["pause", "--cluster", "shop", "10m"], "").await.wrong();
    assert!(wrong.contains(&format!("shop is paused for 10m, but for {away} of 8 parts: ")), "{wrong}");
    let mut paused = 0;
    for merchant in 0..MERCHANTS {
        let usage = process.usage_in("shop", merchant.to_string()).await;
        paused += usize::from(usage.is_ok_and(|usage| usage.paused.is_some()));
    }
    assert!(paused > 0, "those on masters that are there are paused");
}
