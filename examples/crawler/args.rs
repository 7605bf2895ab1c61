//! The command line.

use std::time::Duration;

use clap::Parser;
use outgate::Limit;
use reqwest::Url;

use crate::{limits, site};

/// Of the limits of many sites of the crawler's own.
const GUARD: Duration = Duration::from_millis(200);

/// Crawls sites and keeps their limits.
#[derive(Debug, Parser)]
#[command(name = "crawler")]
pub(crate) struct Args {
    /// Where to begin, on as many hosts as there are; without any, a site of the crawler's own that insists on 50 calls a second
    #[arg(value_name = "URL", value_parser = url)]
    pub(crate) urls: Vec<Url>,

    /// How many sites of its own: more than one insist on one call a second each, and on 50 together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    #[arg(conflicts_with = "urls")]
    pub(crate) sites: u32,

    /// Calls allowed to each host, such as 20/s, 500/m, 5000/h or 30/10s; several hold at once [default: 50/s for the only site of
    /// its own, else 1/s]
    #[arg(long = "limit", value_name = "N/TIME", value_parser = limits::parse)]
    limits: Vec<Limit>,

    /// Calls allowed to all hosts together
    #[arg(long, value_name = "N/TIME", default_value = "50/s", value_parser = limits::parse)]
    in_all: Limit,

    /// The Redis through which all crawlers share the limits; without it, they are this crawler's alone
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// Pages to fetch at most
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pages: u32,

    /// Calls to have waiting or under way at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) concurrency: u32,

    /// Leave the throttle out, and see what comes of it
    #[arg(long, conflicts_with_all = ["limits", "in_all", "redis"])]
    pub(crate) unthrottled: bool,
}

impl Args {
    /// The limits of each host: none without the throttle.
    pub(crate) fn limits_of_each(&self) -> Vec<Limit> {
        let is_one_of_ours = self.urls.is_empty() && self.sites == 1;
        let limits = match (self.unthrottled, self.limits.is_empty()) {
            (true, _) => Vec::new(),
            (false, false) => self.limits.clone(),
            (false, true) if is_one_of_ours => vec![Limit::per_second(site::QUOTA)],
            (false, true) => vec![Limit::per_second(site::QUOTA_OF_EACH)],
        };
        limits.into_iter().map(|limit| self.guarded(limit)).collect()
    }

    /// The limit of all hosts together: none without the throttle.
    pub(crate) fn limit_of_all(&self) -> Option<Limit> {
        (!self.unthrottled).then(|| self.guarded(self.in_all.clone()))
    }

    /// Sixty sites and their crawler share one machine, which may be busy.
    fn guarded(&self, limit: Limit) -> Limit {
        if self.sites > 1 { limit.guard(GUARD) } else { limit }
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
