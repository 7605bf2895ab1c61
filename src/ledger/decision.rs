//! Who gets a slot: the part of an ask that needs no clock, no key and no memory of earlier asks.

use std::sync::Arc;
use std::time::Duration;

use super::constraints::Heeded;
use super::{Answer, Ask, Log, Run};
use super::{SlidingLog, Stamp};
use super::{Term, micros};

/// Within what an ask is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) now: Stamp,
    /// The earliest start that is of use to who asks.
    pub(super) soonest: Stamp,
    /// No slot is booked after.
    pub(super) limit: Stamp,
    /// After so many units of the first log nothing more is granted, so that something is left for the other processes.
    pub(super) share: u64,
}

/// A caller that waits. Others may start before it, as long as it does not start later for it.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// What it takes of each log of the ask.
    pub(super) costs: Arc<[u32]>,
    pub(super) start: Stamp,
}

/// What was decided.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) answers: Vec<Answer>,
    pub(super) granted: u32,
    /// The first caller that waits.
    pub(super) waiting: Option<Turn>,
    /// Nobody before that one was granted.
    pub(super) is_foremost: bool,
    /// Callers that wait, and are not among the answers yet.
    passed: u32,
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

    /// The rule, over all logs: one common start for a call of these costs. A log of which it takes nothing does not matter.
    pub(super) fn earliest(&self, floor: Stamp, costs: &[u32]) -> Stamp {
        let mut start = floor;
        for (page, &cost) in self.pages.iter().zip(costs).filter(|(_, cost)| **cost > 0) {
            let units = u64::from(cost);
            start = self.heeded.earliest(start, page.log, units, |n| page.nth_newest(n));
        }
        start
    }

    /// Undoes what is added meanwhile.
    fn tentatively<T>(&mut self, attempt: impl FnOnce(&mut Self) -> T) -> T {
        let kept: Vec<usize> = self.pages.iter().map(|page| page.added.len()).collect();
        let outcome = attempt(self);
        for (page, kept) in self.pages.iter_mut().zip(kept) {
            page.added.truncate(kept);
        }
        outcome
    }

    fn add(&mut self, start: Stamp, costs: &[u32]) {
        for (page, &cost) in self.pages.iter_mut().zip(costs) {
            page.added.extend(std::iter::repeat_n(start, cost as usize));
        }
    }

    /// Lets each turn start after those before it.
    fn settle(&mut self, turns: &mut [Turn]) {
        self.tentatively(|view| {
            for turn in turns {
                turn.start = view.earliest(turn.start, &turn.costs);
                view.add(turn.start, &turn.costs);
            }
        });
    }

    /// The latest of the turns that a call of these costs would delay.
    fn delayed(&mut self, turns: &[Turn], start: Stamp, costs: &[u32]) -> Option<Stamp> {
        if turns.is_empty() {
            return None;
        }
        self.tentatively(|view| {
            let mut latest = None;
            view.add(start, costs);
            for turn in turns {
                let start = view.earliest(turn.start, &turn.costs);
                latest = if start > turn.start { Some(turn.start) } else { latest };
                view.add(start, &turn.costs);
            }
            latest
        })
    }

    /// An equal share of what is free within the horizon, in units of the first log.
    ///
    /// As many units are free as could start together by `limit`, found by bisection, where each takes as much of the other logs
    /// as one of the first caller's, or as many as the rate of the limits lets start until then, one caller after another.
    pub(super) fn share(&self, ask: &Ask, bounds: Bounds, processes: u32) -> u64 {
        let Some(first) = ask.runs.first() else {
            return 0;
        };
        let one = of_first(&first.costs).max(1);
        let costs_of = |units: u64| -> Vec<u32> {
            let cost_of = |&cost: &u32| u32::try_from((u64::from(cost) * units).div_ceil(one)).unwrap_or(u32::MAX);
            first.costs.iter().map(cost_of).collect()
        };
        let is_possible =
            |costs: &[u32]| self.pages.iter().zip(costs).all(|(page, &cost)| cost <= page.log.largest_cost());
        let wanted = ask.runs.iter().map(|run| u64::from(run.callers) * of_first(&run.costs)).sum::<u64>();
        let wanted = wanted.saturating_mul(processes.into());
        let (mut free, mut over) = (0, wanted + 1);
        while free + 1 < over {
            let units = free + (over - free) / 2;
            let costs = costs_of(units);
            if is_possible(&costs) && self.earliest(bounds.soonest, &costs) <= bounds.limit {
                free = units;
            } else {
                over = units;
            }
        }
        if free >= one {
            let start = self.earliest(bounds.soonest, &first.costs);
            let callers = self.at_rate(&first.costs, bounds.limit.since(start)).saturating_add(1);
            free = free.max(callers.saturating_mul(one).min(wanted));
        }
        free.div_ceil(processes.into())
    }

    /// How many callers of these costs the rate of the limits lets start within a time.
    fn at_rate(&self, costs: &[u32], time: Duration) -> u64 {
        let of_page = |(page, &cost): (&Page<'_>, &u32)| {
            let of_term = |term: &Term| {
                let units = u128::from(term.quota) * time.as_micros() / u128::from(term.span.unsigned_abs().max(1));
                u64::try_from(units / u128::from(cost.max(1))).unwrap_or(u64::MAX)
            };
            page.log.terms.iter().map(of_term).min().unwrap_or(0)
        };
        self.pages.iter().zip(costs).map(of_page).min().unwrap_or(0)
    }

    /// Answers the callers in their order, and adds the slots of those granted. Where one has to wait for more than the horizon,
    /// those behind it may start before, as long as they delay neither it nor anybody who claims. `before` of those come before the
    /// first caller.
    pub(super) fn decide(&mut self, runs: &[Run], bounds: Bounds, mut turns: Vec<Turn>, mut before: usize) -> Decision {
        self.settle(&mut turns);
        let floor = turns[..before].last().map_or(bounds.soonest, |turn| turn.start.max(bounds.soonest));
        let (answers, passed) = (Vec::new(), 0);
        let mut decision = Decision { answers, granted: 0, waiting: None, is_foremost: false, passed };
        let (mut spent, mut refused, mut too_large) = (0, Vec::new(), u64::MAX);
        'runs: for run in runs {
            let cost = of_first(&run.costs);
            // Who wants as much as one for whom too little was left waits as well.
            if cost >= too_large {
                decision.passed += run.callers;
                continue;
            }
            let deadline = run.max_wait.map(|wait| bounds.now.plus(micros(wait)).max(bounds.soonest));
            for caller in 0..run.callers {
                let rest = run.callers - caller;
                let earliest = self.earliest(bounds.soonest, &run.costs);
                let delayed = self.delayed(&turns[..before], earliest, &run.costs);
                let start = delayed.map_or(earliest, |turn| turn.max(earliest));
                let withheld = delayed.is_some() || start > bounds.limit || spent >= bounds.share;
                let hopeless = |deadline| start > deadline || (withheld && deadline <= bounds.soonest);
                let is_hopeless = deadline.is_some_and(hopeless);
                if decision.waiting.is_some() && (withheld || is_hopeless) {
                    too_large = if withheld { cost } else { too_large };
                    decision.passed += rest;
                    break;
                }
                if is_hopeless {
                    refused.push((decision.answers.len(), run));
                    decision.push(rest, start, false);
                    break;
                }
                if withheld {
                    turns.insert(before, Turn { costs: Arc::clone(&run.costs), start });
                    self.settle(&mut turns);
                    let first = turns[before].clone();
                    let is_near = first.start <= bounds.limit;
                    decision.is_foremost = decision.granted == 0;
                    (decision.waiting, decision.passed) = (Some(first), rest);
                    (before, too_large) = (turns.len(), cost);
                    if is_near {
                        // What is left within the horizon is left for somebody else.
                        break 'runs;
                    }
                    break;
                }
                self.add(start, &run.costs);
                spent += cost;
                before = turns.len();
                decision.push(1, start, true);
            }
        }
        if !refused.is_empty() {
            self.tell_times(&mut decision, &refused, floor);
        }
        decision
    }

    /// Tells every refused caller its own time: when it could go after all those before it had gone.
    fn tell_times(&mut self, decision: &mut Decision, refused: &[(usize, &Run)], floor: Stamp) {
        let mut answers = Vec::with_capacity(decision.answers.len());
        let mut refused = refused.iter().peekable();
        self.tentatively(|view| {
            for (index, answer) in decision.answers.iter().enumerate() {
                match refused.next_if(|(at, _)| *at == index) {
                    None => join(&mut answers, *answer),
                    Some((_, run)) => {
                        for _ in 0..answer.callers {
                            let start = view.earliest(floor, &run.costs);
                            view.add(start, &run.costs);
                            join(&mut answers, Answer::new(1, start, false));
                        }
                    }
                }
            }
        });
        decision.answers = answers;
    }
}

impl Decision {
    fn push(&mut self, callers: u32, start: Stamp, granted: bool) {
        if let Some(turn) = self.waiting.as_ref().filter(|_| self.passed > 0) {
            self.answers.push(Answer::waiting(self.passed, turn.start));
            self.passed = 0;
        }
        self.granted += if granted { callers } else { 0 };
        if granted {
            join(&mut self.answers, Answer::new(callers, start, granted));
        } else {
            self.answers.push(Answer::new(callers, start, granted));
        }
    }
}

/// What a call of these costs takes of the first log.
fn of_first(costs: &[u32]) -> u64 {
    u64::from(costs.first().copied().unwrap_or(0))
}

/// Adds an answer to the one before where they are equal.
fn join(answers: &mut Vec<Answer>, answer: Answer) {
    match answers.last_mut() {
        Some(last) if last.is_like(&answer) => last.callers += answer.callers,
        _ => answers.push(answer),
    }
}
