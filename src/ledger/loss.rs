//! Lost data: what a sender remembers, and the store holds no more.
//!
//! `lua/loss.lua` says the same in Redis.

#[cfg(test)]
mod tests;

use super::again::SETTLING;
use super::contenders::least_period;
use super::life::Life;
use super::release::MARK_MEMORY;
use super::{Ask, LEAP, Ledger, Log, MAX_MEMORY, MessageId, ScopeId, Stamp, Term};

/// No longer window is waited for: what counts for longer is entered again by those who remember it.
pub(crate) const SHORT: i64 = 10_000_000;
/// A store keeps a log, and the answer to a message, for longer than it must, as its clock may leap ahead: so much of that is counted on.
pub(crate) const BEYOND: i64 = 5_000_000;

/// What a queue remembers that a store must hold, unless that has lost data.
///
/// ```
/// use outgate::ledger::{Ask, Ledger, Log, Message, MessageId, Remembered, Run, Stamp, Term};
///
/// let mut ledger = Ledger::new(); // what it held is lost
/// let mut ask = Ask::new([Log::new("calls", [Term::new(5, 1_000_000)])], vec![Run::new(1, [1])]);
/// ask.remembered = Remembered::new(0, Stamp::from_micros(0), [Stamp::from_micros(9_000_000)]);
/// let now = Stamp::from_micros(9_100_000);
/// let grant = ledger.apply(now, &Message::new("up", MessageId::new(1, "", 1), ask)).unwrap().grant().unwrap();
/// assert!(grant.lost && grant.answered(1) == 0); // nobody starts for a second and what may have been booked ahead
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remembered {
    /// The number of the last message of the stream that the store is known to have remembered, and must still; zero where none is
    /// known.
    pub number: u64,
    /// The log time that was told with the answer to it; or, where the sender has another name since, to the last one under that of before.
    pub told: Stamp,
    /// For each log of the ask its newest entry that was granted to the queue, and not handed back; zero where none counts any
    /// more. Of a log that counts for 10 s at most also one that counted until 5 s ago: the log must be there still. Left out where there
    /// is none at all.
    pub newest: Vec<Stamp>,
    /// For each log until when other processes may have sent by themselves, as they could not reach the store; zero where they have not. It
    /// counts as an entry that must be there, in place of the newest, unless any log of the ask has one of [`lost_at`](Self::lost_at) or before
    /// that would count still: who booked that has reached the store too lately for anybody to have sent by itself. Left out where nobody has.
    pub apart: Vec<Stamp>,
    /// When the sender had sent the message that could not reach the store first in that outage, at the earliest.
    pub lost_at: Stamp,
}

impl Remembered {
    /// A queue that remembers a message and the answer to it, and the newest entry of each log.
    #[must_use]
    pub fn new(number: u64, told: Stamp, newest: impl Into<Vec<Stamp>>) -> Self {
        Self { number, told, newest: newest.into(), apart: Vec::new(), lost_at: Stamp::NEVER }
    }

    /// The newest entry of a log, by its place, that was granted to the queue, where what others may have sent does not count in its place.
    pub(super) fn granted(&self, at: usize) -> Option<Stamp> {
        let of = |all: &[Stamp]| all.get(at).copied().filter(|stamp| *stamp > Stamp::NEVER);
        of(&self.newest).filter(|_| of(&self.apart).is_none())
    }
}

/// The last loss of data that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// When it was seen.
    at: Stamp,
    /// Nobody starts before: until then all may count that was lost, and is not entered again.
    pub(super) settles: Stamp,
    /// The newest entry that somebody had forgotten: none up to then is missing.
    pub(super) forgotten: Stamp,
    /// When the last was seen of what is to be entered again; and until when any of that counts.
    pub(super) lost: Stamp,
    until: Stamp,
    /// Logs alone were lost: a message that is remembered does not say that its entries are there.
    pub(super) is_of_logs: bool,
    /// Somebody has said since what it was granted.
    pub(super) is_said: bool,
}

impl Loss {
    const NONE: Self = Self {
        at: Stamp::NEVER,
        settles: Stamp::NEVER,
        forgotten: Stamp::NEVER,
        lost: Stamp::NEVER,
        until: Stamp::NEVER,
        is_of_logs: false,
        is_said: false,
    };

    /// Not lost, but forgotten by hand, as all that may have been lost `before` is now; `newest` was the last entry, and any `counts` for so long
    /// at most.
    pub(super) fn forgotten(before: Option<Self>, now: Stamp, newest: Stamp, counts: i64) -> Self {
        let before = before.unwrap_or(Self::NONE);
        let forgotten = now.max(newest).max(before.settles).max(before.forgotten);
        let until = if counts > 0 { before.until.max(forgotten.plus(counts)) } else { before.until };
        Self { at: now, settles: now, forgotten, until, ..before }
    }

    /// What is to be told of two scopes.
    pub(super) fn and(self, other: Self) -> Self {
        Self { lost: self.lost.max(other.lost), is_of_logs: self.is_of_logs || other.is_of_logs, ..self }
    }

