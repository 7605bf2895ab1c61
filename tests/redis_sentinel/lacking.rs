//! Calls go on without a replica, and without Sentinels, and that is traced.

use std::time::{Duration, Instant};

use outgate::testing::{FlakyProxy, Mode, RedisSentinel, RedisServer, Reply};
use outgate::{Limit, RedisStore, Throttle, Upstream};

use crate::recorder::Recorder;
use crate::{Failure, Outcome, until};

/// How long a store waits for a replica of which nothing is known, while most of the Sentinels answer.
const GIVEN_UP: Duration = Duration::from_secs(4);
/// How long the replica may take to say what it is, and how long it is until it is asked again.
const ASKED: Duration = Duration::from_millis(1_300);
/// What else a busy machine takes.
const BUSY: Duration = Duration::from_secs(3);

async fn throttle(redis: &RedisSentinel) -> Result<Throttle, Failure> {
    let store = RedisStore::sentinel(RedisSentinel::NAME, redis.urls()).connect().await?;
    let up = Upstream::new("up").limit(Limit::per_minute(1_000));
    let throttle = Throttle::builder().store(store).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    Ok(throttle)
}

/// Of a process that starts now.
fn starts(redis: &RedisSentinel) -> Result<Throttle, Failure> {
    let store = RedisStore::sentinel(RedisSentinel::NAME, redis.urls()).open()?;
    Ok(Throttle::builder().store(store).upstream(Upstream::new("up").limit(Limit::per_minute(1_000))).build()?)
}

fn warned(recorder: &Recorder, of: &str) -> usize {
    recorder.news().iter().filter(|news| news.contains(of)).count()
}

async fn until_given_up(sentinel: &RedisServer) -> Outcome {
    until("a replica is given up", || {
        let Reply::Array(replicas) = sentinel.command(&["SENTINEL", "REPLICAS", RedisSentinel::NAME])? else {
            return Ok(false);
        };
        let said = |replica: &Reply| if let Reply::Array(words) = replica { words.clone() } else { Vec::new() };
        Ok(replicas.iter().flat_map(said).any(|word| word.text().is_some_and(|word| word.contains("s_down"))))
    })
    .await
}

