//! What a queue remembers that the store must hold: where it does not, data was lost. Pure: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::{self, LONG, Log, MAX_MEMORY, Remembered, Slots, Stamp};

/// So many starts are remembered at most: the newest are told.
const MOST: usize = 256;
/// The store is told of a message for so much longer than it must remember that.
const BEYOND: Duration = Duration::from_micros(ledger::BEYOND.unsigned_abs());

/// What the store must hold of a queue.
#[derive(Debug, Default)]
pub(super) struct Memory {
    message: Option<Last>,
    /// Starts that were granted, ascending.
    starts: VecDeque<Stamp>,
    /// Units of each log that were granted with each of them, and not handed back.
    units: VecDeque<u32>,
}

/// The last message that the store is known to have remembered.
#[derive(Clone, Copy, Debug)]
struct Last {
    number: u64,
    /// The log time that was told with its answer.
    told: Stamp,
    /// Until when the store must remember it.
    until: Instant,
}

impl Memory {
    /// The store has remembered a message that was sent first at `sent`, and told so at this log time. So it must for as long as the logs
    /// count, or the `lease` of seats lasts.
    pub(super) fn is_remembered(&mut self, number: u64, told: Stamp, logs: &[Log], lease: Duration, sent: Instant) {
        let counts = logs.iter().map(Log::retention).max().unwrap_or(0);
        let retention = counts.max(ledger::micros(lease)).min(MAX_MEMORY);
        self.message =
            Some(Last { number, told, until: sent + Duration::from_micros(retention.unsigned_abs()) + BEYOND });
    }

    /// Callers were granted a start, each with these charges.
    pub(super) fn granted(&mut self, start: Stamp, callers: u32, charges: &[u32]) {
        let width = charges.len();
        let at = self.starts.iter().rposition(|known| *known <= start).map_or(0, |before| before + 1);
        if at == 0 || self.starts[at - 1] != start {
            self.starts.insert(at, start);
            for (place, units) in charges.iter().enumerate() {
                self.units.insert(at * width + place, units.saturating_mul(callers));
            }
        } else {
            for (known, units) in self.units.range_mut((at - 1) * width..at * width).zip(charges) {
                *known = known.saturating_add(units.saturating_mul(callers));
            }
        }
        if self.starts.len() > MOST {
            self.forget_first(width);
        }
    }

    /// Slots, or units of slots, go back: whether the store holds them is not known from now on.
    pub(super) fn handed_back(&mut self, slots: &Slots) {
        let width = slots.charges.len();
        let Some(at) = self.starts.iter().rposition(|known| *known == slots.start) else { return };
        let mut is_empty = true;
        for (known, units) in self.units.range_mut(at * width..(at + 1) * width).zip(slots.charges.iter()) {
            *known = known.saturating_sub(units.saturating_mul(slots.count));
            is_empty &= *known == 0;
        }
        if is_empty {
            self.starts.remove(at);
            self.units.drain(at * width..(at + 1) * width);
        }
    }

    /// What an ask says of it: nothing of what counts no more by the log time that is known.
    pub(super) fn remembered(&mut self, logs: &[Log], known: Option<Stamp>, now: Instant) -> Remembered {
        let (width, known) = (logs.len(), known.unwrap_or(Stamp::NEVER));
        // What is older no store looks for.
        let longest = logs.iter().map(Log::retention).max().unwrap_or(0).min(LONG);
        while self.starts.front().is_some_and(|start| start.plus(longest) <= known) {
            self.forget_first(width);
        }
        let last = self.message.filter(|last| last.until > now);
        let (number, told) = last.map_or((0, Stamp::NEVER), |last| (last.number, last.told));
        let newest = |(place, log): (usize, &Log)| {
            let newest = (0..self.starts.len()).rev().find(|at| self.units[at * width + place] > 0);
            newest.map(|at| self.starts[at]).filter(|start| start.plus(log.retention()) > known).unwrap_or(Stamp::NEVER)
        };
        let newest = if self.starts.is_empty() { Vec::new() } else { logs.iter().enumerate().map(newest).collect() };
        Remembered::new(number, told, newest)
    }

