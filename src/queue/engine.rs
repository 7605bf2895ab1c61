//! What a queue knows, and what follows from everything that happens to it: events and the time go in, effects come out. It has
//! no clock, no task and no lock.

#[cfg(test)]
mod histories;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod story;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fastrand::Rng;
use tokio::time::Instant;

use super::aside::Aside;
use super::borrowed::Borrowed;
use super::cold::Untold;
use super::events::{Effect, Effects, Event, tell};
use super::head_start::HeadStart;
use super::in_flight::{Header, Message};
use super::memory::Memory;
use super::misses::Misses;
use super::put_off::{Newcomers, PutOff};
use super::resend::Resend;
use super::seats::Seats;
use super::settings::Settings;
use super::settling::Corrections;
use super::turns::Turns;
use super::waited_for::WaitedFor;
use super::waiters::{Slot, Waiter, Waiters};
use super::without_store::Lost;
use crate::error::Error;
use crate::ledger::{Priority, Reason, Slower, Stamp};

/// Everything that changes about a queue.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(super) struct Engine {
    pub(super) settings: Arc<Settings>,
    /// Spreads the times at which processes ask.
    pub(super) random: Rng,
    /// What the process is called.
    pub(super) sender: u64,
    pub(super) waiters: Waiters,
    /// Slots that nobody here wants.
    pub(super) surplus: Vec<Slot>,
    /// Where calls in flight are limited: each slot that is some caller's has one, and each call.
    pub(super) seats: Option<Seats>,
    /// Where the process shares them among several queues: those that this one has.
    pub(super) borrowed: Option<Borrowed>,
    /// Cold calls that the store does not know of.
    pub(super) untold: Option<Untold>,
    /// What calls used in truth, and the store does not know.
    pub(super) corrections: Option<Corrections>,
    /// When it was known last of a call that it used less than it was charged.
    pub(super) unused_at: Option<Instant>,
    /// The message that the store has not answered yet. It stays the same until then, however often it is sent.
    pub(super) unanswered: Option<Arc<Message>>,
    /// It has been sent, and may be answered yet.
    pub(super) under_way: bool,
    pub(super) resend: Option<Resend>,
    /// Whether the store cannot answer, where callers do not wait for it.
    pub(super) lost: Lost,
    /// It was taken for another process with the last message.
    pub(super) renamed: bool,
    pub(super) closed: bool,
    /// The number of the last message that the store is known to remember; zero where none is known.
    pub(super) previous: u64,
    /// What the store must hold.
    pub(super) memory: Memory,
    /// The store has lost data, or may have: this queue asks whether it has lost anything of its own.
    pub(super) is_in_doubt: bool,
    /// In which period the store counted this queue among those whose callers wait, for each scope.
    pub(super) counted: Vec<Stamp>,
    /// The store has callers of this queue on record as waiting.
    pub(super) on_record: bool,
    /// So often in a row an ask named the boundaries of another time.
    pub(super) elsewhere: u8,
    /// The store is not told before this that nobody waits any more, in case that callers come back.
    pub(super) leave_at: Option<Instant>,
    /// When the store's clock was last seen to leap ahead.
    pub(super) leapt_at: Option<Instant>,
    /// Nobody sends before this, and why.
    pub(super) paused: Option<(Instant, Reason)>,
    /// When that began.
    pub(super) paused_at: Option<Instant>,
    /// That calls come slower since refusals, as an answer told then.
    pub(super) slower: Option<(Instant, Slower)>,
    /// What counted was forgotten by hand, and the answer under way may not know it.
    pub(super) is_reset: bool,
    /// Somebody came since the pause was last looked at.
    pub(super) came: bool,
    /// The store granted slots inside of the pause: it does not know of it yet.
    pub(super) pause_unknown: bool,
    /// No ask before this.
    pub(super) ask_at: Option<Instant>,
    /// No message before this: the slots that were granted last are too late, or of another time, for whoever waits; or what was booked by
    /// limits of before is on its way back.
    pub(super) silent_until: Option<Instant>,
    /// This queue has had its share: no ask before this, so that others come first.
    pub(super) rest_until: Option<Instant>,
    /// Whether callers came back before `rest_until` the last time.
    pub(super) comes_back: Option<bool>,
    /// Nor before this, for those who cannot wait for so long: until then the next slot is not near.
    pub(super) near_at: Option<Instant>,
    /// Where slots come one by one: when it comes for the next.
    pub(super) turns: Turns,
    /// The first caller without a slot cannot start before this.
    pub(super) next_slot: Option<Instant>,
    /// What callers waited for.
    pub(super) waited_for: WaitedFor,
    /// It was said that callers wait for long.
    pub(super) is_warned: bool,
    /// For whose sake it is not asked before: callers of this priority, and of lower ones.
    pub(super) rests_for: Priority,
    /// The callers without a slot, when the store put them off.
    pub(super) put_off: Option<PutOff>,
    /// What those were told who are left out while it is asked for others.
    pub(super) aside: Option<Aside>,
    /// The last ask was to claim its turn.
    pub(super) insists: bool,
    pub(super) newcomers: Newcomers,
    /// How much sooner than the next slot starts it wakes.
    pub(super) head_start: HeadStart,
    pub(super) misses: Misses,
}

