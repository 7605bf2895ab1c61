//! Booking: the decision on an ask.
//!
//! `lua/book.lua` says the same in Redis, part for part.

use super::at_once::Long;
use super::calendar::{Calendar, TOLD_FROM};
use super::claims::{Claim, MAX_CLAIMS, Owner};
use super::constraints::Constraints;
use super::contenders::{Contenders, Pace};
use super::in_force::{InForce, longer, slower};
use super::pause::Pausing;
use super::scope::{Reach, Scope, Waiting};
use super::seats::AskedSeats;
use super::shares::{Bounds, Decision, Shares, Turn, decide};
use super::view::View;
use super::{Answer, Ask, Grant, Ledger, Log, MAX_SILENCE, MessageId, Priority, Run, ScopeId, Stamp, Term, micros};

/// A caller that a narrow log holds up may take a slot in a widely shared log at most so many microseconds later than that log
/// alone would allow. Or as long as the answer takes, where that is more.
const SLACK: i64 = 20_000;

/// While calls come slower after a pause, slots are booked so many times less far ahead.
const RECOVERING: i64 = 4;

/// Another queue whose first caller claims its turn, as one ask sees it.
struct Claimant {
    owner: Owner,
    turn: Turn,
    lapse: Stamp,
}

impl Ledger {
    /// Decides on an ask of a sender that knew this log time, and says for how long the message has to be remembered.
    pub(super) fn book(&mut self, now: Stamp, knew: Option<Stamp>, id: &MessageId, ask: &Ask) -> (Grant, i64) {
        let mut long = Vec::new();
        let booked = self.decide_on(now, id, ask, &mut long);
        self.logs_go_on(now, knew, ask);
        // Last, as what is trimmed was there: it counts again where the clock has leapt ahead and is set back.
        self.trim(now, &ask.logs, long);
        booked
    }

    /// Decides on an ask, and says which of its logs are `long` then.
    fn decide_on(&mut self, now: Stamp, id: &MessageId, ask: &Ask, long: &mut Vec<Long>) -> (Grant, i64) {
        self.note_losses(now, id, ask);
        self.enter_again(now, ask);
        let at_a_glance = self.start_at_a_glance(now, ask);
        if at_a_glance.is_some() {
            self.keep_presumed(ask);
        }
        if let Some((run, start)) = at_a_glance.filter(|_| self.loss_to_tell(now, id, ask).is_none()) {
            if start == now {
                *long = self.enter_now(now, &ask.logs, &run.charges, run.callers);
                return (Grant::all_now(now), ask.retention().saturating_add(micros(ask.horizon)));
            }
            let is_refused = run.callers == 1 && run.max_wait.is_some_and(|wait| start > now.plus(micros(wait)));
            let is_refused = is_refused && !ask.must_be_remembered(now);
            if is_refused && !self.overfull(now, id, ask).contains(&true) {
                let refused = Grant::new(now, vec![Answer::refused(1, start)], now).within(ask.reach());
                let counted = vec![Stamp::NEVER; ask.scopes().count()];
                return (Grant { counted, remembered: false, ..refused }, 0);
            }
        }
        for slots in &ask.back {
            let is_there = |(log, _): &(&Log, _)| !self.may_be_lost(now, log.scope, slots.start, ask);
            let there: Vec<_> = ask.logs.iter().zip(slots.charges.iter()).filter(is_there).collect();
            for (log, units) in there {
                if let Some(entries) = self.log_mut(log) {
                    entries.hand_back(slots.start, units.saturating_mul(slots.count));
                }
            }
        }
        for slots in ask.back.iter().filter(|slots| slots.looks) {
            for scope in ask.scopes().chain([None]) {
                self.scope_mut(scope).constrain(|of, _| of.not_looked(now, slots.start));
            }
        }
        self.enter_boundaries(now, ask);
        let wide = self.beside_others(now, id.sender, ask);
        let own = (ask, wide.as_ref().map(|(_, term)| Box::new(*term)));
        let ask = wide.as_ref().map_or(ask, |(wide, _)| wide);
        self.enter_debts(now, ask);
        if let Some(cold) = &ask.cold {
            for (log, &units) in ask.logs.iter().zip(cold.charges.iter()) {
                let scope = self.scope_mut(log.scope);
                scope.constrain(|all, _| all.chill(now, log, cold, units));
                if units > 0 {
                    scope.logs.arrive(log, cold.first, cold.last.min(now));
                }
            }
        }
        self.keep_presumed(ask);
        self.decide(now, id, ask, own, long)
    }

