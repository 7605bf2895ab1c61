//! What calls used in truth, until the store is told. Pure: time is an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;
use super::in_flight::Message;
use crate::config::name::shown;
use crate::ledger::{Grant, Log, Slots, Stamp, Term};

/// Within this part of the shortest span the store is told, so that it knows before many more are booked; within bounds.
const PART: i64 = 8;
const SOONEST: Duration = Duration::from_millis(25);
const LATEST: Duration = Duration::from_millis(250);

/// One message gives back units of so many starts, or of this part of all where many are left: to find one among 20,000 newer entries takes Redis
/// up to two milliseconds, but where each answer takes long more come up meanwhile.
const SOME: usize = 32;
const PART_OF_MANY: usize = 8;
const MOST: usize = 128;

/// Of how many starts one message gives back units, where so many are left.
pub(super) fn most_of(left: usize) -> usize {
    (left / PART_OF_MANY).clamp(SOME, MOST)
}

/// Where units come back before their time a queue that waits looks for what calls of other processes did not use: so often, but all
/// queues together no more often than one looks in the time that each adds.
pub(super) const LOOK: Duration = Duration::from_secs(1);
pub(super) const LOOK_OF_EACH: Duration = Duration::from_millis(10);

/// What a log counts, and how.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) unit: Arc<str>,
    /// How many units an entry stands for.
    pub(crate) quantum: u32,
    /// The upstream counts them when a call ends.
    pub(crate) at_end: bool,
    /// Of which log, by its place, this counts those calls alone for whom nothing is kept.
    pub(crate) rest_of: Option<usize>,
    /// Whether any limit counts by it: where calls in flight alone are limited, none does.
    pub(crate) is_limited: bool,
}

impl Counted {
    /// How many entries so many units are: as many as there can be at most.
    pub(crate) fn entries(&self, units: u64) -> u32 {
        u32::try_from(units.div_ceil(u64::from(self.quantum.max(1)))).unwrap_or(u32::MAX)
    }
}

/// How the calls of an upstream are settled.
#[derive(Debug)]
pub(crate) struct Settling {
    /// Of each log.
    logs: Vec<Counted>,
    /// Somebody has settled a unit that no limit counts.
    warned: AtomicBool,
}

impl Settling {
    /// Of calls that are charged in these logs.
    pub(crate) const fn new(logs: Vec<Counted>) -> Self {
        Self { logs, warned: AtomicBool::new(false) }
    }

    /// The logs in which limits count a unit, by their places.
    pub(crate) fn logs_of(&self, unit: &str) -> impl Iterator<Item = (usize, &Counted)> {
        self.logs.iter().enumerate().filter(move |(_, log)| log.is_limited && *log.unit == *unit)
    }

    /// Whether a call of these charges is one of those for whom something is kept: what it uses counts in no log of a rest.
    pub(crate) fn is_kept_for(&self, charges: &[u32]) -> bool {
        let is_charged = |at: usize| charges.get(at).is_some_and(|&units| units > 0);
        let is_spared = |(at, log): (usize, &Counted)| log.rest_of.is_some_and(is_charged) && !is_charged(at);
        self.logs.iter().enumerate().any(is_spared)
    }

    /// No limit counts this unit: says so once.
    pub(crate) fn is_unknown(&self, upstream: &str, unit: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            let unit = &*shown(unit);
            tracing::warn!(upstream, unit, "a call is settled in a unit that no limit counts: ignored, and said once");
        }
    }
}

/// What is left of a call's charge in one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Entries that stand at the start of the call.
    held: u32,
    /// Entries that it took later.
    owed: u32,
}

impl Balance {
    /// Of a call that was charged so much.
    pub(crate) const fn new(charged: u32) -> Self {
        Self { held: charged, owed: 0 }
    }

    /// What still stands at its start.
    pub(crate) const fn held(self) -> u32 {
        self.held
    }

    /// All that it takes.
    pub(crate) const fn taken(self) -> u32 {
        self.held.saturating_add(self.owed)
    }

