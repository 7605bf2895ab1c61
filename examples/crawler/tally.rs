//! What a crawl came to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::page::Outcome;

/// Counts outcomes.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pages: u32,
    pub(crate) bytes: u64,
    pub(crate) redirects: u32,
    pub(crate) not_html: u32,
    /// How often for which reason.
    pub(crate) errors: BTreeMap<String, u32>,
    pub(crate) elapsed: Duration,
    pub(crate) interrupted: bool,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Page { bytes, .. } => {
                self.pages += 1;
                self.bytes += u64::try_from(*bytes).unwrap_or(u64::MAX);
            }
            Outcome::Redirect(_) => self.redirects += 1,
            Outcome::NotHtml => self.not_html += 1,
            Outcome::Failed(reason) => self.fail(reason),
        }
    }

    pub(crate) fn fail(&mut self, reason: &str) {
        *self.errors.entry(reason.to_owned()).or_default() += 1;
    }
}
