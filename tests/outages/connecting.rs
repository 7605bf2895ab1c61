//! Building a store tries what the scripts need, and fails with what the server refuses.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use outgate::RedisStore;
use outgate::store::StoreErrorKind;
use outgate::testing::{RedisServer, Reply};
use tokio::time::sleep;

use crate::faults_that_last::{Failure, refused, texts, user};
use crate::scene::{LOG, Outcome, PATIENCE, Scene, plenty, throttle};
use crate::traces::Recorder;

const SCRIPTS: &str = concat!(
    include_str!("../../lua/head.lua"),
    include_str!("../../lua/first_look.lua"),
    include_str!("../../lua/first_answer.lua"),
    include_str!("../../lua/state.lua"),
    include_str!("../../lua/log.lua"),
    include_str!("../../lua/shares.lua"),
    include_str!("../../lua/book.lua"),
    include_str!("../../lua/pause.lua"),
    include_str!("../../lua/report.lua"),
    include_str!("../../lua/usage.lua"),
    include_str!("../../lua/inspect.lua"),
);

/// What the scripts call, in small letters.
fn commands() -> BTreeSet<String> {
    let code: String = SCRIPTS.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let calls = code.split("call('").skip(1);
    calls.filter_map(|rest| rest.split('\'').next()).map(str::to_lowercase).collect()
}

/// Why a store cannot be built, by Display alone: until somebody changes something.
async fn not_connected(url: &str) -> Result<String, Failure> {
    not_connected_as(url, StoreErrorKind::Refused).await
}

async fn not_connected_as(url: &str, kind: StoreErrorKind) -> Result<String, Failure> {
    let error = RedisStore::connect(url).await.err().ok_or("connected")?;
    assert_eq!(error.kind(), kind, "{error}");
    Ok(error.to_string())
}

#[tokio::test]
async fn a_password_that_is_missing_or_wrong_fails_at_connect() -> Outcome {
    let scene = Scene::new()?;
    scene.redis("CONFIG SET requirepass secret")?;
    let why = not_connected(&scene.proxy.url()).await?;
    assert!(why.contains("NOAUTH Authentication required"), "{why}");
    let why = not_connected(&format!("redis://:letmein@{}", scene.proxy.addr())).await?;
    assert!(why.contains("password") && !why.contains("letmein"), "{why}");
    RedisStore::connect(&format!("redis://:secret@{}", scene.proxy.addr())).await?;
    Ok(())
}

#[tokio::test]
async fn a_permission_that_is_missing_fails_at_connect_whatever_the_command() -> Outcome {
    let server = RedisServer::start()?;
    let why = not_connected(&user(&server, "~* +@all -eval")?).await?;
    assert!(why.contains("NOPERM") && why.contains("'eval'"), "a server may forget the scripts: {why}");
    let url = user(&server, "~* +@all -evalsha")?;
    let why = not_connected(&url).await?;
    assert!(why.contains("NOPERM") && why.contains("'evalsha'"), "{why}");
    for command in commands() {
        let why = not_connected(&user(&server, &format!("~* +@all -{command}"))?).await?;
        assert!(why.contains("NOPERM") || why.contains("can't run this command"), "{command}: {why}");
    }
    Ok(())
}

#[tokio::test]
async fn who_may_not_load_scripts_sends_them_whole() -> Outcome {
    let server = RedisServer::start()?;
    let throttle = throttle(RedisStore::connect(&user(&server, "~* +@all -script")?).await?, plenty())?;
    drop(throttle.acquire("up").await?);
    let why = not_connected(&user(&server, "~* +@all -script -lrem")?).await?;
    assert!(why.contains("NOPERM") || why.contains("can't run this command"), "{why}");
    Ok(())
}