    /// The call used so much: how much of what stands at its start goes back, and how much is owed. Where it counts when the call ends,
    /// all of it goes back and what was used is owed.
    ///
    /// Of what is owed nothing goes back: nobody knows where it stands.
    pub(crate) fn correct(&mut self, used: u32, at_end: bool) -> (u32, u32) {
        let before = self.taken();
        let (back, debt) = if at_end {
            (self.held, used.saturating_sub(self.owed))
        } else {
            (before.saturating_sub(used).min(self.held), used.saturating_sub(before))
        };
        self.held -= back;
        self.owed = self.owed.saturating_add(debt);
        (back, debt)
    }
}

/// What is to be corrected about one call.
#[derive(Clone, Debug)]
pub(crate) struct Correction {
    /// When it started.
    pub(crate) start: Stamp,
    /// The name that its slot was booked under.
    pub(crate) sender: u64,
    /// Entries of each log that it did not use.
    pub(crate) back: Vec<u32>,
    /// Entries of each log that it used beyond those.
    pub(crate) debts: Vec<u32>,
}

/// All that is to be corrected since the last message.
#[derive(Debug)]
pub(super) struct Corrections {
    /// What was not used, by start.
    back: Vec<(Stamp, Vec<u32>)>,
    debts: Vec<u32>,
    /// More goes back than is owed for the same call.
    makes_room: bool,
    /// The store is told by then, with the next ask or without one.
    by: Instant,
}

impl Corrections {
    fn none(logs: &[Log], now: Instant) -> Self {
        Self { back: Vec::new(), debts: Vec::new(), makes_room: false, by: now + patience(logs, |_| true) }
    }

    fn add(&mut self, start: Stamp, back: Vec<u32>) {
        match self.back.iter_mut().rev().find(|(of, _)| *of == start) {
            Some((_, units)) => add(units, &back),
            None => self.back.push((start, back)),
        }
    }

    fn owe(&mut self, debts: &[u32]) {
        self.debts.resize(debts.len().max(self.debts.len()), 0);
        add(&mut self.debts, debts);
    }

    /// Whether they make room for others.
    pub(super) const fn make_room(&self) -> bool {
        self.makes_room
    }

    fn is_empty(&self) -> bool {
        self.back.is_empty() && self.debts.is_empty()
    }
}

impl Engine {
    /// Takes note of what a call used. Says when the store is to be told.
    pub(super) fn settle(&mut self, correction: Correction, now: Instant) -> Option<Instant> {
        let mut corrections = self.corrections.take().unwrap_or_else(|| Corrections::none(&self.settings.logs, now));
        // What was booked under another name may be another process's.
        if correction.sender == self.sender && correction.back.iter().any(|&units| units > 0) {
            if correction.back.iter().zip(&correction.debts).any(|(back, debt)| back > debt) {
                corrections.makes_room = true;
                self.leave_nobody_out();
                self.unused_at = Some(now);
            }
            corrections.add(correction.start, correction.back);
        }
        if correction.debts.iter().any(|&units| units > 0) {
            corrections.owe(&correction.debts);
        }
        self.corrections = Some(corrections).filter(|corrections| !corrections.is_empty());
        self.settle_by(now)
    }

    /// When the store is told of what calls used: at once where that makes room for somebody who waits.
    pub(super) fn settle_by(&self, now: Instant) -> Option<Instant> {
        let corrections = self.corrections.as_ref()?;
        let helps = corrections.makes_room && self.asks_for_callers(now);
        Some(if helps { now.min(corrections.by) } else { corrections.by })
    }

    /// A rest that is no longer than it is worth while where calls seldom use all that they were charged, those of other processes
    /// included: others may have made room meanwhile.
    pub(super) fn rest_beside_unused(&mut self, rest: Duration, grant: &Grant, now: Instant) -> Duration {
        if !self.looks_for_unused(now) || grant.paused.is_some() {
            return rest;
        }
        let look = LOOK.max(LOOK_OF_EACH.saturating_mul(grant.contenders.saturating_add(1)));
        rest.min(look.mul_f64(0.8 + 0.4 * self.random.f64()))
    }

    /// Whether calls have lately used less than they were charged.
    pub(super) fn looks_for_unused(&self, now: Instant) -> bool {
        let longest = self.settings.logs.iter().map(Log::retention).max().unwrap_or(0).unsigned_abs();
        self.unused_at.is_some_and(|at| now.saturating_duration_since(at) < Duration::from_micros(longest))
    }

