//! The cluster: an upstream, a Redis, and the processes between them.

use std::error::Error;
use std::time::Duration;

use outgate::testing::{Arrival, Shape, StrictUpstream};

use crate::args::Args;
use crate::child::Child;
use crate::report::Report;
use crate::shared::Shared;
use crate::stall::Stalls;
use crate::tally::Tally;
use crate::worker;

/// Calls that the upstream answers in any second. It answers 429 to any other.
pub(crate) const QUOTA: u32 = 100;

/// Runs a cluster, and says what came of it, and what arrived at the upstream.
pub(crate) async fn run(args: &Args) -> Result<(Report, Vec<Arrival>), Box<dyn Error>> {
    let upstream = StrictUpstream::builder().limit(QUOTA.into(), Duration::from_secs(1), Shape::SlidingLog).start()?;
    let mut shared = if args.unshared { None } else { Some(Shared::open(args.redis.as_deref()).await?) };
    let mut children = start(args, &upstream, shared.as_ref())?;
    for child in &mut children {
        child.ready().await?;
    }
    let stalls = Stalls::watch();
    let before = script_calls(shared.as_mut()).await;
    let tallies = call(&mut children).await?;
    let after = script_calls(shared.as_mut()).await;
    let script_calls = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let arrivals = upstream.arrivals();
    Ok((Report::new(args, tallies, script_calls, stalls.longest(), &arrivals), arrivals))
}

fn start(args: &Args, upstream: &StrictUpstream, shared: Option<&Shared>) -> std::io::Result<Vec<Child>> {
    let child = |number: u32| {
        Child::start(worker::Args {
            name: number.to_string(),
            upstream: upstream.url(),
            seconds: args.seconds.into(),
            redis: shared.map(|shared| shared.url.clone()),
            prefix: shared.map(|shared| shared.prefix.clone()),
        })
    };
    (1..=args.processes).map(child).collect()
}

async fn call(children: &mut [Child]) -> Result<Vec<Tally>, Box<dyn Error>> {
    for child in &mut *children {
        child.go().await?;
    }
    let mut tallies = Vec::new();
    for child in children {
        tallies.push(child.tally().await?);
    }
    Ok(tallies)
}

/// Nothing where there is no Redis, or no more.
async fn script_calls(shared: Option<&mut Shared>) -> Option<u64> {
    shared?.script_calls().await.ok()
}
