//! What makes calls stand still behind Sentinels is traced, though each server by itself is well.

use std::time::Duration;

use outgate::testing::{RedisSentinel, RedisServer};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};

use crate::recorder::Recorder;
use crate::{Failure, Outcome};

fn throttle(redis: &RedisSentinel, name: &str) -> Result<Throttle, Failure> {
    let store = RedisStore::sentinel(name, redis.urls()).open()?;
    Ok(Throttle::builder().store(store).upstream(Upstream::new("up").limit(Limit::per_minute(1_000))).build()?)
}

/// Calls whose callers each wait for less time than it takes until nobody gets an answer any more.
async fn no_answers(throttle: &Throttle, calls: usize) -> Outcome {
    for _ in 0..calls {
        match throttle.acquire("up").max_wait(Duration::from_millis(300)).await {
            Err(Error::StoreUnavailable { .. }) => {}
            other => return Err(format!("the store should not have answered: {other:?}").into()),
        }
    }
    Ok(())
}

/// Going down and coming up, in words.
fn told(recorder: &Recorder) -> Vec<String> {
    let all = recorder.all().into_iter().map(|(_, text)| text);
    all.filter(|text| ["store down\n", "store up\n"].iter().any(|start| text.starts_with(start))).collect()
}

#[tokio::test]
async fn a_name_that_no_sentinel_watches_is_traced_at_once_and_not_again_within_a_minute() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisSentinel::start(0)?;
    let throttle = throttle(&redis, "another")?;
    for _ in 0..3 {
        no_answers(&throttle, 1).await?;
    }
    assert_eq!(recorder.news(), ["WARN store refuses"]);
    let all = recorder.all();
    assert!(all.iter().any(|(_, text)| text.contains("no primary of the name \"another\"")), "{all:?}");
    Ok(())
}

#[tokio::test]
async fn where_no_sentinel_was_ever_heard_that_is_traced_once_and_so_is_that_calls_go_on() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisSentinel::start(0)?;
    redis.sentinels().iter().for_each(RedisServer::stop);
    let throttle = throttle(&redis, RedisSentinel::NAME)?;
    no_answers(&throttle, 10).await?;
    let down = told(&recorder);
    assert!(down.len() == 1 && down[0].contains("a Sentinel does not answer"), "{down:?}");
    for sentinel in redis.sentinels() {
        sentinel.restart()?;
    }
    drop(throttle.acquire("up").max_wait(Duration::from_secs(30)).await?);
    assert_eq!(told(&recorder)[1..], ["store up\n"]);
    Ok(())
}

/// Where only a minority of the Sentinels is heard a replica is waited for as long as it takes.
#[tokio::test]
async fn a_replica_without_which_nothing_counts_is_traced_once_and_so_is_that_calls_go_on() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisSentinel::start(1)?;
    let throttle = throttle(&redis, RedisSentinel::NAME)?;
    redis.sentinels()[1..].iter().for_each(RedisServer::stop);
    drop(throttle.acquire("up").max_wait(Duration::from_secs(30)).await?);
    assert_eq!(told(&recorder), [""; 0]);
    redis.servers()[1].pause()?;
    no_answers(&throttle, 20).await?;
    let down = told(&recorder);
    assert!(down.len() == 1 && down[0].contains("a replica"), "{down:?}");
    redis.servers()[1].resume()?;
    drop(throttle.acquire("up").max_wait(Duration::from_secs(30)).await?);
    assert_eq!(told(&recorder)[1..], ["store up\n"]);
    Ok(())
}