    /// When it matters no more: no sender says then of what was before it that the store must remember it.
    pub(super) fn lapse(self) -> Stamp {
        // Who had forgotten nothing may remember it for as long as the longest window. Of one that is longer than this `until` tells.
        let mark = if self.forgotten > Stamp::NEVER { self.forgotten.plus(MARK_MEMORY) } else { Stamp::NEVER };
        self.at.plus(MAX_MEMORY + LEAP).max(self.settles).max(mark).max(self.until)
    }
}

impl Ledger {
    /// Whether the message is there that a sender says it must be, for `memory` µs. `None`: it says none, or it need not be any more.
    pub(super) fn still_has(&self, now: Stamp, id: &MessageId, said: &Remembered, memory: i64) -> Option<bool> {
        if id.is_nobodys() || said.number == 0 {
            return None;
        }
        let is_there = said.number <= self.replays.last_of(now, id);
        // Who was cut off or suspended says late what need not be remembered any more. So does whoever asks first when the clock has leapt:
        // a loss of that time would last until then.
        let is_due = said.told.plus(memory.min(MAX_MEMORY) + BEYOND) > now;
        (is_there || is_due).then_some(is_there)
    }

    /// The last loss of a scope, as long as it matters.
    pub(super) fn loss_of(&self, now: Stamp, scope: Option<ScopeId>) -> Option<Loss> {
        self.scope(scope)?.constraints().loss.filter(|loss| loss.lapse() > now)
    }

    /// The newest entry of any log of an ask that does not start later than that.
    fn booked_by(&self, by: Stamp, ask: &Ask) -> Option<Stamp> {
        if ask.remembered.apart.is_empty() {
            return None;
        }
        let logs = ask.logs.iter().filter(|log| log.retention() > 0);
        logs.filter_map(|log| self.scope(log.scope)?.logs.get(&log.unit)?.newest_by(by)).max()
    }

