//! What a queue makes of the store's answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Message, Reply};
use crate::config::costs::Costs;
use crate::error::StoreError;
use crate::ledger::{Answer, Ask, Grant, Priority, Run, Stamp, Verdict, micros};
use crate::queue::apart;
use crate::queue::bounds::{Exchange, Placing};
use crate::queue::engine::Engine;
use crate::queue::events::{Effect, Effects, tell};
use crate::queue::glance::WaitsFor;
use crate::queue::log_time::{LogTime, Outlook};
use crate::queue::pacing::MAX_SILENCE;
use crate::queue::put_off::PutOff;
use crate::queue::resend::Resend;
use crate::queue::settings::Settings;
use crate::queue::waiters::{Slot, Waiter, Wish, of_first};

/// How long a queue rests that cannot use what it was granted: asked for again at once it would be granted again.
const UNUSED_PAUSE: Duration = Duration::from_millis(5);

/// For how long after a leap of the store's clock slots may stand far ahead that others have not handed back yet.
const LEAP_MEMORY: Duration = Duration::from_secs(2);

/// Where a first caller may start so much later than all counts that is booked, a queue does not believe it for longer than that counts,
/// nor for less than a second.
const FAR: Duration = Duration::from_secs(11);
const LEAST_BELIEVED: Duration = Duration::from_secs(1);

/// Who borrows seats asks for no slot that is further ahead: none is granted.
const NEAR: Duration = Duration::from_millis(20);

/// An answer, and what the process knows by it.
#[derive(Debug)]
pub(in crate::queue) struct Answered {
    reply: Reply,
    /// Where its stamps lie. `None`: the store's clock has leapt ahead.
    placing: Option<Placing>,
    outlook: Outlook,
    /// How long it took.
    took: Duration,
}

impl Answered {
    /// The answer of an exchange.
    pub(in crate::queue) fn new(reply: Reply, exchange: Exchange, time: &LogTime, settings: &Settings) -> Self {
        let stamp = reply.as_ref().ok().map(|grant| grant.now);
        let placing = stamp.and_then(|stamp| time.exchanged(exchange, stamp, settings.fine()));
        let took = exchange.arrived.saturating_duration_since(exchange.sent);
        Self { reply, placing, took, outlook: time.outlook(settings.stale_after, exchange.arrived) }
    }
}

/// When an answer came, and how it is to be read.
#[derive(Clone, Copy, Debug)]
struct View {
    placing: Placing,
    outlook: Outlook,
    now: Instant,
}