    /// The process has another name: messages of the last are no more its own. What it was granted under that is still held, if only
    /// seldom by nobody else.
    pub(super) const fn rename(&mut self) {
        self.message = None;
    }

    /// Whether the store must hold anything.
    #[cfg(test)]
    pub(super) fn is_any(&self, now: Instant) -> bool {
        self.message.is_some_and(|last| last.until > now)
    }

    fn forget_first(&mut self, width: usize) {
        self.starts.pop_front();
        self.units.drain(..width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Term;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    fn logs() -> [Log; 2] {
        [Log::new("calls", [Term::new(5, 1_000)]), Log::new("points", [Term::new(5, 3_000)])]
    }

    fn newest(memory: &mut Memory, known: i64) -> Vec<Stamp> {
        memory.remembered(&logs(), Some(at(known)), Instant::now()).newest
    }

    #[test]
    fn the_newest_start_of_each_log_is_told_that_nobody_handed_back() {
        let mut memory = Memory::default();
        memory.granted(at(100), 2, &[1, 0]);
        memory.granted(at(300), 1, &[0, 2]);
        memory.granted(at(200), 1, &[1, 0]);
        memory.granted(at(200), 1, &[2, 1]);
        assert_eq!(newest(&mut memory, 50), [at(200), at(300)]);
        memory.handed_back(&Slots::new(1, at(300), [0, 1]));
        assert_eq!(newest(&mut memory, 50), [at(200), at(300)], "a unit of it is left");
        memory.handed_back(&Slots::new(1, at(300), [0, 1]));
        memory.handed_back(&Slots::new(3, at(200), [1, 0]));
        memory.handed_back(&Slots::new(1, at(250), [1, 1]));
        assert_eq!(newest(&mut memory, 50), [at(100), at(200)]);
    }

    #[test]
    fn what_counts_no_more_is_not_told() {
        let mut memory = Memory::default();
        memory.granted(at(100), 1, &[1, 1]);
        assert_eq!(newest(&mut memory, 1_099), [at(100), at(100)]);
        assert_eq!(newest(&mut memory, 1_100), [at(0), at(100)]);
        assert_eq!(newest(&mut memory, 3_100), []);
        for start in 0..1_000 {
            memory.granted(at(10_000 + start), 1, &[1, 1]);
        }
        assert_eq!((memory.starts.len(), memory.units.len()), (MOST, 2 * MOST));
    }

    #[test]
    fn what_no_store_looks_for_any_more_takes_no_room() {
        let (mut memory, logs) = (Memory::default(), [Log::new("calls", [Term::new(5_000, 3_600_000_000)])]);
        for second in 0..600 {
            let now = at(second * 1_000_000);
            memory.granted(now, 1, &[1]);
            assert_eq!(memory.remembered(&logs, Some(now), Instant::now()).newest, [now]);
        }
        assert_eq!((memory.starts.len(), memory.units.len()), (62, 62));
    }

    #[test]
    fn a_message_is_told_for_as_long_as_the_store_must_remember_it() {
        let (mut memory, sent) = (Memory::default(), Instant::now());
        let number = |memory: &mut Memory, after: Duration| {
            let told = memory.remembered(&logs(), None, sent + after);
            (told.number, told.told)
        };
        assert_eq!(number(&mut memory, Duration::ZERO), (0, at(0)));
        memory.is_remembered(7, at(500), &logs(), Duration::ZERO, sent);
        let until = Duration::from_millis(3) + BEYOND;
        assert_eq!(number(&mut memory, BEYOND), (7, at(500)));
        assert_eq!(number(&mut memory, until), (0, at(0)));
        memory.is_remembered(8, at(600), &logs(), Duration::from_secs(9), sent);
        assert_eq!(number(&mut memory, Duration::from_secs(13)), (8, at(600)));
        memory.rename();
        assert_eq!(number(&mut memory, Duration::ZERO), (0, at(0)));
    }
}
