//! Everything that changes about a queue, under one lock: its engine, the callers that wait, and who drives.

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::Queue;
use super::borrowed::Borrowed;
use super::driver::Driver;
use super::duty::{ByHand, Duty};
use super::engine::Engine;
use super::events::{Effect, Effects, Event};
use super::in_flight::Header;
use super::outbox::Outbox;
use super::places::Places;
use super::resend::{LATE, PATIENCE};
use super::resting::Rest;
use crate::store::WithoutStore;

pub(super) struct State {
    pub(super) engine: Engine,
    pub(super) places: Places,
    pub(super) duty: Duty,
    pub(super) rest: Rest,
    /// How often the machine was suspended, as far as the engine knows, and when that was noticed last.
    pub(super) suspensions: u32,
    pub(super) suspended_at: Option<Instant>,
    /// Room for effects, while somebody drives.
    effects: Effects,
}

impl State {
    /// Of an engine that begins when the machine was suspended so often.
    pub(super) fn new(engine: Engine, suspensions: u32) -> Self {
        let (places, duty) = (Places::default(), Duty::default());
        let (rest, effects) = (Rest::default(), Effects::new());
        Self { engine, places, duty, rest, suspensions, suspended_at: None, effects }
    }

    /// Takes in what has happened.
    pub(super) fn handle(&mut self, event: Event, now: Instant, queue: &Queue, out: &mut Outbox) {
        self.catch_up(queue, now, out);
        // Of before the machine was suspended it is too old for the next caller.
        let event = match event {
            Event::Returned(slot) | Event::Missed(slot) if self.is_of_before(&slot, queue) => Event::Distrusted(slot),
            event => event,
        };
        if matches!(event, Event::Answered(_) | Event::TimeUp(_)) {
            self.note_lateness(now);
        }
        let leaves = matches!(event, Event::Left(_) | Event::TimeUp(_) | Event::Closed);
        let is_answered = matches!(event, Event::Answered(_));
        let (gives_back, makes_room) = (self.engine.gives_back(), self.engine.makes_room());
        self.act(queue, now, out, |engine, effects| engine.handle(event, now, effects));
        if is_answered {
            out.beside.has_made_room |= makes_room && !self.engine.makes_room();
        }
        if is_answered && self.engine.closed {
            out.beside.closed_remembers |= !self.engine.memory.is_empty();
            out.beside.closed_has_given_back |= gives_back && !self.engine.gives_back();
        }
        if leaves && !self.duty.wants.is_empty() || self.engine.has_seats_to_spare(self.duty.wants.len()) {
            self.leave_lines(now, out);
        }
    }

    /// Leaves the lines for seats, and gives seats back, that no caller needs any more: whoever drives may be polled no more.
    pub(super) fn leave_lines(&mut self, now: Instant, out: &mut Outbox) {
        let left = self.duty.wants.keep(&mut self.engine.wants(now));
        self.take_back(out);
        if !left.is_empty() && self.duty.driven {
            // It may have waited for nothing else.
            out.wake = Some(now);
        }
        out.left.append(left);
    }

    /// Does what is to be done now.
    pub(super) fn turn(&mut self, queue: &Queue, now: Instant, out: &mut Outbox) {
        let header = || Header {
            number: queue.process.next_number(),
            outlook: queue.shard.time.outlook(queue.stale_after(), now),
        };
        self.catch_up(queue, now, out);
        if !self.engine.under_way {
            // What is booked from now on is none of before.
            self.follow_clocks(queue, now, out);
        }
        self.note_lateness(now);
        (out.wake, out.idle) = (None, false);
        self.act(queue, now, out, |engine, effects| engine.turn(now, header, effects));
        self.stands_by(now, out);
        self.note_rest(queue, now, out);
        if self.engine.borrowed.is_some() {
            let wants = self.engine.wants(now);
            out.left.append(self.duty.wants.become_those(wants, &queue.lines));
            self.take_back(out);
            out.idle = !self.engine.has_work();
        }
        // Woken by then, the driver shows that it is there however long the store, or a seat, takes.
        let waits = self.engine.under_way || !self.duty.wants.is_empty();
        let answered_by = waits.then(|| now + PATIENCE);
        out.wake = out.wake.into_iter().chain(answered_by).min();
        self.duty.look_by = out.wake;
        self.duty.be_patient(waits, self.engine.waiters.len());
        self.stop_if_idle();
    }