    /// Keeps the levels of an ask's buckets of which nothing was known but the logs.
    fn keep_presumed(&mut self, ask: &Ask) {
        for log in ask.logs.iter().filter(|log| log.terms.iter().any(|term| term.is_bucket())) {
            self.log_mut(log).into_iter().for_each(|entries| entries.keep_presumed(&log.terms));
        }
    }

    /// The common case: one kind of callers, nobody waits, and nothing is in force but cold calls beside one caller. When all of them
    /// could start.
    fn start_at_a_glance<'a>(&self, now: Stamp, ask: &'a Ask) -> Option<(&'a Run, Stamp)> {
        let [run] = ask.runs.as_slice() else { return None };
        let is_common = run.callers > 0 && ask.back.is_empty() && ask.cold.is_none() && ask.ahead.is_zero();
        let is_common = is_common && ask.debts.is_empty() && ask.seats.is_none() && !ask.says_again();
        let start = is_common.then(|| self.start_where_plain(now, &ask.logs, &run.charges, run.callers)).flatten();
        start.map(|start| (run, start))
    }

    /// Decides on an ask, to which `own` was widened beside what others name: the strictest of that is told.
    fn decide(
        &mut self,
        now: Stamp,
        id: &MessageId,
        ask: &Ask,
        (own, other_term): (&Ask, Option<Box<(usize, Term)>>),
        long: &mut Vec<Long>,
    ) -> (Grant, i64) {
        // Read.
        let horizon = micros(ask.horizon);
        let scopes: Vec<Option<ScopeId>> = ask.scopes().collect();
        let in_force: Vec<InForce<'_>> = scopes.iter().map(|&scope| self.in_force(now, scope)).collect();
        let place_of = |log: &Log| scopes.iter().position(|&scope| scope == log.scope).unwrap_or(0);
        let retentions: Vec<i64> = ask.logs.iter().map(|log| in_force[place_of(log)].retention(log)).collect();
        let left: Vec<Vec<Term>> = ask.logs.iter().map(|log| in_force[place_of(log)].terms(log).collect()).collect();
        let retention = retentions.iter().copied().max().unwrap_or(0);
        let pacing = |scope: Option<ScopeId>| {
            let of_scope = ask.logs.iter().zip(&left).filter(|(log, _)| log.scope == scope);
            Pace::of(of_scope, horizon)
        };
        let mut waiting: Vec<Waiting> = scopes
            .iter()
            .map(|&scope| self.scope(scope).map_or_else(Waiting::default, |of| of.waiting().at(now, pacing(scope))))
            .collect();
        let counted = |at: usize| ask.counted.get(at).copied().unwrap_or(Stamp::NEVER);
        let others = |at: usize, priority| waiting[at].others(counted(at), ask.weight, priority);
        let (claimants, place, had_claim) = claimants(now, id, ask, &waiting, &place_of);
        let soonest = now.plus(micros(ask.ahead));
        // A process far from the store books further ahead. All others book as far, or it would take every slot before they may ask
        // for it.
        let far = waiting.iter().filter_map(|of| of.reach).map(|reach| reach.micros).max().unwrap_or(0);
        let mut limit = now.plus(ask.reach().max(far));
        if in_force.iter().any(InForce::is_after_pause) {
            // Whoever has a slot by now does not hear of a refusal before it: let there be few.
            limit = soonest.plus((limit.as_micros() - soonest.as_micros()) / RECOVERING);
        }
        let loss = self.loss_to_tell(now, id, ask);
        limit = if self.withholds(now, own, loss.is_some()) { soonest.plus(-1) } else { limit };
        limit = Calendar::limit(now, limit, &left);
        let slack = SLACK.max(micros(ask.ahead));
        let seating = AskedSeats::of(self, now, id, ask);
        // A seat that waits for a slot far ahead is of use to nobody meanwhile.
        limit = if seating.is_some() { limit.min(soonest.plus(slack)) } else { limit };
        let (seats, again) = seating.as_ref().map_or((u32::MAX, 0), |all| (all.callers, all.again));
        let limits = limits_of(scopes.len(), (limit, soonest, slack), others, |at| waiting[at].own(counted(at), ask));
        let bounds = Bounds { now, soonest, limits, slack, seats, again };

        // Decide.
        let page = |log| {
            let at = place_of(log);
            (log, at, &in_force[at], self.scope(log.scope).and_then(|scope| scope.logs.get(&log.unit)))
        };
        let mut view = View::new(ask.logs.iter().map(page));
        let owner = Owner::of(id);
        let rivals = |at: usize, priority| others(at, priority).saturating_sub(waiting[at].claimed(&owner, priority));
        let mut shares = Shares::of(&view, &ask.runs, &bounds, ask.weight, rivals);
        let turns = claimants.iter().map(|claimant| claimant.turn.clone()).collect();
        let decision = decide(&mut view, &ask.runs, bounds, &mut shares, turns, place);
        let paused = in_force.iter().filter_map(InForce::paused).reduce(longer);
        let told = decision.waiting.as_ref().map_or_else(|| ask.priority(), |turn| turn.priority);
        let contenders = (0..scopes.len()).map(|at| others(at, told)).max().unwrap_or(0);
        let next = decision.waiting.as_ref().map_or(now, |turn| turn.start);
        let all_now = decision.lets_all_start(now, ask.callers());
        let overfull = if all_now { Vec::new() } else { self.overfull(now, id, own) };
        let slower = if all_now || paused.is_some() { None } else { slower(&in_force).map(Box::new) };

        // Write.
        let added = view.into_added();
        let looked: Vec<_> = scopes.iter().copied().zip(in_force.iter().map(InForce::pausing)).collect();
        for (at, (((log, starts), &retention), left)) in
            ask.logs.iter().zip(added).zip(&retentions).zip(&left).enumerate()
        {
            let scope = self.scope_mut(log.scope);
            let (mut is_long, quota) = (scope.append(log, &starts, retention, left), log.largest_quota());
            let Some(entries) = scope.logs.get_mut(&log.unit) else { continue };
            // Debts make it longer, too.
            is_long |= ask.debts.get(at).is_some_and(|debt| *debt > 0) && entries.is_long(quota);
            long.extend(is_long.then_some(Long { place: at, quota }));
            // A span that is longer meanwhile lets entries count for longer than they were entered for.
            if retention > log.retention() {
                entries.keep(retention);
            }
        }
        let looked_at = self.enter_looks(now, &looked);
        let entering =
            Entering { now, id, ask, decision: &decision, claimants: &claimants, had_claim, pacing: &pacing, far };
        let mut changed = decision.granted > 0 || !ask.back.is_empty() || ask.cold.is_some() || !ask.debts.is_empty();
        changed |= ask.says_again() || own.must_be_remembered(now);
        let mut receipts = Vec::with_capacity(scopes.len());
        for (at, (&scope, waiting)) in scopes.iter().zip(&mut waiting).enumerate() {
            let (counts, is_news) = entering.enter(waiting, at, scope, counted(at));
            receipts.push(counts);
            changed |= is_news;
            if is_news || looked_at.contains(&scope) {
                self.scope_mut(scope).set_waiting(std::mem::take(waiting));
            }
        }
        let is_closed = seating.as_ref().is_some_and(AskedSeats::is_closed);
        let seated = seating.map(|seating| seating.enter(self, id, ask, decision.granted, decision.short));
        changed |= seated.is_some_and(|(_, is_news)| is_news);
        let memory = if changed { memory_of(now, ask, retention, limit) } else { 0 };
        let within = bounds.limit(told).as_micros() - soonest.as_micros();
        let within = if decision.is_next_near() { bounds.slack } else { within.max(0) };
        self.name_terms(now, id, own, &overfull, Pace { span: retention, interval: 0, horizon }.period(0));
        let corrected = self.corrected(ask);
        let is_plain =
            paused.is_none() && contenders == 0 && seated.is_none() && other_term.is_none() && corrected == 0;
        if all_now && is_plain && loss.is_none() && receipts.iter().all(|counts| *counts == Stamp::NEVER) {
            return (Grant::all_now(now), memory);
        }
        let next =
            if decision.waiting.is_none() && decision.short.waiting > 0 { bounds.unseated_until() } else { next };
        let grant = Grant::new(now, decision.answers, next).before(decision.next_smaller).within(within);
        let seats = seated.map(|(seated, _)| seated);
        let is_settling = |&scope| self.scope(scope).is_some_and(|of| of.constraints().is_settling(now));
        let is_lost = is_closed || scopes.iter().any(is_settling);
        let grant =
            Grant { paused, slower, contenders, counted: receipts, seats, other_term, lost: is_lost, loss, ..grant };
        (Grant { remembered: changed, corrected, ..grant }, memory)
    }

    /// By how much log time is ahead of the store's clock, where that is worth a word to an ask that names boundaries by that.
    fn corrected(&self, ask: &Ask) -> i64 {
        let correction = self.time.correction();
        let is_news = correction.abs() >= TOLD_FROM && ask.logs.iter().any(Log::has_calendar);
        if is_news { correction } else { 0 }
    }

    /// Enters pauses that a call is to look at, and says whose they are.
    fn enter_looks(&mut self, now: Stamp, looked: &[(Option<ScopeId>, [Option<Pausing>; 2])]) -> Vec<Option<ScopeId>> {
        let mut news = Vec::new();
        for &(scope, [own, upstreams]) in looked {
            for (scope, pause) in [(scope, own), (None, upstreams)] {
                let Some(pause) = pause else { continue };
                let is_news = |of: &Constraints| of.pausing(now).is_some_and(|before| before.until < pause.until);
                if self.scope(scope).is_some_and(|of| is_news(of.constraints())) {
                    self.scope_mut(scope).constrain(|of, _| of.pause = Some(pause));
                    news.push(scope);
                }
            }
        }
        news
    }

    /// What is in force for a scope.
    pub(super) fn in_force(&self, now: Stamp, scope: Option<ScopeId>) -> InForce<'_> {
        let all = self.upstream.constraints();
        let in_force = self.scope(scope).unwrap_or(Scope::empty()).constraints().in_force(now, all, scope);
        in_force.corrected_by(self.time.correction())
    }
}

