//! Searching the keys of a store whose server comes to no end.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use outgate::RedisStore;
use outgate::store::StoreErrorKind;
use outgate::testing::RedisServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::scene::Outcome;

/// What is answered to the step of a search: go on at that cursor.
fn go_on_at(cursor: u8) -> Vec<u8> {
    format!("*2\r\n$1\r\n{cursor}\r\n*0\r\n").into_bytes()
}

/// Passes on everything but the steps of a search, which go in so large a circle.
async fn serve(mut client: TcpStream, redis: SocketAddr, circle: u8) -> io::Result<()> {
    let mut steps = (1..=circle).cycle();
    let mut redis = TcpStream::connect(redis).await?;
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let words = &asked[..read?];
                if words.is_empty() {
                    return Ok(());
                }
                if words.windows(8).any(|part| part == b"\r\nSCAN\r\n") {
                    client.write_all(&go_on_at(steps.next().unwrap_or(0))).await?;
                } else {
                    redis.write_all(words).await?;
                }
            }
            read = redis.read(&mut answered) => client.write_all(&answered[..read?]).await?,
        }
    }
}

#[tokio::test]
async fn a_search_that_is_sent_back_to_where_it_is_ends() -> Outcome {
    a_search_that_goes_in_a_circle_ends(1).await
}

#[tokio::test]
async fn a_search_that_is_sent_back_to_where_it_was_ends() -> Outcome {
    a_search_that_goes_in_a_circle_ends(3).await
}

async fn a_search_that_goes_in_a_circle_ends(circle: u8) -> Outcome {
    let redis = RedisServer::start()?;
    let (listener, target) = (TcpListener::bind("127.0.0.1:0").await?, redis.addr());
    let url = format!("redis://{}", listener.local_addr()?);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            connections.spawn(serve(client, target, circle));
        }
    });
    let store = RedisStore::connect(&url).await?;
    let searches = async { (store.upstreams().await.err(), store.ledgers_of("up").await.err()) };
    let (upstreams, ledgers) = timeout(Duration::from_secs(10), searches).await?;
    let kinds = [upstreams, ledgers].map(|error| error.map(|error| error.kind()));
    assert_eq!(kinds, [Some(StoreErrorKind::Malformed); 2]);
    Ok(())
}