impl Engine {
    /// The engine of a queue in which nobody is, of the process called `sender`.
    pub(super) fn new(settings: Arc<Settings>, sender: u64, random: Rng) -> Self {
        let (seats, memory) = (settings.seats.clone().map(Seats::new), Memory::of(&settings.logs));
        Self {
            seats,
            borrowed: settings.borrows.then(Borrowed::default),
            random,
            sender,
            waiters: Waiters::new(settings.promote_low_after),
            settings,
            surplus: Vec::new(),
            untold: None,
            corrections: None,
            unused_at: None,
            unanswered: None,
            under_way: false,
            resend: None,
            lost: Lost::default(),
            renamed: false,
            closed: false,
            previous: 0,
            memory,
            is_in_doubt: false,
            counted: Vec::new(),
            elsewhere: 0,
            on_record: false,
            leave_at: None,
            leapt_at: None,
            paused: None,
            slower: None,
            paused_at: None,
            is_reset: false,
            came: false,
            pause_unknown: false,
            ask_at: None,
            silent_until: None,
            rest_until: None,
            comes_back: None,
            near_at: None,
            turns: Turns::none(),
            next_slot: None,
            waited_for: WaitedFor::default(),
            is_warned: false,
            rests_for: Priority::High,
            put_off: None,
            aside: None,
            insists: false,
            newcomers: Newcomers::default(),
            head_start: HeadStart::default(),
            misses: Misses::default(),
        }
    }

    /// Takes in what has happened.
    pub(super) fn handle(&mut self, event: Event, now: Instant, effects: &mut Effects) {
        self.age(now);
        match event {
            Event::Joined(waiter) => return self.join(waiter, now, effects),
            Event::Left(ticket) => _ = self.leave(ticket, now),
            Event::TimeUp(ticket) => {
                // Its slot may have started since the last turn.
                self.hand_out(now, effects);
                let error = self.why_nothing(ticket, now);
                let was_there = self.leave(ticket, now);
                effects.extend(was_there.then_some(Effect::Tell(ticket, Err(error))));
            }
            Event::Returned(slot) => {
                self.give(slot, now);
                self.hand_out(now, effects);
                self.seat_callers(now, effects);
                // The slot may start before the driver planned to look.
                effects.extend(self.has_work().then_some(Effect::Wake(now)));
                return;
            }
            Event::Missed(slot) => {
                self.head_start.missed(slot.start, now);
                self.note_miss(true, now);
                self.give(slot, now);
            }
            Event::LostSeats(lost) => {
                if let Some(seats) = &mut self.seats {
                    seats.lose(lost);
                }
            }
            Event::LeftSeats(seats) => {
                self.free_seats(seats, now);
                self.seat_callers(now, effects);
                if !self.seats.as_ref().is_some_and(Seats::has_free) {
                    return;
                }
            }
            Event::Seated => self.seated(),
            Event::Unseated(error, left) => self.unseated(&error, left, now, effects),
            // Under another name nothing goes back of what was booked under this one.
            Event::Distrusted(slot) if slot.sender != self.sender => self.free_seats(1, now),
            Event::Distrusted(slot) => self.put_back([slot], now),
            Event::Cold(start, charges) => {
                let is_news = self.untold.is_none();
                let untold = Untold::and(self.untold.take(), start, &charges, &self.settings.logs, now);
                effects.extend((is_news && !self.under_way).then_some(Effect::Wake(untold.by())));
                self.untold = Some(untold);
                return;
            }
            Event::Settled(correction) => {
                let by = self.settle(correction, now);
                effects.extend(by.filter(|_| !self.under_way).map(Effect::Wake));
                return;
            }
            Event::MadeRoom => self.look_for_room(now),
            Event::MadeRoomBeside(look) => {
                self.look_beside(look, now);
                effects.extend(self.ask_at.filter(|_| !self.under_way && self.has_work()).map(Effect::Wake));
                return;
            }
            Event::Reset => self.reset(),
            Event::Paused(until, reason) => self.pause(until, reason, now, effects),
            Event::Released(until) => self.release(until),
            Event::Answered(answered) => {
                self.receive(answered, now, effects);
                self.seat_callers(now, effects);
                self.refuse_seatless(now, effects);
                return self.note_wait(now);
            }
            Event::Lost => self.under_way = false,
            Event::Renamed(sender) => self.rename(sender, now),
            Event::Suspended => self.was_suspended(now),
            Event::LostData => self.is_in_doubt = !self.closed,
            Event::Knocked => return self.knock(now, effects),
            Event::Closed => self.close(now, effects),
        }
        // Where a message is under way, the turn after its answer sees to it.
        effects.extend((!self.under_way && self.has_work()).then_some(Effect::Wake(now)));
    }

