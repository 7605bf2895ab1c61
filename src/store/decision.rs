//! Who gets a slot: the part of an ask that needs no clock, no key and no memory of earlier asks.

use std::time::Duration;

use super::told::Heeded;
use super::{Answer, Ask, Log, Run};
use crate::limit::{Term, micros};
use crate::log::{SlidingLog, Stamp};

/// Within what an ask is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) now: Stamp,
    /// The earliest start that is of use to who asks.
    pub(super) soonest: Stamp,
    /// No start lies before: that, somebody else's claim.
    pub(super) floor: Stamp,
    /// No slot is booked after.
    pub(super) limit: Stamp,
    /// Units of the first log that this ask may take, so that something is left for the other processes.
    pub(super) share: u64,
    /// Somebody else's claim comes first: nothing is granted.
    pub(super) closed: bool,
}

/// What was decided.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) answers: Vec<Answer>,
    pub(super) answered: u32,
    pub(super) granted: u32,
    /// The earliest start of the first caller without an answer.
    pub(super) next: Stamp,
}

/// The logs of an ask as they will be: what they hold, and what the ask has added so far.
#[derive(Debug)]
pub(super) struct View<'a> {
    pages: Vec<Page<'a>>,
    heeded: &'a Heeded<'a>,
}

/// One of the logs: what it holds, and the starts to enter.
#[derive(Debug)]
struct Page<'a> {
    log: &'a Log,
    entries: Option<&'a SlidingLog>,
    added: Vec<Stamp>,
}

