//! Who gets a slot: the part of an ask that needs no clock, no key and no memory of earlier asks.

mod unseated;

use std::sync::Arc;

use super::seats::Short;
use super::view::View;
use super::{Answer, Run, Stamp, Verdict, micros};

/// To see whether a caller delays those who wait takes as long as they have units: once an ask has looked at so many, nobody goes
/// before them.
const MAX_LOOKED_AT: u64 = 200_000;

/// Within what an ask is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) now: Stamp,
    /// The earliest start that is of use to who asks.
    pub(super) soonest: Stamp,
    /// No slot is booked after.
    pub(super) limit: Stamp,
    /// Nobody books later than so many microseconds after what the logs that more callers share would allow.
    pub(super) slack: i64,
    /// For so many callers there are seats.
    pub(super) seats: u32,
    /// Who gets none hears no sooner of one than after so many microseconds.
    pub(super) again: i64,
}

/// How much of a scope's logs a process may take, so that something is left for the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The log that it is counted in, by its place in the ask.
    log: usize,
    units: u64,
    spent: u64,
}

/// A caller that waits. Others may start before it, as long as it does not start later for it.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// Units of each log of the ask.
    pub(super) charges: Arc<[u32]>,
    pub(super) start: Stamp,
}

/// What was decided.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) answers: Vec<Answer>,
    pub(super) granted: u32,
    /// The first caller that waits.
    pub(super) waiting: Option<Turn>,
    /// Nobody before that one was granted.
    pub(super) is_foremost: bool,
    /// That one waits for a log which fewer callers share, and must not book far ahead in those that more share.
    pub(super) is_near: bool,
    /// Whether it waits for each scope's logs.
    pub(super) waits_for: Vec<bool>,
    /// Who was left without a seat.
    pub(super) short: Short,
    /// Callers that wait, and are not among the answers yet.
    passed: u32,
}

impl Share {
    /// As much as there is.
    pub(super) const ALL: Self = Self { log: 0, units: u64::MAX, spent: 0 };

    /// An equal share of what is free in the logs of a scope until the limit, for one of so many processes.
    ///
    /// Another unit may be taken as long as, if every process had as much, one more unit could start until then: together with
    /// all of them, or one after another at the rate of the limits.
    pub(super) fn of(view: &View<'_>, scope: usize, runs: &[Run], bounds: Bounds, processes: u32) -> Self {
        let Some((log, first, last)) = view.measure(scope, runs) else { return Self::ALL };
        let units_of = |run: &Run| u64::from(run.charges[log]);
        let wanted = runs.iter().map(|run| u64::from(run.callers) * units_of(run)).sum::<u64>();
        let (one, others) = (units_of(first), u64::from(processes));
        let may_take = |spent: u64| view.could_start(scope, first, log, spent * others + 1, bounds);
        let spent_before_last = wanted.saturating_sub(units_of(last));
        if spent_before_last == 0 || may_take(spent_before_last) {
            return Self::ALL;
        }
        let start = view.earliest_in(scope, bounds.soonest, &first.charges);
        let at_rate = view.at_rate(scope, &first.charges, bounds.limit.since(start));
        let at_rate = at_rate.saturating_add(1).saturating_mul(one).div_ceil(others);
        let mut units = if start <= bounds.limit { at_rate } else { 0 };
        let mut over = spent_before_last;
        while units < over {
            let spent = units + (over - units) / 2;
            if may_take(spent) { units = spent + 1 } else { over = spent }
        }
        Self { log, units, spent: 0 }
    }

    const fn is_spent(&self) -> bool {
        self.spent >= self.units
    }

    fn spend(&mut self, charges: &[u32]) {
        self.spent += u64::from(charges[self.log]);
    }
}

/// When a caller could start.
#[derive(Clone, Copy, Debug)]
struct Start {
    at: Stamp,
    /// It has to wait nevertheless.
    withheld: bool,
    /// For a log that fewer callers share.
    is_near: bool,
    /// For those who claim.
    is_delayed: bool,
}

/// What is being decided.
struct Deciding<'a, 'b> {
    view: &'b mut View<'a>,
    bounds: Bounds,
    shares: &'b mut [Share],
    turns: Vec<Turn>,
    /// How many of the turns come before the next caller.
    before: usize,
    /// Units of those who wait, by which it was seen whether a caller delays them.
    looked_at: u64,
    decision: Decision,
}

/// Answers the callers in their order, and adds the slots of those granted. Where one has to wait for more than the horizon,
/// those behind it may start before, as long as they delay neither it nor anybody who claims. `before` of `turns`, who claim,
/// come before the first caller.
pub(super) fn decide(
    view: &mut View<'_>,
    runs: &[Run],
    bounds: Bounds,
    shares: &mut [Share],
    mut turns: Vec<Turn>,
    before: usize,
) -> Decision {
    view.settle(&mut turns);
    let floor = turns[..before].last().map_or(bounds.soonest, |turn| turn.start.max(bounds.soonest));
    let decision = Decision::default();
    let mut deciding = Deciding { view, bounds, shares, turns, before, looked_at: 0, decision };
    let refused = deciding.answer_all(runs);
    let Deciding { mut decision, view, .. } = deciding;
    let floor = if decision.short.was_refused { floor.max(bounds.unseated_until()) } else { floor };
    if !refused.is_empty() {
        tell_times(view, &mut decision, &refused, floor);
    }
    decision
}

