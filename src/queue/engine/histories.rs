//! Random histories of two queues before one store: whatever happens, nobody is forgotten and no slot is lost.

mod process;
mod seats;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use self::process::{Process, Sent};
use super::scene::{self, World, costs, lost, outdated};
use crate::config::priority::Priority;
use crate::ledger::{Cause, Reason};
use crate::queue::events::{Effect, Effects, Event};
use crate::queue::in_flight::Message;
use crate::queue::resend::PATIENCE;
use crate::queue::settling::Correction;
use crate::queue::waiters::{Waiter, Wish};

const QUOTA: u32 = 5;
const SPAN: Duration = Duration::from_millis(300);
const MS: Duration = Duration::from_millis(1);

struct History {
    world: World,
    rng: Rng,
    processes: [Process; 2],
    /// Starts of slots that were told and not returned.
    starts: Vec<i64>,
    is_rough: bool,
}

impl History {
    fn new(seed: u64) -> Self {
        let world = World::new();
        let processes =
            [1_000, 2_000].map(|sender| Process::new(scene::Process::new(&world, sender, QUOTA, SPAN), sender));
        Self { world, rng: Rng::with_seed(seed), processes, starts: Vec::new(), is_rough: true }
    }

    /// Something happens to a process.
    fn event(&mut self, which: usize, event: Event) {
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
        let now = self.world.now;
        for effect in effects {
            let process = &mut self.processes[which];
            match effect {
                Effect::Tell(ticket, outcome) => {
                    process.waiting.remove(&ticket).expect("nobody is told twice, or after it left");
                    if let Ok(slot) = outcome {
                        assert!(slot.start <= now && !slot.is_stale(now, 24 * MS), "{:?} late", now - slot.start);
                        process.told += 1;
                        self.starts.push(slot.stamp.as_micros());
                        process.permits.push(slot);
                    }
                }
                Effect::Send(message) => {
                    assert!(process.sent.is_none(), "one message at a time");
                    let sent = self.sent(message);
                    self.processes[which].sent = Some(sent);
                }
                Effect::Wake(at) => process.wake = Some(process.wake.map_or(at, |wake| wake.min(at))),
                Effect::Rename(sender) => {
                    assert_eq!(sender, process.names);
                    self.rename(which);
                }
                Effect::Look => {}
                Effect::Idle => {
                    assert!(process.waiting.is_empty() && process.sent.is_none(), "nobody is forgotten");
                    assert_eq!(process.kept(), 0, "no slot is");
                }
            }
        }
    }

    fn sent(&mut self, message: Arc<Message>) -> Sent {
        let now = self.world.now;
        let (mut there, mut back) = (MS, MS);
        let fate = if self.is_rough { self.rng.u8(0..100) } else { 100 };
        if self.is_rough {
            (there, back) = (self.rng.u32(0..20) * MS, self.rng.u32(0..20) * MS);
        }
        let acts = fate >= 5;
        let reply = (fate == 10).then(outdated);
        let acts_at = now + there;
        Sent { message, at: now, acts_at, acts, arrives_at: acts_at + back, is_lost: fate < 10, reply }
    }

