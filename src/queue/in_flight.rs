//! What a queue says to the store, one message after another, and what it makes of the answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Queue;
use super::bounds::Exchange;
use super::engine::Engine;
use super::resend::Silence;
use super::waiters::{Slot, Waiter, Wish};
use crate::error::{Error, StoreError};
use crate::ledger::Term;
use crate::ledger::{Answer, Ask, Body, Grant, MAX_CALLERS, MAX_UNITS, Message, Run, Slots, Verdict};

/// How long a queue rests that cannot use what it was granted: asked for again at once it would be granted again.
const UNUSED_PAUSE: Duration = Duration::from_millis(5);

/// One of the queue's numbered stream.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) message: Message,
    /// Of the callers asked for.
    tickets: Vec<u64>,
}

impl InFlight {
    /// The same to be sent again: by then it may be later than what it said that log time was at the latest.
    fn again(self: &Arc<Self>) -> Arc<Self> {
        if self.message.latest.is_none() {
            return Arc::clone(self);
        }
        let message = Message { latest: None, ..self.message.clone() };
        Arc::new(Self { message, tickets: self.tickets.clone() })
    }

    fn ask(&self) -> Option<&Ask> {
        if let Body::Ask(ask) = &self.message.body { Some(ask) } else { None }
    }

    /// Whether slots are on their way back with it.
    pub(super) fn hands_back(&self) -> bool {
        self.ask().is_some_and(|ask| !ask.back.is_empty())
    }
}

/// The store's answer to a message.
pub(super) type Reply = Result<Grant, StoreError>;

impl Engine {
    /// The message to send now, and where there is none, when there may be.
    pub(super) fn next_message(&mut self, queue: &Queue, now: Instant) -> (Option<Arc<InFlight>>, Option<Instant>) {
        if let Some(unanswered) = &self.unanswered {
            return match self.silence.as_ref().and_then(Silence::retry_at) {
                Some(at) if at > now => (None, Some(at)),
                _ => {
                    let again = unanswered.again();
                    self.unanswered = Some(Arc::clone(&again));
                    (Some(again), None)
                }
            };
        }
        if let Some(at) = self.pause_until.filter(|&at| at > now) {
            return (None, Some(at));
        }
        let id = queue.process.id();
        self.surplus.retain(|slot| slot.sender == id);
        let message = if !self.surplus.is_empty() && (self.unknown || !self.waiters.has_unslotted()) {
            let back = self.take_surplus(queue);
            self.message(queue, Vec::new(), Ask::hand_back(Arc::clone(&queue.logs), back), now)
        } else if self.waiters.has_unslotted() {
            if let Some(at) = self.ask_at.filter(|&at| at > now && self.surplus.is_empty()) {
                return (None, Some(at));
            }
            self.ask(queue, now)
        } else if self.on_record {
            // Nobody waits any more: an empty ask takes the queue off the record, and its claim with it.
            self.message(queue, Vec::new(), Ask::new(Arc::clone(&queue.logs), Vec::new()), now)
        } else {
            return (None, None);
        };
        let message = Arc::new(message);
        self.unanswered = Some(Arc::clone(&message));
        self.silence = Some(Silence::new(now));
        (Some(message), None)
    }

    /// The slots that nobody here wants, as many as one message may carry.
    fn take_surplus(&mut self, queue: &Queue) -> Vec<Slots> {
        let mut slots: Vec<Slots> = Vec::new();
        let most = MAX_CALLERS / queue.logs.len().max(1);
        for slot in self.surplus.drain(..self.surplus.len().min(most)) {
            tracing::debug!(upstream = &*queue.upstream, "slot handed back");
            match slots.last_mut() {
                Some(last) if last.start == slot.stamp && last.charges == slot.costs => last.count += 1,
                _ => slots.push(Slots::new(1, slot.stamp, slot.costs)),
            }
        }
        slots
    }

    fn ask(&mut self, queue: &Queue, now: Instant) -> InFlight {
        let mut runs: Vec<Run> = Vec::new();
        let mut tickets = Vec::new();
        let mut units = 0;
        for waiter in self.waiters.unslotted(now).take(MAX_CALLERS) {
            units += waiter.costs.iter().copied().max().unwrap_or(0);
            if units > MAX_UNITS && !tickets.is_empty() {
                break;
            }
            tickets.push(waiter.ticket);
            // Further away than the horizon the queue decides by itself: only then do neighbours differ in nothing.
            let max_wait = waiter.deadline(now).map(|deadline| deadline.saturating_duration_since(now));
            let max_wait = max_wait.filter(|&wait| wait < queue.process.horizon);
            match runs.last_mut() {
                Some(run) if run.charges == waiter.costs && run.max_wait == max_wait => run.callers += 1,
                _ => {
                    let mut run = Run::new(1, Arc::clone(&waiter.costs));
                    run.max_wait = max_wait;
                    runs.push(run);
                }
            }
        }
        let mut ask = Ask::new(Arc::clone(&queue.logs), runs);
        (ask.ahead, ask.back) = (queue.ahead(now), self.take_surplus(queue));
        let large =
            queue.logs.len() > 1 || ask.runs.first().is_some_and(|run| run.charges.iter().any(|&units| units > 1));
        ask.insist = large && tickets.first().is_some_and(|&first| self.put_off == Some(first));
        self.message(queue, tickets, ask, now)
    }

