//! Redis as it is in production: users, databases, sockets, encryption, and servers that are not as they should be.

mod encryption;
mod permissions;
#[path = "../outages/recorder.rs"]
mod recorder;
mod releases;
mod urls;
mod warnings;

use std::error::Error as StdError;
use std::time::Duration;

use outgate::testing::{RedisServer, Reply};
use outgate::{Limit, RedisStore, Throttle, Upstream};

type Failure = Box<dyn StdError + Send + Sync>;
type Outcome = Result<(), Failure>;

/// Sends a command, which must not be refused.
fn told(server: &RedisServer, words: &[&str]) -> Result<Reply, Failure> {
    match server.command(words)? {
        Reply::Error(refusal) => Err(refusal.into()),
        reply => Ok(reply),
    }
}

/// Everything that a user has a store do, all scripts among it.
async fn used(store: RedisStore) -> Outcome {
    let limits = [Limit::per_minute(100), Limit::in_flight(10), Limit::bucket(50, 50, Duration::from_secs(60))];
    let up = limits.into_iter().fold(Upstream::new("up").host("up.example.com"), Upstream::limit);
    let throttle = Throttle::builder().store(store).upstream(up).build()?;
    throttle.acquire("up").await?.hand_back();
    drop(throttle.acquire("up").await?);
    throttle.usage("up").await?;
    throttle.slow_down("up", 0.9, Duration::from_secs(60)).await?;
    throttle.release("up").await?;
    throttle.close().await;
    Ok(())
}
