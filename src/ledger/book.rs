//! Everything a store keeps for one home, and the decision on an ask. Pure: time is an argument.
//!
//! `lua/book.lua`, `hand_back.lua`, `hold.lua`, `learn.lua` and `usage.lua` say the same in Redis, part for part.

use std::sync::Arc;

use super::constraints::Told;
use super::decision::{Bounds, Turn, View};
use super::logs::Logs;
use super::replay::Seen;
use super::senders::Senders;
use super::{
    Answer, Ask, Cause, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MAX_MEMORY, MAX_SILENCE,
    MessageId, Slots, TermUsage,
};
use super::{SlidingLog, Stamp};
use super::{Term, micros};
use crate::error::StoreError;

/// So many callers may claim at once: each makes every decision dearer.
const MAX_CLAIMS: usize = 8;

/// Where an upstream has told nothing.
static NOTHING: Told = Told::nothing();

/// The logs of one home, what the upstream told, and who is asking. There are as many of them as scopes: what few need lies
/// apart.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    logs: Logs,
    told: Option<Box<Told>>,
    /// Callers of large cost that nobody may delay, first come first.
    claims: Vec<Claim>,
    /// How far ahead the process books whose answers take longest.
    reach: Option<Box<Reach>>,
    /// Processes with callers that wait, and when each entry lapses: its promised next ask, and some slack.
    asking: Senders<Stamp>,
    /// The last ask or hand-back of each process.
    seen: Senders<Seen<Booked>>,
    /// The last hold or lesson of each process.
    heard: Option<Box<Senders<Seen<Heard>>>>,
}

#[derive(Debug)]
struct Claim {
    sender: u64,
    start: Stamp,
    lapse: Stamp,
    /// What it takes of each log, by name.
    units: Box<[(Arc<str>, u32)]>,
}

#[derive(Debug)]
struct Reach {
    micros: i64,
    lapse: Stamp,
}

/// What an ask was answered; of a hand-back nothing.
#[derive(Debug)]
struct Booked {
    answers: Box<[Answer]>,
    next: Stamp,
}

/// What a hold or a lesson was answered.
#[derive(Clone, Copy, Debug)]
enum Heard {
    Held { until: Stamp, first: bool },
    Learned(Learned),
}

/// What a home makes of a lesson.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lessoned {
    /// It came before, and was answered this.
    Before(Learned),
    /// Units that others use, and whether a refusal is left that nothing explains.
    Now { foreign: u32, unexplained: bool },
}

impl Claim {
    fn new(ask: &Ask, turn: &Turn, lapse: Stamp) -> Self {
        let units = ask.logs.iter().map(|log| Arc::clone(&log.name)).zip(turn.costs.iter().copied()).collect();
        Self { sender: ask.sender, start: turn.start, lapse, units }
    }

    /// The claimed turn in the logs of another ask.
    fn turn(&self, now: Stamp, logs: &[Log]) -> Turn {
        let cost = |log: &Log| self.units.iter().find(|(name, _)| *name == log.name).map_or(0, |(_, units)| *units);
        Turn { start: self.start.max(now), costs: logs.iter().map(cost).collect() }
    }
}