#[tokio::test]
async fn the_keys_of_the_prefix_that_was_set_are_tried() -> Outcome {
    let server = RedisServer::start()?;
    let url = user(&server, "~mine:* +@all")?;
    let why = not_connected(&url).await?;
    assert!(why.contains("NOPERM") && why.contains("keys"), "{why}");
    RedisStore::builder(&url).prefix("mine").connect().await?;
    for prefix in ["", "a b", "{up}"] {
        let open = RedisStore::builder(&url).prefix(prefix).open().err().ok_or("opened")?;
        assert!(open.to_string().contains("prefix"), "{open}");
        let connect = RedisStore::builder(&url).prefix(prefix).connect().await.err().ok_or("connected")?;
        assert_eq!(connect.to_string(), open.to_string());
    }
    Ok(())
}

#[tokio::test]
async fn connecting_tries_every_command_of_the_scripts_and_leaves_only_its_format() -> Outcome {
    let server = RedisServer::start()?;
    server.command(&["RPUSH", LOG, "1"])?;
    server.command(&["CONFIG", "RESETSTAT"])?;
    RedisStore::connect(&server.url()).await?;
    let stats = server.command(&["INFO", "commandstats"])?;
    let stats = stats.text().ok_or("no stats")?;
    for command in commands() {
        let counted = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        assert!(counted.is_some_and(|line| line.contains("rejected_calls=0,failed_calls=0")), "{command}: {counted:?}");
    }
    let left: BTreeSet<_> = texts(&server.command(&["KEYS", "*"])?).into_iter().collect();
    assert_eq!(left, BTreeSet::from([LOG.to_owned(), "outgate:v1:{~format}".to_owned()]));
    assert_eq!(server.command(&["LRANGE", LOG, "0", "-1"])?, Reply::Array(vec![Reply::Bulk(b"1".to_vec())]));
    Ok(())
}

