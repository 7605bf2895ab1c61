//! Random histories of three queues whose calls in flight are limited: whatever happens, no more calls are in flight than there are
//! seats, nobody is forgotten and no seat is lost.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::process::{Process, Sent};
use crate::config::priority::Priority;
use crate::queue::engine::scene::{self, World, costs, lost, outdated};
use crate::queue::events::{Effect, Effects, Event};
use crate::queue::in_flight::Message;
use crate::queue::resend::PATIENCE;
use crate::queue::waiters::{Waiter, Wish};

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(60);

struct History {
    world: World,
    rng: Rng,
    processes: Vec<Process>,
    seats: u32,
    is_rough: bool,
}

impl History {
    fn new(seed: u64) -> Self {
        let (world, mut rng) = (World::new(), Rng::with_seed(seed));
        let (seats, has_quota) = (rng.u32(1..8), rng.bool());
        let process = |sender| Process::new(scene::Process::seated(&world, sender, seats, LEASE, has_quota), sender);
        let processes = [1_000, 2_000, 3_000].map(process).into();
        Self { world, rng, processes, seats, is_rough: true }
    }

    /// Something happens to a process.
    fn event(&mut self, which: usize, event: Event) {
        let is_answer = matches!(event, Event::Answered(_));
        let effects = self.processes[which].scene.handle(event, self.world.now);
        self.carry_out(which, effects);
        let process = &mut self.processes[which];
        process.wake = if is_answer { Some(self.world.now) } else { process.wake };
    }

    fn carry_out(&mut self, which: usize, effects: Effects) {
        for effect in effects {
            let process = &mut self.processes[which];
            match effect {
                Effect::Tell(ticket, outcome) => {
                    process.waiting.remove(&ticket).expect("nobody is told twice, or after it left");
                    process.permits.extend(outcome);
                    let calls: usize = self.processes.iter().map(|process| process.permits.len()).sum();
                    assert!(calls <= self.seats as usize, "{calls} calls on {} seats", self.seats);
                }
                Effect::Send(message) => {
                    assert!(process.sent.is_none(), "one message at a time");
                    let sent = self.sent(message);
                    self.processes[which].sent = Some(sent);
                }
                Effect::Wake(at) => process.wake = Some(process.wake.map_or(at, |wake| wake.min(at))),
                Effect::Rename(_) => self.rename(which),
                Effect::Look => {}
                Effect::Idle => {
                    assert!(process.waiting.is_empty() && process.sent.is_none(), "nobody is forgotten");
                    assert!(process.permits.is_empty(), "the seats of calls are renewed");
                }
            }
        }
    }

    fn sent(&mut self, message: Arc<Message>) -> Sent {
        let (mut there, mut back, mut fate) = (MS, MS, 100);
        if self.is_rough {
            (there, back, fate) = (self.rng.u32(0..20) * MS, self.rng.u32(0..20) * MS, self.rng.u8(0..100));
        }
        let (at, acts_at) = (self.world.now, self.world.now + there);
        let reply = (fate == 10).then(outdated);
        Sent { message, at, acts_at, acts: fate >= 5, arrives_at: acts_at + back, is_lost: fate < 10, reply }
    }

    fn rename(&mut self, which: usize) {
        self.processes[which].names += 1;
        let name = self.processes[which].names;
        self.event(which, Event::Renamed(name));
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
            let effects = process.scene.turn(now);
            self.carry_out(which, effects);
            let process = &mut self.processes[which];
            let shows_up = process.sent.is_some().then(|| now + PATIENCE);
            process.wake = process.wake.into_iter().chain(shows_up).min();
        }
    }

    fn pass(&mut self, time: Duration) {
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

    /// Somebody does something.
    fn step(&mut self) {
        let (now, which) = (self.world.now, self.rng.usize(0..self.processes.len()));
        let process = &mut self.processes[which];
        match self.rng.u8(0..100) {
            0..35 => {
                process.tickets += 1;
                let (ticket, within) = (process.tickets, self.rng.u32(0..1_000) * MS);
                let (wish, until) = match self.rng.u8(0..10) {
                    0..7 => (Wish::Soon, None),
                    7..9 => (Wish::By(now + within), Some(now + within)),
                    _ => (Wish::AtOnce { within: Duration::ZERO }, Some(now + 1_000 * MS)),
                };
                process.waiting.insert(ticket, until);
                self.event(
                    which,
                    Event::Joined(Waiter { ticket, costs: costs(1), joined: now, wish, priority: Priority::Normal }),
                );
            }
            35..42 if !process.waiting.is_empty() => {
                let nth = self.rng.usize(0..process.waiting.len());
                let ticket = *process.waiting.keys().nth(nth).unwrap();
                process.waiting.remove(&ticket);
                self.event(which, Event::Left(ticket));
            }
            42..67 if !process.permits.is_empty() => {
                let slot = process.permits.swap_remove(self.rng.usize(0..process.permits.len()));
                let event = if self.rng.u8(0..6) == 0 { Event::Returned(slot) } else { Event::LeftSeat };
                self.event(which, event);
            }
            67 if self.rng.u8(0..4) == 0 => self.rename(which),
            68 if process.sent.take().is_some() => self.event(which, Event::Lost),
            69 => self.pass(LEASE / 4),
            _ => {
                let time = self.rng.u32(0..80) * MS;
                self.pass(time);
            }
        }
        self.pass(Duration::ZERO);
    }

    /// All calls end, and all goes well.
    fn end(mut self) {
        self.is_rough = false;
        // Seats of names that were given up are free when their leases end.
        for _ in 0..2_000 {
            for which in 0..self.processes.len() {
                while self.processes[which].permits.pop().is_some() {
                    self.event(which, Event::LeftSeat);
                }
            }
            self.pass(100 * MS);
        }
        for process in &self.processes {
            assert!(process.waiting.is_empty(), "everybody is told in the end");
            assert!(!process.scene.engine.has_work() && process.sent.is_none(), "all is done");
        }
        for ticket in 1..=u64::from(self.seats) {
            let (joined, wish) = (self.world.now, Wish::Soon);
            self.processes[0].waiting.insert(1_000_000 + ticket, None);
            self.event(
                0,
                Event::Joined(Waiter {
                    ticket: 1_000_000 + ticket,
                    costs: costs(1),
                    joined,
                    wish,
                    priority: Priority::Normal,
                }),
            );
        }
        self.pass(Duration::from_secs(2));
        assert_eq!(self.processes[0].permits.len(), self.seats as usize, "no seat is lost");
    }
}

#[test]
fn whatever_happens_no_more_calls_are_in_flight_than_there_are_seats_and_none_is_lost() {
    for seed in 0..150 {
        let run = std::panic::catch_unwind(|| {
            let mut history = History::new(seed);
            (0..300).for_each(|_| history.step());
            history.end();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
