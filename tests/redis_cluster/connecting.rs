//! Connecting to a Cluster tries every node that has slots, and fails with what is wrong.

use std::io;
use std::thread;
use std::time::Duration;

use outgate::RedisStore;
use outgate::store::StoreErrorKind;
use outgate::testing::{FlakyProxy, Mode, RedisCluster, RedisServer, Reply};

use crate::{Failure, Outcome};

async fn not_connected(urls: &[&str]) -> Result<(StoreErrorKind, String), Failure> {
    let error = RedisStore::cluster(urls).connect().await.err().ok_or("connected")?;
    Ok((error.kind(), error.to_string()))
}

#[tokio::test]
async fn what_can_be_no_cluster_fails_with_what_it_is() -> Outcome {
    for (urls, why) in [
        (&[][..], "needs the URL of a node"),
        (&["unix:///run/redis.sock"], "socket"),
        (&["redis://127.0.0.1/1"], "no database but 0"),
        (&["redis://127.0.0.1", "nonsense"], "no URL"),
    ] {
        let error = RedisStore::cluster(urls).open().err().ok_or("opened")?;
        assert!(error.to_string().contains(why), "{error}");
    }
    let server = RedisServer::start()?;
    let (_, why) = not_connected(&[&server.url()]).await?;
    assert!(why.contains("cluster support disabled"), "{why}");
    let node = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", "{free}"])?;
    node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16382"])?;
    let (_, why) = not_connected(&[&node.url()]).await?;
    assert!(why.contains("some slots of the Cluster are on no node"), "{why}");
    let url = server.url();
    drop(server);
    let (kind, why) = not_connected(&[&url]).await?;
    assert_eq!(kind, StoreErrorKind::Unreachable);
    assert!(why.contains("the Cluster cannot be reached"), "{why}");
    Ok(())
}

#[tokio::test]
async fn one_seed_that_runs_is_enough_even_if_it_is_a_replica() -> Outcome {
    let cluster = RedisCluster::start(3, 1)?;
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0")?;
    let silent = format!("redis://{}", nowhere.local_addr()?);
    RedisStore::cluster([&silent, &cluster.nodes()[3].url()]).connect().await?;
    Ok(())
}

#[tokio::test]
async fn a_seed_that_was_taken_out_of_the_cluster_is_not_believed_however_soon_it_says_that_nobody_has_slots() -> Outcome
{
    let cluster = RedisCluster::start(1, 0)?;
    let alone = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", "{free}"])?;
    let proxy = FlakyProxy::start(cluster.nodes()[0].addr())?;
    proxy.set(Mode::Delay(Duration::from_millis(100)));
    RedisStore::cluster([alone.url(), proxy.url()]).connect().await?;
    let (kind, why) = not_connected(&[&alone.url()]).await?;
    assert!(kind == StoreErrorKind::Refused && why.contains("on no node"), "{why}");
    Ok(())
}

#[tokio::test]
async fn the_line_of_the_docs_and_what_they_say_of_a_cluster_is_enough_on_every_node_and_needed() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let docs = include_str!("../../lua/ACL.md");
    let line = docs.split("```text\n").nth(1).and_then(|rest| rest.split("\n```").next()).ok_or("no line")?;
    let more = docs.split("For a Cluster add `").nth(1).and_then(|rest| rest.split('`').next()).ok_or("no more")?;
    let words: Vec<&str> = line.split(' ').chain(more.split(' ')).collect();
    let told = |words: &[&str]| {
        for node in cluster.nodes() {
            if let Reply::Error(refusal) = node.command(words)? {
                return Err(Failure::from(refusal));
            }
        }
        Ok(())
    };
    told(&words)?;
    let urls: Vec<String> = cluster.urls().iter().map(|url| url.replace("//", "//outgate:secret@")).collect();
    RedisStore::cluster(&urls).connect().await?;
    for node in cluster.nodes() {
        assert_eq!(node.command(&["ACL", "LOG"])?, Reply::Array(Vec::new()));
    }
    cluster.nodes()[2].command(&["ACL", "SETUSER", "outgate", "-ltrim"])?;
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let (_, why) = not_connected(&urls).await?;
    assert!(why.contains("can't run this command") || why.contains("NOPERM"), "{why}");
    cluster.nodes()[2].command(&["ACL", "SETUSER", "outgate", "+ltrim"])?;
    cluster.nodes()[1].command(&["ACL", "SETUSER", "outgate", "-asking"])?;
    let (kind, why) = not_connected(&urls).await?;
    assert!(kind == StoreErrorKind::Refused && why.contains("'asking' command"), "{why}");
    cluster.nodes()[1].command(&["ACL", "SETUSER", "outgate", "+asking"])?;
    told(&["ACL", "SETUSER", "outgate", "-cluster|slots"])?;
    let (_, why) = not_connected(&urls).await?;
    assert!(why.contains("cluster|slots"), "{why}");
    Ok(())
}

#[test]
fn every_node_of_a_cluster_that_has_started_knows_who_serves_each_slot() -> Outcome {
    let starting: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(|| {
                let cluster = RedisCluster::start(3, 0)?;
                let known = [0, 5_500, 16_383].map(|slot| cluster.primary(slot));
                known.into_iter().collect::<io::Result<Vec<_>>>()
            })
        })
        .collect();
    for started in starting {
        assert_eq!(started.join().map_err(|_| "a thread panicked")??, [Some(0), Some(1), Some(2)]);
    }
    Ok(())
}