/// For how long an ask is remembered that has changed something: until nothing counts any more that it booked by then, or took back.
fn memory_of(now: Stamp, ask: &Ask, retention: i64, limit: Stamp) -> i64 {
    let lease = ask.seats.as_ref().map_or(0, |seats| micros(seats.lease));
    let last = ask.back.iter().map(|slots| micros(slots.start.since(now))).max().unwrap_or(0);
    retention.max(lease).saturating_add(last.max(limit.as_micros() - now.as_micros()))
}

/// Others that claim the logs of an ask, by priority and in their order; how many of them come before its first caller, which keeps
/// its place where it claimed and insists; and whether its own queue had claimed.
fn claimants(
    now: Stamp,
    id: &MessageId,
    ask: &Ask,
    waiting: &[Waiting],
    place_of: &impl Fn(&Log) -> usize,
) -> (Vec<Claimant>, usize, bool) {
    let (mut all, mut equals, mut had_claim, mine) = (Vec::<Claimant>::new(), None, false, Owner::of(id));
    let up_to = |all: &[Claimant], place: usize| all.partition_point(|one| one.turn.priority.place() < place);
    let (place, next_place) = (ask.priority().place(), ask.priority().place() + 1);
    for claim in waiting.iter().flat_map(|of| &of.claims) {
        if claim.owner == mine {
            if !had_claim && ask.insist {
                equals = Some(up_to(&all, next_place) - up_to(&all, place));
            }
            had_claim = true;
        } else if let Some(known) = all.iter_mut().find(|known| known.owner == claim.owner) {
            (known.turn.start, known.lapse) = (known.turn.start.max(claim.start), known.lapse.max(claim.lapse));
        } else {
            let turn = Turn { charges: [].into(), start: claim.start.max(now), priority: claim.priority };
            let at = up_to(&all, claim.priority.place() + 1);
            all.insert(at, Claimant { owner: claim.owner.clone(), turn, lapse: claim.lapse });
        }
    }
    for claimant in &mut all {
        let units = |log: &Log| {
            let claim = waiting[place_of(log)].claims.iter().find(|claim| claim.owner == claimant.owner);
            claim.map_or(0, |claim| claim.units_of(&log.unit))
        };
        claimant.turn.charges = ask.logs.iter().map(units).collect();
    }
    let before = equals.map_or_else(|| up_to(&all, next_place), |equals| up_to(&all, place) + equals);
    (all, before, had_claim)
}

