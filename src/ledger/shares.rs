//! Who gets a slot: the part of an ask that needs no clock, no key and no memory of earlier asks.

mod share;
mod turn;
mod unseated;

use std::sync::Arc;

pub(super) use self::share::Shares;
use self::turn::latest;
pub(super) use self::turn::{Turn, in_time};
use super::seats::Short;
use super::view::View;
use super::{Answer, Priority, Run, Stamp, Verdict, micros};

/// Within what an ask is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) now: Stamp,
    /// The earliest start that is of use to who asks.
    pub(super) soonest: Stamp,
    /// No slot is booked after, for callers of each priority: the highest first.
    pub(super) limits: [Stamp; 3],
    /// Nobody books later than so many microseconds after what the logs that more callers share would allow.
    pub(super) slack: i64,
    /// For so many callers there are seats.
    pub(super) seats: u32,
    /// Who gets none hears no sooner of one than after so many microseconds.
    pub(super) again: i64,
}

impl Bounds {
    /// No slot is booked after, for callers of a priority.
    pub(super) const fn limit(&self, priority: Priority) -> Stamp {
        self.limits[priority.place()]
    }
}

/// What was decided.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) answers: Vec<Answer>,
    pub(super) granted: u32,
    /// The first caller that waits.
    pub(super) waiting: Option<Turn>,
    /// The earliest start of those behind it that wait as well, take less, and could start before it; and the place of their first run, which is
    /// of the largest.
    pub(super) next_smaller: Option<(Stamp, usize)>,
    /// Whether that one waits for a log that fewer callers share.
    pub(super) is_smaller_near: bool,
    /// Nobody before that one was granted.
    pub(super) is_foremost: bool,
    /// So many who claim come before that one.
    pub(super) place: usize,
    /// That one waits for a log which fewer callers share, and must not book far ahead in those that more share.
    pub(super) is_near: bool,
    /// Whether it waits for each scope's logs.
    pub(super) waits_for: Vec<bool>,
    /// Who was left without a seat.
    pub(super) short: Short,
    /// Callers that wait, and are not among the answers yet.
    passed: u32,
}

impl Decision {
    /// Whether the next that goes waits for a log that fewer callers share.
    pub(super) const fn is_next_near(&self) -> bool {
        if self.next_smaller.is_some() { self.is_smaller_near } else { self.is_near }
    }

