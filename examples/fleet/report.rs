//! A run, in words and figures.

use std::fmt;

use indicatif::HumanCount;

use crate::args::Args;
use crate::demand::GREEDY_EVERY;
use crate::full::Fair;
use crate::quantiles::Quantiles;
use crate::summary::{Summary, ratio};

/// What is counted, how much of it, and a note.
type Row = (&'static str, String, String);

/// The report on one run.
pub(crate) struct Report<'a> {
    pub(crate) args: &'a Args,
    pub(crate) summary: &'a Summary,
}

impl Report<'_> {
    fn setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Args { processes, scopes, quota, demand, zipf, greedy, network_us, seconds, seed, .. } = self.args;
        let nodes = self.args.nodes();
        let (processes, scopes) = (count(*processes), count(*scopes));
        writeln!(f, "{processes} processes want {demand} calls/s of {scopes} scopes, which may have {quota}/s each.")?;
        writeln!(
            f,
            "The n-th scope is wanted one time in n^{zipf}; one process in {GREEDY_EVERY} wants {greedy} times as much as the others."
        )?;
        let redis = if nodes == 1 { "One Redis".to_owned() } else { format!("{nodes} Redis nodes") };
        writeln!(f, "{redis}, {network_us} µs away, busy for {}.", self.args.service)?;
        writeln!(f, "{seconds} s of virtual time, after {} s of warm-up; seed {seed}.\n", self.args.warm_up.as_secs())
    }

    fn calls(&self) -> Vec<Row> {
        let Summary { wanted, started, refused, failed, .. } = self.summary;
        let per_second = count(started / self.args.seconds.max(1));
        vec![
            ("calls wanted", count(*wanted), String::new()),
            ("started", count(*started), format!("{per_second}/s")),
            ("refused", count(*refused), format!("no slot within {} ms", self.args.max_wait_ms)),
            ("failed", count(*failed), "the store did not answer in time".to_owned()),
        ]
    }

    fn store(&self) -> Vec<Row> {
        let Summary { tally, started, busy, round_trips, .. } = self.summary;
        let calls = tally.asks;
        let share = |part| format!("{:.0} %", 100.0 * ratio(part, calls));
        let kinds =
            format!("{} after which somebody waits, {} with hand-backs", share(tally.waiting), share(tally.hand_backs));
        let of_busiest = if self.args.nodes() > 1 { "the busiest node" } else { "the node" };
        vec![
            ("store calls", format!("{}/s", count(calls / self.args.seconds.max(1))), kinds),
            ("per start", format!("{:.2}", ratio(calls, *started)), callers(ratio(tally.callers, tally.asks))),
            ("busy", format!("{:.1} %", 100.0 * busy), of_busiest.to_owned()),
            ("round trips", String::new(), round_trips.to_string()),
        ]
    }

    fn scopes(&self) -> Vec<Row> {
        let Summary { with_room, room, full, .. } = self.summary;
        let waits = |times: &Quantiles| format!("waits beyond those in one queue for all: {times}");
        let mut rows = vec![("with room", count(*with_room), format!("scopes; {}", waits(room)))];
        if full.scopes > 0 {
            rows.push(("full", count(full.scopes), format!("scopes; {}", waits(&full.waits()))));
            let used = format!("{:.2} %", 100.0 * full.used());
            rows.push(("quota used", used, "in full scopes, of what one queue for all would use".to_owned()));
        }
        if let Some(Fair { each, index, in_queue }) = full.fair.first() {
            let least = full.fair.iter().map(|fair| fair.index).fold(1.0, f64::min);
            let note = format!("{each:.1} calls for each process of the hottest scope; {least:.3} in the least fair");
            rows.push(("Jain's index", format!("{index:.3}"), note));
            rows.push(("in one queue", format!("{in_queue:.3}"), "it would be, first come, first served".to_owned()));
        }
        rows
    }

    fn law(&self) -> Vec<Row> {
        let Summary { verdict, seen, .. } = self.summary;
        let slots = format!("{} slots in {} logs", count_of(verdict.slots), count_of(verdict.logs));
        let quota = format!("as the upstream saw it; it allows {}", self.args.quota);
        vec![
            ("violations", self.summary.violations().to_string(), slots),
            ("fullest second", seen.fullest.to_string(), quota),
        ]
    }
}

fn callers(mean: f64) -> String {
    format!("store calls for each call that started; {mean:.2} callers in an ask")
}

fn count(number: u32) -> String {
    HumanCount(number.into()).to_string()
}

fn count_of(number: usize) -> String {
    HumanCount(u64::try_from(number).unwrap_or(u64::MAX)).to_string()
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.setting(f)?;
        for (what, value, note) in [self.calls(), self.store(), self.scopes(), self.law()].concat() {
            writeln!(f, "{}", format!("{what:<14}{value:>11}  {note}").trim_end())?;
        }
        Ok(())
    }
}
