//! What a queue says to the store, one message after another, and what it makes of the answers: no other part of it looks into
//! either.

mod answer;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::answer::Answered;
use super::cold::Untold;
use super::engine::Engine;
use super::events::{Effect, Effects};
use super::log_time::Outlook;
use super::resend::Resend;
use super::settings::Settings;
use super::settling::{Corrections, most_of};
use crate::error::StoreError;
use crate::ledger::{self, Ask, Body, Grant, MAX_CALLERS, MAX_UNITS, MessageId, Run, Slots, Stamp};
use crate::store::{Applied, Store, WithoutStore};

/// A caller of one unit each of several logs mostly gets its turn like others. Put off so many times in a row, it claims its turn: whoever
/// shares but one of the logs has taken each slot before. What is kept for it others cannot use.
const SEVERAL_LOGS_PATIENCE: u32 = 5;

/// One of the queue's numbered stream.
#[derive(Debug)]
pub(super) struct Message {
    said: ledger::Message,
    /// Of the callers asked for.
    tickets: Vec<u64>,
    /// Callers who wait are left out: see `aside.rs`.
    leaves_out: bool,
    /// What goes back with it is left for others.
    makes_room: bool,
    /// When the last outage ended of which it tells, and whether there is anything to tell.
    tells: Option<(Instant, bool)>,
}

impl Message {
    /// The same to be sent again: by then it may be later than what it said that log time was at the latest.
    fn again(self: &Arc<Self>) -> Arc<Self> {
        if self.said.latest.is_none() {
            return Arc::clone(self);
        }
        let said = ledger::Message { latest: None, ..self.said.clone() };
        Arc::new(Self { said, tickets: self.tickets.clone(), ..**self })
    }

    /// The name that it is sent under.
    pub(super) const fn sender(&self) -> u64 {
        self.said.id.sender
    }

    const fn ask(&self) -> Option<&Ask> {
        if let Body::Ask(ask) = &self.said.body { Some(ask) } else { None }
    }

    /// Whether it asks for this caller.
    pub(super) fn asks_for(&self, ticket: u64) -> bool {
        self.tickets.contains(&ticket)
    }

    /// Whether it says nothing that the store must know, and asks for nobody.
    pub(super) fn only_asks(&self) -> bool {
        let settles =
            |ask: &Ask| !ask.back.is_empty() || ask.cold.is_some() || !ask.debts.is_empty() || ask.seats.is_some();
        let waited = |ask: &Ask| ask.counted.iter().any(|at| *at > Stamp::NEVER);
        self.ask().is_some_and(|ask| ask.runs.is_empty() && !settles(ask) && !waited(ask) && !ask.says_again())
    }

    /// Whether what goes back with it is left for others, as far as is known.
    pub(super) const fn makes_room(&self) -> bool {
        self.makes_room
    }

    /// Slots that are on their way back with it.
    pub(super) fn back(&self) -> &[Slots] {
        self.ask().map_or(&[], |ask| &ask.back)
    }

    /// Units of each log that it says calls used beyond what they were charged.
    pub(super) fn debts(&self) -> &[u32] {
        self.ask().map_or(&[], |ask| &ask.debts)
    }

    /// Sends it.
    pub(super) async fn send(&self, store: &dyn Store) -> Reply {
        grant(store.apply(&self.said).await)
    }
}

/// Asks for nothing, for the sake of the store's clock alone: what that shows.
pub(super) async fn ask_for_time(store: &dyn Store, settings: &Settings, outlook: &Outlook) -> Reply {
    let ask = Ask::new(Arc::clone(&settings.logs), Vec::new());
    grant(store.apply(&message(settings, MessageId::nobodys(), ask, outlook)).await)
}

/// What is granted to an ask.
fn grant(answer: Applied) -> Reply {
    answer?.grant().ok_or_else(StoreError::senseless)
}

