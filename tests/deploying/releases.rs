//! Two releases that share one Redis: they understand each other, or the one that connects later says so.

use outgate::ledger::{Ask, Log, Message, MessageId, Run, Term};
use outgate::store::StoreErrorKind;
#[cfg(feature = "redis-cluster")]
use outgate::testing::RedisCluster;
use outgate::testing::{RedisServer, Reply};
use outgate::{RedisStore, Store};

use crate::{Failure, Outcome, told, used};

const KEY: &str = "outgate:v1:{~format}";

#[tokio::test]
async fn a_release_connects_where_its_own_format_is_kept_and_leaves_its_name_there() -> Outcome {
    let server = RedisServer::start()?;
    for _ in 0..2 {
        used(RedisStore::connect(&server.url()).await?).await?;
        let kept = told(&server, &["GET", KEY])?;
        assert_eq!(kept.text(), Some(&*format!("3 {}", env!("CARGO_PKG_VERSION"))));
        let expires = told(&server, &["PTTL", KEY])?.int();
        assert!(expires.is_some_and(|millis| millis > 365 * 86_400_000), "{expires:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_release_of_another_format_is_refused_by_name_and_changes_nothing() -> Outcome {
    let server = RedisServer::start()?;
    told(&server, &["SET", KEY, "4 0.4.0"])?;
    let Err(error) = RedisStore::connect(&server.url()).await else { panic!("it connected") };
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    let own = format!("this is Outgate {}, which keeps format 3", env!("CARGO_PKG_VERSION"));
    for words in ["format 4 of Outgate 0.4.0", &own, "\"outgate\"", KEY] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(told(&server, &["GET", KEY])?.text(), Some("4 0.4.0"));
    // Under a prefix of its own it may.
    used(RedisStore::builder(&server.url()).prefix("newer").connect().await?).await?;
    Ok(())
}

/// What a store says of an upstream while another format is kept.
async fn refused(store: &RedisStore, upstream: &str) -> Result<String, Failure> {
    let logs = [Log::new("calls", [Term::new(9, 1_000_000)])];
    let ask = Message::new(upstream, MessageId::new(1, "", 1), Ask::new(logs, vec![Run::new(1, [1])]));
    let error = store.apply(&ask).await.err().ok_or("it was used")?;
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    Ok(error.to_string())
}

#[tokio::test]
async fn a_store_that_connects_when_it_is_needed_is_refused_by_name_too_and_changes_nothing() -> Outcome {
    let server = RedisServer::start()?;
    told(&server, &["SET", KEY, "4 0.4.0"])?;
    let words = refused(&RedisStore::open(&server.url())?, "up").await?;
    assert!(words.contains("format 4 of Outgate 0.4.0"), "{words}");
    assert_eq!(told(&server, &["KEYS", "*"])?, Reply::Array(vec![Reply::Bulk(KEY.into())]));
    // Once that is gone it may.
    told(&server, &["DEL", KEY])?;
    used(RedisStore::open(&server.url())?).await?;
    assert_eq!(told(&server, &["GET", KEY])?.text(), Some(&*format!("3 {}", env!("CARGO_PKG_VERSION"))));
    Ok(())
}

#[tokio::test]
async fn a_process_that_runs_is_refused_when_the_server_comes_back_with_another_format() -> Outcome {
    let server = RedisServer::start()?;
    let store = RedisStore::connect(&server.url()).await?;
    used(store.clone()).await?;
    // As long as it runs the newer release cannot come in: it finds the old format, as above. But this one is empty.
    server.restart()?;
    told(&server, &["SET", KEY, "4 0.4.0"])?;
    // The first call finds that its connection is gone.
    let _ = refused(&store, "up").await;
    let words = refused(&store, "up").await?;
    assert!(words.contains("format 4 of Outgate 0.4.0"), "{words}");
    assert_eq!(told(&server, &["KEYS", "*"])?, Reply::Array(vec![Reply::Bulk(KEY.into())]));
    Ok(())
}

/// As one that reads its data from disk, or runs a long script of somebody else's.
#[tokio::test]
async fn a_process_that_connects_while_the_server_serves_nobody_is_refused_once_it_does() -> Outcome {
    let server = RedisServer::start()?;
    told(&server, &["SET", KEY, "4 0.4.0"])?;
    told(&server, &["CONFIG", "SET", "busy-reply-threshold", "1"])?;
    let mut busy = server.client()?;
    let script = std::thread::spawn(move || drop(busy.command(&["EVAL", "while true do end", "0"])));
    while told(&server, &["PING"]).is_ok() {}
    let store = RedisStore::open(&server.url())?;
    let logs = [Log::new("calls", [Term::new(9, 1_000_000)])];
    let ask = Message::new("up", MessageId::new(1, "", 1), Ask::new(logs, vec![Run::new(1, [1])]));
    let error = store.apply(&ask).await.err().ok_or("it was used")?;
    assert!(error.to_string().contains("BUSY"), "{error}");
    told(&server, &["SCRIPT", "KILL"])?;
    script.join().map_err(|_| "a panic")?;
    let words = loop {
        let error = store.apply(&ask).await.err().ok_or("it was used")?;
        if error.kind() == StoreErrorKind::Refused {
            break error.to_string();
        }
    };
    assert!(words.contains("format 4 of Outgate 0.4.0"), "{words}");
    assert_eq!(told(&server, &["KEYS", "*"])?, Reply::Array(vec![Reply::Bulk(KEY.into())]));
    Ok(())
}

#[cfg(feature = "redis-cluster")]
#[tokio::test]
async fn whatever_node_of_a_cluster_has_the_upstream_the_format_is_looked_at() -> Outcome {
    let cluster = RedisCluster::start(3, 0)?;
    let owner = cluster.primary(cluster.slot_of(KEY)?)?.ok_or("nobody has it")?;
    told(&cluster.nodes()[owner], &["SET", KEY, "4 0.4.0"])?;
    for name in ["a", "b", "c", "d"] {
        let store = RedisStore::cluster(cluster.urls()).open()?;
        for _ in 0..2 {
            let words = refused(&store, name).await?;
            assert!(words.contains("format 4 of Outgate 0.4.0"), "{words}");
        }
    }
    Ok(())
}
