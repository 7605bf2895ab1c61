//! One process of the cluster: wants to call all the time, and says in the end how often it could.
//!
//! It says `ready`, begins when it is told a line, and prints its tally. When its stdin ends, so does it: whoever started
//! it has gone.

use std::error::Error;
use std::io::{self, BufRead as _, Write as _};
use std::process;
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

use outgate::{Limit, RedisStore, Throttle, Upstream};
use reqwest::{StatusCode, redirect, retry};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::QUOTA;
use crate::tally::Tally;

/// Callers in one process, each of which calls again as soon as it has its answer.
const TASKS: usize = 16;
/// How long a caller that could not call waits until it tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// One failure is shown, the others are counted.
static TOLD: Once = Once::new();

/// What a worker needs to know.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How the upstream knows this process from the others
    #[arg(long)]
    pub(crate) name: String,
    /// The URL to call
    #[arg(long)]
    pub(crate) upstream: String,
    /// For how many seconds
    #[arg(long)]
    pub(crate) seconds: u64,
    /// The URL of the Redis to share the quota through
    #[arg(long, requires = "prefix")]
    pub(crate) redis: Option<String>,
    /// What all keys there begin with
    #[arg(long)]
    pub(crate) prefix: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let throttle = throttle(&args).await?;
    let client = client(&throttle)?;
    let go = listen();
    say("ready")?;
    go.await?;
    let tally = call(&throttle, &client, &Arc::new(args)).await;
    say(&tally.to_string())?;
    Ok(())
}

async fn throttle(args: &Args) -> Result<Throttle, Box<dyn Error>> {
    let upstream = Upstream::new("api").host("127.0.0.1").limit(Limit::per_second(QUOTA));
    let mut builder = Throttle::builder().upstream(upstream);
    if let (Some(url), Some(prefix)) = (&args.redis, &args.prefix) {
        builder = builder.store(RedisStore::builder(url).prefix(prefix).connect().await?);
    }
    Ok(builder.build()?)
}

/// Every call that goes out has to come past the throttle: what reqwest would repeat or redirect by itself does not.
fn client(throttle: &Throttle) -> reqwest::Result<ClientWithMiddleware> {
    let client = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).retry(retry::never());
    Ok(ClientBuilder::new(client.build()?).with(throttle.middleware()).build())
}

/// A thread listens, so that nothing here can be too busy to end.
fn listen() -> oneshot::Receiver<()> {
    let (go, gone) = oneshot::channel();
    thread::spawn(move || {
        let mut lines = io::stdin().lock().lines();
        if let Some(Ok(_)) = lines.next() {
            // Nobody waits for it any more when the worker has failed.
            let _ = go.send(());
        }
        while let Some(Ok(_)) = lines.next() {}
        process::exit(1);
    });
    gone
}

fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

async fn call(throttle: &Throttle, client: &ClientWithMiddleware, args: &Arc<Args>) -> Tally {
    let mut callers = JoinSet::new();
    for _ in 0..TASKS {
        callers.spawn(keep_calling(client.clone(), Arc::clone(args)));
    }
    sleep(Duration::from_secs(args.seconds)).await;
    throttle.close().await;
    let tallies = callers.join_all().await;
    tallies.iter().fold(Tally::default(), |sum, tally| Tally {
        calls: sum.calls + tally.calls,
        refused: sum.refused + tally.refused,
        failed: sum.failed + tally.failed,
    })
}

/// Calls until the throttle is closed.
async fn keep_calling(client: ClientWithMiddleware, args: Arc<Args>) -> Tally {
    let mut tally = Tally::default();
    loop {
        match client.get(&args.upstream).header("x-caller", &args.name).send().await {
            Ok(response) => {
                tally.calls += 1;
                tally.refused += u32::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
                // A connection whose answer was read can be used again.
                let _ = response.bytes().await;
            }
            Err(error) if matches!(outgate::Error::find(&error), Some(outgate::Error::Closed)) => return tally,
            Err(error) => {
                tally.failed += 1;
                TOLD.call_once(|| eprintln!("process {}: {}", args.name, crate::explain(&error)));
                sleep(PAUSE).await;
            }
        }
    }
}
