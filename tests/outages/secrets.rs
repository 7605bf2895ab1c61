//! Tokens and passwords stay where they are.

use std::time::Duration;

use outgate::testing::Reply;
use outgate::{Limit, RedisStore};

use crate::scene::{Outage, Outcome, Scene, chain, throttle, unavailable};
use crate::traces::Recorder;

const TOKEN: &str = "t0ken-of-a-customer";
const PASSWORD: &str = "passw0rd-of-redis";
const MAX_WAIT: Duration = Duration::from_millis(200);

fn assert_no_secret(text: &str) {
    for secret in [TOKEN, PASSWORD] {
        assert!(!text.contains(secret), "{text}");
    }
}

/// Every key, and all that it holds.
fn everything(scene: &Scene) -> Result<Vec<(String, String)>, Box<dyn std::error::Error + Send + Sync>> {
    let mut client = scene.redis.client()?;
    client.command(&["AUTH", PASSWORD])?;
    let Reply::Array(keys) = client.command(&["KEYS", "*"])? else {
        return Err("no list of keys".into());
    };
    let mut found = Vec::new();
    for key in &keys {
        let key = key.text().ok_or("a key that is no text")?;
        let value = match client.command(&["TYPE", key])?.text() {
            Some("string") => client.command(&["GET", key])?,
            Some("list") => client.command(&["LRANGE", key, "0", "-1"])?,
            other => return Err(format!("{key} is a {other:?}").into()),
        };
        let words = match value {
            Reply::Array(words) => words,
            word => vec![word],
        };
        let text = |word: &Reply| match word {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        };
        found.push((key.to_owned(), words.iter().map(text).collect::<Vec<_>>().join(" ")));
    }
    Ok(found)
}

#[tokio::test]
async fn redis_gets_to_know_a_hash_of_128_bits_and_no_more() -> Outcome {
    let scene = Scene::new()?;
    scene.redis(&format!("CONFIG SET requirepass {PASSWORD}"))?;
    let url = format!("redis://:{PASSWORD}@{}", scene.proxy.addr());
    let throttle = throttle(RedisStore::open(&url)?, Limit::new(2, Duration::from_secs(60)))?;
    drop(throttle.acquire("up").scope(TOKEN).await?);
    throttle.acquire("up").scope(TOKEN).await?.hand_back();
    drop(throttle.acquire("up").scope(TOKEN).await?);
    let waiting = throttle.clone();
    let waiting = tokio::spawn(async move { waiting.acquire("up").scope(TOKEN).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    throttle.usage_in("up", TOKEN).await?;
    let found = everything(&scene)?;
    waiting.abort();
    let mut kinds = Vec::new();
    for (key, value) in found {
        assert_no_secret(&key);
        assert_no_secret(&value);
        if key == "outgate:v1:{~format}" {
            continue;
        }
        let (scope, name) =
            key.strip_prefix("outgate:v1:{up}").and_then(|rest| rest.split_once(':')).ok_or("no key")?;
        kinds.push(name.split(':').next().unwrap_or_default().to_owned());
        let bits = scope.strip_prefix('/').unwrap_or_default();
        let is_hash = bits.len() == 32 && bits.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(if kinds.last().is_some_and(|kind| kind == "replay") { scope.is_empty() } else { is_hash }, "{key}");
    }
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ["log", "replay", "state"]);
    Ok(())
}

#[tokio::test]
async fn errors_and_traces_keep_secrets_whatever_goes_wrong() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let url = format!("redis://{TOKEN}:{PASSWORD}@{}", scene.proxy.addr());
    // No such user yet.
    let error = RedisStore::connect(&url).await.err().ok_or("connected")?;
    assert_no_secret(&chain(&error));
    let throttle = throttle(RedisStore::open(&url)?, Limit::new(2, Duration::from_secs(60)))?;
    assert_no_secret(&format!("{throttle:?} {:?}", RedisStore::open(&url)?));
    assert_no_secret(&unavailable(throttle.acquire("up").scope(TOKEN).max_wait(MAX_WAIT).await));
    scene.redis(&format!("ACL SETUSER {TOKEN} on >{PASSWORD} ~* +ping"))?;
    assert_no_secret(&unavailable(throttle.acquire("up").scope(TOKEN).max_wait(MAX_WAIT).await));
    scene.redis(&format!("ACL SETUSER {TOKEN} +@all"))?;
    let permit = throttle.acquire("up").scope(TOKEN).await?;
    assert_no_secret(&format!("{permit:?}"));
    permit.hand_back();
    for outage in Outage::ALL {
        outage.begin(&scene)?;
        assert_no_secret(&unavailable(throttle.acquire("up").scope(TOKEN).max_wait(MAX_WAIT).await));
        if outage == Outage::Stopped {
            scene.redis.restart()?;
            scene.redis(&format!("ACL SETUSER {TOKEN} on >{PASSWORD} ~* +@all"))?;
        } else {
            outage.end(&scene)?;
        }
        throttle.acquire("up").scope(TOKEN).await?.hand_back();
    }
    let traced = recorder.all();
    assert!(traced.iter().any(|(_, text)| text.starts_with("store down")), "{traced:?}");
    for (_, text) in traced {
        assert_no_secret(&text);
    }
    Ok(())
}

#[test]
fn a_url_that_is_none_is_not_repeated() {
    for url in [
        format!("redis://:{PASSWORD}@host:notaport"),
        format!("redis://:{PASSWORD}@"),
        format!("http://user:{PASSWORD}@host"),
        format!("redis://:{PASSWORD}@host/notadatabase"),
        format!("redis://:{PASSWORD}@host?protocol=resp9"),
        format!(":{PASSWORD}@host"),
    ] {
        match RedisStore::open(&url) {
            Ok(store) => assert_no_secret(&format!("{store:?}")),
            Err(error) => assert_no_secret(&chain(&error)),
        }
    }
}
