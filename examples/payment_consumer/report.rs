//! What came of it.

use std::fmt;
use std::time::Duration;

use crate::args::Args;
use crate::gateway::Gateway;
use crate::limits::{OF_ALL, OF_MERCHANT, SEATS};
use crate::order::{Order, is_broken};

/// What the gateways counted, and what was wanted of them.
pub(crate) struct Report {
    wanted: usize,
    made: usize,
    lost: usize,
    doubled: usize,
    refused: usize,
    calls: usize,
    seen_again: u32,
    failed: u32,
    dead_letters: u32,
    broken: usize,
    killed: u32,
    most_in_flight: Vec<i32>,
    took: Duration,
    longest_stall: u64,
}

impl Report {
    pub(crate) fn new(
        args: &Args,
        gateways: &[Gateway],
        dead_letters: u32,
        killed: u32,
        took: Duration,
        longest_stall: u64,
    ) -> Self {
        // Of all gateways: an order that two of them made is doubled, too.
        let times = |number| gateways.iter().map(|gateway| gateway.ledger.record().times(number)).sum::<u32>();
        let wanted = || (0..args.payments).map(Order::numbered).filter(|order| !is_broken(order.number));
        let count = |is: fn(u32) -> bool| wanted().filter(|order| is(times(order.number))).count();
        Self {
            wanted: wanted().count(),
            made: count(|times| times > 0),
            lost: count(|times| times == 0),
            doubled: count(|times| times > 1),
            refused: gateways.iter().map(Gateway::refused).sum(),
            calls: gateways.iter().map(Gateway::calls).sum(),
            seen_again: gateways.iter().map(|gateway| gateway.ledger.record().seen_again).sum(),
            failed: gateways.iter().map(|gateway| gateway.ledger.record().failed).sum(),
            dead_letters,
            broken: (0..args.payments).filter(|&number| is_broken(number)).count(),
            killed,
            most_in_flight: gateways.iter().map(Gateway::most_in_flight).collect(),
            took,
            longest_stall,
        }
    }

    /// A payment was lost, doubled or refused.
    pub(crate) fn broke_its_promise(&self) -> bool {
        self.lost + self.doubled + self.refused > 0
    }

    /// Others than those that always fail were put aside, or not all of them in time.
    pub(crate) const fn failed(&self) -> bool {
        self.dead_letters as usize != self.broken
    }

    fn rows(&self) -> Vec<(&'static str, String, String)> {
        let most: Vec<String> = self.most_in_flight.iter().map(ToString::to_string).collect();
        vec![
            ("wanted", self.wanted.to_string(), "payments and refunds that can be made".to_owned()),
            ("made", self.made.to_string(), "as the gateways counted them".to_owned()),
            ("lost", self.lost.to_string(), "wanted, and never made".to_owned()),
            ("doubled", self.doubled.to_string(), "made more than once".to_owned()),
            ("429s", self.refused.to_string(), format!("a gateway allows {OF_ALL}/s, {OF_MERCHANT}/s of a merchant")),
            ("in flight", most.join(", "), format!("the most at each gateway, which has {SEATS} seats")),
            ("calls", self.calls.to_string(), format!("of which {} failed", self.failed)),
            ("seen again", self.seen_again.to_string(), "calls with a key that was made: answered alike".to_owned()),
            ("dead letters", self.dead_letters.to_string(), format!("{} always fail", self.broken)),
            ("killed", self.killed.to_string(), "consumers, with calls in flight".to_owned()),
            ("took", format!("{:.1} s", self.took.as_secs_f64()), "from the first call on".to_owned()),
            ("longest stall", format!("{} ms", self.longest_stall), "of this machine".to_owned()),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value, note) in self.rows() {
            writeln!(f, "{what:<14}{value:>10}  {note}")?;
        }
        Ok(())
    }
}
