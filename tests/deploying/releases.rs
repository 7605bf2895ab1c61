//! Two releases that share one Redis: they understand each other, or the one that connects later says so.

use outgate::RedisStore;
use outgate::store::StoreErrorKind;
use outgate::testing::RedisServer;

use crate::{Outcome, told, used};

const KEY: &str = "outgate:v1:{~format}";

#[tokio::test]
async fn a_release_connects_where_its_own_format_is_kept_and_leaves_its_name_there() -> Outcome {
    let server = RedisServer::start()?;
    for _ in 0..2 {
        used(RedisStore::connect(&server.url()).await?).await?;
        let kept = told(&server, &["GET", KEY])?;
        assert_eq!(kept.text(), Some(&*format!("1 {}", env!("CARGO_PKG_VERSION"))));
        let expires = told(&server, &["PTTL", KEY])?.int();
        assert!(expires.is_some_and(|millis| millis > 365 * 86_400_000), "{expires:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_release_of_another_format_is_refused_by_name_and_changes_nothing() -> Outcome {
    let server = RedisServer::start()?;
    told(&server, &["SET", KEY, "2 0.3.0"])?;
    let Err(error) = RedisStore::connect(&server.url()).await else { panic!("it connected") };
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    let own = format!("this is Outgate {}, which keeps format 1", env!("CARGO_PKG_VERSION"));
    for words in ["format 2 of Outgate 0.3.0", &own, "\"outgate\"", KEY] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(told(&server, &["GET", KEY])?.text(), Some("2 0.3.0"));
    // Under a prefix of its own it may.
    used(RedisStore::builder(&server.url()).prefix("newer").connect().await?).await?;
    Ok(())
}
