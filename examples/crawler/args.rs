//! The command line.

use clap::Parser;
use outgate::Limit;
use reqwest::Url;

use crate::{limits, site};

/// Crawls a site and keeps its limits.
#[derive(Debug, Parser)]
#[command(name = "crawler")]
pub(crate) struct Args {
    /// Where to begin; without it, a site of the crawler's own that insists on 50 calls a second
    #[arg(value_parser = url)]
    pub(crate) url: Option<Url>,

    /// Calls allowed, such as 20/s, 500/m, 5000/h or 30/10s; several hold at once [default: 50/s for its own site, 5/s
    /// for any other]
    #[arg(long = "limit", value_name = "N/TIME", value_parser = limits::parse)]
    limits: Vec<Limit>,

    /// The Redis through which all crawlers of this host share the limits; without it, they are this crawler's alone
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// Pages to fetch at most
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pages: u32,

    /// Calls to have waiting or under way at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) concurrency: u32,

    /// Leave the throttle out, and see what comes of it
    #[arg(long, conflicts_with_all = ["limits", "redis"])]
    pub(crate) unthrottled: bool,
}

impl Args {
    /// The limits to keep: none without the throttle.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        match (self.unthrottled, self.limits.is_empty(), &self.url) {
            (true, _, _) => Vec::new(),
            (false, false, _) => self.limits.clone(),
            (false, true, None) => vec![Limit::per_second(site::QUOTA)],
            (false, true, Some(_)) => vec![Limit::per_second(5)],
        }
    }
}

fn url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}; write it in full, such as https://example.com/"))?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err("only http and https can be crawled".to_owned())
    }
}