    fn rename(&mut self, which: usize) {
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
            // What was said before counts no more.
            process.wake = None;
            let effects = process.scene.turn(now);
            self.carry_out(which, effects);
            let process = &mut self.processes[which];
            let shows_up = process.sent.is_some().then(|| now + PATIENCE);
            process.wake = process.wake.into_iter().chain(shows_up).min();
        }
        let process = &self.processes[which];
        assert_eq!(
            process.granted,
            process.told + process.handed_back + process.kept() + process.dropped,
            "every slot that was granted is told, handed back or kept"
        );
    }

    fn pass(&mut self, time: Duration) {
        let until = self.world.now + time;
        loop {
            let next = self.processes.iter().filter_map(Process::next).min().filter(|next| *next <= until);
            self.world.pass_to(next.unwrap_or(until));
            (0..2).for_each(|which| self.due(which));
            if next.is_none() {
                return;
            }
        }
    }

    /// Somebody does something.
    fn step(&mut self) {
        let (now, which) = (self.world.now, self.rng.usize(0..2));
        let wish = match self.rng.u8(0..10) {
            0..6 => Wish::Soon,
            6..9 => Wish::By(now + self.rng.u32(0..1_000) * MS),
            _ => Wish::AtOnce { within: Duration::ZERO },
        };
        let units = if self.rng.u8(0..6) == 0 { 2 } else { 1 };
        let priority = [Priority::High, Priority::Normal, Priority::Normal, Priority::Low][self.rng.usize(0..4)];
        let process = &mut self.processes[which];
        let nth = |rng: &mut Rng, len: usize| (len > 0).then(|| rng.usize(0..len));
        match self.rng.u8(0..100) {
            0..40 => {
                process.tickets += 1;
                let ticket = process.tickets;
                let until = match wish {
                    Wish::Soon => None,
                    Wish::By(until) => Some(until),
                    Wish::AtOnce { .. } => Some(now + 1_000 * MS),
                };
                process.waiting.insert(ticket, until);
                let waiter = Waiter { ticket, costs: costs(units), joined: now, wish, priority };
                self.event(which, Event::Joined(waiter));
            }
            40..52 => {
                if let Some(nth) = nth(&mut self.rng, process.waiting.len()) {
                    let ticket = *process.waiting.keys().nth(nth).unwrap();
                    process.waiting.remove(&ticket);
                    self.event(which, Event::Left(ticket));
                }
            }
            52..60 => {
                if let Some(nth) = nth(&mut self.rng, process.permits.len()) {
                    let slot = process.permits.swap_remove(nth);
                    process.told -= 1;
                    process.dropped += usize::from(slot.sender != process.names);
                    let of = self.starts.iter().position(|start| *start == slot.stamp.as_micros()).unwrap();
                    self.starts.swap_remove(of);
                    self.event(which, Event::Returned(slot));
                }
            }
            60..63 => {
                let cause = if self.rng.u8(0..5) == 0 { Cause::Ban } else { Cause::Refusal };
                let until = now + self.rng.u32(0..500) * MS;
                self.event(which, Event::Paused(until, Reason::new(cause, 0)));
            }
            63 => self.rename(which),
            64 => {
                if process.sent.take().is_some() {
                    self.event(which, Event::Lost);
                }
            }
            65..68 => {
                if let Some(nth) = nth(&mut self.rng, process.permits.len()) {
                    let (slot, debts) = (&process.permits[nth], vec![self.rng.u32(0..3)]);
                    let (start, sender) = (slot.stamp, slot.sender);
                    self.event(which, Event::Settled(Correction { start, sender, back: vec![0], debts }));
                }
            }
            _ => {
                let time = self.rng.u32(0..60) * MS;
                self.pass(time);
            }
        }
        self.pass(Duration::ZERO);
    }

    /// Nobody comes any more, and all goes well.
    fn end(mut self, patient: bool) {
        self.is_rough = false;
        if patient {
            self.pass(Duration::from_secs(60));
            assert!(self.processes.iter().all(|process| process.waiting.is_empty()), "everybody is told in the end");
        }
        for which in 0..2 {
            while let Some((ticket, _)) = self.processes[which].waiting.pop_first() {
                self.event(which, Event::Left(ticket));
            }
        }
        self.pass(Duration::from_secs(60));
        for process in &self.processes {
            assert!(!process.scene.engine.has_work() && process.sent.is_none(), "all is done");
            assert_eq!(process.granted, process.told + process.handed_back + process.dropped, "no slot is lost");
        }
        let mut starts = self.starts;
        starts.sort_unstable();
        let span = i64::try_from(SPAN.as_micros()).unwrap();
        let full = starts.windows(QUOTA as usize + 1).find(|starts| starts[QUOTA as usize] - starts[0] < span);
        assert_eq!(full, None, "no window holds more than the quota");
    }
}

#[test]
fn after_any_events_everybody_is_told_once_and_no_slot_is_lost() {
    for seed in 0..400 {
        let run = std::panic::catch_unwind(|| {
            let mut history = History::new(seed);
            (0..300).for_each(|_| history.step());
            history.end(seed % 2 == 0);
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
