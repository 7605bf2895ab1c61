//! That the store went down, and that it is up again, is traced once each.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use outgate::ledger::{Ask, Log, Message, MessageId, Run, Term};
use outgate::store::WithoutStore;
#[cfg(feature = "redis-sentinel")]
use outgate::testing::RedisSentinel;
use outgate::testing::{Mode, RedisServer};
use outgate::{Permit, RedisStore, Store as _, Throttle, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

pub(crate) use crate::recorder::Recorder;
use crate::scene::{Outage, Outcome, Scene, plenty, throttle, unavailable};

const HASTY: Duration = Duration::from_millis(200);

/// Many callers of several lines meet a cause, and find it gone.
fn news_of(begin: impl FnOnce(&Scene) -> Outcome, end: impl FnOnce(&Scene) -> Outcome) -> Result<Vec<String>, String> {
    let news = || {
        let (recorder, _guard) = Recorder::on_this_thread();
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let scene = Scene::new()?;
            let throttle = scene.throttle(plenty())?;
            drop(throttle.acquire("up").await?);
            begin(&scene)?;
            let mut callers = JoinSet::new();
            for caller in 0..40 {
                let throttle = throttle.clone();
                callers.spawn(async move {
                    sleep(Duration::from_millis(10 * caller)).await;
                    let acquire = throttle.acquire("up").scope([(caller % 4) as u8]);
                    unavailable(acquire.max_wait(Duration::from_millis(1_200)).await)
                });
            }
            callers.join_all().await;
            end(&scene)?;
            // A server that was stopped has lost its data, which is traced apart, by who was granted any of it.
            for _ in 0..5 {
                drop(throttle.acquire("up").scope("since").await?);
            }
            Outcome::Ok(())
        })?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(recorder.news())
    };
    news().map_err(|error| error.to_string())
}

#[test]
fn an_outage_is_traced_once_when_it_begins_and_once_when_it_ends() {
    thread::scope(|threads| {
        let outages = Outage::ALL.map(|outage| {
            let news = threads.spawn(move || news_of(|scene| Ok(outage.begin(scene)?), |scene| Ok(outage.end(scene)?)));
            (format!("{outage:?}"), news)
        });
        let refusals = [
            ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
            ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
            ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ]
        .map(|(cause, cure)| {
            let redis = |command: &'static str| {
                move |scene: &Scene| {
                    scene.redis(command)?;
                    Ok(())
                }
            };
            (cause.to_owned(), threads.spawn(move || news_of(redis(cause), redis(cure))))
        });
        for (what, news) in outages.into_iter().chain(refusals) {
            let news = news.join().unwrap_or_else(|_| Err("it panicked".to_owned()));
            // Why, where the server says it of itself to who connects anew.
            let why = what.starts_with("REPLICAOF 127").then_some("WARN store is a replica, which takes no writes");
            let told = ["WARN store down"].into_iter().chain(why).chain(["INFO store up"]);
            assert_eq!(news, Ok(told.map(str::to_owned).collect()), "{what}");
        }
    });
}

#[tokio::test]
async fn what_a_replica_answers_that_takes_no_writes_does_not_show_that_the_store_is_up() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let store = RedisStore::connect(&scene.redis.url()).await?;
    let log = [Log::new("calls", [Term::new(10, 1_000_000)])];
    let ask = |number| {
        let ask = Ask::new(log.clone(), vec![Run::new(1, [1])]);
        Message::new("up", MessageId::new(7, "", number), ask)
    };
    let time = Message::new("up", MessageId::nobodys(), Ask::new(log.clone(), Vec::new()));
    store.apply(&ask(1)).await?;
    scene.redis("REPLICAOF 127.0.0.1 1")?;
    for number in 2..5 {
        assert!(store.apply(&ask(number)).await.is_err());
        store.apply(&time).await?;
    }
    scene.redis("REPLICAOF NO ONE")?;
    store.apply(&ask(5)).await?;
    assert_eq!(recorder.news(), ["WARN store down", "WARN store is a replica, which takes no writes", "INFO store up"]);
    Ok(())
}

/// A message that changes nothing writes nothing.
#[tokio::test]
async fn nor_does_what_is_refused_there_without_a_word_written() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let store = RedisStore::connect(&scene.redis.url()).await?;
    let ask = |log: &str, number, max_wait| {
        let run = Run::new(1, [1]).max_wait(max_wait);
        Message::new(
            "up",
            MessageId::new(7, "", number),
            Ask::new([Log::new(log, [Term::new(1, 60_000_000)])], vec![run]),
        )
    };
    for (log, number) in [("full", 1), ("empty", 2)] {
        store.apply(&ask(log, number, Duration::ZERO)).await?;
    }
    scene.redis("REPLICAOF 127.0.0.1 1")?;
    for number in [3, 5, 7] {
        assert!(store.apply(&ask("other", number, Duration::ZERO)).await.is_err());
        let refused = store.apply(&ask("full", number + 1, Duration::ZERO)).await?.grant().ok_or("no grant")?;
        assert!(!refused.remembered && refused.answers(1).all(|answer| !answer.verdict.is_granted()));
    }
    assert_eq!(recorder.news(), ["WARN store down", "WARN store is a replica, which takes no writes"]);
    Ok(())
}