    /// Whether so many callers, who are all that asked, start now.
    pub(super) fn lets_all_start(&self, now: Stamp, callers: u32) -> bool {
        matches!(self.answers.as_slice(), [answer]
            if answer.verdict == Verdict::Granted && answer.start == now && answer.callers == callers)
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
    shares: &'b mut Shares,
    /// Those of the highest priority first.
    turns: Vec<Turn>,
    /// How many of the turns come before the next caller.
    before: usize,
    decision: Decision,
}

/// Answers the callers in their order, and adds the slots of those granted. Where one has to wait for more than the horizon,
/// those behind it may start before, as long as they delay neither it nor anybody who claims. `before` of `turns`, who claim,
/// come before the first caller.
pub(super) fn decide(
    view: &mut View<'_>,
    runs: &[Run],
    bounds: Bounds,
    shares: &mut Shares,
    mut turns: Vec<Turn>,
    before: usize,
) -> Decision {
    view.settle(&mut turns);
    let floor = latest(&turns[..before]).map_or(bounds.soonest, |turn| turn.max(bounds.soonest));
    let decision = Decision::default();
    let mut deciding = Deciding { view, bounds, shares, turns, before, decision };
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
        let (mut refused, mut too_large) = (Vec::new(), f64::INFINITY);
        let mut last = runs.first().map(|run| run.priority);
        for (place, run) in runs.iter().enumerate() {
            if last.replace(run.priority) != Some(run.priority) {
                self.come_after_turns_of(run.priority);
            }
            let size = self.view.size(&run.charges);
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
                let begins = self.start_of(run);
                let Start { at: start, withheld, is_near, .. } = begins;
                let is_hopeless = deadline.is_some_and(|by| start > by || (withheld && by <= self.bounds.soonest));
                if self.decision.waiting.is_some() && (withheld || is_hopeless) {
                    too_large = if withheld { size } else { too_large };
                    if withheld {
                        self.pass_over(place, run.priority, start, is_near);
                    }
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
                    if self.wait(run, begins) {
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

    /// A caller of the run at that place, which could start then, waits behind the first that does. While nobody starts it is not known when.
    fn pass_over(&mut self, place: usize, priority: Priority, start: Stamp, is_near: bool) {
        let is_known = self.bounds.limit(priority) >= self.bounds.soonest;
        let before = self.decision.next_smaller;
        let first = || self.decision.waiting.as_ref().map(|first| first.start);
        let soonest = before.map(|(soonest, _)| soonest).or_else(first);
        if is_known && soonest.is_some_and(|soonest| start < soonest) {
            self.decision.next_smaller = Some((start, before.map_or(place, |(_, largest)| largest)));
            self.decision.is_smaller_near = is_near;
        }
    }

    /// The next callers, of a priority, come after those who claim and have it, or a higher one.
    fn come_after_turns_of(&mut self, priority: Priority) {
        self.before = self.turns.partition_point(|turn| turn.priority.place() <= priority.place());
    }

    /// When a caller of a run could start.
    fn start_of(&mut self, run: &Run) -> Start {
        let charges = &run.charges;
        let earliest = self.view.earliest(self.bounds.soonest, charges);
        let before = &self.turns[..self.before];
        let delayed = self.view.delayed(before, earliest, charges);
        let start = delayed.map_or(earliest, |turn| turn.max(earliest));
        let is_kept = delayed.is_some() || self.shares.are_spent(self.view, run);
        let is_near = !is_kept && self.view.waits_for_fewer(self.bounds, start, charges);
        let withheld = is_kept || is_near || start > self.bounds.limit(run.priority);
        Start { at: start, withheld, is_near, is_delayed: delayed.is_some() }
    }

    /// The earliest start of a caller that waits, of which none of those who come before it hears: a place among theirs that they leave.
    fn start_beside(&mut self, charges: &[u32]) -> Stamp {
        let alone = self.view.earliest(self.bounds.soonest, charges);
        let before = &self.turns[..self.before];
        let turns = in_time(before);
        let mut at = turns.iter().take_while(|turn| turn.start <= alone).count();
        loop {
            if let Some(start) = self.view.between(turns.split_at(at), alone, charges) {
                return start;
            }
            at += 1;
        }
    }

    /// The first caller that waits. Says whether it does so for something within the horizon.
    fn wait(&mut self, run: &Run, begins: Start) -> bool {
        let Start { at: start, is_near, is_delayed, .. } = begins;
        let waits_for = |scope: usize| {
            let alone = self.view.earliest_in(scope, self.bounds.soonest, &run.charges);
            let is_spent = || self.shares.is_spent(self.view, scope, run);
            is_delayed || is_spent() || alone.plus(self.bounds.slack) >= start
        };
        self.decision.waits_for = (0..self.view.scopes()).map(waits_for).collect();
        let (place, start) = (self.before, self.start_beside(&run.charges));
        self.turns.insert(place, Turn { charges: Arc::clone(&run.charges), start, priority: run.priority });
        self.view.settle(&mut self.turns);
        let first = self.turns[place].clone();
        let is_within = first.start <= self.bounds.limit(run.priority);
        (self.decision.is_foremost, self.decision.place) = (self.decision.granted == 0, place);
        (self.decision.waiting, self.decision.is_near) = (Some(first), is_near);
        self.come_after_turns_of(run.priority);
        is_within
    }

    /// Grants a start to the next caller of a run, or to all that are left where all can start then; says to how many.
    fn grant(&mut self, run: &Run, rest: u32, start: Stamp) -> u32 {
        if self.view.looks(start, &run.charges) {
            self.enter(1, run, start, Verdict::Looks);
            return 1;
        }
        let has_all = !self.shares.are_bounded(run.priority) && self.turns.is_empty();
        let together = rest > 1 && has_all && self.view.could_all_start(run, rest, start, self.bounds);
        let callers = if together { rest } else { 1 };
        self.enter(callers, run, start, Verdict::Granted);
        callers
    }

    fn enter(&mut self, callers: u32, run: &Run, start: Stamp, verdict: Verdict) {
        for _ in 0..callers {
            self.view.add(start, &run.charges);
        }
        self.shares.spend(callers, &run.charges);
        self.come_after_turns_of(run.priority);
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

/// Adds an answer to the one before where they are equal.
fn join(answers: &mut Vec<Answer>, answer: Answer) {
    match answers.last_mut() {
        Some(last) if (last.start, last.verdict) == (answer.start, answer.verdict) => last.callers += answer.callers,
        _ => answers.push(answer),
    }
}

#[cfg(test)]
mod tests;