impl Deciding<'_, '_> {
    /// Answers every caller, and says which runs were refused after which answers: each is told its own time later.
    fn answer_all<'r>(&mut self, runs: &'r [Run]) -> Vec<(usize, &'r Run)> {
        let (mut refused, mut too_large) = (Vec::new(), u64::MAX);
        for run in runs {
            let size = size(&run.charges);
            // Who wants as much as one for whom too little was left waits as well.
            if size >= too_large {
                self.decision.passed += run.callers;
                continue;
            }
            let deadline = run.max_wait.map(|wait| self.bounds.now.plus(micros(wait)).max(self.bounds.soonest));
            let mut rest = run.callers;
            while rest > 0 {
                let seats = self.bounds.seats.saturating_sub(self.decision.granted);
                if seats == 0 {
                    refused.extend(self.unseat(run, rest).map(|answer| (answer, run)));
                    break;
                }
                let begins = self.start_of(&run.charges);
                let Start { at: start, withheld, .. } = begins;
                let is_hopeless = deadline.is_some_and(|by| start > by || (withheld && by <= self.bounds.soonest));
                if self.decision.waiting.is_some() && (withheld || is_hopeless) {
                    too_large = if withheld { size } else { too_large };
                    self.decision.passed += rest;
                    break;
                }
                if is_hopeless {
                    self.push(rest, start, Verdict::Refused);
                    refused.push((self.decision.answers.len() - 1, run));
                    break;
                }
                if withheld {
                    (self.decision.passed, too_large) = (rest, size);
                    if self.wait(&run.charges, begins) {
                        // What is left within the horizon is left for somebody else.
                        return refused;
                    }
                    break;
                }
                rest -= self.grant(run, rest.min(seats), start);
            }
        }
        refused
    }

    /// When a caller of these charges could start.
    fn start_of(&mut self, charges: &[u32]) -> Start {
        let earliest = self.view.earliest(self.bounds.soonest, charges);
        let before = &self.turns[..self.before];
        self.looked_at +=
            before.iter().flat_map(|turn| turn.charges.iter()).map(|&units| u64::from(units)).sum::<u64>();
        let delayed = if self.looked_at > MAX_LOOKED_AT {
            before.last().map(|turn| turn.start)
        } else {
            self.view.delayed(before, earliest, charges)
        };
        let start = delayed.map_or(earliest, |turn| turn.max(earliest));
        let is_kept = delayed.is_some() || self.shares.iter().any(Share::is_spent);
        let is_near = !is_kept && self.view.waits_for_fewer(self.bounds, start, charges);
        let withheld = is_kept || is_near || start > self.bounds.limit;
        Start { at: start, withheld, is_near, is_delayed: delayed.is_some() }
    }

    /// The first caller that waits. Says whether it does so for something within the horizon.
    fn wait(&mut self, charges: &Arc<[u32]>, begins: Start) -> bool {
        let Start { at: start, is_near, is_delayed, .. } = begins;
        let waits_for = |(scope, share): (usize, &Share)| {
            let alone = self.view.earliest_in(scope, self.bounds.soonest, charges);
            is_delayed || share.is_spent() || alone.plus(self.bounds.slack) >= start
        };
        self.decision.waits_for = self.shares.iter().enumerate().map(waits_for).collect();
        let place = self.before;
        self.turns.insert(place, Turn { charges: Arc::clone(charges), start });
        self.view.settle(&mut self.turns);
        let first = self.turns[place].clone();
        let is_within = first.start <= self.bounds.limit;
        self.decision.is_foremost = self.decision.granted == 0;
        (self.decision.waiting, self.decision.is_near) = (Some(first), is_near);
        self.before = self.turns.len();
        is_within
    }

    /// Grants a start to the next caller of a run, or to all that are left where all can start then; says to how many.
    fn grant(&mut self, run: &Run, rest: u32, start: Stamp) -> u32 {
        if self.view.looks(start, &run.charges) {
            self.enter(1, run, start, Verdict::Looks);
            return 1;
        }
        let has_all = self.shares.iter().all(|share| share.units == u64::MAX) && self.turns.is_empty();
        let together = rest > 1 && has_all && self.view.could_all_start(run, rest, start, self.bounds);
        let callers = if together { rest } else { 1 };
        self.enter(callers, run, start, Verdict::Granted);
        callers
    }

    fn enter(&mut self, callers: u32, run: &Run, start: Stamp, verdict: Verdict) {
        for _ in 0..callers {
            self.view.add(start, &run.charges);
        }
        self.shares.iter_mut().filter(|share| share.units < u64::MAX).for_each(|share| share.spend(&run.charges));
        self.before = self.turns.len();
        self.push(callers, start, verdict);
    }
}

/// Tells every refused caller its own time: when it could go after all those before it had gone.
fn tell_times(view: &mut View<'_>, decision: &mut Decision, refused: &[(usize, &Run)], floor: Stamp) {
    let mut answers = Vec::with_capacity(decision.answers.len());
    let mut refused = refused.iter().peekable();
    view.tentatively(|view| {
        for (index, answer) in decision.answers.iter().enumerate() {
            match refused.next_if(|(at, _)| *at == index) {
                None => join(&mut answers, *answer),
                Some((_, run)) => {
                    for _ in 0..answer.callers {
                        let start = view.earliest(floor, &run.charges);
                        view.add(start, &run.charges);
                        join(&mut answers, Answer::refused(1, start));
                    }
                }
            }
        }
    });
    decision.answers = answers;
}

/// How large a call is beside others: what it takes of the first log that it takes of.
fn size(charges: &[u32]) -> u64 {
    charges.iter().copied().find(|&units| units > 0).map_or(0, u64::from)
}

/// Adds an answer to the one before where they are equal.
fn join(answers: &mut Vec<Answer>, answer: Answer) {
    match answers.last_mut() {
        Some(last) if (last.start, last.verdict) == (answer.start, answer.verdict) => last.callers += answer.callers,
        _ => answers.push(answer),
    }
}

#[cfg(test)]
mod tests;