    /// What one message says of it.
    pub(super) fn take_corrections(&mut self) -> (Vec<Slots>, Vec<u32>) {
        let Some(mut corrections) = self.corrections.take() else { return (Vec::new(), Vec::new()) };
        let rest = corrections.back.split_off(most_of(corrections.back.len()).min(corrections.back.len()));
        if !rest.is_empty() {
            self.corrections = Some(Corrections { back: rest, debts: Vec::new(), ..corrections });
        }
        let back = corrections.back.into_iter().map(|(start, units)| Slots::new(1, start, units));
        (back.collect(), corrections.debts)
    }

    /// A message that did not act, or may not have: its debts are told again. Told twice they delay others longer than need be.
    pub(super) fn owe_again(&mut self, message: &Message, now: Instant) {
        if !message.debts().is_empty() {
            let logs = &self.settings.logs;
            self.corrections.get_or_insert_with(|| Corrections::none(logs, now)).owe(message.debts());
        }
    }

    /// Of what goes back no more is told than one message can.
    pub(super) fn leave_one_message(&mut self) {
        if let Some(Corrections { back, .. }) = &mut self.corrections {
            back.truncate(SOME);
        }
    }

    /// Slots of before are nobody's any more: nothing of them goes back.
    pub(super) fn forget_what_goes_back(&mut self) {
        if let Some(corrections) = &mut self.corrections {
            corrections.back.clear();
            corrections.makes_room = false;
        }
        self.corrections.take_if(|corrections| corrections.is_empty());
    }
}

fn add(units: &mut [u32], more: &[u32]) {
    for (units, more) in units.iter_mut().zip(more) {
        *units = units.saturating_add(*more);
    }
}

/// How long the store may know nothing of what counts by such terms.
pub(super) fn patience(logs: &[Log], counts_by: impl Fn(&Term) -> bool) -> Duration {
    let terms = logs.iter().flat_map(|log| log.terms.iter()).filter(|term| counts_by(term));
    let shortest = terms.map(|term| term.span).min().unwrap_or(0);
    Duration::from_micros((shortest / PART).unsigned_abs()).clamp(SOONEST, LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes back and what is owed, as one call is settled again and again.
    fn settled(charged: u32, at_end: bool, used: &[u32]) -> Vec<(u32, u32)> {
        let mut balance = Balance::new(charged);
        used.iter().map(|&used| balance.correct(used, at_end)).collect()
    }

    #[test]
    fn a_later_settlement_corrects_from_the_last() {
        assert_eq!(settled(100, false, &[80, 90, 90]), [(20, 0), (0, 10), (0, 0)], "100, then 80, then 90: 90 in all");
        assert_eq!(settled(100, false, &[150, 120]), [(0, 50), (30, 0)]);
        assert_eq!(settled(100, false, &[100, 0, 0]), [(0, 0), (100, 0), (0, 0)]);
        assert_eq!(settled(100, false, &[250, 100, 50]), [(0, 150), (100, 0), (0, 0)], "never more than was charged");
        assert_eq!(settled(0, false, &[7, 3]), [(0, 7), (0, 0)], "of what is owed nothing goes back");
        assert_eq!(settled(1, false, &[u32::MAX, u32::MAX]), [(0, u32::MAX - 1), (0, 0)]);
    }

    #[test]
    fn what_counts_when_a_call_ends_is_entered_anew() {
        assert_eq!(settled(100, true, &[80, 90, 90]), [(100, 80), (0, 10), (0, 0)]);
        assert_eq!(settled(100, true, &[100]), [(100, 100)]);
        assert_eq!(settled(100, true, &[150, 120]), [(100, 150), (0, 0)]);
        assert_eq!(settled(100, true, &[0, 5]), [(100, 0), (0, 5)]);
    }

    #[test]
    fn the_store_is_told_within_an_eighth_of_the_shortest_span() {
        for (span, patience_ms) in [(8_000, 25), (1_050_000, 131), (61_000_000, 250)] {
            let logs = [Log::new("calls", [Term::new(100, 90_000_000)]), Log::new("tokens", [Term::new(9, span)])];
            assert_eq!(patience(&logs, |_| true).as_millis(), patience_ms, "{span}");
        }
    }
}
