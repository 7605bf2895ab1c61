//! Processes before one store, whose messages are late and lost: what every history shares.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::process::{Process, Sent};
use crate::queue::engine::scene::{self, World, lost, outdated};
use crate::queue::events::{Effect, Effects, Event};
use crate::queue::in_flight::Message;
use crate::queue::resend::PATIENCE;
use crate::queue::waiters::Slot;

pub(super) const MS: Duration = Duration::from_millis(1);

/// What one kind of history checks beyond what all do.
pub(super) trait Checks: Sized {
    /// A caller got this slot; it is one of its process's permits when this returns.
    fn got(run: &mut Run<Self>, which: usize, slot: Slot);

    /// The queue of this process says that it has nothing left to do.
    fn idle(process: &Process);

    /// What holds whenever a process has done what was due.
    fn always(_process: &Process) {}
}

pub(super) struct Run<C> {
    pub(super) world: World,
    pub(super) rng: Rng,
    pub(super) processes: Vec<Process>,
    /// Whether messages are late and lost.
    pub(super) is_rough: bool,
    /// Whether others have the names of processes, which take new ones then.
    pub(super) has_clones: bool,
    pub(super) checks: C,
}

impl<C: Checks> Run<C> {
    pub(super) fn new(world: World, rng: Rng, processes: Vec<Process>, checks: C) -> Self {
        Self { world, rng, processes, is_rough: true, has_clones: true, checks }
    }

    /// Something happens to a process.
    pub(super) fn event(&mut self, which: usize, event: Event) {
        let process = &mut self.processes[which];
        let under_way = process.scene.engine.unanswered.clone();
        let asked_for = under_way.as_ref().map_or(0, |message| message.callers());
        let answer = if let Event::Answered(answered) = &event { Some(answered.granted(asked_for)) } else { None };
        let effects = process.scene.handle(event, self.world.now);
        if let (Some(granted), Some(message)) = (answer, under_way)
            && process.scene.engine.unanswered.is_none()
        {
            process.granted += granted;
            process.handed_back += message.slots_back();
            process.dropped += if message.sender() == process.names { 0 } else { granted };
        }
        self.carry_out(which, effects);
        // Whoever was served may be back before the next message.
        let process = &mut self.processes[which];
        process.wake = if answer.is_some() { Some(self.world.now) } else { process.wake };
    }

    fn carry_out(&mut self, which: usize, effects: Effects) {
        for effect in effects {
            let process = &mut self.processes[which];
            match effect {
                Effect::Tell(ticket, outcome) => {
                    process.waiting.remove(&ticket).expect("nobody is told twice, or after it left");
                    if let Ok(slot) = outcome {
                        C::got(self, which, slot);
                    }
                }
                Effect::Send(message) => {
                    assert!(process.sent.is_none(), "one message at a time");
                    let sent = self.sent(which, message);
                    self.processes[which].sent = Some(sent);
                }
                Effect::Wake(at) => process.wake = Some(process.wake.map_or(at, |wake| wake.min(at))),
                Effect::Rename(sender) => {
                    assert_eq!(sender, process.names);
                    self.rename(which);
                }
                Effect::Look
                | Effect::CutOff(..)
                | Effect::Answered
                | Effect::LostData
                | Effect::ToldOfLoss(_)
                | Effect::Refused(_)
                | Effect::Reached
                | Effect::RefusedNoMore
                | Effect::OtherLimit(..) => {}
                Effect::Idle => {
                    assert!(process.waiting.is_empty() && process.sent.is_none(), "nobody is forgotten");
                    C::idle(process);
                }
            }
        }
    }

    fn sent(&mut self, which: usize, message: Arc<Message>) -> Sent {
        let now = self.world.now;
        let (mut there, mut back) = (MS, MS);
        let fate = if self.is_rough { self.rng.u8(0..100) } else { 100 };
        if self.is_rough {
            (there, back) = (self.rng.u32(0..20) * MS, self.rng.u32(0..20) * MS);
        }
        let acts = fate >= 5;
        let may_rename = self.has_clones && self.processes[which].may_rename(&self.world);
        let reply = (fate == 10 && may_rename).then(outdated);
        let acts_at = now + there;
        Sent { message, at: now, acts_at, acts, arrives_at: acts_at + back, is_lost: fate < 10, reply }
    }

    pub(super) fn rename(&mut self, which: usize) {
        let process = &mut self.processes[which];
        process.names += 1;
        let (before, name) = (process.kept(), process.names);
        self.event(which, Event::Renamed(name));
        let process = &mut self.processes[which];
        process.dropped += before - process.kept();
    }

    /// Whatever is due now.
    fn due(&mut self, which: usize) {
        let now = self.world.now;
        let process = &mut self.processes[which];
        if let Some(sent) = process.sent.as_mut().filter(|sent| sent.acts && sent.acts_at <= now) {
            sent.acts = false;
            if sent.reply.is_none() {
                sent.reply = Some(scene::reply(&self.world, &sent.message));
                process.is_unheard = false;
            }
        }
        if let Some(sent) = process.sent.take_if(|sent| !sent.acts && sent.arrives_at <= now) {
            let reply = sent.reply.filter(|_| !sent.is_lost).unwrap_or_else(lost);
            let answered = process.scene.read(reply, sent.at, now);
            self.event(which, Event::Answered(answered));
        }
        let process = &self.processes[which];
        let late = process.waiting.iter().filter(|(_, until)| until.is_some_and(|until| until <= now));
        for ticket in late.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.event(which, Event::TimeUp(ticket));
            assert!(!self.processes[which].waiting.contains_key(&ticket), "who has no time is told");
        }
        let process = &mut self.processes[which];
        if process.wake.take_if(|wake| *wake <= now).is_some() {
            let effects = process.scene.turn(now);
            self.carry_out(which, effects);
            let process = &mut self.processes[which];
            let shows_up = process.sent.is_some().then(|| now + PATIENCE);
            process.wake = process.wake.into_iter().chain(shows_up).min();
        }
        C::always(&self.processes[which]);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.world.now + time;
        loop {
            let next = self.processes.iter().filter_map(Process::next).min().filter(|next| *next <= until);
            self.world.pass_to(next.unwrap_or(until));
            (0..self.processes.len()).for_each(|which| self.due(which));
            if next.is_none() {
                return;
            }
        }
    }
}