#[tokio::test]
async fn a_replica_fails_at_connect() -> Outcome {
    let scene = Scene::new()?;
    scene.redis("REPLICAOF 127.0.0.1 1")?;
    let why = not_connected(&scene.proxy.url()).await?;
    assert!(why.contains("READONLY"), "{why}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_reads_its_data_fails_at_connect_for_now() -> Outcome {
    let scene = Scene::with(&["--loading-process-events-interval-bytes", "1024"])?;
    scene.redis("DEBUG POPULATE 1000 key 1500")?;
    scene.redis("CONFIG SET key-load-delay 2000")?;
    let mut reloading = scene.redis.client()?;
    reloading.send(&["DEBUG", "RELOAD"])?;
    // It takes a while to begin, and then 2 s for 1,000 keys.
    let why = loop {
        match not_connected_as(&scene.proxy.url(), StoreErrorKind::Unavailable).await {
            Ok(why) => break why,
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    };
    assert!(why.contains("cannot be used now: LOADING"), "{why}");
    assert_eq!(reloading.receive()?.text(), Some("OK"));
    RedisStore::connect(&scene.proxy.url()).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_fails_at_connect_for_now_whatever_the_database() -> Outcome {
    let scene = Scene::with(&["--busy-reply-threshold", "20"])?;
    scene.redis("CONFIG SET requirepass secret")?;
    let mut endless = scene.redis.client()?;
    endless.command(&["AUTH", "secret"])?;
    endless.send(&["EVAL", "while true do end", "0"])?;
    sleep(Duration::from_millis(100)).await;
    for rest in ["", "/2", "/2?protocol=resp3"] {
        let url = format!("redis://:secret@{}{rest}", scene.proxy.addr());
        let why = not_connected_as(&url, StoreErrorKind::Unavailable).await?;
        assert!(why.contains("cannot be used now: BUSY Redis is busy"), "{url}: {why}");
    }
    Ok(())
}

/// The client keeps what the server answers to the password to itself.
#[tokio::test]
async fn where_a_password_is_refused_the_server_may_have_as_many_clients_as_it_takes() -> Outcome {
    let scene = Scene::new()?;
    let mut client = scene.redis.client()?;
    client.command(&["CONFIG", "SET", "requirepass", "secret", "maxclients", "1"])?;
    client.command(&["AUTH", "secret"])?;
    let url = format!("redis://:secret@{}", scene.redis.addr());
    let why = not_connected(&url).await?;
    assert!(why.contains("the user or the password, or has as many clients as it takes"), "{why}");
    client.command(&["CONFIG", "SET", "maxclients", "100"])?;
    RedisStore::connect(&url).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_older_than_redis_7_fails_at_connect() -> Outcome {
    let server = RedisServer::start_with(&["--rename-command", "PEXPIRETIME", ""])?;
    let why = not_connected(&server.url()).await?;
    assert!(why.contains("too old") && why.contains("Redis 7.0") && why.contains("PEXPIRETIME"), "{why}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_may_evict_logs_is_a_warning_with_its_policy() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::with(&["--maxmemory-policy", "volatile-lru"])?;
    RedisStore::connect(&scene.redis.url()).await?;
    assert_eq!(recorder.news(), [""; 0], "it has all the memory there is");
    scene.redis("CONFIG SET maxmemory 100mb")?;
    RedisStore::connect(&scene.redis.url()).await?;
    let warned = recorder.all().into_iter().map(|(_, text)| text).find(|text| text.contains("may evict logs"));
    assert!(warned.is_some_and(|text| text.contains("volatile-lru")), "{:?}", recorder.all());
    assert_eq!(recorder.news().len(), 1);
    scene.redis("CONFIG SET maxmemory-policy noeviction")?;
    RedisStore::connect(&scene.redis.url()).await?;
    assert_eq!(recorder.news().len(), 1);
    Ok(())
}

/// A node of a Cluster, whose bus listens on a port of its own.
fn node() -> Result<(RedisServer, u16), Failure> {
    let bus = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok((RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()])?, bus))
}

async fn until_cluster_says(server: &RedisServer, words: [&str; 2]) -> Outcome {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let info = server.command(&["CLUSTER", "INFO"])?;
        if info.text().is_some_and(|info| words.iter().all(|word| info.contains(word))) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{info:?}").into());
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_fails_at_connect_unless_it_has_all_slots() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let ((one, bus), (other, _)) = (node()?, node()?);
    one.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
    until_cluster_says(&one, ["cluster_state:ok", "cluster_size:1"]).await?;
    RedisStore::connect(&one.url()).await?;
    let throttle = throttle(RedisStore::open(&one.url())?, plenty())?;
    drop(throttle.acquire("up").await?);

    let slot = one.command(&["CLUSTER", "KEYSLOT", "up"])?.int().ok_or("no slot")?.to_string();
    one.command(&["DEL", LOG])?;
    for key in &texts(&one.command(&["KEYS", "*"])?) {
        one.command(&["DEL", key])?;
    }
    one.command(&["CLUSTER", "DELSLOTS", &slot])?;
    other.command(&["CLUSTER", "ADDSLOTS", &slot])?;
    other.command(&["CLUSTER", "MEET", "127.0.0.1", &one.port().to_string(), &bus.to_string()])?;
    until_cluster_says(&one, ["cluster_state:ok", "cluster_size:2"]).await?;
    let why = not_connected(&one.url()).await?;
    assert!(why.contains("one of 2 masters of a Redis Cluster"), "{why}");
    let before = recorder.news().len();
    let why = refused(&throttle).await?;
    assert!(why.contains(&format!("MOVED {slot} ")), "{why}");
    assert_eq!(recorder.news()[before..], ["WARN store refuses"]);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_was_idle_since_the_store_was_built_is_made_anew_at_once_where_it_was_closed() -> Outcome {
    let server = RedisServer::start()?;
    let throttle = throttle(RedisStore::connect(&server.url()).await?, plenty())?;
    sleep(Duration::from_millis(60)).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"])?;
    drop(throttle.try_acquire("up").await?);
    Ok(())
}
