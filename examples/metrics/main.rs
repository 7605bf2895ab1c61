//! What a process shows of its calls, for Prometheus and for Grafana.
//!
//! ```console
//! $ cargo run --features metrics --example metrics -- --seconds 600
//! $ curl http://127.0.0.1:9464/metrics
//! ```
//!
//! `dashboard.json` beside this file is a dashboard for Grafana.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use outgate::{Error, Limit, Scope, Throttle, Upstream};
use tokio::time::{Instant, sleep};

/// Calls two upstreams for a while, and serves what is counted.
#[derive(Debug, Parser)]
struct Args {
    /// For how long.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Where Prometheus asks.
    #[arg(long, default_value = "127.0.0.1:9464")]
    listen: SocketAddr,
}

/// Where waits fall, in seconds.
const WAITS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    // First the recorder: a throttle looks for one when it is built.
    PrometheusBuilder::new()
        .with_http_listener(args.listen)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &WAITS)?
        .install()?;
    let throttle = Throttle::builder()
        .upstream(Upstream::new("gateway").limit(Limit::per_second(100)).limit(Limit::in_flight(25)))
        .upstream(Upstream::new("crm").scope_by(Scope::bearer_token()).limit(Limit::per_second(5)))
        .build()?;
    println!("http://{}/metrics shows what is counted, for {} s", args.listen, args.seconds);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let callers: Vec<_> = (0..60).map(|number| tokio::spawn(call(throttle.clone(), number, end))).collect();
    while Instant::now() < end {
        throttle.usage("gateway").await?;
        sleep(Duration::from_secs(1).min(end.saturating_duration_since(Instant::now()))).await;
    }
    let page = reqwest::get(format!("http://{}/metrics", args.listen)).await?.text().await?;
    for line in page.lines().filter(|line| line.starts_with("outgate_calls_total") && !line.ends_with(" 0")) {
        println!("{line}");
    }
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

/// Calls one upstream after the other until then.
async fn call(throttle: Throttle, number: u32, end: Instant) -> Result<(), Error> {
    while Instant::now() < end {
        let permit = throttle.acquire("gateway").await?;
        sleep(Duration::from_millis(50)).await; // the call
        drop(permit);
        match throttle.acquire("crm").scope(format!("token-{}", number % 3)).max_wait(Duration::from_secs(1)).await {
            Ok(permit) => drop(permit),
            Err(Error::Throttled { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
