//! The logs of an ask as they will be: what they hold, and what the ask has added so far.

use std::time::Duration;

use super::added::Added;
use super::bucket::{Bucket, Level};
use super::in_force::{InForce, until_nothing_moves};
use super::rule::Entries;
use super::shares::{Bounds, Turn, in_time};
use super::{Log, Run, SlidingLog, Stamp, Term};

/// The logs of an ask, in its order.
#[derive(Debug)]
pub(super) struct View<'a> {
    pages: Vec<Page<'a>>,
    scopes: usize,
    /// The first scope is the whole upstream.
    has_widest: bool,
}

/// One of the logs: what it holds, and the starts to enter.
#[derive(Debug)]
struct Page<'a> {
    log: &'a Log,
    /// The place of its scope among those of the ask.
    scope: usize,
    in_force: &'a InForce<'a>,
    entries: Option<&'a SlidingLog>,
    added: Added,
    fillings: Vec<Filling>,
}

/// How full a bucket is: first as the log is, then after all that was added together.
#[derive(Debug)]
struct Filling {
    bucket: Bucket,
    /// What rates leave of it.
    left: Bucket,
    levels: Vec<Level>,
}

impl Entries for Page<'_> {
    fn nth_newest(&self, n: usize) -> Option<Stamp> {
        match n.checked_sub(self.added.units()) {
            None | Some(0) => self.added.nth_newest(n),
            Some(n) => self.entries?.nth_newest(n),
        }
    }

    fn level(&self, bucket: Bucket) -> Level {
        let filling = self.fillings.iter().find(|filling| filling.bucket == bucket);
        filling.and_then(|filling| filling.levels.last()).copied().unwrap_or(Level::EMPTY)
    }
}

impl<'a> Page<'a> {
    fn new(log: &'a Log, scope: usize, in_force: &'a InForce<'a>, entries: Option<&'a SlidingLog>) -> Self {
        let filling = |term: &Term| {
            let (bucket, left) = (term.as_bucket()?, in_force.term(log, *term).as_bucket()?);
            let level = entries.map_or(Level::EMPTY, |entries| entries.level(bucket));
            Some(Filling { bucket, left, levels: vec![level] })
        };
        let fillings = log.terms.iter().filter_map(filling).collect();
        Self { log, scope, in_force, entries, added: Added::default(), fillings }
    }

    fn add(&mut self, start: Stamp, units: u32) {
        if !self.added.push(start, units) {
            return;
        }
        for Filling { bucket, left, levels } in &mut self.fillings {
            let level = levels.last().copied().unwrap_or(Level::EMPTY);
            levels.push(level.filled(start, units as usize, *bucket, *left));
        }
    }

    fn truncate(&mut self, added: usize) {
        self.added.truncate(added);
        self.fillings.iter_mut().for_each(|filling| filling.levels.truncate(added + 1));
    }

    /// The most units that can start at once.
    fn largest_charge(&self) -> u32 {
        self.log.terms.iter().map(|term| self.in_force.term(self.log, *term).quota).min().unwrap_or(u32::MAX)
    }

    /// Which part of its quota so many units are; of none where nothing limits them.
    fn size(&self, units: u32) -> f64 {
        if self.log.terms.is_empty() { 0.0 } else { f64::from(units) / f64::from(self.largest_charge()) }
    }

    fn earliest(&self, floor: Stamp, units: u32) -> Stamp {
        self.in_force.earliest(floor, self.log, units.into(), self)
    }
}

impl<'a> View<'a> {
    /// Logs, each with what it holds, the place of its scope, and what is in force there.
    pub(super) fn new(logs: impl Iterator<Item = (&'a Log, usize, &'a InForce<'a>, Option<&'a SlidingLog>)>) -> Self {
        let page = |(log, scope, in_force, entries)| Page::new(log, scope, in_force, entries);
        let pages: Vec<Page<'a>> = logs.map(page).collect();
        let scopes = pages.last().map_or(0, |page| page.scope + 1);
        let has_widest = pages.first().is_some_and(|page| page.log.scope.is_none());
        Self { pages, scopes, has_widest }
    }

    /// How many scopes the logs are of.
    pub(super) const fn scopes(&self) -> usize {
        self.scopes
    }

