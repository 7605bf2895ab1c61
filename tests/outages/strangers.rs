//! What listens at the store's address is no Redis.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use outgate::RedisStore;
use outgate::testing::RedisServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scene::{AT_ONCE, Metronome, Outcome, plenty, throttle, timed, unavailable};

const MAX_WAIT: Duration = Duration::from_millis(1_500);

/// Answers whatever it reads with the same words.
#[derive(Clone, Copy)]
struct Stranger {
    words: &'static str,
    /// Then hangs up.
    closes: bool,
    /// Goes on talking without being asked.
    endless: bool,
}

const STRANGERS: [Stranger; 15] = [
    says("\u{7f}ELF\0\0 garbage \r\n\r\n garbage"),
    closes("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    says("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    Stranger { words: "+a line that never ends", closes: false, endless: true },
    Stranger { words: "+OK\r\n", closes: false, endless: true },
    closes(""),
    says(""),
    says("+OK\r\n"),
    says("$-1\r\n"),
    says(":1\r\n"),
    says("*2\r\n:1\r\n+two\r\n"),
    says("-ERR unknown command\r\n"),
    says("*2147483647\r\n"),
    says("$9223372036854775807\r\n"),
    says("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"),
];

const fn says(words: &'static str) -> Stranger {
    Stranger { words, closes: false, endless: false }
}

const fn closes(words: &'static str) -> Stranger {
    Stranger { words, closes: true, endless: false }
}

impl Stranger {
    async fn talk(self, stream: &mut TcpStream) -> io::Result<()> {
        let mut heard = [0; 4_096];
        while stream.read(&mut heard).await? > 0 {
            stream.write_all(self.words.as_bytes()).await?;
            if self.endless {
                loop {
                    stream.write_all(self.words.as_bytes()).await?;
                    sleep(Duration::from_millis(1)).await;
                }
            }
            if self.closes {
                break;
            }
        }
        Ok(())
    }
}

/// A stranger, whose connections end when it becomes a Redis.
async fn serve(
    mut stream: TcpStream,
    stranger: Stranger,
    mut is_redis: watch::Receiver<bool>,
    redis: SocketAddr,
) -> io::Result<()> {
    if *is_redis.borrow() {
        return copy_bidirectional(&mut stream, &mut TcpStream::connect(redis).await?).await.map(drop);
    }
    tokio::select! {
        ended = stranger.talk(&mut stream) => ended,
        _ = is_redis.wait_for(|is_redis| *is_redis) => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_redis_is_an_error_until_it_is_one() -> Outcome {
    let metronome = Metronome::start();
    let redis = RedisServer::start()?;
    let mut strangers = JoinSet::new();
    for stranger in STRANGERS {
        let (target, metronome) = (redis.addr(), metronome.clone());
        strangers.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let url = format!("redis://{}", listener.local_addr()?);
            let (becomes_redis, is_redis) = watch::channel(false);
            let serving = tokio::spawn(async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(serve(stream, stranger, is_redis.clone(), target));
                }
            });
            let throttle =
                throttle(RedisStore::builder(&url).prefix(&format!("p{}", fastrand::u32(..))).open()?, plenty())?;
            for caller in 0..2 {
                let (outcome, took) = timed(throttle.acquire("up").max_wait(MAX_WAIT)).await;
                assert!(took <= MAX_WAIT + metronome.margin().await, "{:?}, {caller}: {took:?}", stranger.words);
                unavailable(outcome);
            }
            becomes_redis.send(true)?;
            let (outcome, took) = timed(throttle.acquire("up")).await;
            drop(outcome?);
            assert!(took <= AT_ONCE + metronome.margin().await, "{:?}: {took:?}", stranger.words);
            serving.abort();
            Outcome::Ok(())
        });
    }
    strangers.join_all().await.into_iter().collect()
}
