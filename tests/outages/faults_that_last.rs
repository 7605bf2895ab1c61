//! What no waiting mends, while a store runs: traced at once, and told to each caller with its cause.

use std::error::Error as StdError;
use std::time::Duration;

use outgate::testing::{RedisServer, Reply};
use outgate::{Error, Limit, RedisStore, Throttle};

use crate::scene::{LOG, Outcome, Scene, chain, plenty, throttle};
use crate::traces::Recorder;

pub(crate) type Failure = Box<dyn StdError + Send + Sync>;

const MAX_WAIT: Duration = Duration::from_millis(300);

/// Why a call is refused, by Display alone.
pub(crate) async fn refused(throttle: &Throttle) -> Result<String, Failure> {
    match throttle.acquire("up").max_wait(MAX_WAIT).await {
        Err(error @ Error::StoreUnavailable { .. }) => Ok(error.to_string()),
        other => Err(format!("the store should have refused: {other:?}").into()),
    }
}

/// The URL of a user of its own, who may do this.
pub(crate) fn user(server: &RedisServer, may: &str) -> Result<String, Failure> {
    let rules = format!("ACL SETUSER w reset on >pw {may}");
    match server.command(&rules.split(' ').collect::<Vec<_>>())? {
        Reply::Error(refusal) => Err(refusal.into()),
        _ => Ok(format!("redis://w:pw@{}", server.addr())),
    }
}

pub(crate) fn texts(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Array(parts) => parts.iter().filter_map(|part| part.text().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn a_permission_taken_away_while_running_is_traced_at_once_and_not_again_within_a_minute() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let url = user(&scene.redis, "~* +@all")?;
    let throttle = throttle(RedisStore::connect(&url).await?, plenty())?;
    drop(throttle.acquire("up").await?);
    assert_eq!(recorder.news(), [""; 0]);
    scene.redis("ACL SETUSER w -evalsha")?;
    for _ in 0..3 {
        let why = refused(&throttle).await?;
        assert!(why.contains("the store refused the call: NOPERM") && why.contains("'evalsha'"), "{why}");
    }
    assert_eq!(recorder.news(), ["WARN store refuses"]);
    let told = recorder.all().into_iter().find(|(_, text)| text.starts_with("store refuses")).ok_or("untold")?;
    assert!(told.1.contains("NOPERM"), "{told:?}");
    scene.redis("ACL SETUSER w +evalsha")?;
    drop(throttle.acquire("up").await?);
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_traced_by_a_store_that_connects_late() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    scene.redis("CONFIG SET requirepass secret")?;
    let throttle = throttle(RedisStore::open(&format!("redis://:letmein@{}", scene.redis.addr()))?, plenty())?;
    for _ in 0..2 {
        let why = refused(&throttle).await?;
        assert!(why.contains("password") && !why.contains("letmein"), "{why}");
    }
    assert_eq!(recorder.news(), ["WARN store refuses"]);
    Ok(())
}

/// Somebody writes into a key of ours: no call goes, every call says which key and what to do, and one deletion mends it.
async fn spoilt(key: &str, holds: &str, spoil: &[&str]) -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    // What is deleted below is lost: a window that is waited for.
    let throttle = scene.throttle(Limit::new(3, Duration::from_secs(1)))?;
    drop(throttle.acquire("up").await?);
    let key = if key == "replay" {
        let keys = texts(&scene.redis("KEYS *")?);
        keys.into_iter().find(|key| key.contains("replay:")).ok_or("no memory of the call")?
    } else {
        format!("outgate:v1:{{up}}:{key}")
    };
    if matches!(spoil[0], "SET" | "LPUSH") {
        scene.redis.command(&["DEL", &key])?;
    }
    let words: Vec<&str> = [spoil[0], &key].into_iter().chain(spoil[1..].iter().copied()).collect();
    if let Reply::Error(refusal) = scene.redis.command(&words)? {
        return Err(refusal.into());
    }
    let log = scene.redis.command(&["LLEN", LOG])?;
    for _ in 0..3 {
        let why = refused(&throttle).await?;
        let expected = format!("the key {key} {holds}: delete it, or choose another prefix");
        assert!(why.contains(&expected), "{why}");
    }
    assert_eq!(scene.redis.command(&["LLEN", LOG])?, log, "nothing was booked");
    assert_eq!(recorder.news(), ["WARN store refuses"]);
    assert!(recorder.all().iter().any(|(_, text)| text.starts_with("store refuses") && text.contains(&key)));
    scene.redis.command(&["DEL", &key])?;
    drop(throttle.acquire("up").await?);
    assert!(scene.log()?.len() <= 3);
    // It has waited for what was lost: that it does so no more is told before the server is gone.
    throttle.close().await;
    Ok(())
}

#[tokio::test]
async fn a_log_that_is_no_list_is_named() -> Outcome {
    spoilt("log:calls", "holds a string where Outgate keeps a list", &["SET", "mine"]).await
}

#[tokio::test]
async fn a_log_with_an_entry_that_is_no_time_is_named() -> Outcome {
    for entry in ["mine", "nan", "", "inf", "-inf", "-1", "0", "0x10"] {
        spoilt("log:calls", "holds a list with an entry that is no time", &["RPUSH", entry]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_state_that_is_no_string_is_named() -> Outcome {
    spoilt("state", "holds a list where Outgate keeps a string", &["LPUSH", "mine"]).await
}

#[tokio::test]
async fn records_that_outgate_has_not_written_are_named() -> Outcome {
    for key in ["state", "replay"] {
        for garbage in ["mine", "", "\u{7f}\u{1}", "[1,2,3]"] {
            spoilt(key, "holds a string that Outgate has not written", &["SET", garbage]).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_cause_is_read_once_by_whoever_follows_the_errors() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    scene.redis(&format!("SET {LOG} mine"))?;
    let Err(Error::StoreUnavailable { source, .. }) = throttle.acquire("up").max_wait(MAX_WAIT).await else {
        return Err("it was not refused".into());
    };
    assert!(source.source().is_none(), "{}", chain(&source));
    assert!(format!("{source:?}").contains("WRONGTYPE"), "what the server said is kept for whoever debugs");
    Ok(())
}