impl Ledger {
    /// Decides on an ask; `all` is what was told of the whole upstream, where this is the home of a scope.
    pub(crate) fn book(&mut self, now: Stamp, all: Option<&Told>, ask: &Ask) -> Result<Grant, StoreError> {
        if let Some(seen) = self.seen.recall(now, ask.sender, ask.number, ask.previous)? {
            let held = self.told().heed(now, all, &ask.home).held();
            let grant = grant(now, seen.answers.to_vec(), seen.next, held);
            return Ok(Grant { contenders: self.contenders(ask.sender, |lapse| lapse > now), ..grant });
        }
        // Hand back.
        for slots in &ask.back {
            self.take_out(&ask.logs, slots);
        }
        // Read.
        let heeded = self.told().heed(now, all, &ask.home);
        let contenders = self.contenders(ask.sender, |lapse| lapse > now);
        let was_asking = self.asking.get(ask.sender).is_some_and(|&lapse| lapse > now);
        let claims: Vec<&Claim> = self.claims.iter().filter(|claim| claim.lapse > now).collect();
        let own = claims.iter().position(|claim| claim.sender == ask.sender);
        let claims: Vec<&Claim> = claims.into_iter().filter(|claim| claim.sender != ask.sender).collect();
        let place = own.filter(|_| ask.insist).unwrap_or(claims.len());

        // Decide.
        let soonest = now.plus(micros(ask.ahead));
        // Who is near books as far ahead as who is far: else the far would always be before them.
        let far = self.reach.as_deref().filter(|far| far.lapse > now).map_or(0, |far| far.micros);
        let limit = now.plus(ask.reach().max(far));
        // Who waits for longer than the horizon has no use for what is free within it, and nobody delays who claims. An entry
        // lapses a horizon after its slot.
        let until = limit.plus(micros(ask.horizon));
        let claimants = claims.iter().filter(|claim| claim.lapse <= until).count();
        let rivals = self.contenders(ask.sender, |lapse| lapse > now && lapse <= until);
        let rivals = rivals.saturating_sub(u32::try_from(claimants).unwrap_or(u32::MAX));
        let mut view = View::new(ask.logs.iter().map(|log| (self.logs.get(&log.name), log)), &heeded);
        let mut bounds = Bounds { now, soonest, limit, share: u64::MAX };
        if rivals > 0 {
            bounds.share = view.share(ask, bounds, rivals.saturating_add(1));
        }
        let (held, retentions) = (heeded.held(), heeded.retentions(&ask.logs));
        let turns = claims.iter().map(|claim| claim.turn(now, &ask.logs)).collect();
        let decision = view.decide(&ask.runs, bounds, turns, place);
        let waiting = decision.waiting.is_some();
        let claiming = ask.insist && claims.len() < MAX_CLAIMS && decision.is_foremost;
        let next = decision.waiting.as_ref().map_or(now, |turn| turn.start);
        let promised = next.min(now.plus(MAX_SILENCE)).plus(micros(ask.horizon));

        // Write.
        for ((log, starts), retention) in ask.logs.iter().zip(view.into_added()).zip(retentions.clone()) {
            self.append(log, &starts, 1, now, retention);
        }
        // Who was just served is probably back before long: what is left then is not all for those who are quicker.
        if waiting || (was_asking && decision.granted > 0) {
            self.asking.retain(|&lapse| lapse > now);
            self.asking.insert(ask.sender, promised);
        } else if was_asking {
            self.asking.remove(ask.sender);
        }
        if claiming || own.is_some() {
            self.claims.retain(|claim| claim.lapse > now && claim.sender != ask.sender);
        }
        if let Some(turn) = decision.waiting.filter(|_| claiming) {
            self.claims.insert(place, Claim::new(ask, &turn, promised));
        }
        if soonest > now && far <= ask.reach() && (decision.granted > 0 || waiting) {
            let lapse = promised.plus(micros(ask.ahead));
            self.reach = Some(Box::new(Reach { micros: ask.reach(), lapse }));
        }
        if decision.granted > 0 || waiting || was_asking || !ask.back.is_empty() {
            let last = ask.back.iter().map(|slots| micros(slots.start.since(now))).max().unwrap_or(0);
            let memory = retentions.max().unwrap_or(0).saturating_add(last.max(limit.as_micros() - now.as_micros()));
            let answer = Booked { answers: decision.answers.as_slice().into(), next };
            self.seen.remember(now, ask.sender, ask.number, memory.min(MAX_MEMORY), answer);
        }
        Ok(Grant { contenders, ..grant(now, decision.answers, next, held) })
    }