/// A message, with what is known of log time.
fn message(settings: &Settings, id: MessageId, ask: Ask, outlook: &Outlook) -> ledger::Message {
    let ask = Ask { logs: settings.calendars.around(&ask.logs, outlook.known), ..ask };
    let message = ledger::Message::new(Arc::clone(&settings.ledger), id, ask);
    ledger::Message { known: outlook.known, latest: outlook.latest, ..message }
}

/// What a process adds to a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    /// The message's number in the process's stream.
    pub(super) number: u64,
    pub(super) outlook: Outlook,
}

/// The store's answer to a message.
pub(super) type Reply = Result<Grant, StoreError>;

impl Engine {
    /// Sends a message, where there is one to send now. Where there is none, says when there may be.
    pub(super) fn send(
        &mut self,
        now: Instant,
        header: impl FnOnce() -> Header,
        effects: &mut Effects,
    ) -> Option<Instant> {
        let message = if let Some(unanswered) = &self.unanswered {
            let retry_at = self.resend.as_ref().and_then(Resend::retry_at).filter(|&at| at > now);
            if retry_at.is_some() {
                return retry_at;
            }
            let again = unanswered.again();
            if let Some(resend) = &mut self.resend {
                resend.is_repeated = true;
            }
            self.nobody_waited(now);
            again
        } else if let Some(retry_at) = self.resend.as_ref().and_then(Resend::retry_at).filter(|&at| at > now) {
            return Some(retry_at);
        } else {
            match self.write(now, header) {
                Ok(message) => {
                    self.resend.get_or_insert_with(|| Resend::new(now));
                    Arc::new(message)
                }
                Err(later) => return later,
            }
        };
        self.unanswered = Some(Arc::clone(&message));
        self.under_way = true;
        effects.push(Effect::Send(message));
        None
    }

    /// A message that has not failed, and is sent again, is one whose answer nobody waited for. Where others may have sent by themselves meanwhile,
    /// the store is taken for lost all the same.
    fn nobody_waited(&mut self, now: Instant) {
        if let Some(resend) = &mut self.resend
            && self.settings.without_store != WithoutStore::ThrottleLocally
        {
            resend.was_lost(now);
        }
    }

    /// Whether the message that was sent last had been sent before.
    pub(super) fn sends_again(&self) -> bool {
        self.resend.as_ref().is_some_and(|resend| resend.is_repeated)
    }

    /// The next message of the stream, or when there may be one.
    fn write(&mut self, now: Instant, header: impl FnOnce() -> Header) -> Result<Message, Option<Instant>> {
        if let Some(at) = self.silent_until.filter(|&at| at > now) {
            return Err(Some(at));
        }
        if self.memory.has_untold() || self.says_first() {
            return Ok(self.ask_for_nobody(header(), now));
        }
        let is_unseated = self.is_unseated();
        if !self.surplus.is_empty() && (self.pause_unknown || is_unseated || !self.waiters.has_unslotted()) {
            let back = self.take_surplus();
            let ask = Ask::hand_back(Arc::clone(&self.settings.logs), back);
            return Ok(self.message(header(), Vec::new(), ask, now));
        }
        let told_by = self.untold.as_ref().map(Untold::by).into_iter().chain(self.settle_by(now)).min();
        if self.is_paused(now) && self.is_in_doubt {
            return Ok(self.ask_for_nobody(header(), now));
        }
        let waits_since = self.waiters.first_joined().filter(|_| self.asks_for_callers(now));
        let hear_by =
            if self.is_in_doubt { Some(now) } else { waits_since.and_then(|since| self.memory.hear_by(since)) };
        let told_by = told_by.into_iter().chain(hear_by).min();
        let seats_at = self.tell_of_seats_at(now);
        if is_unseated && self.waiters.has_unslotted() {
            // It asks when it has a seat, and looks for one when its slot may be near, and no pause lasts.
            let look_at = self.ask_at.max(self.paused.map(|(until, _)| until)).filter(|&at| at > now);
            return match told_by {
                Some(at) if at <= now => Ok(self.ask_for_nobody(header(), now)),
                by => Err(look_at.into_iter().chain(by).min()),
            };
        }
        if self.waiters.has_unslotted() {
            self.end_aside(now);
            let ask_at = self.next_ask().max(self.seats.as_ref().and_then(|seats| seats.ask_at(now)));
            let tell_by = told_by.into_iter().chain(seats_at).min();
            let ask_at = ask_at.map(|at| tell_by.map_or(at, |by| by.min(at)));
            return match ask_at.filter(|&at| at > now && self.surplus.is_empty()) {
                None => Ok(self.ask(header(), now)),
                at => Err(at),
            };
        }
        // Nobody waits any more: an empty ask takes the queue off the record, and its claim with it.
        let leave_at = self.on_record.then(|| self.leave_at.unwrap_or(now));
        if self.on_record && self.leave_at.is_some_and(|at| at <= now) {
            self.comes_back = Some(false);
        }
        let leave_at = leave_at.into_iter().chain(told_by).min().map(|at| if self.closed { now } else { at });
        match leave_at.into_iter().chain(seats_at).min() {
            Some(at) if at <= now => Ok(self.ask_for_nobody(header(), now)),
            later => Err(later),
        }
    }

