//! Everything a store keeps for one home, and the decision on an ask. Pure: time is an argument.
//!
//! `lua/book.lua`, `hand_back.lua`, `hold.lua` and `usage.lua` say the same in Redis, part for part.

use std::collections::HashMap;
use std::sync::Arc;

use super::decision::{Bounds, View};
use super::{Answer, Ask, Grant, HandBack, Held, Hold, Log, LogUsage, MAX_MEMORY, MAX_SILENCE, TermUsage};
use crate::error::StoreError;
use crate::limit::{Term, micros};
use crate::log::{SlidingLog, Stamp};

/// How many senders it takes to look for those that are gone.
const MANY_SENDERS: usize = 64;

/// The logs of one home, the hold on them, and who is asking.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    logs: HashMap<Arc<str>, SlidingLog>,
    hold: Option<Held>,
    /// A caller of large cost that nobody may overtake.
    claim: Option<Claim>,
    /// Processes with callers that wait, and when each entry lapses: its promised next ask, and some slack.
    asking: HashMap<u64, Stamp>,
    /// The last message of each process, so that it acts once when it comes twice.
    seen: HashMap<u64, Seen>,
}

#[derive(Debug)]
struct Claim {
    sender: u64,
    start: Stamp,
    lapse: Stamp,
}

#[derive(Debug)]
struct Seen {
    number: u64,
    until: Stamp,
    answers: Vec<Answer>,
    next: Stamp,
}

impl Ledger {
    /// Decides on an ask; `hold_all` is the hold on the whole upstream, where this is the home of a scope.
    pub(crate) fn book(&mut self, now: Stamp, hold_all: Option<Held>, ask: &Ask) -> Result<Grant, StoreError> {
        let holds = self.holds(now, hold_all);
        if let Some(seen) = self.seen(now, ask.sender, ask.number)? {
            return Ok(grant(now, seen.answers.clone(), seen.next, &holds));
        }
        // Read.
        let others = self.asking.iter().filter(|&(&sender, &lapse)| sender != ask.sender && lapse > now).count();
        let was_asking = self.asking.get(&ask.sender).is_some_and(|&lapse| lapse > now);
        let claim = self.claim.as_ref().filter(|claim| claim.lapse > now);
        let had_claim = claim.is_some_and(|claim| claim.sender == ask.sender);
        let others_claim = claim.filter(|claim| claim.sender != ask.sender).map(|claim| claim.start);

        // Decide.
        let floor = now.max(others_claim.unwrap_or(now));
        let limit = now.plus(micros(ask.horizon));
        let mut view = View::new(ask.logs.iter().map(|log| (self.logs.get(&log.name), log)), &holds);
        let processes = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        let share = if processes == 1 { u64::MAX } else { view.share(ask, floor, limit, processes) };
        let bounds = Bounds { now, floor, limit, share, closed: others_claim.is_some() };
        let decision = view.decide(&ask.runs, bounds);
        let waiting = decision.answered < ask.callers();
        let claiming = waiting && ask.insist && others_claim.is_none() && decision.granted == 0;
        let promised = decision.next.min(now.plus(MAX_SILENCE)).plus(micros(ask.horizon));

        // Write.
        for (log, starts) in ask.logs.iter().zip(view.into_added()) {
            self.append(log, &starts, now);
        }
        if waiting {
            self.asking.retain(|_, lapse| *lapse > now);
            self.asking.insert(ask.sender, promised);
        } else if was_asking {
            self.asking.remove(&ask.sender);
        }
        if claiming {
            self.claim = Some(Claim { sender: ask.sender, start: decision.next, lapse: promised });
        } else if had_claim {
            self.claim = None;
        }
        if decision.granted > 0 || waiting || was_asking {
            let memory = ask.retention().saturating_add(micros(ask.horizon)).min(MAX_MEMORY);
            self.remember(now, ask.sender, ask.number, memory, &decision.answers, decision.next);
        }
        Ok(grant(now, decision.answers, decision.next, &holds))
    }