    /// Other processes whose callers wait, by when their entries lapse.
    fn contenders(&self, sender: u64, counts: impl Fn(Stamp) -> bool) -> u32 {
        u32::try_from(self.asking.iter().filter(|&(of, &lapse)| of != sender && counts(lapse)).count())
            .unwrap_or(u32::MAX)
    }

    /// Takes slots that nobody wants out of their logs.
    fn take_out(&mut self, logs: &[Log], slots: &Slots) {
        for (log, cost) in logs.iter().zip(slots.costs.iter()) {
            if let Some(log) = self.logs.get_mut(&log.name) {
                log.hand_back(slots.start, cost.saturating_mul(slots.count));
            }
        }
    }

    /// Enters a slot that starts now, where that takes no deciding: nothing was told that may delay it, nobody waits, and
    /// there is room in every log. Says whether it did.
    pub(crate) fn book_at_hand(&mut self, now: Stamp, all: Option<&Told>, logs: &[Log], costs: &[u32]) -> bool {
        let is_told = self.told.as_deref().into_iter().chain(all).any(|told| told.may_delay(now));
        let is_claimed = self.claims.iter().any(|claim| claim.lapse > now);
        let is_asked_for = || self.asking.iter().any(|(_, &lapse)| lapse > now);
        let is_free = |(log, &cost): (&Log, &u32)| {
            let entries = self.logs.get(&log.name);
            cost <= log.largest_cost() && entries.is_none_or(|entries| entries.earliest(now, &log.terms, cost) == now)
        };
        if is_told || is_claimed || is_asked_for() || !logs.iter().zip(costs).all(is_free) {
            return false;
        }
        for (log, &cost) in logs.iter().zip(costs) {
            self.append(log, &[now], cost, now, log.retention());
        }
        true
    }

    pub(crate) fn hand_back(&mut self, now: Stamp, message: &HandBack) -> Result<(), StoreError> {
        if self.seen.recall(now, message.sender, message.number, message.previous)?.is_some() {
            return Ok(());
        }
        for slots in &message.slots {
            self.take_out(&message.logs, slots);
        }
        // As long as a slot may count: a second removal while it does would take another's.
        let last = message.slots.iter().map(|slots| slots.start).max().unwrap_or(now);
        let memory = micros(last.since(now)).saturating_add(message.retention()).min(MAX_MEMORY);
        let answer = Booked { answers: Box::default(), next: now };
        self.seen.remember(now, message.sender, message.number, memory, answer);
        Ok(())
    }

    pub(crate) fn hold(&mut self, now: Stamp, id: MessageId, hold: &Hold) -> Result<Incident, StoreError> {
        match self.heard(now, id)? {
            Some(Heard::Held { until, first }) => return Ok(Incident::new(until.since(now), first)),
            Some(Heard::Learned(_)) => return Err(StoreError::outdated()),
            None => {}
        }
        let (until, first, forgotten) = self.told_mut().hold(now, hold);
        if forgotten > now {
            let memory = micros(forgotten.since(now)).min(MAX_MEMORY);
            self.note(now, id, memory, Heard::Held { until, first });
        }
        Ok(Incident::new(until.since(now), first))
    }

    /// Takes note of what others use.
    pub(crate) fn learn(
        &mut self,
        now: Stamp,
        id: MessageId,
        log: &Log,
        lesson: &Lesson,
    ) -> Result<Lessoned, StoreError> {
        match self.heard(now, id)? {
            Some(Heard::Learned(learned)) => return Ok(Lessoned::Before(learned)),
            Some(Heard::Held { .. }) => return Err(StoreError::outdated()),
            None => {}
        }
        let empty = SlidingLog::new();
        let entries = self.logs.get(&log.name).unwrap_or(&empty);
        let (foreign, unexplained) = self.told.get_or_insert_default().learn(now, log, entries, lesson);
        // Mostly nobody else uses the quota.
        self.told.take_if(|told| told.is_nothing());
        // Who learned nothing may learn more from the same message later.
        if foreign > 0 || unexplained {
            let longest = lesson.reports.iter().map(|report| report.term.span).max().unwrap_or(0);
            let lasting = if unexplained { micros(lesson.memory).max(1) } else { 0 };
            self.note(now, id, longest.max(lasting).min(MAX_MEMORY), Heard::Learned(Learned::new(foreign, 0)));
        }
        Ok(Lessoned::Now { foreign, unexplained })
    }