    /// Whether callers wait for whom it asks.
    pub(super) fn asks_for_callers(&self, now: Instant) -> bool {
        !self.is_paused(now) && self.waiters.has_unslotted()
    }

    /// The slots that nobody here wants, as many as one message may carry.
    fn take_surplus(&mut self) -> Vec<Slots> {
        let mut slots: Vec<Slots> = Vec::new();
        let most = self.surplus.len().min(MAX_CALLERS / self.settings.logs.len().max(1));
        let (mut taken, most_starts) = (0, most_of(self.surplus.len()));
        for slot in &self.surplus[..most] {
            let is_full = slots.len() == most_starts;
            match slots.last_mut() {
                Some(last) if (last.start, &*last.charges, last.looks) == (slot.stamp, &*slot.costs, slot.looks) => {
                    last.count += 1;
                }
                _ if is_full => break,
                _ => slots.push(Slots { looks: slot.looks, ..Slots::new(1, slot.stamp, &slot.costs) }),
            }
            taken += 1;
            tracing::debug!(upstream = &*self.settings.upstream, "slot handed back");
        }
        self.surplus.drain(..taken);
        slots
    }

    fn ask_for_nobody(&mut self, header: Header, now: Instant) -> Message {
        let ask = Ask::new(Arc::clone(&self.settings.logs), Vec::new());
        self.message(header, Vec::new(), ask, now)
    }

    fn ask(&mut self, header: Header, now: Instant) -> Message {
        let mut runs: Vec<Run> = Vec::new();
        let mut tickets = Vec::new();
        let mut units = 0;
        let most = self.borrowed.map_or(MAX_CALLERS, |borrowed| MAX_CALLERS.min(borrowed.free() as usize));
        let first = self.waiters.unslotted(now).next();
        let first_rank = first.map(|first| self.waiters.rank(first));
        let times = first.zip(self.put_off.as_ref()).map_or(0, |(first, of)| of.times(first.ticket));
        for waiter in self.waiters.unslotted(now).take(most) {
            let rank = self.waiters.rank(waiter);
            let Some(priority) = self.aside.as_mut().map_or(Some(rank), |aside| aside.asked_for_as(rank)) else {
                break;
            };
            let most_units = waiter.costs.iter().copied().max().unwrap_or(0);
            if units + most_units > MAX_UNITS && !tickets.is_empty() {
                // While the first waits for its turn, who takes less may go all the same.
                if times > 0 && first_rank == Some(rank) {
                    continue;
                }
                break;
            }
            units += most_units;
            tickets.push(waiter.ticket);
            // Further away than the horizon the queue decides by itself: only then do neighbours differ in nothing.
            let max_wait = waiter.deadline(now).map(|deadline| deadline.saturating_duration_since(now));
            let max_wait = max_wait.filter(|&wait| wait < self.settings.horizon);
            let is_like =
                |run: &Run| *run.charges == *waiter.costs && (run.max_wait, run.priority) == (max_wait, priority);
            match runs.last_mut() {
                Some(run) if is_like(run) => run.callers += 1,
                _ => {
                    let mut run = Run::new(1, &waiter.costs).priority(priority);
                    run.max_wait = max_wait;
                    runs.push(run);
                }
            }
        }
        debug_assert!(!tickets.is_empty(), "it asks for somebody");
        let mut ask = Ask::new(Arc::clone(&self.settings.logs), runs);
        // A seat alone is of use as soon as it is there.
        ask.ahead = if ask.logs.is_empty() { Duration::ZERO } else { header.outlook.ahead };
        ask.back = self.take_surplus();
        let is_large = ask.runs.first().is_some_and(|run| run.charges.iter().any(|&units| units > 1));
        let patience = if is_large { 1 } else { SEVERAL_LOGS_PATIENCE };
        self.insists = (is_large || ask.logs.len() > 1) && times >= patience;
        ask.insist = self.insists;
        if self.aside.is_none() {
            self.newcomers.are_asked_for();
        }
        self.message(header, tickets, ask, now)
    }

