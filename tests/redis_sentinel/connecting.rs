//! Connecting asks the Sentinels and tries the primary, and fails with what is wrong.

use outgate::store::StoreErrorKind;
use outgate::testing::{RedisSentinel, RedisServer, Reply};
use outgate::{Limit, RedisStore, Throttle, Upstream};

use crate::{Failure, Outcome, until};

#[tokio::test]
async fn what_can_be_no_sentinel_fails_with_what_it_is() -> Outcome {
    for (name, urls, servers, why) in [
        ("mymaster", &[][..], "redis://any", "URL of a Sentinel is needed"),
        ("my master", &["redis://127.0.0.1"], "redis://any", "name of a primary"),
        ("", &["redis://127.0.0.1"], "redis://any", "name of a primary"),
        ("mymaster", &["unix:///run/redis.sock"], "redis://any", "a Sentinel is not reached by a socket"),
        ("mymaster", &["redis://127.0.0.1"], "unix:///run/redis.sock", "the servers are not reached by a socket"),
        ("mymaster", &["nonsense"], "redis://any", "no URL"),
    ] {
        let error = RedisStore::sentinel(name, urls).servers(servers).open().err().ok_or("opened")?;
        assert!(error.to_string().contains(why), "{error}");
    }
    let error = RedisStore::builder("redis://127.0.0.1").servers("redis://any").open().err().ok_or("opened")?;
    assert!(error.to_string().contains("no Sentinel names"), "{error}");
    let server = RedisServer::start()?;
    let not_connected = async |url: &str| {
        let connected = RedisStore::sentinel("mymaster", [url]).connect().await;
        connected.err().ok_or("connected").map(|error| (error.kind(), error.to_string()))
    };
    let (kind, why) = not_connected(&server.url()).await?;
    assert!(kind == StoreErrorKind::Refused && why.contains("unknown command"), "{why}");
    let url = server.url();
    drop(server);
    let (kind, why) = not_connected(&url).await?;
    assert!(kind == StoreErrorKind::Unreachable && why.contains("a Sentinel does not answer"), "{why}");
    Ok(())
}

#[tokio::test]
async fn sentinels_and_servers_that_ask_for_passwords_are_told_them() -> Outcome {
    let redis = RedisSentinel::start_with(1, &["--requirepass", "word"], &["requirepass another"])?;
    assert_eq!(redis.primary()?, Some(0));
    let urls = redis.urls().into_iter().map(|url| url.replace("//", "//:another@"));
    let store = RedisStore::sentinel(RedisSentinel::NAME, urls).servers("redis://:word@any").connect().await?;
    let throttle = Throttle::builder().store(store).upstream(Upstream::new("up").limit(Limit::per_second(1_000)));
    let throttle = throttle.build()?;
    drop(throttle.acquire("up").await?);
    redis.fail_over()?;
    until("another primary", || Ok(redis.primary()? == Some(1))).await?;
    drop(throttle.acquire("up").await?);
    Ok(())
}

/// Sends a command to all of them, which must not be refused.
fn told(all: &[RedisServer], words: &[&str]) -> Outcome {
    for server in all {
        if let Reply::Error(refusal) = server.command(words)? {
            return Err(refusal.into());
        }
    }
    Ok(())
}

/// What the docs allow a user of servers, and one of Sentinels.
fn lines() -> Result<(Vec<&'static str>, Vec<&'static str>), Failure> {
    let docs = include_str!("../../lua/ACL.md");
    let mut blocks = docs.split("```text\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let (line, watch) = (blocks.next().ok_or("no line")?, blocks.next().ok_or("no line for Sentinels")?);
    let more = docs.split("For Sentinels add `").nth(1).and_then(|rest| rest.split('`').next()).ok_or("no more")?;
    Ok((line.split(' ').chain(more.split(' ')).chain(["+select"]).collect(), watch.split(' ').collect()))
}

#[tokio::test]
async fn users_of_sentinels_and_of_servers_are_told_apart_and_what_the_docs_allow_them_is_enough_and_needed() -> Outcome
{
    let redis = RedisSentinel::start(1)?;
    let (line, watch) = lines()?;
    told(redis.servers(), &line)?;
    told(redis.sentinels(), &watch)?;
    let urls: Vec<String> = redis.urls().iter().map(|url| url.replace("//", "//watcher:secret@")).collect();
    let connect =
        async |servers: &str| RedisStore::sentinel(RedisSentinel::NAME, &urls).servers(servers).connect().await;
    let store = connect("redis://outgate:secret@any/2").await?;
    let up = Upstream::new("up").limit(Limit::per_minute(10));
    let throttle = Throttle::builder().store(store).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    let mut client = redis.servers()[0].client()?;
    client.command(&["SELECT", "2"])?;
    assert_eq!(client.command(&["LLEN", "outgate:v1:{up}:log:calls"])?, Reply::Int(1));
    // Once a Sentinel was subscribed to.
    let subscribed = || {
        let clients = redis.sentinels().iter().map(|sentinel| sentinel.command(&["CLIENT", "LIST"]));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        Ok(clients
            .iter()
            .any(|clients| clients.text().is_some_and(|all| all.contains("user=watcher") && all.contains("sub=2"))))
    };
    until("a subscription", subscribed).await?;
    for server in redis.servers().iter().chain(redis.sentinels()) {
        assert_eq!(server.command(&["ACL", "LOG"])?, Reply::Array(Vec::new()));
    }
    for command in ["role", "wait"] {
        told(redis.servers(), &["ACL", "SETUSER", "outgate", &format!("-{command}")])?;
        let error = connect("redis://outgate:secret@any").await.err().ok_or("connected")?;
        assert!(error.kind() == StoreErrorKind::Refused && error.to_string().contains(command), "{error}");
        told(redis.servers(), &["ACL", "SETUSER", "outgate", &format!("+{command}")])?;
    }
    let error = connect("redis://outgate:wrong@any").await.err().ok_or("connected")?;
    assert!(error.to_string().contains("the user or the password"), "{error}");
    let error = RedisStore::sentinel("another", &urls).connect().await.err().ok_or("connected")?;
    assert!(error.to_string().contains("no primary of the name \"another\""), "{error}");
    told(redis.sentinels(), &["ACL", "SETUSER", "watcher", "-sentinel|replicas"])?;
    let error = connect("redis://outgate:secret@any").await.err().ok_or("connected")?;
    assert!(error.kind() == StoreErrorKind::Refused && error.to_string().contains("a Sentinel refuses"), "{error}");
    Ok(())
}
