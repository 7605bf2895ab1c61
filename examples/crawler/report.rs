//! The table at the end.

use std::fmt;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use outgate::Limit;
use outgate::testing::{StrictUpstream, oracle};

use crate::args::Args;
use crate::client::Client;
use crate::limits;
use crate::site;
use crate::tally::Tally;

/// What came of a crawl.
pub(crate) struct Report {
    tally: Tally,
    calls: u32,
    refused: u32,
    limits: Vec<Limit>,
    fullest_second: Option<u64>,
}

impl Report {
    pub(crate) fn new(args: &Args, tally: Tally, client: &Client, site: Option<&StrictUpstream>) -> Self {
        let fullest_second = site.map(|site| oracle::worst_window(&site.stamps(), 1_000_000).count);
        let (calls, refused) = (client.count.calls(), client.count.refused());
        Self { tally, calls, refused, limits: args.limits(), fullest_second }
    }

    /// The site refused a call although the crawler kept to its limits.
    pub(crate) fn broke_its_promise(&self) -> bool {
        self.refused > 0 && !self.limits.is_empty()
    }

    fn reasons(&self) -> String {
        let mut reasons: Vec<_> =
            self.tally.errors.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
        reasons.truncate(6);
        reasons.join(", ")
    }

    fn quota_row(&self) -> Option<(String, String)> {
        let elapsed = self.tally.elapsed;
        let allowed = |limit: &Limit| allowance(limit, elapsed);
        let scarcest = self.limits.iter().min_by(|one, other| allowed(one).total_cmp(&allowed(other)))?;
        let share = 100.0 * f64::from(self.calls) / allowed(scarcest);
        let of = format!("of {}, which sustains {:.1} calls in this time", limits::text(scarcest), allowed(scarcest));
        let note = if share > 100.0 { format!("{of}; the first {} may go at once", scarcest.quota()) } else { of };
        Some((format!("{:.1} %", share.min(100.0)), note))
    }

    fn rows(&self) -> Vec<(&'static str, String, String)> {
        let Tally { pages, bytes, redirects, not_html, errors, elapsed, interrupted } = &self.tally;
        let count = |count: u32| HumanCount(count.into()).to_string();
        let none = String::new;
        let mut rows = vec![
            ("pages", count(*pages), if *interrupted { "interrupted".to_owned() } else { none() }),
            ("bytes", HumanCount(*bytes).to_string(), HumanBytes(*bytes).to_string()),
            ("redirects", count(*redirects), none()),
            ("not HTML", count(*not_html), none()),
            ("errors", count(errors.values().sum()), self.reasons()),
            ("calls", count(self.calls), none()),
            ("429s", count(self.refused), none()),
            ("seconds", format!("{:.1}", elapsed.as_secs_f64()), none()),
        ];
        if let Some(fullest) = self.fullest_second {
            rows.push((
                "fullest second",
                HumanCount(fullest).to_string(),
                format!("as the site saw it; it allows {}", site::QUOTA),
            ));
        }
        rows.extend(self.quota_row().map(|(share, note)| ("quota used", share, note)));
        rows
    }
}

/// What a limit sustains in some time, N·T/(W + guard): N calls per window and guard.
fn allowance(limit: &Limit, elapsed: Duration) -> f64 {
    let span = limit.window() + limit.guard_or_default();
    f64::from(limit.quota()) * elapsed.as_secs_f64().max(0.001) / span.as_secs_f64()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value, note) in self.rows() {
            writeln!(f, "{}", format!("{what:<16}{value:>12}  {note}").trim_end())?;
        }
        Ok(())
    }
}
