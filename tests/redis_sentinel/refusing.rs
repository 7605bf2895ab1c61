//! A replica, or what stands where the primary was, refuses the store for good.

use std::time::Duration;

use outgate::store::StoreErrorKind;
use outgate::testing::{RedisSentinel, RedisServer, Reply};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};

use crate::recorder::Recorder;
use crate::{Failure, Outcome, until};

/// As long as it takes on a busy machine.
const ANY: Duration = Duration::from_secs(30);

fn tell(server: &RedisServer, words: &[&str]) -> Outcome {
    if let Reply::Error(refusal) = server.command(words)? { Err(refusal.into()) } else { Ok(()) }
}

async fn throttle(redis: &RedisSentinel, servers: &str) -> Result<Throttle, Failure> {
    let store = RedisStore::sentinel(RedisSentinel::NAME, redis.urls()).servers(servers).connect().await?;
    let up = Upstream::new("up").limit(Limit::per_minute(1_000));
    let throttle = Throttle::builder().store(store).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    Ok(throttle)
}

/// Users are not replicated.
#[tokio::test]
async fn where_a_replica_refuses_the_user_that_is_told_with_its_address_and_in_its_words() -> Outcome {
    let redis = RedisSentinel::start(1)?;
    let [primary, replica] = redis.servers() else { return Err("no servers".into()) };
    tell(primary, &["ACL", "SETUSER", "outgate", "on", ">s3cret", "~*", "+@all"])?;
    for (user, words) in [(&["off"][..], "refuses the user or the password"), (&["on", ">s3cret", "~*"], "NOPERM")] {
        let (recorder, _guard) = Recorder::on_this_thread();
        tell(replica, &[&["ACL", "SETUSER", "outgate"], user].concat())?;
        let warned = |of: &str| {
            let all = recorder.all().into_iter().map(|(_, text)| text).filter(|text| text.starts_with(of));
            all.collect::<Vec<_>>()
        };
        let is_told =
            |text: &String| text.contains(&replica.addr().to_string()) && text.contains(words) && !text.contains("s3c");
        let throttle = throttle(&redis, "redis://outgate:s3cret@any").await?;
        let said = warned("a replica cannot be asked");
        assert!(said.len() == 1 && said.iter().all(is_told), "{words}: {said:?}");
        for sentinel in redis.sentinels() {
            // After so long they would have it follow again.
            tell(sentinel, &["SENTINEL", "SET", RedisSentinel::NAME, "failover-timeout", "60000"])?;
        }
        tell(replica, &["REPLICAOF", "127.0.0.1", "1"])?;
        drop(throttle.acquire("up").max_wait(ANY).await?);
        for of in ["store down", "store goes on without a replica"] {
            let said = warned(of);
            assert!(said.len() == 1 && said.iter().all(is_told), "{words}: {said:?}");
        }
        tell(replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()])?;
    }
    Ok(())
}

/// As where the address of a server that has gone is another one's by now.
#[tokio::test]
async fn where_the_primary_refuses_to_be_connected_to_the_sentinels_are_asked_whether_it_still_is() -> Outcome {
    let redis = RedisSentinel::start(1)?;
    for server in redis.servers() {
        tell(server, &["ACL", "SETUSER", "outgate", "on", ">s3cret", "~*", "+@all"])?;
    }
    for sentinel in redis.sentinels() {
        // Nobody hears of another primary.
        tell(sentinel, &["ACL", "SETUSER", "default", "-subscribe"])?;
    }
    let store = RedisStore::sentinel(RedisSentinel::NAME, redis.urls()).servers("redis://outgate:s3cret@any");
    let store = store.connect().await?;
    let up = Upstream::new("up").limit(Limit::per_minute(1_000));
    let throttle = Throttle::builder().store(store.clone()).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    // It hangs up as well, and that is noticed by who only looks.
    tell(&redis.servers()[0], &["ACL", "DELUSER", "outgate"])?;
    assert!(store.upstreams().await.is_err());
    redis.fail_over()?;
    until("another primary", || Ok(redis.primary()? == Some(1))).await?;
    drop(throttle.acquire("up").max_wait(Duration::from_secs(5)).await?);
    Ok(())
}

/// Which server it is has nothing to do with that, and other upstreams are well.
#[tokio::test]
async fn where_a_primary_refuses_what_is_asked_of_one_upstream_no_sentinel_is_asked() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisSentinel::start(0)?;
    for sentinel in redis.sentinels() {
        tell(sentinel, &["ACL", "SETUSER", "default", "-subscribe"])?;
    }
    let throttle = throttle(&redis, "redis://any").await?;
    throttle.add(Upstream::new("down").limit(Limit::per_minute(1_000)))?;
    redis.sentinels().iter().for_each(RedisServer::stop);
    tell(&redis.servers()[0], &["SET", "outgate:v1:{down}:log:calls", "no list"])?;
    for _ in 0..3 {
        let refused = throttle.acquire("down").max_wait(Duration::from_millis(300)).await;
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("unavailable")), "{refused:?}");
        drop(throttle.acquire("up").await?);
    }
    let news = recorder.news();
    assert!(news.iter().any(|news| news.contains("store refuses")), "{news:?}");
    assert!(!news.iter().any(|news| news.contains("no Sentinel answers")), "{news:?}");
    Ok(())
}

/// What writes nothing is answered there as well.
#[tokio::test]
async fn a_primary_that_was_made_a_replica_by_hand_refuses_nothing_and_is_looked_up_again() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisSentinel::start(1)?;
    let throttle = throttle(&redis, "redis://any").await?;
    for sentinel in redis.sentinels() {
        tell(sentinel, &["SENTINEL", "SET", RedisSentinel::NAME, "failover-timeout", "60000"])?;
    }
    tell(&redis.servers()[0], &["REPLICAOF", "127.0.0.1", &redis.servers()[1].port().to_string()])?;
    let usage = throttle.usage("up").await.map(drop);
    if let Err(Error::StoreUnavailable { source, .. }) = &usage {
        assert_eq!(source.kind(), StoreErrorKind::Unreachable, "{source}");
    }
    let news = recorder.news();
    assert!(!news.iter().any(|news| news.contains("store refuses")), "{usage:?}: {news:?}");
    Ok(())
}
