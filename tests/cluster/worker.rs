//! What runs in a worker process: callers of an upstream, until standard input closes.

use std::error::Error;
use std::io::{self, BufRead as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use http::Extensions;
use outgate::store::StoreError;
use outgate::{Call, Limit, Passage, RedisStore, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::settings::{Demand, Results, Settings};
use crate::travel;

/// Precedes what a worker says, so that it is told from what the test harness prints.
pub(crate) const READY: &str = "worker is ready";
pub(crate) const DONE: &str = "worker is done: ";
/// The header in which a call says what it costs.
pub(crate) const COST: &str = "x-cost";

pub(crate) fn run(settings: Settings) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let results = runtime.block_on(call_until_told(settings))?;
    runtime.shutdown_background();
    say(&format!("{DONE}{results}"))?;
    Ok(())
}

async fn call_until_told(settings: Settings) -> Result<Results, Box<dyn Error>> {
    let throttle = throttle(&settings).await?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let client = ClientBuilder::new(http).with(throttle.middleware()).with(SaysWhen).build();
    let caller = Caller { client, settings: Arc::new(settings), results: Arc::default() };
    let (tell_begin, begun) = oneshot::channel();
    let (tell_end, ended) = oneshot::channel();
    // A runtime cannot wait for standard input without a thread; this one ends with the process.
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let _ = input.read_line(&mut String::new());
        let _ = tell_begin.send(());
        while input.read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {}
        let _ = tell_end.send(());
    });
    say(READY)?;
    begun.await?;
    let mut calls = JoinSet::new();
    match caller.settings.demand {
        Demand::Endless { tasks } => (0..tasks).for_each(|_| drop(calls.spawn(caller.clone().call_for_ever()))),
        Demand::Paced { every, max_wait } => drop(calls.spawn(caller.clone().call_every(every, max_wait))),
    }
    ended.await?;
    calls.shutdown().await;
    let results = caller.results().clone();
    Ok(results)
}

async fn throttle(settings: &Settings) -> Result<Throttle, Box<dyn Error>> {
    let (mut upstream, manner) = (Upstream::new("strict").host("127.0.0.1"), settings.manner);
    for limit in settings.limits.iter().cloned() {
        upstream = upstream.limit(if manner.burst > 0 { limit.burst(manner.burst) } else { limit });
    }
    if manner.seats > 0 {
        upstream = upstream.limit(Limit::in_flight(manner.seats).lease(manner.lease));
    }
    if manner.learns {
        upstream = upstream.learn_from_responses();
    }
    if !manner.recovery.is_zero() {
        upstream = upstream.recovery(manner.recovery);
    }
    let builder = Throttle::builder().upstream(upstream);
    let builder = match &settings.redis {
        Some(url) => builder.store(connected(url).await?),
        None => builder,
    };
    Ok(builder.build()?)
}

/// Where everybody starts at once, it may take a server longer to answer than one attempt lasts.
async fn connected(url: &str) -> Result<RedisStore, StoreError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match RedisStore::connect(url).await {
            Err(_) if attempts < 10 => {}
            outcome => return outcome,
        }
    }
}

/// Stands behind the throttle: writes down in the request when it was let go.
struct SaysWhen;

#[async_trait]
impl Middleware for SaysWhen {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        request.url_mut().set_query(Some(&travel::departure(SystemTime::now())));
        next.run(request, extensions).await
    }
}

#[derive(Clone)]
struct Caller {
    client: ClientWithMiddleware,
    settings: Arc<Settings>,
    results: Arc<Mutex<Results>>,
}

impl Caller {
    async fn call_for_ever(self) {
        loop {
            self.call(None).await;
        }
    }

    /// The next call does not wait for the last one.
    async fn call_every(self, every: Duration, max_wait: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut calls = JoinSet::new();
        loop {
            ticks.tick().await;
            let caller = self.clone();
            calls.spawn(async move { caller.call(Some(max_wait)).await });
        }
    }

    async fn call(&self, max_wait: Option<Duration>) {
        let mut request = self.client.get(&self.settings.upstream).header("x-caller", &self.settings.caller);
        let mut call = Call::new();
        if let Some(max_wait) = max_wait {
            call = call.max_wait(max_wait);
        }
        if self.settings.manner.largest > 0 {
            let cost = fastrand::u32(1..=self.settings.manner.largest);
            (call, request) = (call.cost(cost), request.header(COST, cost));
        }
        request = request.with_extension(call);
        let outcome = request.send().await;
        let waited = outcome.as_ref().ok().and_then(|response| response.extensions().get::<Passage>().cloned());
        // Read to its end, a response leaves its connection to the next call.
        let outcome = match outcome {
            Ok(response) => response.bytes().await.map(drop).map_err(Into::into),
            Err(error) => Err(error),
        };
        let mut results = self.results();
        match outcome {
            Ok(()) => {
                results.answered += 1;
                let waited = waited.map(|passage| passage.waited).unwrap_or_default();
                results.longest_wait = results.longest_wait.max(waited);
            }
            Err(error) if outgate::Error::find(&error).is_some() => results.refused += 1,
            Err(_) => results.failed += 1,
        }
    }

    fn results(&self) -> std::sync::MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn say(words: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{words}")?;
    output.flush()
}