#[tokio::test]
async fn that_an_idle_connection_was_closed_is_no_news_where_the_next_one_serves() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    for _ in 0..3 {
        drop(throttle.acquire("up").await?);
        scene.redis("CLIENT KILL TYPE normal")?;
        sleep(Duration::from_millis(20)).await;
    }
    drop(throttle.acquire("up").await?);
    assert_eq!(recorder.news(), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn that_every_connection_is_closed_before_it_has_served_is_traced_once() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    scene.proxy.set(Mode::CutBeforeReply(usize::MAX));
    for _ in 0..3 {
        unavailable(throttle.acquire("up").max_wait(HASTY).await);
    }
    assert_eq!(recorder.news(), ["WARN store down"]);
    scene.proxy.set(Mode::Pass);
    drop(throttle.acquire("up").await?);
    assert_eq!(recorder.news(), ["WARN store down", "INFO store up"]);
    Ok(())
}

/// Passes on what makes a connection, and hangs up on who calls a script over it.
async fn hangs_up_on_calls(mut client: TcpStream, target: SocketAddr) -> io::Result<()> {
    let (mut server, mut buffer) = (TcpStream::connect(target).await?, vec![0; 65_536]);
    let (mut requests, mut replies) = client.split();
    let (mut answers, mut sends) = server.split();
    let passes = async {
        loop {
            let read = requests.read(&mut buffer).await?;
            if read == 0 || buffer[..read].windows(7).any(|word| word == b"EVALSHA") {
                return Ok(());
            }
            sends.write_all(&buffer[..read]).await?;
        }
    };
    tokio::select! {
        hung_up = passes => hung_up,
        copied = copy(&mut answers, &mut replies) => copied.map(drop),
    }
}

/// An address that leads to a server and hangs up so.
async fn where_calls_are_hung_up_on(target: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(hangs_up_on_calls(client, target));
        }
    });
    Ok(addr)
}

#[tokio::test]
async fn that_every_connection_can_be_made_and_is_closed_then_is_traced_once() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisServer::start()?;
    let addr = where_calls_are_hung_up_on(redis.addr()).await?;
    let throttle = throttle(RedisStore::open(&format!("redis://{addr}"))?, plenty())?;
    for _ in 0..3 {
        unavailable(throttle.acquire("up").max_wait(HASTY).await);
    }
    assert_eq!(recorder.news(), ["WARN store down"]);
    Ok(())
}

/// It says what it is over the same connection, which calls are closed with.
#[cfg(feature = "redis-sentinel")]
#[tokio::test]
async fn that_a_primary_of_sentinels_closes_every_connection_at_a_call_is_traced_once() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let redis = RedisServer::start()?;
    let port = where_calls_are_hung_up_on(redis.addr()).await?.port();
    let watched = format!("sentinel monitor proxied 127.0.0.1 {port} 2");
    let start = move || RedisSentinel::start_with(0, &[], &[&watched]);
    let sentinels = tokio::task::spawn_blocking(start).await??;
    let throttle = throttle(RedisStore::sentinel("proxied", sentinels.urls()).open()?, plenty())?;
    for _ in 0..3 {
        unavailable(throttle.acquire("up").max_wait(2 * HASTY).await);
    }
    assert_eq!(recorder.news(), ["WARN store down"]);
    Ok(())
}

/// Many callers of several scopes meet an outage, by policy: what is traced, sorted.
fn news_by(policy: WithoutStore, outage: Outage) -> Result<Vec<String>, String> {
    let news = || {
        let (recorder, _guard) = Recorder::on_this_thread();
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let scene = Scene::new()?;
            let up = Upstream::new("up").limit(plenty()).without_store(policy);
            let throttle = Throttle::builder().store(RedisStore::open(&scene.proxy.url())?).upstream(up).build()?;
            drop(throttle.acquire("up").await?);
            outage.begin(&scene)?;
            for caller in 0..100_u64 {
                let outcome = throttle.acquire("up").scope([(caller % 4) as u8]).await;
                assert!(outcome.as_ref().map_or(true, Permit::went_without_store), "{outcome:?}");
                sleep(Duration::from_millis(10)).await;
            }
            outage.end(&scene)?;
            while throttle.acquire("up").await.map_or(true, |permit| permit.went_without_store()) {
                sleep(Duration::from_millis(10)).await;
            }
            for scope in 0..4 {
                while throttle.acquire("up").scope([scope]).await.map_or(true, |permit| permit.went_without_store()) {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            Outcome::Ok(())
        })?;
        let mut news = recorder.news();
        news.sort();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(news)
    };
    news().map_err(|error| error.to_string())
}

#[test]
fn that_calls_go_on_without_the_store_is_traced_once_for_an_upstream_not_for_each_call_or_scope() {
    let said = [
        (WithoutStore::Refuse, "WARN store lost: calls are refused"),
        (WithoutStore::SendUnthrottled, "WARN store lost: calls are sent unthrottled"),
    ];
    thread::scope(|threads| {
        let all = said.map(|(policy, said)| {
            [Outage::Refused, Outage::Blackholed]
                .map(|outage| (outage, said, threads.spawn(move || news_by(policy, outage))))
        });
        for (outage, said, news) in all.into_iter().flatten() {
            let expected = ["INFO store back: calls are throttled again", "INFO store up", "WARN store down", said];
            let news = news.join().unwrap_or_else(|_| Err("it panicked".to_owned()));
            assert_eq!(news, Ok(expected.map(str::to_owned).to_vec()), "{outage:?}");
        }
    });
}
