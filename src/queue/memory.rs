//! What a queue remembers that the store must hold: where it does not, data was lost. What counts for long it says again then. Pure: time is
//! an argument.

mod kept;
mod taking_over;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use self::kept::Kept;

use crate::ledger::{self, Again, Log, MAX_MEMORY, Remembered, SHORT, Slots, Stamp};

/// So many starts are remembered one by one at most: the newest are told.
const MOST: usize = 256;
/// Where logs count for long older ones are remembered in so many steps of the longest, each at the latest of its starts.
const STEPS: i64 = 64;
/// Who remembers what counts for long, and in which callers wait, hears so soon that the store has lost it: before others start that do not
/// know of it. Two answers, and what others book ahead meanwhile, fit into what is left of 6 s.
pub(super) const HEARS: Duration = Duration::from_secs(5);
/// The store is told of a message, and of a start in a log that counts for short, for so much longer than it must remember that.
const BEYOND: Duration = Duration::from_micros(ledger::BEYOND.unsigned_abs());

/// What the store must hold of a queue.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// For how long the longest log counts.
    span: i64,
    message: Option<Last>,
    /// When the last message was written, and when the last answer came; and how long one takes.
    written: Option<Instant>,
    heard_at: Option<Instant>,
    answer: Duration,
    /// When the last message was written that was granted anything.
    granted_at: Option<Instant>,
    /// Starts that were granted, ascending.
    starts: VecDeque<Stamp>,
    /// Units of each log that were granted with each of them, and not handed back.
    units: VecDeque<u32>,
    /// The first and the last message that each was granted by, where the logs count for long.
    granted_by: VecDeque<(u64, u64)>,
    /// For how long the store must hold each of them.
    kept: Kept,
    /// Starts from before those, where the logs count for long.
    older: VecDeque<Step>,
    /// From this message on the store is known to have held each until the next, with all that was granted by it.
    held_from: u64,
    /// When the last loss was seen that is told of.
    heard: Stamp,
    /// A later one, for which it is to be said what was granted.
    untold: Option<Untold>,
}

/// Starts close to each other.
#[derive(Clone, Debug)]
struct Step {
    /// The latest of them.
    start: Stamp,
    units: Box<[u32]>,
    granted_by: (u64, u64),
}

/// A loss that the store has told of.
#[derive(Clone, Copy, Debug)]
struct Untold {
    loss: Stamp,
    /// The last message that has survived it.
    survived: u64,
    /// The message that was told so: what it was granted was granted after the loss.
    told_by: u64,
    /// It is said at once, and not with the next ask.
    is_urgent: bool,
}

/// The last message that the store is known to have remembered.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Zero where it was sent under another name.
    number: u64,
    /// The log time that was told with its answer.
    told: Stamp,
    /// Until when the store must remember it.
    until: Instant,
}

impl Memory {
    /// Of a queue whose callers are charged in these logs.
    pub(super) fn of(logs: &[Log]) -> Self {
        Self { span: logs.iter().map(Log::retention).max().unwrap_or(0), ..Self::default() }
    }

    /// The store has remembered a message that was sent first at `sent`, and told so at this log time. So it must for as long as the logs
    /// count, or the `lease` of seats lasts.
    pub(super) fn is_remembered(&mut self, number: u64, told: Stamp, lease: Duration, sent: Instant) {
        // Had the one before been lost, the answer to this one had said so, unless the store might have forgotten it.
        if self.message.is_none_or(|last| last.number == 0 || last.until <= sent + BEYOND) {
            self.held_from = number;
        }
        let retention = self.span.max(ledger::micros(lease)).min(MAX_MEMORY);
        self.message =
            Some(Last { number, told, until: sent + Duration::from_micros(retention.unsigned_abs()) + BEYOND });
    }

    /// Callers were granted a start, each with these charges, by the message of this number.
    pub(super) fn granted(&mut self, start: Stamp, callers: u32, charges: &[u32], by: u64) {
        self.granted_at = self.written;
        let units = charges.iter().map(|units| units.saturating_mul(callers));
        self.note((start, (by, by)), units, charges.len(), None);
    }

    /// Takes note of a start, of the messages that it was granted by, and of its units in so many logs; and for how long the store must hold it,
    /// where that is shorter than the logs count.
    fn note(
        &mut self,
        (start, by): (Stamp, (u64, u64)),
        charges: impl Iterator<Item = u32>,
        width: usize,
        kept: Option<Box<[i64]>>,
    ) {
        let at = self.starts.iter().rposition(|known| *known <= start).map_or(0, |before| before + 1);
        if at == 0 || self.starts[at - 1] != start {
            self.kept.insert(at, self.starts.len(), kept);
            self.starts.insert(at, start);
            for (place, units) in charges.enumerate() {
                self.units.insert(at * width + place, units);
            }
            if self.counts_for_long() {
                self.granted_by.insert(at, by);
            }
        } else {
            self.kept.join(at - 1, kept.as_deref());
            for (known, units) in self.units.range_mut((at - 1) * width..at * width).zip(charges) {
                *known = known.saturating_add(units);
            }
            if let Some(granted_by) = self.granted_by.get_mut(at - 1) {
                *granted_by = (granted_by.0.min(by.0), granted_by.1.max(by.1));
            }
        }
        if self.starts.len() > MOST {
            let first = self.kept.first_to_go();
            if let (Some(start), Some(by)) = (self.starts.get(first), self.granted_by.get(first)) {
                enter(&mut self.older, *start, self.units.range(first * width..(first + 1) * width), *by, self.span);
            }
            self.forget(first, width);
        }
    }

