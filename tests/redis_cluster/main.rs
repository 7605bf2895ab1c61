//! A Redis Cluster: upstreams are spread over its nodes, and calls go on while it changes.

mod connecting;
#[path = "../outages/doubled.rs"]
mod doubled;
mod failing_over;
mod fleet;
mod moving;
mod once;
#[path = "../outages/recorder.rs"]
mod recorder;
mod seeds;
mod shards;
mod spreading;

use std::error::Error as StdError;
use std::time::{Duration, Instant};

type Failure = Box<dyn StdError + Send + Sync>;
type Outcome = Result<(), Failure>;

/// Waits until it holds, for as long as it takes nodes to agree on a busy machine.
async fn until(mut holds: impl FnMut() -> Result<bool, Failure>) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds()? {
        if Instant::now() > deadline {
            return Err("it never came".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
