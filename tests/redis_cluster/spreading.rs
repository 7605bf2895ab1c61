//! Where the keys of upstreams lie.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use outgate::testing::{RedisCluster, Reply};
use outgate::{Limit, RedisStore, Scope, Throttle, Upstream};
use tokio::time::sleep;

use crate::{Failure, Outcome};

/// The upstreams of which a node has keys: one says in which format all are kept, and is none.
fn upstreams_on(cluster: &RedisCluster, node: usize) -> Result<BTreeSet<String>, Failure> {
    let Reply::Array(keys) = cluster.nodes()[node].command(&["KEYS", "*"])? else { return Err("no keys".into()) };
    let tag = |key: &Reply| Some(key.text()?.split_once('{')?.1.split_once('}')?.0.to_owned());
    Ok(keys.iter().filter_map(tag).filter(|name| name != "~format").collect())
}

#[tokio::test]
async fn all_keys_of_an_upstream_lie_on_one_node_and_upstreams_are_spread() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let minute = Duration::from_secs(60);
    let names: Vec<String> = (0..12).map(|n| format!("up-{n}")).collect();
    let mut builder = Throttle::builder().store(RedisStore::cluster(cluster.urls()).connect().await?);
    for name in &names {
        let limits =
            [Limit::new(100, minute), Limit::new(10, minute).each(Scope::header("x-merchant")), Limit::in_flight(5)];
        builder = builder.upstream(limits.into_iter().fold(Upstream::new(name.as_str()), Upstream::limit));
    }
    let throttle = builder.build()?;
    for name in &names {
        for merchant in ["a", "b"] {
            drop(throttle.acquire(name).scope_of("x-merchant", merchant).await?);
        }
    }
    let on: Vec<BTreeSet<String>> = (0..3).map(|node| upstreams_on(&cluster, node)).collect::<Result<_, _>>()?;
    assert_eq!(on.iter().map(BTreeSet::len).sum::<usize>(), names.len(), "each lies on one: {on:?}");
    assert!(on.iter().all(|upstreams| !upstreams.is_empty()), "{on:?}");
    Ok(())
}

#[tokio::test]
async fn upstreams_that_share_limits_lie_together() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let account = [Limit::per_minute(100)];
    let mut builder = Throttle::builder().store(RedisStore::cluster(cluster.urls()).connect().await?);
    let names = ["files", "mail", "photos", "maps"];
    for name in names {
        let upstream = Upstream::new(name).limit(Limit::per_minute(10)).shares("account", account.clone());
        builder = builder.upstream(upstream);
    }
    let throttle = builder.build()?;
    for name in names {
        drop(throttle.acquire(name).await?);
    }
    let on = (0..3).map(|node| upstreams_on(&cluster, node)).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<String> = on.into_iter().flatten().collect();
    assert_eq!(all, ["account"]);
    Ok(())
}

/// How often nodes were asked who has which slots.
fn looks(cluster: &RedisCluster) -> Result<usize, Failure> {
    let mut looks = 0;
    for node in cluster.nodes() {
        let stats = node.command(&["INFO", "commandstats"])?;
        let calls = stats.text().and_then(|stats| stats.split_once("cmdstat_cluster|slots:calls=")?.1.split_once(','));
        looks += calls.map_or(Ok(0), |(calls, _)| calls.parse())?;
    }
    Ok(looks)
}

#[tokio::test]
async fn what_a_node_refuses_of_an_upstream_makes_nobody_look_up_the_slots_again() -> Outcome {
    let cluster = RedisCluster::start(2, 0)?;
    let throttle = throttle(&cluster, "up")?;
    drop(throttle.acquire("up").await?);
    let node = cluster.primary(cluster.slot_of("outgate:v1:{up}:state")?)?.ok_or("nobody has the slot")?;
    let (node, before) = (&cluster.nodes()[node], looks(&cluster)?);
    let log = "outgate:v1:{up}:log:calls";
    for (spoil, mend, why) in [
        (&["SET", log, "spoilt"][..], &["DEL", log][..], "holds a string"),
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "OOM"),
    ] {
        node.command(spoil)?;
        for _ in 0..5 {
            let refused = throttle.acquire("up").max_wait(Duration::from_millis(200)).await;
            let error = refused.err().ok_or("it was granted")?;
            assert!(error.to_string().contains(why), "{error}");
        }
        node.command(mend)?;
    }
    // A call that takes longer than usual has them looked up, too.
    let looks = looks(&cluster)? - before;
    assert!(looks <= 2, "{looks} looks");
    Ok(())
}