/// Until when callers of each priority book. What lies further ahead than the next few milliseconds is left for those who have a higher
/// one; beside both higher ones those of the lowest book no further than an eighth of that, after the others. Where others wait, this holds
/// for those of the same queue as well: `own` are the place of the highest that it has, and its weight.
fn limits_of(
    scopes: usize,
    (limit, soonest, slack): (Stamp, Stamp, i64),
    others: impl Fn(usize, Priority) -> u32,
    own: impl Fn(usize) -> (usize, u32),
) -> [Stamp; 3] {
    Priority::ALL.map(|priority| {
        let of = |at, below| {
            let Some(place) = priority.place().checked_sub(below) else { return 0 };
            let (own_place, weight) = own(at);
            let own = if own_place <= place && others(at, priority) > 0 { weight } else { 0 };
            others(at, Priority::ALL[place]).saturating_add(own)
        };
        let near = |at| match (of(at, 1), of(at, 2)) {
            (0, _) => None,
            (higher, above) if above > 0 && higher > above => Some(slack / 8),
            _ => Some(slack),
        };
        (0..scopes).filter_map(near).fold(limit, |limit, near| limit.min(soonest.plus(near)))
    })
}

/// What is entered for each scope of an ask about who waits.
struct Entering<'a> {
    now: Stamp,
    id: &'a MessageId,
    ask: &'a Ask,
    decision: &'a Decision,
    claimants: &'a [Claimant],
    /// The sender claimed before.
    had_claim: bool,
    pacing: &'a dyn Fn(Option<ScopeId>) -> Pace,
    far: i64,
}