impl Engine {
    /// Takes the store's answer to the message under way.
    pub(in crate::queue) fn receive(&mut self, answered: Answered, now: Instant, effects: &mut Effects) {
        self.under_way = false;
        // None where it came so late that it is of no use any more.
        let Some(message) = self.unanswered.take() else { return };
        let grant = match answered.reply {
            Err(error) if !error.wants_another_name() => {
                self.unanswered = Some(message);
                self.fail(error, now, effects);
                return;
            }
            Err(error) => {
                self.previous = 0;
                if message.sender() == self.sender {
                    self.seats_lent(0);
                } else {
                    self.seats_lost();
                }
                self.owe_again(&message, now);
                // A store that says so again, of a new name, lies: it is asked again after a pause.
                if std::mem::replace(&mut self.renamed, true) {
                    self.fail(error, now, effects);
                } else {
                    self.resend = None;
                }
                effects.extend((message.sender() == self.sender).then_some(Effect::Rename(self.sender)));
                return;
            }
            Ok(grant) => grant,
        };
        let sent = self.resend.as_ref().map_or(now, |resend| resend.since);
        let is_repeated = self.resend.as_ref().is_some_and(|resend| resend.is_repeated);
        (self.resend, self.renamed) = (None, false);
        let knows_nothing_of_outage = self.knows_nothing_of_outage(sent);
        self.found(answered.took, effects);
        // What was booked under another name is nobody's.
        if message.sender() != self.sender {
            return self.seats_lost();
        }
        let number = message.said.id.number;
        self.previous = if grant.remembered { number } else { 0 };
        self.counted.clone_from(&grant.counted);
        let Some(ask) = message.ask() else { return };
        self.memory.answered(answered.outlook.round_trip, now);
        if let Some((ended_at, _)) = message.tells {
            self.has_said(ended_at, !ask.remembered.apart.is_empty(), grant.lost);
        }
        // Nothing was lost where it was told itself of what went without the store.
        let told_itself = message.tells.is_some_and(|(_, adds)| adds);
        effects.extend((grant.lost && !told_itself).then_some(Effect::LostData));
        if grant.remembered {
            let lease = ask.seats.as_ref().map_or(Duration::ZERO, |seats| seats.lease);
            self.memory.is_remembered(number, grant.now, lease, sent);
        }
        if let Some(again) = &ask.again {
            self.memory.is_told(again, number);
        }
        if let Some(&(loss, survived)) = grant.loss.as_deref() {
            self.memory.hear(loss, survived, number);
            effects.push(Effect::ToldOfLoss(loss));
        }
        if let Some(known) = message.said.known.filter(|_| !ask.debts.is_empty()) {
            // The calls of which it told started earlier, and the store entered that later. Where it counts for long the store takes `known` for
            // the beginning of the log; else the answer is when it was entered, unless the message came more than once.
            let since = if is_repeated || self.memory.counts_for_long() { known } else { grant.now };
            self.memory.granted(since, 1, &ask.debts, number);
        }
        let granted = granted_to(ask, &grant);
        if let Some(seats) = &mut self.seats {
            seats.answered(&grant, (granted, ask.callers()), self.random.f64(), now);
        }
        self.seats_lent(granted);
        match answered.placing {
            _ if ask.runs.is_empty() => {
                self.on_record = false;
                // Another may look whether a pause holds, as soon as who was to look has handed that back.
                let may_look = ask.back.iter().any(|slots| slots.looks);
                let paused = self.lasting_pause(now).map(|(until, _)| until).filter(|_| !may_look);
                if paused.is_none() || !ask.back.is_empty() {
                    // There is room now that the last answer knew nothing of.
                    (self.ask_at, self.next_slot, self.aside) = (paused, paused, None);
                }
                if std::mem::take(&mut self.pause_unknown) {
                    self.wait_out_pause(now, effects);
                }
            }
            // What others have sent by themselves meanwhile the store does not know yet.
            Some(_) if knows_nothing_of_outage => self.decline(&grant, message.sender(), ask, now),
            Some(placing) => {
                let view = View { placing, outlook: answered.outlook, now };
                self.granted(&grant, &message, ask, &view, effects);
                self.hand_out(now, effects);
            }
            None => self.leapt(&grant, message.sender(), ask, now),
        }
        if std::mem::take(&mut self.is_reset) {
            self.ask_anew();
        }
    }

    /// The message was not answered: it is sent again.
    fn fail(&mut self, error: StoreError, now: Instant, effects: &mut Effects) {
        let source = error.clone();
        let seed = self.random.u64(..);
        let resend = self.resend.get_or_insert_with(|| Resend::new(now));
        resend.failed(error, now, seed);
        if resend.is_unheard(now) {
            return;
        }
        // Who wants a slot now or never does not wait for another try.
        let unavailable = self.unavailable(&source, now);
        let at_once = |waiter: &Waiter| matches!(waiter.wish, Wish::AtOnce { .. });
        tell(effects, self.waiters.drop_hopeless(now, |waiter, _| at_once(waiter).then(|| unavailable.clone())));
        self.lose(source, now, effects);
    }

