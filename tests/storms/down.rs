//! What callers cost who retry at an upstream that is down, over Redis.
//!
//! `cargo test --release --test storms down -- --nocapture` shows the figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outgate::testing::{Fault, RedisServer};
use outgate::{Call, RedisStore};
use reqwest_middleware::ClientBuilder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::figures::probe;
use crate::scene::{Counting, throttle};

const CALLERS: u32 = 64;
const DOWN: Duration = Duration::from_secs(2);
/// How long a caller waits before it retries: each a little longer than the one before, so that they do not come together.
const APART: Duration = Duration::from_millis(10);
const LONGER: Duration = Duration::from_micros(317);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_while_callers_retry_at_an_upstream_that_is_down() {
    let (server, nobody) = (RedisServer::start().unwrap(), Fault::RefuseConnection.start().unwrap());
    let (store, counts) = Counting::new(RedisStore::connect(&server.url()).await.unwrap(), Duration::ZERO);
    let throttle = throttle(store);
    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    let client = ClientBuilder::new(plain).with(throttle.middleware()).build();
    for callers in [0, CALLERS] {
        let before = counts.asks.load(Ordering::Relaxed);
        let end = Instant::now() + DOWN;
        let is_over = Arc::new(AtomicBool::new(false));
        let retrying = async {
            let mut retrying = JoinSet::new();
            for caller in 0..callers {
                let (client, url) = (client.clone(), nobody.url());
                retrying.spawn(timeout_at(end, async move {
                    loop {
                        let call = client.get(&url).with_extension(Call::new().upstream("up"));
                        assert!(call.send().await.unwrap_err().is_connect());
                        sleep(APART + LONGER * caller).await;
                    }
                }));
            }
            sleep_until(end).await;
            retrying.join_all().await;
            is_over.store(true, Ordering::Relaxed);
        };
        let ((), took) = tokio::join!(retrying, probe(&throttle, "other", Arc::clone(&is_over)));
        let own = counts.asks.load(Ordering::Relaxed) - before - took.len() as u64;
        let at = |share: usize| took[(took.len() - 1) * share / 100];
        println!("{callers} callers: {own} store calls in 2 s; others p50 {:.2?}, p99 {:.2?}", at(50), at(99));
    }
}