    /// The starts to enter into each log, with the units of each.
    pub(super) fn into_added(self) -> Vec<Vec<(Stamp, usize)>> {
        self.pages.into_iter().map(|page| page.added.into_steps()).collect()
    }

    /// The rule, over all logs: one common start for a call of these charges. A log of which it takes nothing does not matter.
    pub(super) fn earliest(&self, floor: Stamp, charges: &[u32]) -> Stamp {
        common(floor, || self.pages.iter().zip(charges.iter().copied()))
    }

    /// The same over the logs of one scope.
    pub(super) fn earliest_in(&self, scope: usize, floor: Stamp, charges: &[u32]) -> Stamp {
        common(floor, || self.pages_of(scope).map(|(at, page)| (page, charges[at])))
    }

    /// Whether a call that could start then waits for a log that fewer callers share than another of its logs: booked far ahead
    /// there, it would keep the others from what they could use before.
    pub(super) fn waits_for_fewer(&self, bounds: Bounds, start: Stamp, charges: &[u32]) -> bool {
        if self.scopes < 2 || start <= bounds.soonest.plus(bounds.slack) {
            return false;
        }
        let of = |scope: usize| self.earliest_in(scope, bounds.soonest, charges);
        // All who share any other log share the widest, too.
        let widest = if self.has_widest { of(0) } else { bounds.soonest };
        (0..self.scopes).any(|scope| start > of(scope).max(widest).plus(bounds.slack))
    }

    /// The log of a scope that a share is counted in whose first callers are these.
    pub(super) fn measure(&self, scope: usize, first: &Run) -> Option<usize> {
        let size = |at: usize| self.pages[at].size(first.charges[at]);
        let charged = self.pages_of(scope).map(|(at, _)| at).filter(|&at| first.charges[at] > 0);
        charged.reduce(|largest, at| if size(at) > size(largest) { at } else { largest })
    }

    /// Whether so many units of a log could start by the limit, each with as much of the scope's other logs as one of `run`.
    pub(super) fn could_start(
        &self,
        scope: usize,
        run: &Run,
        log: usize,
        units: u64,
        (soonest, limit): (Stamp, Stamp),
    ) -> bool {
        let one = u64::from(run.charges[log]);
        let scaled = |at: usize| u32::try_from((u64::from(run.charges[at]) * units).div_ceil(one)).unwrap_or(u32::MAX);
        let mut charged = self.pages_of(scope).map(|(at, page)| (page, scaled(at))).filter(|(_, units)| *units > 0);
        let start = charged.try_fold(soonest, |start, (page, units)| {
            (units <= page.largest_charge()).then(|| page.earliest(start, units))
        });
        start.is_some_and(|start| start <= limit)
    }

    /// Whether so many callers of a run can all start then: not while a pause, or outside use, lets them come one after another,
    /// nor beside cold calls, whose steps may count for somewhat longer than each of them.
    pub(super) fn could_all_start(&self, run: &Run, callers: u32, start: Stamp, bounds: Bounds) -> bool {
        let all = |(page, &units): (&Page<'_>, &u32)| {
            let units = units.saturating_mul(callers);
            let can = || units <= page.largest_charge() && page.earliest(bounds.soonest, units) <= start;
            units == 0 || (!page.in_force.comes_one_by_one(page.log, start) && can())
        };
        self.pages.iter().zip(run.charges.iter()).all(all)
    }

    /// Whether a call of these charges that starts then looks whether a pause still holds: then nobody else does for a while.
    pub(super) fn looks(&self, start: Stamp, charges: &[u32]) -> bool {
        let mut concerned = self.pages.iter().zip(charges).filter(|(_, units)| **units > 0).map(|(page, _)| page);
        if !concerned.any(|page| page.in_force.is_looked_at(start)) {
            return false;
        }
        for (page, &units) in self.pages.iter().zip(charges) {
            page.in_force.look(start, units > 0);
        }
        true
    }

    /// How large a call is beside others: the parts that it takes of all quotas, together. So of two that differ in one unit alone one is
    /// smaller.
    pub(super) fn size(&self, charges: &[u32]) -> f64 {
        self.pages.iter().zip(charges).map(|(page, &units)| page.size(units)).fold(0.0, |size, part| size + part)
    }