    pub(crate) fn hand_back(&mut self, now: Stamp, message: &HandBack) -> Result<(), StoreError> {
        if self.seen(now, message.sender, message.number)?.is_some() {
            return Ok(());
        }
        for slots in &message.slots {
            for (log, cost) in message.logs.iter().zip(slots.costs.iter()) {
                if let Some(log) = self.logs.get_mut(&log.name) {
                    log.hand_back(slots.start, cost.saturating_mul(slots.count));
                }
            }
        }
        // As long as a slot may count: a second removal while it does would take another's.
        let last = message.slots.iter().map(|slots| slots.start).max().unwrap_or(now);
        let memory = micros(last.since(now)).saturating_add(message.retention()).min(MAX_MEMORY);
        self.remember(now, message.sender, message.number, memory, &[], now);
        Ok(())
    }

    /// Holds this home, and says until when.
    pub(crate) fn hold(&mut self, now: Stamp, hold: &Hold) -> Stamp {
        self.hold.insert(Held::after(self.hold, now, hold)).until
    }

    /// The hold on this home, while it means anything.
    pub(crate) fn held(&self, now: Stamp) -> Option<Held> {
        self.hold.filter(|hold| hold.forgotten > now)
    }

    fn holds(&self, now: Stamp, hold_all: Option<Held>) -> Vec<Held> {
        self.held(now).into_iter().chain(hold_all).collect()
    }

    pub(crate) fn usage(&self, now: Stamp, hold_all: Option<Held>, logs: &[Log]) -> Vec<LogUsage> {
        let holds = self.holds(now, hold_all);
        let empty = SlidingLog::new();
        let of_log = |log: &Log| {
            let entries = self.logs.get(&log.name).unwrap_or(&empty);
            let of_term = |term: &Term| {
                let alone = Log::new(Arc::clone(&log.name), [*term]);
                TermUsage {
                    used: u32::try_from(entries.used(now, term.span)).unwrap_or(u32::MAX),
                    next: View::new([(Some(entries), &alone)].into_iter(), &holds).earliest(now, &[1], 1).since(now),
                }
            };
            LogUsage::new(log.terms.iter().map(of_term).collect())
        };
        logs.iter().map(of_log).collect()
    }

    /// Whether nothing here means anything any more.
    pub(crate) fn is_spent(&self, now: Stamp) -> bool {
        self.logs.values().all(|log| log.is_spent(now))
            && self.held(now).is_none()
            && self.claim.as_ref().is_none_or(|claim| claim.lapse <= now)
            && self.asking.values().all(|&lapse| lapse <= now)
            && self.seen.values().all(|seen| seen.until <= now)
    }

    fn seen(&self, now: Stamp, sender: u64, number: u64) -> Result<Option<&Seen>, StoreError> {
        match self.seen.get(&sender).filter(|seen| seen.until > now) {
            Some(seen) if seen.number > number => Err(StoreError::outdated()),
            Some(seen) if seen.number == number => Ok(Some(seen)),
            _ => Ok(None),
        }
    }

    fn remember(&mut self, now: Stamp, sender: u64, number: u64, memory: i64, answers: &[Answer], next: Stamp) {
        if self.seen.len() >= MANY_SENDERS {
            self.seen.retain(|_, seen| seen.until > now);
        }
        // Not for less long than the message before: a late copy of that must not act.
        let before = self.seen.get(&sender).map_or(now, |seen| seen.until);
        let seen = Seen { number, until: now.plus(memory).max(before), answers: answers.to_vec(), next };
        self.seen.insert(sender, seen);
    }

    fn append(&mut self, log: &Log, starts: &[Stamp], now: Stamp) {
        if starts.is_empty() {
            return;
        }
        let entries = self.logs.entry(Arc::clone(&log.name)).or_default();
        for &start in starts {
            entries.append(start, 1, log.retention());
        }
        entries.trim(now, log.largest_quota());
    }
}

/// An answer, with the end of the longest hold and the gravest cause.
fn grant(now: Stamp, answers: Vec<Answer>, next: Stamp, holds: &[Held]) -> Grant {
    let lasting = holds.iter().filter(|hold| hold.until > now).map(|hold| (hold.until, hold.cause));
    let held = lasting.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)));
    Grant { held, ..Grant::new(now, answers, next) }
}