    /// Whoever drives may have stood still while a message was under way.
    fn note_lateness(&mut self, now: Instant) {
        if self.duty.driven && self.duty.look_by.is_some_and(|at| at + LATE < now) {
            self.was_unheard(now);
        }
    }

    /// This driver goes on in another runtime: that in which the message under way was sent may be polled no more. Where callers wait for the store
    /// they wait no longer for that.
    pub(super) fn is_taken_over(&mut self, driver: u64, now: Instant) {
        let waits = self.engine.settings.without_store == WithoutStore::Wait;
        if !waits && self.duty.is_driven_by(driver) {
            self.was_unheard(now);
        }
    }

    /// Nobody may have heard what the store said until now. Where others may have sent by themselves for as long as that it is taken for lost all
    /// the same.
    fn was_unheard(&mut self, now: Instant) {
        let awaits = self.engine.under_way && self.engine.settings.without_store != WithoutStore::ThrottleLocally;
        if let Some(resend) = self.engine.resend.as_mut().filter(|_| awaits) {
            resend.was_unheard(now);
        }
    }

    /// Who looks whether a pause holds may stand still: another stands by where this is polled, if callers wait.
    pub(super) fn stands_by(&self, now: Instant, out: &mut Outbox) {
        out.looks |= !self.engine.waiters.is_empty() && self.engine.is_paused(now);
    }

    /// Tells the engine what it has to know of its process and its upstream: what the one is called by now, until when nobody
    /// sends to the other, or asks, and whether its queues can reach the store.
    fn catch_up(&mut self, queue: &Queue, now: Instant, out: &mut Outbox) {
        self.follow_name(queue, now, out);
        if self.engine.relies_on_clock(now) {
            self.follow_clocks(queue, now, out);
        }
        if let Some(look_at) = queue.registered().handover.look_at(now) {
            self.engine.silent_until = Some(look_at);
        }
        if let Some((until, reason)) = queue.crowd.paused(now) {
            self.act(queue, now, out, |engine, effects| engine.pause(until, reason, now, effects));
        }
        let contact = &queue.shard.contact;
        // What was sent by parts counts, whatever the policy is by now.
        if contact.apart.was_lost() && !queue.is_local() {
            let told = self.engine.lost.told;
            self.engine.doubt(contact.apart.is_lost(), queue.doubt(told, now));
        }
        if queue.without_store() != WithoutStore::Wait {
            let (cut_off, heard_at) = (contact.cut_off(now), contact.heard_at());
            // Who goes without the store is told by no answer.
            let of_all = cut_off.as_ref().and_then(|_| contact.pause_of_all(queue.crowd.releases()));
            if let Some((until, reason)) = of_all {
                self.act(queue, now, out, |engine, effects| engine.pause(until, reason, now, effects));
            }
            if queue.without_store() == WithoutStore::ThrottleLocally {
                self.engine.waits_since(cut_off.as_ref().and_then(|_| contact.apart.since(now)));
            }
            self.act(queue, now, out, |engine, effects| engine.follow(cut_off, heard_at, now, effects));
        }
    }

    fn take_back(&mut self, out: &mut Outbox) {
        out.seats_back.add(self.engine.borrowed.as_mut().map(Borrowed::take_back).unwrap_or_default());
    }

    fn follow_name(&mut self, queue: &Queue, now: Instant, out: &mut Outbox) {
        let name = queue.process.id();
        if name != self.engine.sender {
            self.act(queue, now, out, |engine, effects| engine.handle(Event::Renamed(name), now, effects));
        }
    }