    /// Slots, or units of slots, go back: whether the store holds them is not known from now on.
    pub(super) fn handed_back(&mut self, slots: &Slots) {
        let width = slots.charges.len();
        let taken = slots.charges.iter().map(|units| units.saturating_mul(slots.count));
        let Some(at) = self.starts.iter().rposition(|known| *known == slots.start) else {
            let at = self.older.partition_point(|step| step.start < slots.start);
            let step = self.older.get_mut(at).into_iter().flat_map(|step| &mut step.units);
            return step.zip(taken).for_each(|(known, taken)| *known = known.saturating_sub(taken));
        };
        let mut is_empty = true;
        for (known, taken) in self.units.range_mut(at * width..(at + 1) * width).zip(taken) {
            *known = known.saturating_sub(taken);
            is_empty &= *known == 0;
        }
        if is_empty {
            self.forget(at, width);
        }
    }

    /// What an ask says of it: nothing of what counts no more by the log time that is known, or has not for a while.
    pub(super) fn remembered(&mut self, logs: &[Log], known: Option<Stamp>, now: Instant) -> Remembered {
        self.written = Some(now);
        let (width, known, span) = (logs.len(), known.unwrap_or(Stamp::NEVER), self.span);
        let is_over = |start: Stamp| start.plus(told_for(span)) <= known;
        self.older.retain(|step| !is_over(step.start));
        let over = self.starts.iter().take_while(|start| is_over(**start)).count();
        self.forget_first(over, width);
        let last = self.message.filter(|last| last.until > now);
        let (number, told) = last.map_or((0, Stamp::NEVER), |last| (last.number, last.told));
        let newest = |(place, log): (usize, &Log)| {
            let held = (0..self.starts.len()).rev().filter(|at| self.units[at * width + place] > 0);
            for at in held {
                let (start, kept) = (self.starts[at], self.kept.of(at));
                if start.plus(told_for(kept.map_or(log.retention(), |kept| kept[place]))) > known {
                    return start;
                }
                if kept.is_none() {
                    // What came before counts no longer.
                    break;
                }
            }
            Stamp::NEVER
        };
        let newest = if self.starts.is_empty() { Vec::new() } else { logs.iter().enumerate().map(newest).collect() };
        Remembered::new(number, told, newest)
    }

    /// The answer to the message of this number told of a loss; the last message that has survived it had this one.
    pub(super) fn hear(&mut self, loss: Stamp, survived: u64, told_by: u64) {
        if loss <= self.untold.map_or(self.heard, |untold| untold.loss) {
            return;
        }
        let untold = Untold { loss, survived, told_by, is_urgent: true };
        if self.lost(untold).next().is_some() {
            self.untold = Some(untold);
        } else {
            (self.heard, self.untold) = (loss, None);
        }
    }

    /// Whether the store is to be told at once what was granted before a loss.
    pub(super) fn has_untold(&self) -> bool {
        self.untold.is_some_and(|untold| untold.is_urgent)
    }

    /// The store does not answer, and nobody waits: it is told with the next ask.
    pub(super) fn tell_later(&mut self) {
        self.untold = self.untold.map(|untold| Untold { is_urgent: false, ..untold });
    }

    /// What an ask says of the last loss.
    pub(super) fn again(&self) -> Option<Again> {
        let Some(untold) = self.untold else {
            return (self.heard > Stamp::NEVER).then(|| Again::new(self.heard, self.heard, Vec::new()));
        };
        let mut steps: VecDeque<Step> = self.lost(untold).collect();
        // What a call used beyond its charge may have been entered before what is older by now.
        steps.make_contiguous().sort_by_key(|step| step.start);
        if i64::try_from(steps.len()).is_ok_and(|steps| steps > STEPS) {
            let all = std::mem::take(&mut steps);
            for step in all {
                enter(&mut steps, step.start, &step.units, step.granted_by, self.span);
            }
        }
        let steps = steps.into_iter().map(|step| Slots::new(1, step.start, step.units));
        Some(Again::new(self.heard, untold.loss, steps.collect()))
    }

