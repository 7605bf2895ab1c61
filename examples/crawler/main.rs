//! A crawler that keeps the limits of any number of sites, however many of it run.
//!
//! ```text
//! cargo run --release --example crawler
//! cargo run --release --example crawler -- --unthrottled
//! cargo run --release --example crawler -- --sites 60 --pages 150
//! cargo run --release --example crawler -- https://example.com/ https://example.org/
//! cargo run --release --example crawler -- https://example.com/ --limit 20/s --limit 500/m --redis redis://127.0.0.1
//! ```
//!
//! Without a URL it crawls a site that it brings along, which answers 429 to every call beyond 50 a second; or several, which
//! answer 429 to every call to one of them beyond one a second as well. Any other host gets one call a second, and all together 50, unless
//! told otherwise. With `--redis` all crawlers share these limits. It stays on the hosts and follows links and redirects, each of
//! which is a call of its own and counted as one. A page that fails is not tried again. It does not read `robots.txt`:
//! crawl what is yours.
//!
//! The exit code is 0, 1 when the site answered 429 although the crawler was throttled, and 2 when it could not start, or called nothing.

mod args;
mod client;
mod crawl;
#[path = "../common/explain.rs"]
mod explain;
mod frontier;
mod limits;
mod links;
mod page;
mod progress;
mod report;
mod site;
mod tally;
mod wire;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use tokio::runtime::Runtime;

use self::args::Args;
use self::client::Client;
use self::crawl::Crawl;
use self::explain::explain;
use self::report::Report;
use self::site::Sites;

fn main() -> ExitCode {
    match Runtime::new() {
        Ok(runtime) => {
            let code = runtime.block_on(crawl());
            // A page that takes for ever to parse is not waited for.
            runtime.shutdown_background();
            code
        }
        Err(error) => failure(&error),
    }
}

async fn crawl() -> ExitCode {
    match run(Args::parse()).await {
        Ok(report) => {
            // Whoever closed our output does not want the table.
            let _ = write!(io::stdout(), "{report}");
            ExitCode::from(if report.broke_its_promise() { 1 } else { 2 * u8::from(report.failed()) })
        }
        Err(error) => failure(&*error),
    }
}

fn failure(error: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("crawler: {}", explain(error));
    ExitCode::from(2)
}

async fn run(args: Args) -> Result<Report, Box<dyn Error>> {
    // Kept until the end: the sites are there as long as this is.
    let own = if args.urls.is_empty() { Some(Sites::start(args.sites)?) } else { None };
    let starts = own.as_ref().map_or_else(|| Ok(args.urls.clone()), Sites::urls)?;
    let client = Client::new(&args, &starts, own.as_ref()).await?;
    let tally = Crawl::new(&client, starts, &args).run().await;
    client.close().await;
    Ok(Report::new(&args, tally, &client, own.as_ref()))
}