/// The node that has the key which says in which format all is kept, and the name of an upstream that lies elsewhere.
fn apart(cluster: &RedisCluster) -> Result<(usize, String), Failure> {
    let node_of = |key: &str| -> Result<usize, Failure> {
        Ok(cluster.primary(cluster.slot_of(key)?)?.ok_or("nobody has the slot")?)
    };
    let formats = node_of("outgate:v1:{~format}")?;
    for name in (0..100).map(|n| format!("up-{n}")) {
        if node_of(&format!("outgate:v1:{{{name}}}:state"))? != formats {
            return Ok((formats, name));
        }
    }
    Err("all lie on one node".into())
}

fn throttle(cluster: &RedisCluster, name: &str) -> Result<Throttle, Failure> {
    let upstream = Upstream::new(name).limit(Limit::per_second(100)).max_wait(Duration::from_secs(10));
    Ok(Throttle::builder().store(RedisStore::cluster(cluster.urls()).open()?).upstream(upstream).build()?)
}

#[tokio::test]
async fn a_node_that_cannot_keep_in_which_format_all_is_kept_holds_up_no_other() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let (full, name) = apart(&cluster)?;
    cluster.nodes()[full].command(&["CONFIG", "SET", "maxmemory", "1"])?;
    drop(throttle(&cluster, &name)?.acquire(&name).await?);
    Ok(())
}

#[tokio::test]
async fn a_silent_node_that_keeps_in_which_format_all_is_kept_holds_up_the_first_call_alone() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let (silent, name) = apart(&cluster)?;
    let throttle = throttle(&cluster, &name)?;
    cluster.nodes()[silent].pause()?;
    let mut held_up = Vec::new();
    for call in 0..5 {
        let since = Instant::now();
        drop(throttle.acquire(&name).await?);
        // It is given 300 ms.
        held_up.extend((since.elapsed() >= Duration::from_millis(300)).then_some(call));
    }
    cluster.nodes()[silent].resume()?;
    assert_eq!(held_up, [0]);
    Ok(())
}

/// Calls until one is refused, for another's format.
async fn refused_in_the_end(throttle: &Throttle, name: &str) {
    let since = Instant::now();
    let error = loop {
        match throttle.acquire(name).max_wait(Duration::from_millis(500)).await {
            Ok(permit) => drop(permit),
            Err(error) => break error.to_string(),
        }
        assert!(since.elapsed() < Duration::from_secs(20), "it is asked again every 5 s, and beside the calls");
        sleep(Duration::from_millis(20)).await;
    };
    assert!(error.contains("format 4 of Outgate 0.4.0"), "{error}");
}

#[tokio::test]
async fn another_format_is_found_when_the_node_that_keeps_it_answers_again() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let (silent, name) = apart(&cluster)?;
    let throttle = throttle(&cluster, &name)?;
    cluster.nodes()[silent].command(&["SET", "outgate:v1:{~format}", "4 0.4.0"])?;
    cluster.nodes()[silent].pause()?;
    drop(throttle.acquire(&name).await?);
    cluster.nodes()[silent].resume()?;
    refused_in_the_end(&throttle, &name).await;
    for _ in 0..5 {
        let refused = throttle.acquire(&name).max_wait(Duration::from_millis(500)).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("format 4 of Outgate 0.4.0")));
    }
    Ok(())
}

#[tokio::test]
async fn a_process_that_connects_anew_is_refused_by_another_format_whatever_node_has_its_upstream() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let (formats, name) = apart(&cluster)?;
    let throttle = throttle(&cluster, &name)?;
    for _ in 0..3 {
        drop(throttle.acquire(&name).await?);
    }
    cluster.nodes()[formats].command(&["SET", "outgate:v1:{~format}", "4 0.4.0"])?;
    let owner = cluster.primary(cluster.slot_of(&format!("outgate:v1:{{{name}}}:state"))?)?.ok_or("nobody has it")?;
    // Its connection to the other node stays.
    cluster.nodes()[owner].command(&["CLIENT", "KILL", "TYPE", "normal"])?;
    refused_in_the_end(&throttle, &name).await;
    Ok(())
}