    /// Notes what is missing of what an ask remembers. Nobody starts then until all counts no more that may be lost: what started before,
    /// and what was booked ahead. What a loss that is known explains is no news.
    pub(super) fn note_losses(&mut self, now: Stamp, id: &MessageId, ask: &Ask) {
        let remembered = &ask.remembered;
        let still_has = self.still_has(now, id, remembered, ask.retention());
        let is_forgotten = still_has == Some(false);
        // Its queue has heard of a loss just now that no scope knows of: what knew of it was lost as well.
        let known_in = |scope| self.loss_of(now, scope).map_or(Stamp::NEVER, |loss| loss.lost);
        let heard = Some(ask.says_for()).filter(|heard| heard.plus(SETTLING) > now);
        let heard = heard.filter(|heard| ask.scopes().all(|scope| known_in(scope) < *heard));
        let says_nothing = remembered.newest.is_empty() && remembered.apart.is_empty() && heard.is_none();
        if says_nothing && !is_forgotten && !ask.logs.iter().any(|log| self.may_miss(now, log)) {
            return;
        }
        let booked = self.booked_by(remembered.lost_at, ask);
        let (mut losses, mut lives) = (Vec::<(Option<ScopeId>, Loss)>::new(), Vec::new());
        for (at, log) in ask.logs.iter().enumerate().filter(|(_, log)| log.retention() > 0) {
            let (counts, scope) = (log.retention(), self.scope(log.scope));
            let known = self.loss_of(now, log.scope);
            let entries = scope.and_then(|scope| scope.logs.get(&log.unit));
            let (tail, life) = entries.map_or((None, Life::NONE), |entries| (entries.nth_newest(1), entries.life()));
            let of = |all: &[Stamp]| all.get(at).copied().filter(|stamp| *stamp > Stamp::NEVER);
            let newest = match of(&remembered.apart) {
                Some(_) if booked.is_some_and(|booked| booked.plus(counts) > now) => None,
                Some(apart) => Some(apart),
                None => of(&remembered.newest),
            };
            let newest = newest.unwrap_or(Stamp::NEVER).min(now.plus(MAX_MEMORY));
            let forgotten = known.map_or(Stamp::NEVER, |loss| loss.forgotten);
            let there = forgotten.max(tail.unwrap_or(Stamp::NEVER));
            // Of one that is gone it may be known for how long it counts for whoever is most patient.
            let patience = Some(life).filter(|life| tail.is_none() && life.is_known(now));
            let patience = patience.map_or(counts, |life| life.counts.max(counts));
            let is_long = patience > SHORT;
            // It was lost and begun anew since.
            let is_older =
                of(&remembered.apart).is_none() && life.is_known(now) && newest > forgotten && newest < life.since;
            let is_missing = newest > Stamp::NEVER && newest.plus(counts) > now && (newest > there || is_older);
            // Of an empty log it is known that it must be there; or its sender was counted among those who wait for it, and there are none.
            let has_waited = || known.is_none() && self.has_forgotten(now, log, ask);
            // Of a short one whoever was granted something of it knows that for longer than it counts. What others may have sent in an outage
            // is named by a time of after all answers.
            let is_due = newest > forgotten && newest.plus(counts) <= now && newest.plus(counts + BEYOND) > now;
            let is_due = is_due && newest <= remembered.told.plus(ask.reach());
            let knows_it = is_due && known.is_none_or(|loss| newest >= loss.settles);
            let is_gone = tail.is_none() && (life.is_known(now) || if is_long { has_waited() } else { knows_it });
            // Who counts for short alone has asked nobody to say anything again.
            let is_unheard = |loss: Loss| is_long && loss.lost == Stamp::NEVER;
            let explains = |loss: Loss| if is_long { loss.lost.max(loss.forgotten) } else { loss.at };
            // What was booked since, or entered again, is there.
            let was_there =
                |loss: Loss| newest >= loss.settles || (loss.lost > Stamp::NEVER && ask.heard() >= loss.lost);
            // What it says again by this message is missing until that has acted.
            let says_it = known.is_some_and(|loss| loss.lost > Stamp::NEVER && ask.says_for() >= loss.lost);
            // What others have said again is gone as well.
            let is_gone_again = |loss: Loss| is_long && loss.is_said && tail.is_none() && !says_it;
            let is_news = (is_forgotten && known.is_none_or(|loss| remembered.told > explains(loss)))
                || (is_missing && known.is_none_or(|loss| is_unheard(loss) || was_there(loss) || is_gone_again(loss)))
                || is_gone;
            let heard = heard.filter(|_| is_long && !is_news);
            if !is_news && !is_missing && heard.is_none() {
                continue;
            }
            let in_force = self.in_force(now, log.scope);
            let waited_for = log.terms.iter().filter(|term| term.span <= SHORT);
            let retention = waited_for.map(|term| in_force.term(log, *term).span).max().unwrap_or(0);
            let retention = if patience > counts && !is_long { retention.max(patience) } else { retention };
            let start = if is_missing { newest } else { Stamp::NEVER };
            let settles = if is_news { start.max(now.plus(ask.reach())) } else { start }.plus(retention);
            let of_scope = losses.iter().position(|(scope, _)| *scope == log.scope).unwrap_or_else(|| {
                losses.push((log.scope, known.unwrap_or(Loss::NONE)));
                losses.len() - 1
            });
            let loss = &mut losses[of_scope].1;
            // What is seen beside it in another log of the scope is news to its queue.
            let heard = heard.filter(|heard| loss.lost <= *heard);
            loss.at = if is_news { now } else { loss.at };
            loss.settles = loss.settles.max(settles);
            // Where no more is known of a log that counts still, what was known of an earlier loss may be lost as well.
            let is_unknown = !life.is_known(now) && tail.is_some_and(|tail| tail.plus(counts) > now);
            let is_of_log = is_long
                && (is_gone
                    || (is_missing && (tail.is_none() || is_older || !is_forgotten))
                    || (is_news && is_unknown));
            lives.extend((is_news && (is_long || tail.is_none())).then_some(log));
            loss.is_of_logs |= heard.is_some() || (is_of_log && (is_news || !says_it));
            loss.is_said = heard.is_some() || (loss.is_said && !is_news);
            if let Some(heard) = heard {
                (loss.lost, loss.settles) = (heard, loss.settles.max(heard.plus(SETTLING)));
                loss.until = loss.until.max(now.plus(ask.reach()).plus(patience));
            }
            if is_news && is_long {
                loss.settles = loss.settles.max(now.plus(SETTLING));
                loss.lost = now;
                loss.until = loss.until.max(now.plus(ask.reach()).plus(patience));
            }
        }
        for (scope, loss) in losses {
            self.scope_mut(scope).constrain(|of, _| of.loss = Some(loss));
        }
        for log in lives {
            if let Some(entries) = self.log_mut(log) {
                entries.begin_anew();
            }
        }
    }

    /// Whether it may be seen that a log was lost by an ask that remembers nothing.
    fn may_miss(&self, now: Stamp, log: &Log) -> bool {
        let entries = || self.scope(log.scope)?.logs.get(&log.unit);
        log.retention() > SHORT || entries().is_some_and(|entries| entries.life().is_known(now))
    }

    /// Whether the sender of an ask was counted among those who wait for the scope of a log until lately, and nobody is known to wait.
    fn has_forgotten(&self, now: Stamp, log: &Log, ask: &Ask) -> bool {
        let scope = log.scope;
        let place = ask.scopes().position(|of| of == scope);
        let counted = place.and_then(|place| ask.counted.get(place)).copied().unwrap_or(Stamp::NEVER);
        let left: Vec<Term> = self.in_force(now, scope).terms(log).collect();
        counted.plus(least_period(&left, ask.horizon).min(SHORT)) > now
            && !self.scope(scope).is_some_and(|scope| scope.waiting().is_any(now))
    }
}
