//! A server that serves no more as another one does, to whom its address may lead by now.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use outgate::RedisStore;
use outgate::testing::{RedisCluster, RedisServer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::scene::{Metronome, Outcome, PATIENCE, Scene, brief, chain, plenty, throttle, timed, unavailable};

/// Such a server is connected to again so often, and a queue that waits tries again within a second.
const AGAIN: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_millis(1_500);
const HASTY: Duration = Duration::from_millis(100);
/// The key that names the format.
const FORMAT: &str = "outgate:v1:{~format}";

/// An address that leads to one server, and then to another: connections stay where they are.
struct Name {
    addr: SocketAddr,
    target: watch::Sender<SocketAddr>,
    _serving: JoinSet<()>,
}

impl Name {
    async fn of(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (target, targets) = watch::channel(target);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let target = *targets.borrow();
                connections.spawn(async move {
                    let mut server = TcpStream::connect(target).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(Self { addr, target, _serving: serving })
    }

    fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_is_connected_to_again_twice_a_second() -> Outcome {
    let metronome = Metronome::start();
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    scene.redis("REPLICAOF 127.0.0.1 1")?;
    let (mut callers, began) = (JoinSet::new(), Instant::now());
    for scope in 0..20_u8 {
        let throttle = throttle.clone();
        callers.spawn(async move {
            while began.elapsed() < Duration::from_secs(2) {
                unavailable(throttle.acquire("up").scope([scope]).max_wait(HASTY).await);
            }
        });
    }
    callers.join_all().await;
    // The first, one at once, and the others.
    let most = 2 + usize::try_from(began.elapsed().as_millis() / AGAIN.as_millis())?;
    assert!(scene.proxy.connections() <= most, "{} connections, {most} at most", scene.proxy.connections());
    scene.redis("REPLICAOF NO ONE")?;
    let (outcome, took) = timed(throttle.acquire("up")).await;
    drop(outcome?);
    assert!(took <= SOON + metronome.margin().await, "{took:?}");
    Ok(())
}

/// A server refuses what writes by `cause` as it is connected to, which `cure` ends: it is told of the format then, by few connections.
async fn told_of_the_format_once(cause: &str, cure: &str) -> Outcome {
    let scene = Scene::new()?;
    scene.redis(cause)?;
    let throttle = scene.throttle(brief())?;
    unavailable(throttle.acquire("up").max_wait(HASTY).await);
    scene.redis(cure)?;
    drop(throttle.acquire("up").await?);
    sleep(AGAIN).await;
    for _ in 0..10 {
        drop(throttle.acquire("up").await?);
        sleep(HASTY).await;
    }
    assert!(scene.redis(&format!("GET {FORMAT}"))?.text().is_some(), "{cause}: no format");
    // The first, one at once or two as it is a replica, and the one that told of it.
    assert!(scene.proxy.connections() <= 4, "{cause}: {} connections", scene.proxy.connections());
    Ok(())
}

#[tokio::test]
async fn a_server_that_took_no_writes_as_it_was_connected_to_is_told_of_the_format_once_it_does() -> Outcome {
    told_of_the_format_once("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE").await?;
    told_of_the_format_once("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0").await?;
    told_of_the_format_once("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0").await
}

#[tokio::test]
async fn a_server_that_has_lost_its_data_is_told_of_the_format_again() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(brief())?;
    drop(throttle.acquire("up").await?);
    scene.redis("FLUSHALL")?;
    drop(throttle.acquire("up").await?);
    assert!(scene.redis(&format!("GET {FORMAT}"))?.text().is_some(), "no format");
    assert_eq!(scene.proxy.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn a_replica_that_is_promoted_and_taken_by_a_release_of_another_format_is_used_no_more() -> Outcome {
    let scene = Scene::new()?;
    scene.redis("REPLICAOF 127.0.0.1 1")?;
    let throttle = scene.throttle(brief())?;
    unavailable(throttle.acquire("up").max_wait(HASTY).await);
    scene.redis("REPLICAOF NO ONE")?;
    scene.redis.command(&["SET", FORMAT, "4 0.9.0"])?;
    let deadline = Instant::now() + PATIENCE;
    let why = loop {
        assert!(Instant::now() < deadline, "it is used");
        if let Err(error) = throttle.acquire("up").await {
            break chain(&error);
        }
        sleep(HASTY).await;
    };
    assert!(why.contains("format 4 of Outgate 0.9.0"), "{why}");
    Ok(())
}

/// Callers are refused because of `code` until the address leads to another server, which has no data; then they are served soon.
async fn refused_until_the_name_leads_elsewhere(scene: &Scene, code: &str) -> Outcome {
    let (metronome, other) = (Metronome::start(), RedisServer::start()?);
    let name = Name::of(scene.redis.addr()).await?;
    let throttle = throttle(RedisStore::open(&name.url())?, brief())?;
    drop(throttle.acquire("up").await?);
    scene.redis("REPLICAOF 127.0.0.1 1")?;
    for _ in 0..10 {
        let why = unavailable(throttle.acquire("up").max_wait(HASTY).await);
        assert!(why.contains(code), "{why}");
    }
    name.target.send(other.addr())?;
    let (outcome, took) = timed(throttle.acquire("up")).await;
    drop(outcome?);
    assert!(took <= SOON + metronome.margin().await, "{took:?}");
    Ok(())
}

#[tokio::test]
async fn where_a_name_leads_away_from_a_replica_calls_go_on() -> Outcome {
    refused_until_the_name_leads_elsewhere(&Scene::new()?, "READONLY").await
}

#[tokio::test]
async fn where_a_name_leads_away_from_a_replica_that_has_lost_its_primary_calls_go_on() -> Outcome {
    let scene = Scene::with(&["--replica-serve-stale-data", "no"])?;
    refused_until_the_name_leads_elsewhere(&scene, "MASTERDOWN").await
}

/// One server in cluster mode that has all slots, as some managed ones are, behind a name.
#[tokio::test]
async fn where_a_node_has_given_all_slots_to_its_replica_calls_go_on_there() -> Outcome {
    let metronome = Metronome::start();
    let cluster = RedisCluster::start(1, 1)?;
    let [old, new] = cluster.nodes() else { return Err("two nodes".into()) };
    let name = Name::of(old.addr()).await?;
    let throttle = throttle(RedisStore::connect(&name.url()).await?, plenty())?;
    drop(throttle.acquire("up").await?);
    new.command(&["CLUSTER", "FAILOVER"])?;
    let deadline = Instant::now() + PATIENCE;
    while cluster.primary(0)? != Some(1) {
        assert!(Instant::now() < deadline, "the replica does not take over");
        sleep(Duration::from_millis(20)).await;
    }
    let why = unavailable(throttle.acquire("up").max_wait(3 * HASTY).await);
    assert!(why.contains("MOVED"), "{why}");
    name.target.send(new.addr())?;
    for _ in 0..3 {
        let (outcome, took) = timed(throttle.acquire("up").max_wait(PATIENCE)).await;
        drop(outcome?);
        assert!(took <= SOON + metronome.margin().await, "{took:?}");
    }
    Ok(())
}