impl Entering<'_> {
    /// Enters it for the scope at a place of the ask. Says in which period the sender is counted there, and whether anything has
    /// changed.
    fn enter(&self, waiting: &mut Waiting, at: usize, scope: Option<ScopeId>, counted: Stamp) -> (Stamp, bool) {
        let (ask, decision) = (self.ask, self.decision);
        if self.id.is_nobodys() {
            return (Stamp::NEVER, false);
        }
        let next = decision.waiting.as_ref().map_or(self.now, |turn| turn.start);
        let promised = next.min(self.now.plus(MAX_SILENCE)).plus(micros(ask.horizon));
        let mut changed = false;

        // Who was just served is probably back before long: what is left then is not all for those who are quicker.
        let mut contenders = waiting.contenders.unwrap_or_else(|| Contenders::none(self.now, (self.pacing)(scope)));
        let was_counted = contenders.counts(counted);
        let waits = decision.waits_for.get(at) == Some(&true) || (was_counted && decision.granted > 0);
        let before = if was_counted { counted } else { Stamp::NEVER };
        let counts = contenders.count(before, ask.weight, waits.then(|| ask.priority()));
        changed |= counts != before;
        waiting.contenders = Some(contenders).filter(|contenders| !contenders.is_nobody());

        let is_claiming = ask.insist && decision.is_foremost && self.claimants.len() < MAX_CLAIMS;
        if is_claiming || self.had_claim {
            let (mine, turn) = (Owner::of(self.id), decision.waiting.as_ref().filter(|_| is_claiming));
            let claim = turn.map(|turn| {
                let of_scope = ask.logs.iter().zip(turn.charges.iter()).filter(|(log, _)| log.scope == scope);
                let units = of_scope.map(|(log, &units)| (log.unit.clone(), units)).collect();
                let (start, lapse, priority, weight) = (turn.start, promised, turn.priority, ask.weight);
                Claim { owner: mine.clone(), start, lapse, units, priority, weight }
            });
            let before: Vec<&Owner> = self.claimants[..decision.place].iter().map(|of| &of.owner).collect();
            changed |= waiting.claim(&mine, &before, claim);
        }
        if !ask.ahead.is_zero() && self.far <= ask.reach() && (decision.granted > 0 || decision.waiting.is_some()) {
            waiting.reach = Some(Reach { micros: ask.reach(), lapse: promised.plus(micros(ask.ahead)) });
            changed = true;
        }
        (counts, changed)
    }
}

#[cfg(test)]
mod tests;
