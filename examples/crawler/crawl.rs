//! The crawl: takes pages from the frontier, keeps so many calls going, and puts the links it finds back.

use std::future;
use std::time::Duration;

use reqwest::Url;
use tokio::signal::ctrl_c;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::args::Args;
use crate::client::Client;
use crate::frontier::{Frontier, Offer, Stop};
use crate::page::{self, Outcome};
use crate::progress::{Progress, Sight};
use crate::tally::Tally;

/// How often the progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// A crawl of some sites.
pub(crate) struct Crawl<'a> {
    client: &'a Client,
    frontier: Frontier,
    tally: Tally,
    /// One call each.
    calls: JoinSet<(Stop, Outcome)>,
    max_pages: u32,
    concurrency: u32,
    started: Instant,
}

impl<'a> Crawl<'a> {
    pub(crate) fn new(client: &'a Client, starts: Vec<Url>, args: &Args) -> Self {
        Self {
            client,
            frontier: Frontier::new(starts),
            tally: Tally::default(),
            calls: JoinSet::new(),
            max_pages: args.pages,
            concurrency: args.concurrency,
            started: Instant::now(),
        }
    }

    /// Crawls until nothing is left, there are enough pages, or somebody presses Ctrl-C.
    pub(crate) async fn run(mut self) -> Tally {
        let progress = Progress::new();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut interrupt = std::pin::pin!(interrupt());
        while self.begin_calls() {
            tokio::select! {
                Some(call) = self.calls.join_next() => self.end_call(call),
                _ = tick.tick() => progress.show(&self.sight()),
                () = &mut interrupt => {
                    self.tally.interrupted = true;
                    break;
                }
            }
        }
        progress.finish(&self.sight());
        // Whoever still waits for a slot gives it up.
        self.calls.shutdown().await;
        self.tally.elapsed = self.started.elapsed();
        self.tally
    }

    /// Begins as many calls as there may be. Says whether any is under way.
    fn begin_calls(&mut self) -> bool {
        while self.may_begin()
            && let Some(stop) = self.frontier.next()
        {
            let (http, waiting) = (self.client.http.clone(), self.client.count.wait());
            self.calls.spawn(async move {
                let outcome = page::fetch(http, stop.url.clone(), waiting).await;
                (stop, outcome)
            });
        }
        !self.calls.is_empty()
    }

    /// Each call under way may turn out to be the last page that is wanted.
    fn may_begin(&self) -> bool {
        let under_way = count(self.calls.len());
        under_way < self.concurrency && self.tally.pages.saturating_add(under_way) < self.max_pages
    }

    fn end_call(&mut self, call: Result<(Stop, Outcome), JoinError>) {
        let Ok((stop, outcome)) = call else {
            self.tally.fail("panic");
            return;
        };
        self.tally.count(&outcome);
        match outcome {
            Outcome::Page { links, .. } => {
                for link in links {
                    self.frontier.link(link);
                }
            }
            Outcome::Redirect(target) => match self.frontier.redirect(&stop, target) {
                Offer::New | Offer::Known => {}
                Offer::Elsewhere => self.tally.fail("redirect to another host"),
                Offer::TooFar => self.tally.fail("too many redirects"),
            },
            Outcome::NotHtml | Outcome::Failed(_) => {}
        }
    }

    fn sight(&self) -> Sight {
        let known = count(self.frontier.len() + self.calls.len());
        Sight {
            pages: self.tally.pages,
            known: self.tally.pages.saturating_add(known).min(self.max_pages),
            calls: self.client.count.calls(),
            waiting: self.client.count.waiting(),
            elapsed: self.started.elapsed(),
        }
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Ends with Ctrl-C; where that cannot be heard, never.
async fn interrupt() {
    if ctrl_c().await.is_err() {
        future::pending::<()>().await;
    }
}