    /// Has the engine act, and carries out what follows.
    pub(super) fn act(
        &mut self,
        queue: &Queue,
        now: Instant,
        out: &mut Outbox,
        act: impl FnOnce(&mut Engine, &mut Effects),
    ) {
        let mut effects = std::mem::take(&mut self.effects);
        act(&mut self.engine, &mut effects);
        let mut renamed = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Tell(ticket, outcome) => {
                    let waker = self.places.tell(ticket, outcome);
                    out.wakers.extend(waker.filter(|_| out.awake != Some(ticket)));
                }
                Effect::Send(message) => {
                    if !self.engine.sends_again() {
                        queue.successors.forget(message.back(), &queue.logs);
                    }
                    out.send = Some(message);
                }
                Effect::Wake(at) => out.wake = Some(out.wake.map_or(at, |wake| wake.min(at))),
                Effect::Look => out.looks = true,
                Effect::Rename(sender) => {
                    queue.process.rename(sender);
                    renamed = true;
                }
                Effect::CutOff(error, sent) => queue.shard.contact.lose(&error, sent, now),
                Effect::Answered => queue.shard.contact.answered(now),
                Effect::LostData => {
                    queue.shard.contact.lost_data(now);
                    out.losses.seen = true;
                }
                Effect::ToldOfLoss(loss) => out.losses.told = out.losses.told.max(Some(loss)),
                Effect::Refused(error) => queue.shard.contact.refuse(&error),
                Effect::Reached => queue.shard.contact.refused(now),
                Effect::RefusedNoMore => queue.shard.contact.refuse_no_more(),
                Effect::OtherLimit(log, term) => queue.shard.contact.other_limit(&log, term),
                Effect::Idle => out.idle = true,
            }
        }
        self.effects = effects;
        out.losses.remembers |= self.engine.memory.would_say();
        self.take_back(out);
        if renamed {
            self.follow_name(queue, now, out);
        }
    }

    /// Whether nobody is here, nothing is paused, and the store knows of nobody.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        !self.duty.driven && self.engine.is_quiet(now)
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.duty.driven && !self.engine.has_work()
    }

    /// Whether nothing is left to do, or it is closed and only calls in flight are left.
    pub(super) fn is_done(&self) -> bool {
        self.is_idle() || self.engine.is_closed_and_told()
    }

    /// Takes the duty to drive where there is work and nobody has it yet; with the number of the driver.
    pub(super) fn take_duty(&mut self, now: Instant) -> Option<u64> {
        let must = !self.duty.driven && self.engine.has_work();
        if must {
            let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
            (self.duty.driven, self.duty.look_by, self.duty.runtime) = (true, Some(now), runtime);
            // Who drove before and has not heard yet that it is over does not drive again.
            self.duty.number += 1;
            // In a runtime that is kept, and polls nothing any more, nobody is.
            self.duty.be_patient(self.engine.under_way, self.engine.waiters.len());
        }
        must.then_some(self.duty.number)
    }

    /// Ends the duty to drive where there is no work.
    pub(super) fn stop_if_idle(&mut self) -> bool {
        self.duty.driven = self.engine.has_work();
        if !self.duty.driven {
            // There are as many queues as scopes.
            self.effects = Effects::new();
        }
        !self.duty.driven
    }

    /// Nobody drives any more: everybody who waits looks, and one of them drives.
    pub(super) fn abandon(&mut self, now: Instant, queue: &Queue, out: &mut Outbox) {
        self.note_lateness(now);
        (self.duty.driven, self.duty.look_by) = (false, None);
        // Whoever drives next is to be nudged, and not a task that is polled no more.
        queue.nudge.notify_waiters();
        out.former = self.duty.put_by_hand(ByHand::Nobody);
        out.left.append(std::mem::take(&mut self.duty.wants));
        self.handle(Event::Lost, now, queue, out);
        out.wakers.extend(self.places.everybody());
    }

    /// Keeps a driver for its caller until that is polled again. Where a task is to drive on, or it was given up on, gives it
    /// back.
    pub(super) fn park(&mut self, driver: Driver) -> Option<Driver> {
        let is_current = self.duty.is_driven_by(driver.number());
        if is_current && matches!(self.duty.by_hand, ByHand::Polled { wanted: false }) {
            self.duty.by_hand = ByHand::Parked(driver);
            return None;
        }
        if is_current {
            self.duty.by_hand = ByHand::Nobody;
        }
        Some(driver)
    }
}
