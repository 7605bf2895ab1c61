//! Servers on which logs are not safe: whoever runs the program is told at connect.

use outgate::RedisStore;
use outgate::testing::RedisServer;

use crate::recorder::Recorder;
use crate::{Outcome, told, used};

const EVICTS: &str = "WARN store may evict logs, its maxmemory-policy should be noeviction";
const IS_REPLICA: &str = "WARN store is a replica, which takes no writes";

fn warnings(recorder: &Recorder) -> Vec<String> {
    recorder.news().into_iter().filter(|news| news.starts_with("WARN store")).collect()
}

#[tokio::test]
async fn a_store_that_connects_late_warns_then_of_a_server_that_evicts() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let server = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"])?;
    let store = RedisStore::open(&server.url())?;
    assert_eq!(warnings(&recorder), [""; 0]);
    used(store).await?;
    assert_eq!(warnings(&recorder), [EVICTS]);
    Ok(())
}

#[tokio::test]
async fn who_is_not_told_what_a_server_does_is_not_warned() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let server = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"])?;
    told(&server, &["ACL", "SETUSER", "w", "on", ">pw", "~*", "+@all", "-info"])?;
    used(RedisStore::connect(&format!("redis://w:pw@{}", server.addr())).await?).await?;
    assert_eq!(warnings(&recorder), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_replica_is_a_warning_beside_what_it_refuses() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let server = RedisServer::start()?;
    told(&server, &["REPLICAOF", "127.0.0.1", "1"])?;
    let error = RedisStore::connect(&server.url()).await.err().ok_or("connected")?;
    assert!(error.to_string().contains("READONLY"), "{error}");
    assert_eq!(warnings(&recorder), [IS_REPLICA]);
    Ok(())
}