    fn message(&mut self, header: Header, tickets: Vec<u64>, ask: Ask, now: Instant) -> Message {
        let id = MessageId::new(self.sender, Arc::clone(&self.settings.stream), header.number).after(self.previous);
        let (horizon, counted) = (self.settings.horizon(&header.outlook), self.counted.clone());
        let seats = self.seats.as_mut().map(|seats| seats.state(!ask.runs.is_empty(), self.closed, now));
        let seats = seats.or_else(|| self.borrowed.as_mut()?.state(ask.callers()));
        let settles = self.corrections.as_ref().is_some_and(Corrections::make_room);
        // Those that it asks for take what is handed back.
        let makes_room = settles || (ask.runs.is_empty() && !ask.back.is_empty());
        let (unused, debts) = self.take_corrections();
        let cold = self.untold.take().map(Untold::into_cold);
        self.is_in_doubt = false;
        let (weight, observes) = (self.settings.weight, self.settings.observes);
        let mut ask = Ask { horizon, cold, debts, counted, seats, weight, observes, ..ask };
        ask.back.extend(unused);
        ask.back.iter().for_each(|slots| self.memory.handed_back(slots));
        ask.remembered = self.memory.remembered(&self.settings.logs, header.outlook.known, now);
        ask.again = self.memory.again();
        let tells = self.lost.doubt.map(|doubt| {
            let adds =
                doubt.add_to(&mut ask.remembered, &self.settings.logs, self.settings.horizon, header.outlook.known);
            (doubt.ended_at, adds)
        });
        let leaves_out = self.aside.is_some();
        let said = message(&self.settings, id, ask, &header.outlook);
        Message { said, tickets, leaves_out, makes_room, tells }
    }
}

#[cfg(test)]
impl Message {
    /// What it says, in short: for how many callers it asks and of whom, what is owed, and how many slots go back with it.
    pub(super) fn shown(&self) -> String {
        let owed: u32 = self.debts().iter().sum();
        let back: u32 = self.ask().unwrap().back.iter().map(|slots| slots.count).sum();
        let tickets = self.tickets.iter().map(|ticket| format!(" {ticket}"));
        let owed = (owed > 0).then(|| format!(" +{owed}"));
        let back = (back > 0).then(|| format!(" -{back}"));
        ["ask".to_owned()].into_iter().chain(tickets).chain(owed).chain(back).collect()
    }

    /// For how many callers it asks.
    pub(super) fn callers(&self) -> u32 {
        u32::try_from(self.tickets.len()).unwrap()
    }

    /// How many slots go back with it.
    pub(super) fn slots_back(&self) -> usize {
        self.shown().rsplit_once('-').map_or(0, |(_, back)| back.parse().unwrap())
    }
}