    fn granted(&mut self, grant: &Grant, message: &Message, ask: &Ask, view: &View, effects: &mut Effects) {
        let (sender, tickets, View { placing, outlook, now }) = (message.sender(), &message.tickets, *view);
        let from_now = |stamp| placing.place(stamp).saturating_duration_since(now);
        if let Some((log, term)) =
            grant.other_term.as_deref().and_then(|(place, term)| Some((ask.logs.get(*place)?, *term)))
        {
            effects.push(Effect::OtherLimit(Arc::clone(&log.unit), term));
        }
        for (charges, answer) in answers(ask, grant).filter(|(_, answer)| answer.verdict.is_granted()) {
            self.memory.granted(answer.start, answer.callers, charges, message.said.id.number);
        }
        let (mut slots, mut refused) = (Vec::new(), Vec::new());
        let were_elsewhere = self.were_elsewhere(ask, grant);
        for (&ticket, (costs, answer)) in tickets.iter().zip(one_by_one(ask, grant)) {
            if answer.verdict.is_granted() {
                let (stamp, costs, looks) = (answer.start, Costs::of(costs), answer.verdict == Verdict::Looks);
                let (start, excess, waited_for) = (placing.place(stamp), placing.excess, WaitsFor::Store);
                slots.push(Slot { stamp, start, costs, excess, sender, looks, waited_for });
            } else if answer.verdict == Verdict::Refused && grant.loss.is_none() && !were_elsewhere {
                refused.push((ticket, from_now(answer.start)));
            }
        }
        // Paused in this process, and the store does not know yet.
        let early: Vec<_> = slots.extract_if(.., |slot| self.is_before_end_of_pause(slot, now)).collect();
        let pause_unknown = !early.is_empty();
        self.put_back(early, now);
        let granted = slots.iter().map(Slot::units).sum::<u64>();
        let unwanted = if self.closed { slots } else { self.waiters.give(slots, now) };
        // Slots of an earlier answer may be among them.
        let units = granted.saturating_sub(unwanted.iter().map(Slot::units).sum());
        // What is too late for those it was meant for would be granted again at once.
        let is_unused = !unwanted.is_empty() && !self.closed;
        self.silent_until = (is_unused || were_elsewhere).then(|| now + UNUSED_PAUSE);
        self.put_back(unwanted, now);
        let waits = grant.answered(ask.callers()) < ask.callers();
        let before_waiting = grant.answers(ask.callers()).take_while(|answer| answer.verdict != Verdict::Waits);
        let before_waiting: u32 = before_waiting.map(|answer| answer.callers).sum();
        // Of others the store counts those who go no later than these.
        self.rests_for = priority_at(ask, if waits { before_waiting } else { 0 });
        let (had, last) = granted_of(self.rests_for, ask, grant, &placing);
        let last = last.filter(|_| units > 0);
        let next = waits.then(|| now + from_now(grant.next));
        self.note_turn((had.min(units), last), next, (ask, grant), &outlook);
        // Whoever looks whether a pause still holds has its slot by now.
        if let Some((until, reason)) = grant.paused {
            self.begin_pause(now + from_now(until), reason, now, effects);
        }
        self.slower = grant.slower.as_deref().map(|slower| (now, *slower));
        if !refused.is_empty() {
            // What is free now and yet refused was left for other processes: they come first.
            let turn = self.rest(Duration::ZERO, grant, &outlook, now);
            let when = |retry_after: Duration| if retry_after.is_zero() { turn } else { retry_after };
            let refused = refused.into_iter().map(|(ticket, at)| (ticket, self.throttled(when(at), now))).collect();
            tell(effects, self.waiters.refuse(refused, now));
        }
        if !self.waiters.is_empty() {
            let until = grant.next.max(grant.answers.last().map_or(grant.now, |answer| answer.start));
            let wait = from_now(until);
            tracing::debug!(upstream = &*self.settings.upstream, callers = self.waiters.len(), ?wait, "waiting");
        }
        self.on_record = waits || grant.counted.iter().any(|counted| *counted != Stamp::NEVER);
        self.put_off = tickets.get(before_waiting as usize).and_then(|&ticket| {
            let (before, granted) = (self.put_off.as_ref(), granted_to(ask, grant));
            let put_off = PutOff::new((ticket, before), put_off(ask, grant), granted, &self.settings, now)?;
            let largest = |place: usize| Some(self.settings.size(&ask.runs.get(place)?.charges));
            let next = grant.next_smaller.and_then(|(next, place)| Some((now + from_now(next), largest(place)?)));
            Some(put_off.next_smaller(next))
        });
        (self.ask_at, self.next_slot, self.rest_until, self.near_at) = (None, None, None, None);
        if grant.contenders > 0 && units > 0 {
            self.rest_until = Some(now + self.rest_after((units, last), (ask, grant), &outlook, now));
            self.ask_at = self.rest_until;
        }
        self.leave_at = (!waits).then(|| self.on_record_until(now));
        // Nobody knows when a seat is free: it may be at once, and without the store.
        let is_for_seat =
            grant.seats.is_some_and(|told| !told.again.is_zero() && grant.next <= grant.now.plus(micros(told.again)));
        if waits && is_for_seat {
            self.next_slot = Some(now);
        } else if waits && !were_elsewhere {
            let next = from_now(grant.next);
            self.next_slot = self.lasting_pause(now).map(|(until, _)| until).max(Some(now + next));
            // Who takes less than the first may go before it.
            let soonest = grant.next_smaller.map_or(next, |(smaller, _)| next.min(from_now(smaller)));
            self.ask_at = Some(now + self.rest_of_who_waits((next, soonest), last, (ask, grant), &outlook, now));
            self.refuse_late(now, effects);
            self.look_past_first(now);
        }
        if message.leaves_out && self.aside.is_none() {
            // It is time for those who were left out.
            (self.ask_at, self.next_slot) = (None, None);
        } else if !waits {
            self.take_back_aside();
            self.ask_for_hasty(now);
        }
        // Who came meanwhile with a higher priority, or takes less.
        self.ask_for_who_goes_before(now);
        if message.leaves_out {
            self.refuse_late(now, effects);
        }
        self.ask_for_smaller(now);
        self.pause_unknown = pause_unknown;
        if pause_unknown {
            self.wait_out_pause(now, effects);
        }
    }