    /// The store has taken what the message of this number said again.
    pub(super) fn is_told(&mut self, again: &Again, number: u64) {
        if self.untold.take_if(|untold| untold.loss == again.loss).is_some() {
            // It holds that as long as it holds this.
            (self.heard, self.held_from) = (again.loss, number);
        }
    }

    /// Whether anything is remembered that would be said again.
    pub(super) fn would_say(&self) -> bool {
        self.counts_for_long() && !(self.starts.is_empty() && self.older.is_empty())
    }

    /// When a queue in which callers wait since then asks at the latest, where it would say anything again.
    pub(super) fn hear_by(&self, since: Instant) -> Option<Instant> {
        self.written.filter(|_| self.would_say()).map(|written| written.max(since) + self.hears_within())
    }

    /// When the last message was written that was granted anything, and when it is long enough since the last of all to ask whether anything was
    /// lost; `None` where nothing counts any more.
    pub(super) fn asks_by(&self, now: Instant) -> Option<(Instant, Instant)> {
        let span = Duration::from_micros(self.span.unsigned_abs());
        let written = self.written.filter(|_| self.would_say())?;
        // A start lies hardly further ahead of its message.
        let counts = written + span + HEARS > now;
        counts.then(|| (self.granted_at.unwrap_or(written), written + self.hears_within()))
    }

    fn hears_within(&self) -> Duration {
        HEARS.saturating_sub(2 * self.answer).max(HEARS / 5)
    }

    /// An answer came at `now`, and so long one takes.
    pub(super) const fn answered(&mut self, answer: Duration, now: Instant) {
        (self.answer, self.heard_at) = (answer, Some(now));
    }

    /// Whether an answer came since then.
    pub(super) fn has_heard(&self, since: Instant) -> bool {
        self.heard_at >= Some(since)
    }

    /// The process has another name: messages of the last are no more its own. What it was granted by them is still held, if only
    /// seldom by nobody else.
    pub(super) fn rename(&mut self) {
        self.message = self.message.map(|last| Last { number: 0, ..last });
    }

    /// Whether the store must hold anything.
    #[cfg(test)]
    pub(super) fn is_any(&self, now: Instant) -> bool {
        self.message.is_some_and(|last| last.number > 0 && last.until > now)
    }

    /// Whether the store must hold a start, which is told under another name as well.
    #[cfg(test)]
    pub(super) fn has_start(&self, now: Instant, known: Stamp) -> bool {
        let is_told = |start: &Stamp| start.plus(told_for(self.span)) > known;
        self.message.is_some_and(|last| last.until > now) && self.starts.back().is_some_and(is_told)
    }

    pub(super) const fn counts_for_long(&self) -> bool {
        self.span > SHORT
    }

    /// What was granted before the store told of a loss, and may not have survived it.
    fn lost(&self, untold: Untold) -> impl Iterator<Item = Step> {
        let width = self.units.len().checked_div(self.starts.len()).unwrap_or(0);
        let newer = (0..self.granted_by.len()).map(move |at| {
            let units = self.units.range(at * width..(at + 1) * width).copied().collect();
            Step { start: self.starts[at], units, granted_by: self.granted_by[at] }
        });
        let is_lost = move |step: &Step| {
            let (first, last) = step.granted_by;
            let is_there = self.held_from <= first && last <= untold.survived;
            first < untold.told_by && !is_there && step.units.iter().any(|units| *units > 0)
        };
        self.older.iter().cloned().chain(newer).filter(is_lost)
    }

    fn forget(&mut self, at: usize, width: usize) {
        self.starts.remove(at);
        self.units.drain(at * width..(at + 1) * width);
        self.granted_by.remove(at);
        self.kept.remove(at);
    }

    /// Forgets so many of the starts, the first ones.
    fn forget_first(&mut self, count: usize, width: usize) {
        self.starts.drain(..count);
        self.units.drain(..count * width);
        self.granted_by.drain(..count.min(self.granted_by.len()));
        self.kept.forget_first(count);
    }
}

/// For how long a start is told that counts for `span` µs: where that is short the log is there for longer.
const fn told_for(span: i64) -> i64 {
    if span > SHORT { span } else { span + ledger::BEYOND }
}

/// Enters a start behind some steps: those close to each other are one.
fn enter<'a>(
    steps: &mut VecDeque<Step>,
    start: Stamp,
    units: impl IntoIterator<Item = &'a u32>,
    granted_by: (u64, u64),
    span: i64,
) {
    let place = |start: Stamp| start.as_micros() / (span / STEPS).max(1);
    let is_one = |last: &&mut Step| start <= last.start || place(start) == place(last.start);
    let Some(last) = steps.back_mut().filter(is_one) else {
        return steps.push_back(Step { start, units: units.into_iter().copied().collect(), granted_by });
    };
    last.start = last.start.max(start);
    last.units.iter_mut().zip(units).for_each(|(known, units)| *known = known.saturating_add(*units));
    last.granted_by = (last.granted_by.0.min(granted_by.0), last.granted_by.1.max(granted_by.1));
}