    /// Completes the answer that is remembered of a lesson.
    pub(crate) fn complete(&mut self, now: Stamp, id: MessageId, learned: Learned) {
        let heard = self.heard.as_mut().and_then(|heard| heard.recall_mut(now, id.sender, id.number));
        if let Some(heard) = heard {
            *heard = Heard::Learned(learned);
        }
    }

    fn heard(&self, now: Stamp, id: MessageId) -> Result<Option<Heard>, StoreError> {
        self.heard.as_ref().map_or(Ok(None), |heard| Ok(heard.recall(now, id.sender, id.number, 0)?.copied()))
    }

    fn note(&mut self, now: Stamp, id: MessageId, memory: i64, heard: Heard) {
        self.heard.get_or_insert_default().remember(now, id.sender, id.number, memory, heard);
    }

    /// What the upstream told of this home.
    pub(crate) fn told(&self) -> &Told {
        self.told.as_deref().unwrap_or(&NOTHING)
    }

    pub(crate) fn told_mut(&mut self) -> &mut Told {
        self.told.get_or_insert_default()
    }

    pub(crate) fn usage(&self, now: Stamp, all: Option<&Told>, home: &Home, logs: &[Log]) -> Vec<LogUsage> {
        let heeded = self.told().heed(now, all, home);
        let empty = SlidingLog::new();
        let of_log = |log: &Log| {
            let entries = self.logs.get(&log.name).unwrap_or(&empty);
            let of_term = |term: &Term| {
                let alone = Log::new(Arc::clone(&log.name), [*term]);
                let next = heeded.earliest(now, &alone, 1, |n| entries.nth_newest(n));
                TermUsage {
                    used: u32::try_from(entries.used(now, heeded.term(*term).span)).unwrap_or(u32::MAX),
                    foreign: heeded.foreign(log, *term),
                    next: next.since(now),
                }
            };
            LogUsage::new(log.terms.iter().map(of_term).collect())
        };
        logs.iter().map(of_log).collect()
    }

    /// Whether nothing here means anything any more.
    pub(crate) fn is_spent(&self, now: Stamp) -> bool {
        self.logs.iter().all(|log| log.is_spent(now))
            && self.told().is_spent(now)
            && self.claims.iter().all(|claim| claim.lapse <= now)
            && self.reach.as_ref().is_none_or(|far| far.lapse <= now)
            && self.asking.iter().all(|(_, &lapse)| lapse <= now)
            && self.seen.iter().all(|(_, seen)| seen.is_spent(now))
            && self.heard.iter().flat_map(|heard| heard.iter()).all(|(_, seen)| seen.is_spent(now))
    }

    /// Enters starts, each of so many units, as of `now`.
    fn append(&mut self, log: &Log, starts: &[Stamp], units: u32, now: Stamp, retention: i64) {
        if starts.is_empty() {
            return;
        }
        let entries = self.logs.entry(&log.name);
        // As of the newest entry of before: where the clock has leapt, that is when the others are from.
        let as_of = entries.nth_newest(1).map_or(now, |before| before.min(now));
        for &start in starts {
            entries.append(start, units, retention);
        }
        entries.trim(as_of, log.largest_quota());
    }
}

fn grant(now: Stamp, answers: Vec<Answer>, next: Stamp, held: Option<(Stamp, Cause)>) -> Grant {
    Grant { held, ..Grant::new(now, answers, next) }
}