    /// Hands out what has started, and says what to send and when to look again.
    ///
    /// Apart from [`Engine::handle`], so that what happens at the same time goes into one message.
    pub(super) fn turn(&mut self, now: Instant, header: impl FnOnce() -> Header, effects: &mut Effects) {
        if let Some(seats) = &mut self.seats {
            seats.pass(now);
        }
        self.age(now);
        if let Some(start) = self.hand_out(now, effects) {
            self.head_start.missed(start, now);
        }
        self.seat_callers(now, effects);
        self.expire(now, effects);
        self.note_wait(now);
        self.warn(now);
        let later = if self.under_way { None } else { self.send(now, header, effects) };
        if self.waiters.is_empty() {
            self.waited_for.forget();
        }
        if !self.has_work() {
            effects.push(Effect::Idle);
            return;
        }
        let starts_at = self.waiters.first_start().map(|start| self.head_start.wakes_at(start, now));
        let wakes = [self.next_expiry(now), later, starts_at, self.waiters.ages_at(), self.warn_at()];
        let wake = wakes.into_iter().flatten().min();
        effects.extend(wake.map(Effect::Wake));
    }

    /// Lets those of low priority go first who have waited for long enough.
    fn age(&mut self, now: Instant) {
        if let Some(unwanted) = self.waiters.age(now) {
            self.put_back(unwanted, now);
            self.ask_for_who_goes_before(now);
        }
    }

    /// Where the first caller without a slot goes before those for whom the queue rests, asks for it.
    pub(super) fn ask_for_who_goes_before(&mut self, now: Instant) {
        let first = self.waiters.unslotted(now).next().map(|waiter| self.waiters.rank(waiter));
        if let Some(rank) = first.filter(|rank| rank.place() < self.rests_for.place()) {
            self.ask_before_time(rank, now);
        }
    }

    /// Takes a caller in, or refuses it at once.
    fn join(&mut self, waiter: Waiter, now: Instant, effects: &mut Effects) {
        self.came = true;
        if self.rest_until.is_some_and(|until| until > now) {
            self.comes_back = Some(true);
        }
        effects.extend(self.is_paused(now).then_some(Effect::Look));
        if let Err(error) = self.admit(&waiter, now) {
            if self.is_without_store(now) {
                self.knock(now, effects);
            }
            effects.push(Effect::Tell(waiter.ticket, Err(error)));
            return;
        }
        if let Some(resend) = &mut self.resend {
            resend.hurry(now);
        }
        self.is_warned &= !self.waiters.is_empty();
        self.note_newcomer(&waiter);
        self.waiters.join(waiter);
        self.ask_for_smaller(now);
        self.seat_callers(now, effects);
        let at = if self.unanswered.is_some() { now } else { self.ask_at.unwrap_or(now) };
        effects.extend((!self.under_way).then_some(Effect::Wake(at)));
    }

    /// Takes a caller out; the slots go to those behind it. Says whether it was there.
    fn leave(&mut self, ticket: u64, now: Instant) -> bool {
        self.note_taker_left(ticket);
        let unwanted = self.waiters.leave(ticket, now);
        let was_there = unwanted.is_some();
        self.put_back(unwanted.into_iter().flatten(), now);
        self.look_past_first(now);
        was_there
    }