/// The next call is answered as soon as the store goes on without a replica.
async fn goes_on(throttle: &Throttle, what: &str) -> Outcome {
    let began = Instant::now();
    drop(throttle.acquire("up").max_wait(GIVEN_UP + ASKED + BUSY).await?);
    println!("{what}: a call took {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_replica_that_is_killed_or_stands_still_is_soon_not_waited_for_any_more_and_that_is_traced_once() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisSentinel::start(2)?;
    let throttle = throttle(&redis).await?;
    assert_eq!(warned(&recorder, "without a replica"), 0);
    redis.servers()[1].stop();
    goes_on(&throttle, "a replica was killed").await?;
    assert_eq!(warned(&recorder, "without a replica"), 1);
    redis.servers()[2].pause()?;
    goes_on(&throttle, "a replica stands still").await?;
    for _ in 0..10 {
        drop(throttle.acquire("up").await?);
    }
    assert_eq!(warned(&recorder, "without a replica"), 2);
    Ok(())
}

/// Two of them answer well after the nearest one, and one of these after what most have said is known.
#[tokio::test]
async fn sentinels_that_are_further_away_than_the_nearest_are_heard_as_well_and_keep_their_connections() -> Outcome {
    let redis = RedisSentinel::start(1)?;
    let proxies = redis.sentinels().iter().map(|sentinel| FlakyProxy::start(sentinel.addr()));
    let proxies = proxies.collect::<Result<Vec<_>, _>>()?;
    for (proxy, millis) in proxies.iter().zip([0, 120, 400]) {
        proxy.set(Mode::Delay(Duration::from_millis(millis)));
    }
    let store = RedisStore::sentinel(RedisSentinel::NAME, proxies.iter().map(FlakyProxy::url)).connect().await?;
    let up = Upstream::new("up").limit(Limit::per_minute(1_000));
    let throttle = Throttle::builder().store(store).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    redis.servers()[1].stop();
    goes_on(&throttle, "a replica was killed, and most of the Sentinels are away").await?;
    for _ in 0..10 {
        // Its connections break: it is looked up again.
        redis.servers()[0].command(&["CLIENT", "KILL", "TYPE", "normal"])?;
        drop(throttle.acquire("up").await?);
    }
    let connections = proxies[2].connections();
    assert!(
        connections <= 6,
        "{connections} connections for a few that are asked over in turn, and to be subscribed to"
    );
    Ok(())
}

/// From 7.2 on `WAIT` waits for what its own connection wrote, and for nothing where that wrote nothing.
#[tokio::test]
async fn a_message_that_writes_nothing_counts_though_a_replica_has_not_yet_confirmed_what_others_wrote() -> Outcome {
    let redis = RedisSentinel::start(1)?;
    let throttle = throttle(&redis).await?;
    let primary = redis.primary()?.ok_or("no primary")?;
    let scripts = || -> Result<usize, Failure> {
        let said = redis.servers()[primary].command(&["INFO", "commandstats"])?;
        let calls = said.text().and_then(|said| said.split_once("cmdstat_evalsha:calls=")?.1.split_once(','));
        Ok(calls.ok_or("no script was called")?.0.parse()?)
    };
    let before = scripts()?;
    for _ in 0..30 {
        drop(throttle.acquire("up").await?);
        throttle.usage("up").await?;
    }
    let calls = scripts()? - before;
    assert!((60..120).contains(&calls), "{calls} calls of scripts for 60 messages, and for who is there");
    Ok(())
}

#[tokio::test]
async fn without_sentinels_calls_go_on_with_a_primary_whose_replicas_follow() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisSentinel::start(1)?;
    let throttle = throttle(&redis).await?;
    redis.sentinels().iter().for_each(RedisServer::stop);
    for _ in 0..10 {
        drop(throttle.acquire("up").await?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(warned(&recorder, "a Sentinel cannot be heard any more"), 1);
    // Its connections break: it is looked up again.
    redis.servers()[0].command(&["CLIENT", "KILL", "TYPE", "normal"])?;
    for _ in 0..3 {
        drop(throttle.acquire("up").await?);
    }
    assert_eq!(warned(&recorder, "no Sentinel answers"), 1);
    // The only one that could take over stands still: nobody says whether it has.
    redis.servers()[1].pause()?;
    assert!(throttle.acquire("up").max_wait(Duration::from_secs(1)).await.is_err());
    redis.servers()[1].resume()?;
    drop(throttle.acquire("up").await?);
    Ok(())
}

/// What a minority says holds on the one side of a network that is cut in two, while a replica is made primary on the other. What refuses
/// connections there may be what cuts it.
#[tokio::test]
async fn a_replica_that_is_silent_or_refuses_is_waited_for_as_long_as_most_of_the_sentinels_do_not_say_that_it_is_given_up()
-> Outcome {
    for refuses in [false, true] {
        let redis = RedisSentinel::start(1)?;
        let throttle = throttle(&redis).await?;
        redis.sentinels()[1..].iter().for_each(RedisServer::stop);
        drop(throttle.acquire("up").await?);
        let replica = &redis.servers()[1];
        if refuses {
            replica.stop();
        } else {
            replica.pause()?;
        }
        // The one Sentinel gives it up after half a second.
        let alone = throttle.acquire("up").max_wait(Duration::from_secs(3)).await;
        assert!(alone.is_err(), "{alone:?}");
        redis.sentinels()[1].restart()?;
        drop(throttle.acquire("up").max_wait(Duration::from_secs(30)).await?);
    }
    Ok(())
}

/// One that starts on that side knows nothing of before: of a replica that the minority has given up it cannot know what became of it.
#[tokio::test]
async fn who_starts_where_a_minority_of_the_sentinels_answers_believes_no_primary_without_its_replica() -> Outcome {
    let redis = RedisSentinel::start(1)?;
    let [few, others @ ..] = redis.sentinels() else { return Err("no Sentinel".into()) };
    others.iter().for_each(RedisServer::stop);
    drop(starts(&redis)?.acquire("up").await?);
    redis.servers()[1].stop();
    until_given_up(few).await?;
    let throttle = starts(&redis)?;
    let alone = throttle.acquire("up").max_wait(Duration::from_secs(6)).await;
    assert!(alone.is_err(), "{alone:?}");
    // Nor once nobody says anything.
    few.stop();
    let alone = throttle.acquire("up").max_wait(Duration::from_secs(3)).await;
    assert!(alone.is_err(), "{alone:?}");
    // Started anew, a Sentinel knows of the replica, and not that it ever followed.
    few.restart()?;
    let alone = starts(&redis)?.acquire("up").max_wait(Duration::from_secs(3)).await;
    assert!(alone.is_err(), "{alone:?}");
    others[0].restart()?;
    drop(throttle.acquire("up").max_wait(Duration::from_secs(30)).await?);
    Ok(())
}

/// Sentinels never forget a replica that is gone for good.
#[tokio::test]
async fn a_replica_that_was_given_up_holds_up_nobody_who_ran_then_where_a_minority_of_the_sentinels_is_left() -> Outcome
{
    let redis = RedisSentinel::start(2)?;
    let [few, others @ ..] = redis.sentinels() else { return Err("no Sentinel".into()) };
    let [primary, follows, gone] = redis.servers() else { return Err("no servers".into()) };
    let ran = throttle(&redis).await?;
    gone.stop();
    goes_on(&ran, "a replica was killed").await?;
    for sentinel in redis.sentinels() {
        until_given_up(sentinel).await?;
    }
    // It never had to do with the one that is gone.
    let ran_later = throttle(&redis).await?;
    for sentinel in others {
        sentinel.stop();
        primary.command(&["CLIENT", "KILL", "TYPE", "normal"])?;
        for throttle in [&ran, &ran_later] {
            drop(throttle.acquire("up").max_wait(BUSY).await?);
        }
    }
    let begun = starts(&redis)?.acquire("up").max_wait(BUSY).await;
    assert!(begun.is_err(), "it cannot know what became of the one that is gone: {begun:?}");
    follows.stop();
    let alone = ran.acquire("up").max_wait(BUSY).await;
    assert!(alone.is_err(), "{alone:?}");
    follows.restart()?;
    few.stop();
    drop(ran.acquire("up").max_wait(GIVEN_UP + BUSY).await?);
    Ok(())
}

#[tokio::test]
async fn nor_does_the_primary_of_before_that_was_given_up_later() -> Outcome {
    let redis = RedisSentinel::start(2)?;
    let [_, others @ ..] = redis.sentinels() else { return Err("no Sentinel".into()) };
    for sentinel in redis.sentinels() {
        // On a busy machine a server that runs is silent for longer than half a second, and one would be made primary after the other.
        sentinel.command(&["SENTINEL", "SET", RedisSentinel::NAME, "down-after-milliseconds", "5000"])?;
    }
    let ran = throttle(&redis).await?;
    redis.servers()[0].stop();
    until("another primary is named", || Ok(redis.primary()?.is_some_and(|primary| primary != 0))).await?;
    goes_on(&ran, "the primary was killed").await?;
    for sentinel in redis.sentinels() {
        until_given_up(sentinel).await?;
    }
    // It is asked every ten seconds who is given up, as long as there are calls.
    let calls = Instant::now();
    while calls.elapsed() < Duration::from_secs(13) {
        drop(ran.acquire("up").max_wait(GIVEN_UP + ASKED + BUSY).await?);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let primary = redis.primary()?.and_then(|primary| redis.servers().get(primary)).ok_or("no primary")?;
    others.iter().for_each(RedisServer::stop);
    primary.command(&["CLIENT", "KILL", "TYPE", "normal"])?;
    goes_on(&ran, "one of three Sentinels is left").await
}
