//! The client that all calls go through.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outgate::{RedisStore, Scope, Throttle, Upstream};
use reqwest::{Url, redirect, retry};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::signal::ctrl_c;

use crate::args::Args;
use crate::site::Sites;
use crate::wire::{Count, Wire};

/// How long a call may take once it may go.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls sites, throttled unless told otherwise, and counts the calls.
pub(crate) struct Client {
    pub(crate) http: ClientWithMiddleware,
    pub(crate) count: Arc<Count>,
    throttle: Option<Throttle>,
}

impl Client {
    /// A client of the hosts of these URLs, which may be sites of our own.
    pub(crate) async fn new(args: &Args, starts: &[Url], own: Option<&Sites>) -> Result<Self, Box<dyn Error>> {
        let count = Arc::new(Count::default());
        let mut http = ClientBuilder::new(plain(own)?);
        let throttle = if args.unthrottled { None } else { Some(throttle(args, starts).await?) };
        if let Some(throttle) = &throttle {
            http = http.with(throttle.middleware());
        }
        // Innermost: it sees what is really sent.
        let http = http.with(Wire::new(Arc::clone(&count))).build();
        Ok(Self { http, count, throttle })
    }

    /// Lets go of every slot that is still booked. Who presses Ctrl-C does not wait for a Redis that does not answer.
    pub(crate) async fn close(&self) {
        if let Some(throttle) = &self.throttle {
            tokio::select! {
                () = throttle.close() => {}
                _ = ctrl_c() => {}
            }
        }
    }
}

/// Every call that goes out has to come past the throttle: what reqwest would repeat or redirect by itself does not.
fn plain(own: Option<&Sites>) -> reqwest::Result<reqwest::Client> {
    let mut client = reqwest::Client::builder()
        .user_agent("outgate-example-crawler")
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .timeout(TIMEOUT);
    if let Some(sites) = own {
        // No proxy reaches this machine's own loopback interface, and nobody else knows the names of the sites.
        client = client.no_proxy();
        for name in sites.names() {
            client = client.resolve(&name, sites.addr());
        }
    }
    client.build()
}

/// Each host has limits of its own, whoever it is, and all together have one.
async fn throttle(args: &Args, starts: &[Url]) -> Result<Throttle, Box<dyn Error>> {
    // Not by `host`: what one site refuses says nothing of the others.
    let hosts: HashSet<String> = starts.iter().filter_map(Url::host_str).map(str::to_owned).collect();
    let is_wanted = move |host: &str| hosts.contains(host);
    let mut upstream =
        Upstream::new("crawled").matching(move |request| request.url().host_str().is_some_and(&is_wanted));
    for limit in args.limits_of_each() {
        upstream = upstream.limit(limit.each(Scope::host()));
    }
    if let Some(limit) = args.limit_of_all() {
        upstream = upstream.limit(limit);
    }
    let mut builder = Throttle::builder().upstream(upstream);
    if let Some(url) = &args.redis {
        builder = builder
            .store(RedisStore::connect(url).await.map_err(|error| format!("--redis: {}", crate::explain(&error)))?);
    }
    Ok(builder.build()?)
}
