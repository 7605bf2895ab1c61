//! The table at the end.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use indicatif::HumanCount;
use outgate::Limit;
use outgate::testing::oracle;

use crate::args::Args;
use crate::client::Client;
use crate::limits;
use crate::site::{self, Sites};
use crate::tally::Tally;

/// Reasons for errors that are shown.
const REASONS: usize = 8;

/// What is counted, how much of it, and a note.
type Row = (String, String, String);

/// What came of a crawl.
pub(crate) struct Report {
    tally: Tally,
    calls: u32,
    refused: u32,
    /// Of all hosts together: what is allowed to each, as often as there are hosts, and to all.
    limits: Vec<(Limit, u32)>,
    fullest_second: Option<u64>,
}

impl Report {
    pub(crate) fn new(args: &Args, tally: Tally, client: &Client, own: Option<&Sites>) -> Self {
        let fullest_second = own.map(|site| oracle::worst_window(&site.stamps(), 1_000_000).count);
        let (calls, refused) = (client.count.calls(), client.count.refused());
        let hosts = u32::try_from(args.urls.len()).unwrap_or(u32::MAX).max(args.sites);
        let each = args.limits_of_each().into_iter().map(|limit| (limit, hosts));
        let limits = each.chain(args.limit_of_all().map(|limit| (limit, 1))).collect();
        Self { tally, calls, refused, limits, fullest_second }
    }

    /// A site refused a call although the crawler kept to its limits.
    pub(crate) fn broke_its_promise(&self) -> bool {
        self.refused > 0 && !self.limits.is_empty()
    }

    /// Nothing was called: that shows nothing.
    pub(crate) const fn failed(&self) -> bool {
        self.calls == 0
    }

    /// The most frequent reasons first.
    fn error_rows(&self) -> Vec<Row> {
        let mut errors: Vec<_> = self.tally.errors.iter().collect();
        errors.sort_by_key(|(_, count)| Reverse(*count));
        errors
            .iter()
            .take(REASONS)
            .map(|(reason, count)| (String::new(), count.to_string(), (*reason).clone()))
            .collect()
    }

    fn quota_row(&self) -> Option<Row> {
        let allowance = |(limit, hosts): &&(Limit, u32)| allowance(limit, self.tally.elapsed) * f64::from(*hosts);
        let scarcest = self.limits.iter().min_by(|one, other| allowance(one).total_cmp(&allowance(other)))?;
        let ((limit, hosts), most) = (scarcest, allowance(&scarcest));
        let share = 100.0 * f64::from(self.calls) / most;
        let to = if *hosts > 1 { format!(" to each of {hosts}") } else { String::new() };
        let mut note = format!("of {most:.1} that {}{to} sustains", limits::text(limit));
        if share > 100.0 {
            note = format!("{note}; the first {} go at once", limit.quota() * hosts);
        }
        Some(("quota used".to_owned(), format!("{share:.1} %"), note))
    }

    fn rows(&self) -> Vec<Row> {
        let Tally { pages, bytes, redirects, not_html, errors, elapsed, interrupted } = &self.tally;
        let row = |what: &str, value: String, note: &str| (what.to_owned(), value, note.to_owned());
        let count = |what, count: u32| row(what, HumanCount(count.into()).to_string(), "");
        let interrupted = if *interrupted { "interrupted" } else { "" };
        let mut rows = vec![
            row("pages", HumanCount((*pages).into()).to_string(), interrupted),
            row("bytes", HumanCount(*bytes).to_string(), ""),
            count("redirects", *redirects),
            count("not HTML", *not_html),
            count("errors", errors.values().sum()),
        ];
        rows.extend(self.error_rows());
        rows.extend([count("calls", self.calls), count("429s", self.refused)]);
        rows.push(row("seconds", format!("{:.1}", elapsed.as_secs_f64()), ""));
        if let Some(fullest) = self.fullest_second {
            let note = format!("as the server saw it; it allows {}", site::QUOTA);
            rows.push(row("fullest second", fullest.to_string(), &note));
        }
        rows.extend(self.quota_row());
        rows
    }
}

/// What a limit sustains in some time: N·T/(W + guard), and N in any shorter time than that.
fn allowance(limit: &Limit, elapsed: Duration) -> f64 {
    let span = limit.window() + limit.guard_or_default();
    f64::from(limit.quota()) * (elapsed.as_secs_f64() / span.as_secs_f64()).max(1.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value, note) in self.rows() {
            writeln!(f, "{}", format!("{what:<14}{value:>11}  {note}").trim_end())?;
        }
        Ok(())
    }
}
