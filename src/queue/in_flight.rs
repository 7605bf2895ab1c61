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
use crate::ledger::{Answer, Ask, Grant, HandBack, MAX_CALLERS, MAX_UNITS, Run, Slots};

/// How long a queue rests that cannot use what it was granted: asked for again at once it would be granted again.
const UNUSED_PAUSE: Duration = Duration::from_millis(5);

/// One of the queue's numbered stream.
#[derive(Debug)]
pub(super) enum Message {
    /// With the tickets of the callers asked for.
    Ask(Ask, Vec<u64>),
    HandBack(HandBack),
}

impl Message {
    /// The same to be sent again: by then it may be later than what it said that log time was at the latest.
    fn again(self: &Arc<Self>) -> Arc<Self> {
        match &**self {
            Self::Ask(ask, tickets) if ask.latest.is_some() => {
                Arc::new(Self::Ask(Ask { latest: None, ..ask.clone() }, tickets.clone()))
            }
            _ => Arc::clone(self),
        }
    }

    /// The name that it is sent under.
    const fn sender(&self) -> u64 {
        match self {
            Self::Ask(ask, _) => ask.sender,
            Self::HandBack(hand_back) => hand_back.sender,
        }
    }

    /// Its number, where the store remembers it by this answer: what changes nothing need not be remembered.
    fn remembered(&self, grant: Option<&Grant>) -> Option<u64> {
        match self {
            Self::Ask(ask, tickets) => {
                let acted = !ask.back.is_empty() || grant.is_some_and(|grant| grant.leaves_traces(tickets.len()));
                acted.then_some(ask.number)
            }
            Self::HandBack(hand_back) => Some(hand_back.number),
        }
    }

    /// Whether slots are on their way back with it.
    pub(super) fn hands_back(&self) -> bool {
        match self {
            Self::Ask(ask, _) => !ask.back.is_empty(),
            Self::HandBack(_) => true,
        }
    }
}

/// The store's answer to a message.
pub(super) type Reply = Result<Option<Grant>, StoreError>;