    fn message(&self, queue: &Queue, tickets: Vec<u64>, ask: Ask, now: Instant) -> InFlight {
        let id = queue.process.next_message(Arc::clone(&queue.stream)).after(self.previous);
        let ask = Ask { horizon: queue.horizon(), counted: self.counted.clone(), ..ask };
        InFlight { message: queue.message(id, ask, now), tickets }
    }

    /// Takes the store's answer to the message under way.
    pub(super) fn receive(&mut self, reply: Reply, queue: &Queue, now: Instant, exchange: Exchange) {
        match reply {
            Err(error) if !error.wants_another_name() => {
                let source = error.clone();
                self.silence.get_or_insert_with(|| Silence::new(now)).failed(error, now);
                // Who wants a slot now or never does not wait for another try.
                let unavailable = Error::StoreUnavailable { upstream: Arc::clone(&queue.upstream), source };
                let at_once = |waiter: &Waiter| matches!(waiter.wish, Wish::AtOnce { .. });
                self.waiters.drop_hopeless(now, |waiter, _| at_once(waiter).then(|| unavailable.clone()));
            }
            reply => {
                let sent = self.unanswered.take();
                self.silence = None;
                let Some(sent) = sent else { return };
                let Ok(grant) = reply else {
                    self.disown(sent.message.id.sender, queue);
                    return;
                };
                self.previous = if grant.remembered { sent.message.id.number } else { 0 };
                if let Some(ask) = sent.ask() {
                    self.answered(&grant, &sent, ask, queue, now, exchange);
                }
            }
        }
    }

    fn answered(&mut self, grant: &Grant, sent: &InFlight, ask: &Ask, queue: &Queue, now: Instant, exchange: Exchange) {
        self.counted.clone_from(&grant.counted);
        if ask.runs.is_empty() {
            // There is room now that the last answer knew nothing of.
            (self.on_record, self.ask_at, self.next_slot) = (false, None, None);
            if std::mem::take(&mut self.unknown) {
                self.wait_out_hold(queue, now);
            }
        } else {
            self.granted(grant, sent, ask, queue, now, exchange);
            self.hand_out(queue, now);
        }
    }

    fn granted(&mut self, grant: &Grant, sent: &InFlight, ask: &Ask, queue: &Queue, now: Instant, exchange: Exchange) {
        let Some(placing) = queue.time.exchanged(exchange, grant.now, queue.fine()) else {
            self.leapt(grant, sent, ask, queue, now);
            return;
        };
        let from_now = |stamp| placing.place(stamp).saturating_duration_since(now);
        let (mut slots, mut refused, sender) = (Vec::new(), Vec::new(), sent.message.id.sender);
        let tickets = &sent.tickets;
        for (&ticket, (costs, answer)) in tickets.iter().zip(answers(ask, grant)) {
            if answer.verdict == Verdict::Granted {
                let (stamp, costs, sender) = (answer.start, Arc::clone(costs), sender);
                slots.push(Slot { stamp, start: placing.place(stamp), costs, excess: placing.excess, sender });
            } else if answer.verdict == Verdict::Refused {
                refused.push((ticket, from_now(answer.start)));
            }
        }
        if let Some((until, cause)) = grant.paused {
            self.withhold(now + from_now(until), cause, queue, now);
        }
        // Held by this process, and the store does not know yet.
        let early: Vec<_> = slots.extract_if(.., |slot| self.is_held_back(slot, queue, now)).collect();
        let withheld = !early.is_empty();
        self.surplus.extend(early);
        let units = slots.iter().map(Slot::units).sum();
        let unwanted = if self.closed { slots } else { self.waiters.give(slots, now) };
        // What is too late for those it was meant for would be granted again at once.
        self.pause_until = (!unwanted.is_empty()).then(|| now + UNUSED_PAUSE);
        self.surplus.extend(unwanted);
        if !refused.is_empty() {
            // What is free now and yet refused was left for other processes: they come first.
            let turn = queue.rest(Duration::ZERO, grant, now);
            let when = |retry_after: Duration| if retry_after.is_zero() { turn } else { retry_after };
            let refused = refused.into_iter().map(|(ticket, at)| (ticket, queue.throttled(when(at)))).collect();
            self.waiters.refuse(refused, now);
        }
        if !self.waiters.is_empty() {
            let until = grant.next.max(grant.answers.last().map_or(grant.now, |answer| answer.start));
            let wait = from_now(until);
            tracing::debug!(upstream = &*queue.upstream, callers = self.waiters.len(), ?wait, "waiting");
        }
        self.on_record = grant.answered(ask.callers()) < ask.callers();
        let before_waiting = grant.answers(ask.callers()).take_while(|answer| answer.verdict != Verdict::Waits);
        let before_waiting: u32 = before_waiting.map(|answer| answer.callers).sum();
        self.put_off = tickets.get(before_waiting as usize).copied();
        (self.ask_at, self.next_slot, self.rest_until) = (None, None, None);
        if grant.contenders > 0 && units > 0 {
            self.rest_until = Some(now + queue.rest_after(units, grant.contenders, now));
            self.ask_at = self.rest_until;
        }
        if self.on_record {
            let next = from_now(grant.next);
            self.next_slot = Some(now + next);
            self.ask_at = Some(now + queue.rest(next, grant, now));
            self.refuse_late(queue, now);
        }
        self.unknown = withheld;
        if withheld {
            self.wait_out_hold(queue, now);
        }
    }