    /// How long this queue rests whose first caller was put off, and may go `next` from now at the earliest, and `soonest` one that takes less; of
    /// those that were granted a start the last goes at `last`.
    fn rest_of_who_waits(
        &mut self,
        (next, soonest): (Duration, Duration),
        last: Option<Instant>,
        (ask, grant): (&Ask, &Grant),
        outlook: &Outlook,
        now: Instant,
    ) -> Duration {
        // What others booked before they knew that the clock had leapt is handed back before long.
        let leapt = self.leapt_at.is_some_and(|at| now < at + LEAP_MEMORY);
        let next = if leapt { next.min(self.settings.horizon) } else { next };
        let soonest = soonest.min(next);
        let rest = self.rest(soonest, grant, outlook, now);
        let rest = self.rest_of_what_is_left(rest, last, outlook, now);
        // Until its slot is near a seat is of no use.
        let near = soonest.saturating_sub(if ask.ahead > NEAR { ask.ahead } else { NEAR }).min(MAX_SILENCE);
        let rest = if self.borrowed.is_some() { rest.max(near) } else { rest };
        // Much later than all counts that anybody booked: by a clock that had leapt, which goes back, or where a rate was lowered.
        let counts = apart::runs_out_after(&self.settings.logs, self.settings.horizon).max(LEAST_BELIEVED);
        let rest = if next > counts + FAR && grant.paused.is_none() { rest.min(counts) } else { rest };
        let rest = self.rest_beside_unused(rest, grant, now);
        // Who claims its turn is back before the claim lapses, a horizon after its slot.
        if ask.insist { rest.min(next + self.settings.horizon / 2) } else { rest }
    }

    /// Whether an ask named boundaries of another time, so that the next is worth it at once. A store whose clock goes to and fro is not asked so
    /// all the time.
    fn were_elsewhere(&mut self, ask: &Ask, grant: &Grant) -> bool {
        let were_elsewhere = self.settings.calendars.were_elsewhere(&ask.logs, grant);
        self.elsewhere = if were_elsewhere { self.elsewhere.saturating_add(1) } else { 0 };
        were_elsewhere && self.elsewhere <= 2
    }

    /// The store's clock has leapt ahead: what it granted by that goes back, and the next ask tells it.
    fn leapt(&mut self, grant: &Grant, sender: u64, ask: &Ask, now: Instant) {
        tracing::debug!(upstream = &*self.settings.upstream, "store clock leapt ahead");
        self.decline(grant, sender, ask, now);
        self.leapt_at = Some(now);
    }

    /// What was granted goes back, and callers ask again.
    fn decline(&mut self, grant: &Grant, sender: u64, ask: &Ask, now: Instant) {
        for (costs, answer) in one_by_one(ask, grant).filter(|(_, answer)| answer.verdict.is_granted()) {
            let (stamp, costs) = (answer.start, Costs::of(costs));
            let (excess, waited_for) = (Duration::ZERO, WaitsFor::Store);
            let looks = answer.verdict == Verdict::Looks;
            let slot = Slot { stamp, start: now, costs, excess, sender, looks, waited_for };
            self.put_back([slot], now);
        }
        (self.on_record, self.leave_at) = (!ask.runs.is_empty(), None);
        (self.ask_at, self.next_slot, self.put_off, self.aside) = (None, None, None, None);
        self.silent_until = Some(now + UNUSED_PAUSE);
    }

