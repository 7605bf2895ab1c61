//! A server that takes no connection says why in one line, before it is asked anything, and hangs up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outgate::store::StoreErrorKind;
use outgate::testing::RedisServer;
use outgate::{RedisStore, Scope, Throttle, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::faults_that_last::{Failure, refused};
use crate::scene::{Outcome, Scene, plenty, throttle};
use crate::traces::Recorder;

const DENIED: &str =
    "DENIED Redis is running in protected mode because protected mode is enabled and no password is set";
const FULL: &str = "ERR max number of clients reached";

/// When a server says its line: at once, or as soon as it is sent something.
#[derive(Clone, Copy, Debug)]
enum Says {
    AtOnce,
    OnceAsked,
}

/// Hangs up on everybody with these words.
async fn hangs_up(says: Says, words: &'static str) -> Result<(SocketAddr, JoinSet<()>), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (addr, mut serving) = (listener.local_addr()?, JoinSet::new());
    serving.spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            if matches!(says, Says::OnceAsked) && client.read(&mut [0; 4_096]).await.is_err() {
                continue;
            }
            let _ = client.write_all(format!("-{words}\r\n").as_bytes()).await;
        }
    });
    Ok((addr, serving))
}

async fn not_connected(url: &str) -> Result<String, Failure> {
    let error = RedisStore::connect(url).await.err().ok_or("connected")?;
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    Ok(error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_says_as_it_hangs_up_fails_at_connect() -> Outcome {
    for says in [Says::AtOnce, Says::OnceAsked] {
        for words in [DENIED, FULL] {
            let (addr, _serving) = hangs_up(says, words).await?;
            // Whether the line comes before anything was sent is chance.
            for _ in 0..10 {
                for rest in ["", "2", "?protocol=resp3"] {
                    let why = not_connected(&format!("redis://{addr}/{rest}")).await?;
                    // Of what comes instead of an answer to SELECT the client drops the code.
                    let (_, said) = words.split_once(' ').ok_or("no code")?;
                    // The one stays so, the other passes.
                    let for_how_long =
                        if words == DENIED { "cannot be connected to: " } else { "cannot be used now: " };
                    assert!(why.contains(for_how_long) && why.contains(said), "{says:?} {rest}: {why}");
                }
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_a_server_says_as_it_hangs_up_is_traced_and_told_to_each_caller() -> Outcome {
    let ((recorder, _guard), mut all) = (Recorder::on_this_thread(), Vec::new());
    for says in [Says::AtOnce, Says::OnceAsked] {
        let before = recorder.news().len();
        let (addr, serving) = hangs_up(says, DENIED).await?;
        all.push(serving);
        let throttle = throttle(RedisStore::open(&format!("redis://{addr}"))?, plenty())?;
        for _ in 0..2 {
            let why = refused(&throttle).await?;
            assert!(why.contains("DENIED Redis is running in protected mode"), "{says:?}: {why}");
        }
        assert_eq!(recorder.news()[before..], ["WARN store refuses"], "{says:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_has_as_many_clients_as_it_takes_says_so_at_connect() -> Outcome {
    let scene = Scene::new()?;
    let mut client = scene.redis.client()?;
    client.command(&["CONFIG", "SET", "maxclients", "1"])?;
    let url = scene.redis.url();
    for _ in 0..10 {
        let why = not_connected(&url).await?;
        assert!(why.contains(FULL), "{why}");
    }
    client.command(&["CONFIG", "SET", "maxclients", "100"])?;
    RedisStore::connect(&url).await?;
    Ok(())
}

/// One that hangs up without a word may be back at once.
#[tokio::test]
async fn a_server_that_hangs_up_without_a_word_is_out_of_reach() -> Outcome {
    let scene = Scene::new()?;
    scene.proxy.set(outgate::testing::Mode::Refuse);
    let error = RedisStore::connect(&scene.proxy.url()).await.err().ok_or("connected")?;
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    Ok(())
}

/// Passes on what comes before a call, and hangs up on every call. Says how many connections were made so far.
async fn hangs_up_on_calls(server: SocketAddr) -> Result<(SocketAddr, Arc<AtomicU32>, JoinSet<()>), Failure> {
    let (listener, made) = (TcpListener::bind("127.0.0.1:0").await?, Arc::new(AtomicU32::new(0)));
    let (addr, counted, mut serving) = (listener.local_addr()?, Arc::clone(&made), JoinSet::new());
    serving.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(server).await else { return };
                let ((mut from, mut back), (mut answers, mut on)) = (client.into_split(), server.into_split());
                let answering = tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
                let mut piece = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from.read(&mut piece).await {
                    let is_call = piece[..length].windows(7).any(|word| word == b"EVALSHA");
                    if is_call || on.write_all(&piece[..length]).await.is_err() {
                        break;
                    }
                }
                answering.abort();
            });
        }
    });
    Ok((addr, made, serving))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_up_on_every_call_is_not_stormed_however_many_wait_for_it() -> Outcome {
    let redis = RedisServer::start()?;
    let (addr, made, _serving) = hangs_up_on_calls(redis.addr()).await?;
    let up = Upstream::new("up").scope_by(Scope::header("x-merchant")).limit(plenty());
    let throttle = Throttle::builder().store(RedisStore::open(&format!("redis://{addr}"))?).upstream(up).build()?;
    let (began, mut callers) = (Instant::now(), JoinSet::new());
    let end = began + Duration::from_secs(1);
    for merchant in 0..50_u32 {
        let throttle = throttle.clone();
        callers.spawn(async move {
            while Instant::now() < end {
                let call = throttle.acquire("up").scope(merchant.to_string()).max_wait(Duration::from_millis(100));
                assert!(call.await.is_err());
            }
        });
    }
    callers.join_all().await;
    let most = began.elapsed().as_millis() / 50 + 2;
    let made = made.load(Ordering::Relaxed);
    println!("{made} connections, {most} at most");
    assert!(made > 1 && u128::from(made) <= most, "{made} connections, {most} at most");
    Ok(())
}