    /// How many callers of these charges the rate of a scope's limits lets start within a time.
    pub(super) fn at_rate(&self, scope: usize, charges: &[u32], time: Duration) -> u64 {
        self.least_by_term(scope, charges, |term| term.at_rate(time))
    }

    /// For how many callers of these charges a quarter of each quota of a scope is enough.
    pub(super) fn in_a_quarter(&self, scope: usize, charges: &[u32]) -> u64 {
        self.least_by_term(scope, charges, |term| u64::from(term.quota / 4))
    }

    /// How many callers of these charges there are units for by each term of a scope.
    fn least_by_term(&self, scope: usize, charges: &[u32], units: impl Fn(Term) -> u64) -> u64 {
        let of_page = |(at, page): (usize, &Page<'_>)| {
            let of_term = |term: &Term| units(page.in_force.term(page.log, *term)) / u64::from(charges[at]);
            page.log.terms.iter().map(of_term).min().unwrap_or(u64::MAX)
        };
        self.pages_of(scope).filter(|(at, _)| charges[*at] > 0).map(of_page).min().unwrap_or(0)
    }

    /// Lets each turn start no sooner than those of higher priority, and those of its own that start before it.
    pub(super) fn settle(&mut self, turns: &mut [Turn]) {
        if turns.is_empty() {
            return;
        }
        let mut in_time: Vec<&mut Turn> = turns.iter_mut().collect();
        in_time.sort_by_key(|turn| turn.place_in_time());
        self.tentatively(|view| {
            for turn in in_time {
                turn.start = view.earliest(turn.start, &turn.charges);
                view.add(turn.start, &turn.charges);
            }
        });
    }

    /// The latest of the turns that a call of these charges would delay.
    pub(super) fn delayed(&mut self, turns: &[Turn], start: Stamp, charges: &[u32]) -> Option<Stamp> {
        if turns.is_empty() {
            return None;
        }
        self.tentatively(|view| {
            let mut latest = None;
            view.add(start, charges);
            for turn in in_time(turns) {
                let start = view.earliest(turn.start, &turn.charges);
                latest = if start > turn.start { Some(turn.start) } else { latest };
                view.add(start, &turn.charges);
            }
            latest
        })
    }

    /// When a call of these charges starts between turns that are settled, in the order of time, if it delays none of those behind.
    pub(super) fn between(
        &mut self,
        (before, behind): (&[&Turn], &[&Turn]),
        floor: Stamp,
        charges: &[u32],
    ) -> Option<Stamp> {
        self.tentatively(|view| {
            for turn in before {
                view.add(turn.start, &turn.charges);
            }
            let start = view.earliest(floor, charges);
            view.add(start, charges);
            for turn in behind {
                if view.earliest(turn.start, &turn.charges) > turn.start {
                    return None;
                }
                view.add(turn.start, &turn.charges);
            }
            Some(start)
        })
    }

    /// Undoes what is added meanwhile.
    pub(super) fn tentatively<T>(&mut self, attempt: impl FnOnce(&mut Self) -> T) -> T {
        let kept: Vec<usize> = self.pages.iter().map(|page| page.added.len()).collect();
        let outcome = attempt(self);
        for (page, kept) in self.pages.iter_mut().zip(kept) {
            page.truncate(kept);
        }
        outcome
    }

    pub(super) fn add(&mut self, start: Stamp, charges: &[u32]) {
        for (page, &units) in self.pages.iter_mut().zip(charges) {
            page.add(start, units);
        }
    }

    fn pages_of(&self, scope: usize) -> impl Iterator<Item = (usize, &Page<'a>)> {
        self.pages.iter().enumerate().filter(move |(_, page)| page.scope == scope)
    }
}

/// One start for units of some logs.
fn common<'p, 'a: 'p, P>(floor: Stamp, pages: impl Fn() -> P) -> Stamp
where
    P: Iterator<Item = (&'p Page<'a>, u32)>,
{
    let taken = || pages().filter(|(_, units)| *units > 0);
    let has_calendar = taken().any(|(page, _)| page.log.has_calendar());
    until_nothing_moves(has_calendar, floor, |start| {
        taken().fold(start, |start, (page, units)| page.earliest(start, units))
    })
}

#[cfg(test)]
pub(super) mod tests;
