//! A crawler that keeps a site's limits, however many of it run.
//!
//! ```text
//! cargo run --release --example crawler
//! cargo run --release --example crawler -- --unthrottled
//! cargo run --release --example crawler -- https://example.com/ --limit 20/s --limit 500/m --redis redis://127.0.0.1
//! ```
//!
//! Without a URL it crawls a site that it brings along, which answers 429 to every call beyond 50 a second. With
//! `--redis` all crawlers of one host share its limits. It stays on the host and follows links and redirects, each of
//! which is a call of its own and counted as one. A page that fails is not tried again. It does not read `robots.txt`:
//! crawl what is yours.
//!
//! The exit code is 0, 1 when the site answered 429 although the crawler was throttled, and 2 when it could not start.

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
use outgate::testing::StrictUpstream;
use reqwest::Url;
use tokio::runtime::Runtime;

use self::args::Args;
use self::client::Client;
use self::crawl::Crawl;
use self::explain::explain;
use self::report::Report;

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
            ExitCode::from(u8::from(report.broke_its_promise()))
        }
        Err(error) => failure(&*error),
    }
}

fn failure(error: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("crawler: {}", explain(error));
    ExitCode::from(2)
}

async fn run(args: Args) -> Result<Report, Box<dyn Error>> {
    // Kept until the end: the site is there as long as this is.
    let site = if args.url.is_none() { Some(site::start()?) } else { None };
    let start = start_url(&args, site.as_ref())?;
    let client = Client::new(&args, &start, site.is_some()).await?;
    let tally = Crawl::new(&client, start, &args).run().await;
    client.close().await;
    Ok(Report::new(&args, tally, &client, site.as_ref()))
}

fn start_url(args: &Args, site: Option<&StrictUpstream>) -> Result<Url, Box<dyn Error>> {
    match (&args.url, site) {
        (Some(url), _) => Ok(url.clone()),
        (None, Some(site)) => Ok(site.url().parse()?),
        (None, None) => Err("there is nothing to crawl".into()),
    }
}
