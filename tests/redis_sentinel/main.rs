//! A primary that Sentinels name: nobody is refused when it is replaced, and calls go on soon.

mod connecting;
#[path = "../outages/doubled.rs"]
mod doubled;
mod doubling;
mod failing_over;
mod fleet;
mod forgetting;
mod lacking;
#[path = "../outages/recorder.rs"]
mod recorder;
mod refusing;
mod standing_still;

use std::error::Error as StdError;
use std::time::{Duration, Instant};

type Failure = Box<dyn StdError + Send + Sync>;
type Outcome = Result<(), Failure>;

/// Waits until it holds, for as long as it takes servers to agree on a busy machine.
async fn until(what: &str, mut holds: impl FnMut() -> Result<bool, Failure>) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds()? {
        if Instant::now() > deadline {
            return Err(format!("{what}: it never came").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