impl Page<'_> {
    fn nth_newest(&self, n: usize) -> Option<Stamp> {
        match self.added.len().checked_sub(n) {
            Some(index) => self.added.get(index).copied(),
            None => self.entries?.nth_newest(n - self.added.len()),
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn new(logs: impl Iterator<Item = (Option<&'a SlidingLog>, &'a Log)>, heeded: &'a Heeded<'a>) -> Self {
        let pages = logs.map(|(entries, log)| Page { log, entries, added: Vec::new() }).collect();
        Self { pages, heeded }
    }

    /// The starts to enter into each log.
    pub(super) fn into_added(self) -> Vec<Vec<Stamp>> {
        self.pages.into_iter().map(|page| page.added).collect()
    }

    /// The rule, over all logs: one common start for `times` callers of these costs.
    pub(super) fn earliest(&self, floor: Stamp, costs: &[u32], times: u32) -> Stamp {
        let mut start = floor;
        for (page, &cost) in self.pages.iter().zip(costs) {
            let units = u64::from(cost) * u64::from(times);
            start = self.heeded.earliest(start, page.log, units, |n| page.nth_newest(n));
        }
        start
    }

    fn add(&mut self, start: Stamp, costs: &[u32]) {
        for (page, &cost) in self.pages.iter_mut().zip(costs) {
            page.added.extend(std::iter::repeat_n(start, cost as usize));
        }
    }

    /// An equal share of what is free within the horizon, in units of the first log.
    ///
    /// What is free is counted in callers like the first: as many as could start together by `limit`, found by bisection, or as
    /// many as the rate of the limits lets start until then, one after another.
    pub(super) fn share(&self, ask: &Ask, floor: Stamp, limit: Stamp, processes: u32) -> u64 {
        let Some(first) = ask.runs.first() else {
            return 0;
        };
        let fits = |(page, &cost): (&Page<'_>, &u32)| page.log.largest_cost() / cost.max(1);
        let most = self.pages.iter().zip(first.costs.iter()).map(fits).min().unwrap_or(0);
        let wanted = ask.callers().saturating_mul(processes);
        let (mut free, mut over) = (0, most.min(wanted) + 1);
        while free + 1 < over {
            let callers = free + (over - free) / 2;
            if self.earliest(floor, &first.costs, callers) <= limit {
                free = callers;
            } else {
                over = callers;
            }
        }
        if free > 0 {
            let first = self.earliest(floor, &first.costs, 1);
            free = free.max(self.at_rate(&ask.runs[0].costs, limit.since(first)).saturating_add(1).min(wanted));
        }
        u64::from(free.div_ceil(processes)) * u64::from(first.costs.first().copied().unwrap_or(0))
    }

    /// How many callers of these costs the rate of the limits lets start within a time.
    fn at_rate(&self, costs: &[u32], time: Duration) -> u32 {
        let of_page = |(page, &cost): (&Page<'_>, &u32)| {
            let of_term = |term: &Term| {
                let units = u128::from(term.quota) * time.as_micros() / u128::from(term.span.unsigned_abs().max(1));
                u32::try_from(units / u128::from(cost.max(1))).unwrap_or(u32::MAX)
            };
            page.log.terms.iter().map(of_term).min().unwrap_or(0)
        };
        self.pages.iter().zip(costs).map(of_page).min().unwrap_or(0)
    }

    /// Answers the callers in their order, up to the first that has to wait, and adds the slots of those granted.
    pub(super) fn decide(&mut self, runs: &[Run], bounds: Bounds) -> Decision {
        let mut decision = Decision { answers: Vec::new(), answered: 0, granted: 0, next: bounds.now };
        let mut spent = 0;
        let mut refused = Vec::new();
        'runs: for run in runs {
            let deadline = run.max_wait.map(|wait| bounds.now.plus(micros(wait)).max(bounds.soonest));
            let cost = u64::from(run.costs.first().copied().unwrap_or(0));
            for caller in 0..run.callers {
                let start = self.earliest(bounds.floor, &run.costs, 1);
                let withheld = bounds.closed || start > bounds.limit || spent + cost > bounds.share;
                let hopeless = |deadline| start > deadline || (withheld && deadline <= bounds.soonest);
                if deadline.is_some_and(hopeless) {
                    refused.push((decision.answers.len(), run));
                    decision.push(run.callers - caller, start, false);
                    break;
                }
                if withheld {
                    decision.next = start;
                    break 'runs;
                }
                self.add(start, &run.costs);
                spent += cost;
                decision.push(1, start, true);
            }
        }
        if !refused.is_empty() {
            self.tell_times(&mut decision, &refused, bounds.floor);
        }
        decision
    }

    /// Tells every refused caller its own time: when it could go after all those before it had gone.
    fn tell_times(&mut self, decision: &mut Decision, refused: &[(usize, &Run)], floor: Stamp) {
        let granted: Vec<usize> = self.pages.iter().map(|page| page.added.len()).collect();
        let mut answers = Vec::with_capacity(decision.answers.len());
        let mut refused = refused.iter().peekable();
        for (index, answer) in decision.answers.iter().enumerate() {
            match refused.next_if(|(at, _)| *at == index) {
                None => join(&mut answers, *answer),
                Some((_, run)) => {
                    for _ in 0..answer.callers {
                        let start = self.earliest(floor, &run.costs, 1);
                        self.add(start, &run.costs);
                        join(&mut answers, Answer::new(1, start, false));
                    }
                }
            }
        }
        decision.answers = answers;
        for (page, granted) in self.pages.iter_mut().zip(granted) {
            page.added.truncate(granted);
        }
    }
}

impl Decision {
    fn push(&mut self, callers: u32, start: Stamp, granted: bool) {
        self.answered += callers;
        self.granted += if granted { callers } else { 0 };
        if granted {
            join(&mut self.answers, Answer::new(callers, start, granted));
        } else {
            self.answers.push(Answer::new(callers, start, granted));
        }
    }
}

/// Adds an answer to the one before where they are equal.
fn join(answers: &mut Vec<Answer>, answer: Answer) {
    match answers.last_mut() {
        Some(last) if last.start == answer.start && last.granted == answer.granted => last.callers += answer.callers,
        _ => answers.push(answer),
    }
}
