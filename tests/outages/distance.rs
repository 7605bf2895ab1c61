//! A Redis that is far away, or not always equally far.

use std::io;
use std::time::Duration;

use outgate::ledger::Message;
use outgate::store::Applying;
use outgate::testing::{Mode, RedisServer, oracle};
use outgate::{Limit, MemoryStore, RedisStore, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::scene::{Outcome, Scene, plenty, throttle};
use crate::traces::Recorder;

const WINDOW: Duration = Duration::from_millis(900);
const GUARD: Duration = Duration::from_millis(100);
const FAR: Duration = Duration::from_millis(80);
/// Ten ways, and what the last reply is expected to take.
const FIRST: Duration = Duration::from_millis(877);

/// A store in memory, so that time can be paused, whose answers take 80 ms each way.
#[derive(Clone, Debug)]
struct Far(MemoryStore);

impl Store for Far {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            sleep(FAR).await;
            let answer = self.0.apply(message).await;
            sleep(FAR).await;
            answer
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_80_ms_away_gives_the_full_quota_and_no_slot_comes_late() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let throttle = throttle(Far(MemoryStore::new()), Limit::new(50, WINDOW).guard(GUARD))?;
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..500 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
    }
    drop(callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?);
    // The first answer may be late by all of its round trip, so its slot goes back, and the clock of the store is asked for three times. The
    // next ask is for slots that start when its reply is here. Ten times the quota takes nine spans from there.
    assert_eq!(began.elapsed(), FIRST + 9 * (WINDOW + GUARD));
    let late: Vec<_> = recorder.all().into_iter().filter(|(_, text)| text.contains("stale")).collect();
    assert_eq!(late.len(), 1, "the first: {late:?}");
    Ok(())
}

#[tokio::test]
async fn a_redis_80_ms_away_serves_everybody_and_keeps_the_limit() -> Outcome {
    let scene = Scene::new()?;
    scene.proxy.set(Mode::Delay(FAR));
    let throttle = scene.throttle(Limit::new(50, WINDOW).guard(GUARD))?;
    let mut callers = JoinSet::new();
    for _ in 0..150 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
    }
    drop(callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?);
    oracle::assert_never_more_than(50, 1_000_000, &scene.log()?);
    Ok(())
}

#[tokio::test]
async fn a_redis_is_connected_to_whose_answers_come_in_time_however_many_a_connection_takes() -> Outcome {
    let scene = Scene::with(&["--requirepass", "secret"])?;
    scene.proxy.set(Mode::Delay(Duration::from_millis(700)));
    let store = RedisStore::open(&format!("redis://:secret@{}/2", scene.proxy.addr()))?;
    let throttle = throttle(store, plenty())?;
    drop(throttle.acquire("up").await?);
    scene.redis("CLIENT KILL TYPE normal")?;
    drop(throttle.acquire("up").await?);
    Ok(())
}

#[tokio::test]
async fn a_delay_that_varies_within_the_guard_loses_nobody_and_no_slot() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty().guard(Duration::from_secs(1)))?;
    let mut random = fastrand::Rng::with_seed(7);
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        scene.proxy.set(Mode::Delay(Duration::from_millis(random.u64(5..40))));
        for _ in 0..random.usize(1..5) {
            let throttle = throttle.clone();
            callers.spawn(async move { throttle.acquire("up").await });
        }
        sleep(Duration::from_millis(random.u64(0..20))).await;
    }
    let permits = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    scene.log_holds(permits.len()).await
}

#[tokio::test]
async fn a_delay_that_varies_by_more_than_the_guard_still_serves_everybody() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty().guard(Duration::from_millis(10)))?;
    let mut random = fastrand::Rng::with_seed(8);
    let mut callers = JoinSet::new();
    for _ in 0..60 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
        scene.proxy.set(Mode::Delay(Duration::from_millis(random.u64(0..100))));
        sleep(Duration::from_millis(random.u64(0..30))).await;
    }
    scene.proxy.set(Mode::Pass);
    let permits = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    scene.log_holds(permits.len()).await
}

/// What TCP sends over a new connection before anything of it is confirmed: ten packets. Then twice as much, each time.
const FIRST_WINDOW: usize = 14_500;
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Passes on what is sent as TCP does to somebody so far away; small messages pass at once.
async fn slow_start(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let ((mut client, mut to_client), (mut from_server, mut server)) = (client.into_split(), server.into_split());
    let replies = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let (mut window, mut buffer) = (FIRST_WINDOW, vec![0; FIRST_WINDOW]);
    let mut left = window;
    loop {
        let most = left.min(buffer.len());
        let read = client.read(&mut buffer[..most]).await?;
        if read == 0 {
            replies.abort();
            return Ok(());
        }
        server.write_all(&buffer[..read]).await?;
        left -= read;
        if left == 0 {
            sleep(ROUND_TRIP).await;
            window *= 2;
            left = window;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_is_connected_to_though_the_scripts_take_longer_than_an_answer_may() -> Outcome {
    let redis = RedisServer::start()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (url, target) = (format!("redis://{}", listener.local_addr()?), redis.addr());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move { slow_start(client, TcpStream::connect(target).await?).await });
        }
    });
    let store = RedisStore::builder(&url).response_timeout(ROUND_TRIP * 19 / 10).connect().await?;
    drop(throttle(store, plenty())?.acquire("up").await?);
    Ok(())
}
