//! The whole: a queue, two gateways, and the consumers between them.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use outgate::testing::RedisServer;
use tokio::time::sleep;

use crate::args::Args;
use crate::child::Child;
use crate::consumer;
use crate::gateway::Gateway;
use crate::limits::GATEWAYS;
use crate::order::Order;
use crate::queue::Queue;
use crate::report::Report;
use crate::stall::Stalls;

/// How often the queue is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long after the last a consumer is killed.
const KILL_AFTER: Duration = Duration::from_millis(900);
/// How many are killed. An entry that each of them had is not a dead letter yet.
const KILLS: u32 = 3;
/// A minute, and so long for each payment: what is not made by then is lost.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_millis(50));

/// Has all payments made, and says what came of it.
pub(crate) async fn run(args: &Args) -> Result<Report, Box<dyn Error>> {
    let redis = RedisServer::start().map_err(|error| io::Error::other(format!("no redis-server: {error}")))?;
    let gateways: Vec<Gateway> = GATEWAYS.iter().map(|_| Gateway::start()).collect::<io::Result<_>>()?;
    let mut queue = Queue::open(&redis.url(), "nobody").await?;
    queue.fill((0..args.payments).map(Order::numbered)).await?;

    let start = |number: u32| {
        let hosts = gateways.iter().map(Gateway::host).collect();
        Child::start(&consumer::Args { name: format!("consumer-{number}"), redis: redis.url(), gateways: hosts })
    };
    let mut children = (1..=args.consumers).map(start).collect::<io::Result<Vec<_>>>()?;
    let (stalls, started) = (Stalls::watch(), Instant::now());
    let (mut killed, mut first_call) = (0, None);
    let deadline = PATIENCE.0 + PATIENCE.1 * args.payments;
    let dead_letters = loop {
        sleep(LOOK).await;
        let (left, dead) = queue.left().await?;
        if left == 0 || started.elapsed() > deadline {
            break dead;
        }
        if first_call.is_none() && gateways.iter().any(|gateway| gateway.calls() > 0) {
            first_call = Some(Instant::now());
        }
        let due = first_call.is_some_and(|first| first.elapsed() >= KILL_AFTER * (killed + 1));
        if args.kill && killed < KILLS && due {
            // The oldest is in the middle of its work.
            children.remove(0).kill().await?;
            killed += 1;
            children.push(start(args.consumers + killed)?);
        }
        for child in &mut children {
            if let Some(status) = child.ended()? {
                return Err(format!("a consumer has ended: {status}").into());
            }
        }
    };
    let took = first_call.unwrap_or(started).elapsed();
    drop(children);
    Ok(Report::new(args, &gateways, dead_letters, killed, took, stalls.longest()))
}