impl Engine {
    /// The message to send now, and where there is none, when there may be.
    pub(super) fn next_message(&mut self, queue: &Queue, now: Instant) -> (Option<Arc<Message>>, Option<Instant>) {
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
            self.hand_back(queue)
        } else if self.waiters.has_unslotted() {
            if let Some(at) = self.ask_at.filter(|&at| at > now && self.surplus.is_empty()) {
                return (None, Some(at));
            }
            self.ask(queue, now)
        } else if self.on_record {
            // Nobody waits any more: an empty ask takes the queue off the record, and its claim with it.
            Message::Ask(self.new_ask(queue, Vec::new(), now), Vec::new())
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
                Some(last) if last.start == slot.stamp && last.costs == slot.costs => last.count += 1,
                _ => slots.push(Slots::new(1, slot.stamp, slot.costs)),
            }
        }
        slots
    }

    fn hand_back(&mut self, queue: &Queue) -> Message {
        let slots = self.take_surplus(queue);
        let number = queue.process.next_number();
        let (home, logs) = (queue.home.clone(), Arc::clone(&queue.logs));
        let message = HandBack::new(home, queue.process.id(), number, logs, slots);
        Message::HandBack(HandBack { previous: self.previous, ..message })
    }

    fn ask(&mut self, queue: &Queue, now: Instant) -> Message {
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
                Some(run) if run.costs == waiter.costs && run.max_wait == max_wait => run.callers += 1,
                _ => {
                    let mut run = Run::new(1, Arc::clone(&waiter.costs));
                    run.max_wait = max_wait;
                    runs.push(run);
                }
            }
        }
        let mut ask = self.new_ask(queue, runs, now);
        (ask.ahead, ask.back) = (queue.ahead(now), self.take_surplus(queue));
        let large = queue.logs.len() > 1 || ask.runs.first().is_some_and(|run| run.costs.iter().any(|&cost| cost > 1));
        ask.insist = large && tickets.first().is_some_and(|&first| self.put_off == Some(first));
        Message::Ask(ask, tickets)
    }

    fn new_ask(&self, queue: &Queue, runs: Vec<Run>, now: Instant) -> Ask {
        let (sender, number) = (queue.process.id(), queue.process.next_number());
        Ask { previous: self.previous, horizon: queue.horizon(), ..queue.ask_of(sender, number, runs, now) }
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
                let message = self.unanswered.take();
                self.silence = None;
                match (&reply, &message) {
                    (Err(_), Some(message)) => self.disown(message.sender(), queue),
                    (Ok(grant), Some(message)) => self.previous = message.remembered(grant.as_ref()).unwrap_or(0),
                    _ => {}
                }
                if matches!(message.as_deref(), Some(Message::HandBack(_))) {
                    // There is room now that the last answer knew nothing of.
                    (self.ask_at, self.next_slot) = (None, None);
                    if std::mem::take(&mut self.unknown) {
                        self.wait_out_hold(queue, now);
                    }
                }
                if let (Ok(Some(grant)), Some(Message::Ask(ask, tickets))) = (reply, message.as_deref()) {
                    self.granted(&grant, ask, tickets, queue, now, exchange);
                    self.hand_out(queue, now);
                }
            }
        }
    }

    fn granted(&mut self, grant: &Grant, ask: &Ask, tickets: &[u64], queue: &Queue, now: Instant, exchange: Exchange) {
        let Some(placing) = queue.time.exchanged(exchange, grant.now, queue.fine()) else {
            self.leapt(grant, ask, queue, now);
            return;
        };
        let from_now = |stamp| placing.place(stamp).saturating_duration_since(now);
        let (mut slots, mut refused) = (Vec::new(), Vec::new());
        for (&ticket, (costs, answer)) in tickets.iter().zip(answers(ask, grant)) {
            if answer.granted {
                let (stamp, costs, sender) = (answer.start, Arc::clone(costs), ask.sender);
                slots.push(Slot { stamp, start: placing.place(stamp), costs, excess: placing.excess, sender });
            } else if !answer.waits {
                refused.push((ticket, from_now(answer.start)));
            }
        }
        if let Some((until, cause)) = grant.held {
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
            let turn = queue.rest(Duration::ZERO, grant.contenders, now);
            let when = |retry_after: Duration| if retry_after.is_zero() { turn } else { retry_after };
            let refused = refused.into_iter().map(|(ticket, at)| (ticket, queue.throttled(when(at)))).collect();
            self.waiters.refuse(refused, now);
        }
        if !self.waiters.is_empty() {
            let until = grant.next.max(grant.answers.last().map_or(grant.now, |answer| answer.start));
            let wait = from_now(until);
            tracing::debug!(upstream = &*queue.upstream, callers = self.waiters.len(), ?wait, "waiting");
        }
        self.on_record = (grant.answered() as usize) < tickets.len();
        self.put_off = tickets.get(grant.before_waiting() as usize).copied();
        (self.ask_at, self.next_slot, self.rest_until) = (None, None, None);
        if grant.contenders > 0 && units > 0 {
            self.rest_until = Some(now + queue.rest_after(units, grant.contenders, now));
            self.ask_at = self.rest_until;
        }
        if self.on_record {
            let next = from_now(grant.next);
            self.next_slot = Some(now + next);
            self.ask_at = Some(now + queue.rest(next, grant.contenders, now));
            self.refuse_late(queue, now);
        }
        self.unknown = withheld;
        if withheld {
            self.wait_out_hold(queue, now);
        }
    }

    /// The store's clock has leapt ahead: what it granted by that goes back, and the next ask tells it.
    fn leapt(&mut self, grant: &Grant, ask: &Ask, queue: &Queue, now: Instant) {
        tracing::debug!(upstream = &*queue.upstream, "store clock leapt ahead");
        for (costs, answer) in answers(ask, grant).filter(|(_, answer)| answer.granted) {
            let (stamp, costs, sender) = (answer.start, Arc::clone(costs), ask.sender);
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
    let costs = ask.runs.iter().flat_map(|run| std::iter::repeat_n(&run.costs, run.callers as usize));
    let answers = grant.answers.iter().flat_map(|answer| std::iter::repeat_n(*answer, answer.callers as usize));
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