    /// Forgets every slot that was booked under a name which another process has, too: that may be using the same ones. They are
    /// not handed back: a slot that nobody uses breaks no limit.
    fn rename(&mut self, sender: u64, now: Instant) {
        if sender == self.sender {
            return;
        }
        self.sender = sender;
        let dropped = self.waiters.drop_slots();
        self.surplus.clear();
        if let Some(seats) = &mut self.seats {
            seats.leave(dropped, now);
            seats.rename();
        }
        // Those of the message under way are when it is answered.
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.lose(dropped);
        }
        self.forget_what_goes_back();
        (self.previous, self.on_record) = (0, false);
        self.memory.rename();
        self.counted.clear();
        (self.ask_at, self.next_slot, self.put_off, self.aside) = (None, None, None, None);
    }

    /// Gives a slot to the next in queue, or puts it with those that nobody here wants.
    fn give(&mut self, slot: Slot, now: Instant) {
        if slot.sender != self.sender || slot.is_unbooked() {
            return self.free_seats(1, now);
        }
        let looks = slot.looks;
        if self.is_before_end_of_pause(&slot, now) || slot.is_stale(now, self.settings.stale_after) {
            self.put_back([slot], now);
        } else {
            let unwanted = self.waiters.give([slot], now);
            self.put_back(unwanted, now);
        }
        // Another may look as soon as it is handed back.
        if let Some((until, _)) = self.paused.filter(|_| looks && self.surplus.iter().any(|slot| slot.looks)) {
            self.release(until);
        }
    }

    /// Lets go of everybody who waits, and of every slot.
    pub(super) fn close(&mut self, now: Instant, effects: &mut Effects) {
        self.closed = true;
        // Whether anything was lost matters no more, and nobody waits for that.
        if self.unanswered.as_deref().is_some_and(Message::only_asks) {
            (self.unanswered, self.resend, self.under_way) = (None, None, false);
        }
        let (tickets, slots) = self.waiters.drain();
        self.put_back(slots, now);
        tell(effects, tickets.into_iter().map(|ticket| (ticket, Error::Closed)));
    }

    /// Whether nobody is here, nothing is paused, and the store knows of nobody.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        !self.closed && !self.has_work() && !self.is_paused(now)
    }

    /// Whether anything is left to do, now or later.
    pub(super) fn has_work(&self) -> bool {
        let has_message = self.unanswered.is_some() || self.under_way;
        has_message
            || !self.waiters.is_empty()
            || !self.surplus.is_empty()
            || self.on_record
            || self.untold.is_some()
            || self.corrections.is_some()
            || self.memory.has_untold()
            || self.is_in_doubt
            || self.seats.as_ref().is_some_and(Seats::has_any)
            || self.borrowed.as_ref().is_some_and(Borrowed::has_any)
    }

    /// Whether the message on its way makes room in the store for others.
    pub(super) fn makes_room(&self) -> bool {
        self.unanswered.as_deref().is_some_and(Message::makes_room)
    }

    /// Whether slots are on their way back to the store.
    pub(super) fn gives_back(&self) -> bool {
        self.unanswered.as_deref().is_some_and(|message| !message.back().is_empty())
    }

    /// Whether nothing has to be asked or said after a loss of data.
    pub(super) fn has_said_again(&self) -> bool {
        !(self.is_in_doubt || self.under_way || self.memory.has_untold())
    }

    /// Whether it is closed, and the store knows all that it is to be told; calls may still be in flight, and keep their seats.
    pub(super) fn is_closed_and_told(&self) -> bool {
        let has_message = self.unanswered.is_some() || self.under_way;
        let has_told = !has_message && self.surplus.is_empty() && !self.on_record && self.untold.is_none();
        let has_told = has_told
            && !self.memory.has_untold()
            && self.corrections.is_none()
            && !self.borrowed.as_ref().is_some_and(Borrowed::has_any);
        self.closed && has_told && self.waiters.is_empty() && self.seats.as_ref().is_none_or(Seats::is_told)
    }

    /// Tells every caller whose slot has started. A slot that is stale by now is asked for again; says when the first of those started.
    pub(super) fn hand_out(&mut self, now: Instant, effects: &mut Effects) -> Option<Instant> {
        let mut missed = None;
        while let Some(mut slot) = self.waiters.pop_started(now) {
            if slot.is_stale(now, self.settings.stale_after) {
                tracing::debug!(upstream = &*self.settings.upstream, "slot stale, asking again");
                missed = missed.or(Some(slot.start));
                self.note_miss(false, now);
                self.put_back([slot], now);
                self.ask_at = None;
            } else if let Some(waiter) = self.waiters.pop_owner(&slot, now) {
                self.head_start.met(slot.start);
                self.misses.told();
                slot.waited_for = self.waited_for.since(waiter.joined);
                effects.push(Effect::Tell(waiter.ticket, Ok(slot)));
            } else {
                self.put_back([slot], now);
            }
        }
        missed
    }
}
