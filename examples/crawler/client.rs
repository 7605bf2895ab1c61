//! The client that all calls go through.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outgate::{RedisStore, RequestHead, Scope, Throttle, Upstream};
use reqwest::{Url, redirect, retry};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::signal::ctrl_c;

use crate::args::Args;
use crate::wire::{Count, Wire};

/// How long a call may take once it may go.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls one site, throttled unless told otherwise, and counts the calls.
pub(crate) struct Client {
    pub(crate) http: ClientWithMiddleware,
    pub(crate) count: Arc<Count>,
    throttle: Option<Throttle>,
}

impl Client {
    pub(crate) async fn new(args: &Args, site: &Url, is_own: bool) -> Result<Self, Box<dyn Error>> {
        let count = Arc::new(Count::default());
        let mut http = ClientBuilder::new(plain(is_own)?);
        let throttle = if args.unthrottled { None } else { Some(throttle(args, site).await?) };
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
fn plain(is_own: bool) -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder()
        .user_agent("outgate-example-crawler")
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .timeout(TIMEOUT);
    // No proxy reaches this machine's own loopback interface.
    if is_own { client.no_proxy() } else { client }.build()
}

async fn throttle(args: &Args, site: &Url) -> Result<Throttle, Box<dyn Error>> {
    let mut upstream = Upstream::new("crawled").host(site.host_str().unwrap_or_default()).scope_by(Scope::by(host));
    for limit in args.limits() {
        upstream = upstream.limit(limit);
    }
    let mut builder = Throttle::builder().upstream(upstream);
    if let Some(url) = &args.redis {
        builder = builder
            .store(RedisStore::connect(url).await.map_err(|error| format!("--redis: {}", crate::explain(&error)))?);
    }
    Ok(builder.build()?)
}

/// Crawlers of other hosts that use the same Redis have nothing to do with these limits.
fn host(request: &RequestHead<'_>) -> Option<String> {
    let url = request.url();
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}
