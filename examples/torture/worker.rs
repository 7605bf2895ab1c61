//! One of the processes: wants to call all the time.

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use http::{Extensions, HeaderValue};
use outgate::store::WithoutStore;
use outgate::{Limit, RedisStore, Throttle, Upstream};
use reqwest::{Request, Response, redirect, retry};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::run::{GUARD, QUOTA};

const UPSTREAM: &str = "OUTGATE_TORTURE_UPSTREAM";
const REDIS: &str = "OUTGATE_TORTURE_REDIS";
const LOCALLY: &str = "OUTGATE_TORTURE_LOCALLY";

/// What a worker says when it begins.
pub(crate) const READY: &str = "worker is ready";

/// Callers in one process, each of which calls again as soon as it has its answer.
const TASKS: usize = 24;
/// How long a caller that could not call waits until it tries again.
const PAUSE: Duration = Duration::from_millis(20);

/// What a worker needs to know.
#[derive(Debug)]
pub(crate) struct Args {
    /// The URL to call.
    pub(crate) upstream: String,
    /// The URL of its Redis.
    pub(crate) redis: String,
    /// It throttles by itself while that cannot be reached.
    pub(crate) locally: bool,
}

impl Args {
    pub(crate) fn put(&self, command: &mut Command) {
        command.env(UPSTREAM, &self.upstream).env(REDIS, &self.redis).env(LOCALLY, self.locally.to_string());
    }

    /// `None` in a process that nobody told anything.
    pub(crate) fn take() -> Option<Self> {
        let (upstream, redis) = (env::var(UPSTREAM).ok()?, env::var(REDIS).ok()?);
        Some(Self { upstream, redis, locally: env::var(LOCALLY).is_ok_and(|locally| locally == "true") })
    }
}

/// Microseconds of the clock that all processes of a machine share.
pub(crate) fn micros_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// Behind the throttle: has a call say when it was let go.
struct LetGo;

#[async_trait]
impl Middleware for LetGo {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        request.headers_mut().insert("x-caller", HeaderValue::from(micros_now()));
        next.run(request, extensions).await
    }
}

/// Calls until it is killed, or whoever started it has gone.
pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let limit = Limit::per_second(QUOTA).guard(GUARD);
    let upstream = Upstream::new("torture").host("127.0.0.1").limit(limit);
    let policy = if args.locally { WithoutStore::ThrottleLocally } else { WithoutStore::Wait };
    let throttle = Throttle::builder().store(RedisStore::open(&args.redis)?).without_store(policy).upstream(upstream);
    let throttle = throttle.build()?;
    let http = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).retry(retry::never());
    let client = ClientBuilder::new(http.build()?).with(throttle.middleware()).with(LetGo).build();
    for _ in 0..TASKS {
        let (client, url) = (client.clone(), args.upstream.clone());
        runtime.spawn(async move {
            loop {
                match client.get(&url).send().await {
                    // A connection whose answer was read can be used again.
                    Ok(response) => drop(response.bytes().await),
                    Err(_) => sleep(PAUSE).await,
                }
            }
        });
    }
    let mut output = io::stdout();
    writeln!(output, "{READY}")?;
    output.flush()?;
    let listening = thread::spawn(|| io::stdin().lines().map_while(Result::ok).for_each(drop));
    let _ = listening.join();
    runtime.shutdown_background();
    Ok(())
}
