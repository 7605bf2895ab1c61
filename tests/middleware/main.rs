//! The middleware: what becomes of the slot for every outcome of a call, and what the caller is told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod breaking;
mod cached;
mod changing;
mod observing;
mod outcomes;
mod paused;
mod pausing;
mod redirecting;
mod retrying;
mod routing;
mod seats;
mod settling;
mod telling;
mod unmatched;
mod unreachable;
mod without_store;

use std::time::Duration;

use outgate::{Limit, Throttle, Upstream};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

/// Two calls an hour to any loopback host.
fn throttle() -> Throttle {
    let loopback = Upstream::new("loopback").host("127.0.0.1").limit(Limit::per_hour(2));
    Throttle::builder().upstream(loopback).build().unwrap()
}

fn plain() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(1)).build().unwrap()
}

fn client(throttle: &Throttle) -> ClientWithMiddleware {
    ClientBuilder::new(plain()).with(throttle.middleware()).build()
}

/// Units that count, once the store has been told everything.
async fn used(throttle: &Throttle) -> u32 {
    let mut used = u32::MAX;
    // A slot that is handed back is gone before the next message of the same queue is answered.
    for _ in 0..3 {
        tokio::task::yield_now().await;
        used = throttle.usage("loopback").await.unwrap().limits[0].used;
    }
    used
}
