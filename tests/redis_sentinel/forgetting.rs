//! Connections to the Sentinels that something between forgets, as firewalls do with idle ones: neither end is told.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use outgate::testing::RedisSentinel;
use outgate::{Limit, RedisStore, Throttle, Upstream};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::fleet::another_is_named;

/// Passes everything on. Once it forgets, nothing of the connections that there are.
async fn relay(listener: TcpListener, to: SocketAddr, forgets: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let (is_new, mut forgets) = (*forgets.borrow(), forgets.clone());
        connections.spawn(async move {
            let Ok(mut server) = TcpStream::connect(to).await else { return };
            let forgotten = async {
                if is_new || forgets.wait_for(|forgets| *forgets).await.map(drop).is_err() {
                    pending::<()>().await;
                }
            };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                () = forgotten => pending().await,
            }
        });
    }
}

#[tokio::test]
async fn sentinels_are_asked_anew_where_connections_to_them_were_forgotten() -> Outcome {
    let redis = RedisSentinel::start(1)?;
    let (forget, forgets) = watch::channel(false);
    let (mut relays, mut urls) = (JoinSet::new(), Vec::new());
    for sentinel in redis.sentinels() {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        urls.push(format!("redis://{}", listener.local_addr()?));
        relays.spawn(relay(listener, sentinel.addr(), forgets.clone()));
    }
    let store = RedisStore::sentinel(RedisSentinel::NAME, urls).connect().await?;
    let up = Upstream::new("up").limit(Limit::per_minute(1_000));
    let throttle = Throttle::builder().store(store).upstream(up).build()?;
    drop(throttle.acquire("up").await?);
    forget.send(true)?;
    redis.servers()[0].stop();
    another_is_named(&redis, 0).await?;
    drop(throttle.acquire("up").max_wait(Duration::from_secs(20)).await?);
    Ok(())
}