    /// The store does not know of the pause: there is nothing to ask for before its end.
    fn wait_out_pause(&mut self, now: Instant, effects: &mut Effects) {
        let Some((until, _)) = self.lasting_pause(now) else { return };
        self.next_slot = self.next_slot.max(Some(until));
        self.ask_at = self.ask_at.max(Some(until));
        self.refuse_late(now, effects);
    }
}

/// The priority of the caller of an ask behind so many others.
fn priority_at(ask: &Ask, mut behind: u32) -> Priority {
    let has_it = |run: &&Run| {
        let has = behind < run.callers;
        behind = behind.saturating_sub(run.callers);
        has
    };
    ask.runs.iter().find(has_it).map_or(Priority::High, |run| run.priority)
}

/// Units that callers of a priority were granted, and when the last of them starts. Nothing where no others wait: there are no turns.
fn granted_of(priority: Priority, ask: &Ask, grant: &Grant, placing: &Placing) -> (u64, Option<Instant>) {
    if grant.contenders == 0 {
        return (0, None);
    }
    let priorities = ask.runs.iter().flat_map(|run| std::iter::repeat_n(run.priority, run.callers as usize));
    let granted = priorities
        .zip(one_by_one(ask, grant))
        .filter(|(of, (_, answer))| *of == priority && answer.verdict.is_granted());
    granted.fold((0, None), |(units, last), (_, (costs, answer))| {
        (units + of_first(costs), last.max(Some(placing.place(answer.start))))
    })
}

/// How many callers of an ask were granted a start.
fn granted_to(ask: &Ask, grant: &Grant) -> u32 {
    grant.answers(ask.callers()).filter(|answer| answer.verdict.is_granted()).map(|answer| answer.callers).sum()
}

/// The answers to the callers of an ask, in their order, with what each of so many takes of each log.
fn answers<'a>(ask: &'a Ask, grant: &'a Grant) -> impl Iterator<Item = (&'a Arc<[u32]>, Answer)> {
    let mut runs = ask.runs.iter().map(|run| (&run.charges, run.callers)).peekable();
    let mut answers = grant.answers(ask.callers()).peekable();
    let next = move || {
        let ((charges, left), answer) = (runs.peek_mut()?, answers.peek_mut()?);
        let both = (*charges, Answer { callers: answer.callers.min(*left), ..*answer });
        *left -= both.1.callers;
        answer.callers -= both.1.callers;
        runs.next_if(|(_, left)| *left == 0);
        answers.next_if(|answer| answer.callers == 0);
        Some(both)
    };
    std::iter::from_fn(next).filter(|(_, answer)| answer.callers > 0)
}

/// What those take who were put off: the last may have no answer of their own.
fn put_off<'a>(ask: &'a Ask, grant: &'a Grant) -> impl Iterator<Item = &'a [u32]> {
    let waits = answers(ask, grant).filter(|(_, answer)| answer.verdict == Verdict::Waits);
    let mut answered: u32 = grant.answers(ask.callers()).map(|answer| answer.callers).sum();
    let rest = ask.runs.iter().filter(move |run| {
        let is_answered = run.callers <= answered;
        answered = answered.saturating_sub(run.callers);
        !is_answered
    });
    waits.map(|(charges, _)| charges).chain(rest.map(|run| &run.charges)).map(|charges| &**charges)
}

/// The same for each caller.
fn one_by_one<'a>(ask: &'a Ask, grant: &'a Grant) -> impl Iterator<Item = (&'a Arc<[u32]>, Answer)> {
    answers(ask, grant).flat_map(|answer| std::iter::repeat_n(answer, answer.1.callers as usize))
}

#[cfg(test)]
impl Answered {
    /// How many callers got a slot, of so many.
    pub(in crate::queue) fn granted(&self, asked_for: u32) -> usize {
        let granted = self.reply.iter().flat_map(|grant| grant.answers(asked_for));
        let granted = granted.filter(|answer| answer.verdict.is_granted());
        granted.map(|answer| answer.callers as usize).sum()
    }
}