    /// The store's clock has leapt ahead: what it granted by that goes back, and the next ask tells it.
    fn leapt(&mut self, grant: &Grant, sent: &InFlight, ask: &Ask, queue: &Queue, now: Instant) {
        let sender = sent.message.id.sender;
        tracing::debug!(upstream = &*queue.upstream, "store clock leapt ahead");
        for (costs, answer) in answers(ask, grant).filter(|(_, answer)| answer.verdict == Verdict::Granted) {
            let (stamp, costs, sender) = (answer.start, Arc::clone(costs), sender);
            self.surplus.push(Slot { stamp, start: now, costs, excess: Duration::ZERO, sender });
        }
        self.on_record = !ask.runs.is_empty();
        (self.ask_at, self.next_slot, self.put_off) = (None, None, None);
        self.pause_until = Some(now + UNUSED_PAUSE);
    }

    /// The store does not know of the hold: there is nothing to ask for before its end.
    fn wait_out_hold(&mut self, queue: &Queue, now: Instant) {
        let Some((until, _)) = self.held.filter(|(until, _)| *until > now) else { return };
        self.next_slot = self.next_slot.max(Some(until));
        self.ask_at = self.ask_at.max(Some(until));
        self.refuse_late(queue, now);
    }

    /// Refuses every caller for whom even the earliest possible slot is too late.
    fn refuse_late(&mut self, queue: &Queue, now: Instant) {
        if !self.waiters.has_hurried() {
            return;
        }
        let (next_slot, ask_at) = (self.next_slot, self.ask_at);
        self.waiters.drop_hopeless(now, |waiter, ahead| {
            let deadline = waiter.deadline(now)?;
            check_time(next_slot, ask_at, deadline, ahead, queue, now).err()
        });
    }

    /// Whether a caller behind `ahead` units may still be served by its deadline, or when it could be.
    pub(super) fn check_time(&self, deadline: Instant, ahead: u64, queue: &Queue, now: Instant) -> Result<(), Error> {
        check_time(self.next_slot, self.ask_at, deadline, ahead, queue, now)
    }

    /// Why a caller whose time is up has got nothing.
    pub(super) fn why_nothing(&self, ticket: u64, queue: &Queue, now: Instant) -> Error {
        let ahead = self.waiters.units_before(ticket);
        match &self.silence {
            Some(silence) if silence.has_failed() || self.next_slot.is_none() => {
                Error::StoreUnavailable { upstream: Arc::clone(&queue.upstream), source: silence.error() }
            }
            _ => queue.throttled(expected(self.next_slot, self.ask_at, ahead, queue, now)),
        }
    }
}

/// The callers of an ask that have an answer, with what each takes of each log, in their order.
fn answers<'a>(ask: &'a Ask, grant: &'a Grant) -> impl Iterator<Item = (&'a Arc<[u32]>, Answer)> {
    let costs = ask.runs.iter().flat_map(|run| std::iter::repeat_n(&run.charges, run.callers as usize));
    let answers = grant.answers(ask.callers()).flat_map(|answer| std::iter::repeat_n(answer, answer.callers as usize));
    costs.zip(answers)
}

fn check_time(
    next_slot: Option<Instant>,
    ask_at: Option<Instant>,
    deadline: Instant,
    ahead: u64,
    queue: &Queue,
    now: Instant,
) -> Result<(), Error> {
    let Some(next_slot_at) = next_slot else {
        return Ok(());
    };
    // Every whole quota ahead takes at least one more span.
    let behind = queue.terms().map(|term| micros(ahead / u64::from(term.quota), term.span)).max().unwrap_or_default();
    let earliest = (next_slot_at + behind).max(ask_at.unwrap_or(now));
    if earliest <= deadline { Ok(()) } else { Err(queue.throttled(expected(next_slot, ask_at, ahead, queue, now))) }
}

/// How long until a caller behind `ahead` units can be expected to go: each has its own time, at the rate of the limits.
fn expected(next_slot: Option<Instant>, ask_at: Option<Instant>, ahead: u64, queue: &Queue, now: Instant) -> Duration {
    let at_rate = |term: &Term| micros(ahead, term.span) / term.quota;
    let behind = queue.terms().map(at_rate).max().unwrap_or_default();
    let next = next_slot.unwrap_or(now).max(ask_at.unwrap_or(now));
    next.saturating_duration_since(now) + behind
}

pub(super) fn micros(times: u64, span: i64) -> Duration {
    Duration::from_micros(span.unsigned_abs().saturating_mul(times))
}
