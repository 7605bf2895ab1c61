//! Random histories of three queues whose calls in flight are limited: whatever happens, no more calls are in flight than there are
//! seats, nobody is forgotten and no seat is lost.

use std::time::Duration;

use fastrand::Rng;

use super::of_each;
use super::process::Process;
use super::run::{Checks, MS, Run};
use crate::config::priority::Priority;
use crate::queue::engine::scene::{self, World, costs};
use crate::queue::events::Event;
use crate::queue::waiters::{Slot, Waiter, Wish};

const LEASE: Duration = Duration::from_secs(60);

struct Seats {
    limit: u32,
    /// The store loses its data now and then.
    wipes: bool,
    /// How many times it has while seats were held.
    wiped: u32,
}

impl Checks for Seats {
    fn got(run: &mut Run<Self>, which: usize, slot: Slot) {
        run.processes[which].permits.push(slot);
        let calls: usize = run.processes.iter().map(|process| process.permits.len()).sum();
        assert!(calls <= run.checks.limit as usize, "{calls} calls on {} seats", run.checks.limit);
    }

    fn idle(process: &Process) {
        assert!(process.permits.is_empty(), "the seats of calls are renewed");
    }
}

impl Run<Seats> {
    fn of_seats(seed: u64) -> Self {
        let (world, mut rng) = (World::new(), Rng::with_seed(seed));
        let (seats, has_quota) = (rng.u32(1..8), rng.bool());
        let process = |sender| Process::new(scene::Process::seated(&world, sender, seats, LEASE, has_quota), sender);
        let processes = [1_000, 2_000, 3_000].map(process).into();
        Self::new(world, rng, processes, Seats { limit: seats, wipes: false, wiped: 0 })
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
                let event = if self.rng.u8(0..6) == 0 { Event::Returned(slot) } else { Event::LeftSeats(1) };
                self.event(which, event);
            }
            67 if self.has_clones && self.rng.u8(0..4) == 0 => self.rename(which),
            68 if process.sent.take().is_some() => self.event(which, Event::Lost),
            69 => self.pass(LEASE / 4),
            // Who remembers nothing is as good as new: seats that nobody remembers are taken for free ones.
            70..72 if self.checks.wipes => {
                if self.processes.iter().all(|process| process.scene.engine.memory.is_any(now)) {
                    self.world.store.lose_data();
                    let holds = |process: &Process| !process.permits.is_empty();
                    self.checks.wiped += u32::from(self.processes.iter().any(holds));
                }
            }
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
                    self.event(which, Event::LeftSeats(1));
                }
            }
            self.pass(100 * MS);
        }
        for process in &self.processes {
            assert!(process.waiting.is_empty(), "everybody is told in the end");
            assert!(!process.scene.engine.has_work() && process.sent.is_none(), "all is done");
        }
        for ticket in 1..=u64::from(self.checks.limit) {
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
        assert_eq!(self.processes[0].permits.len(), self.checks.limit as usize, "no seat is lost");
    }
}

#[test]
fn whatever_happens_no_more_calls_are_in_flight_than_there_are_seats_and_none_is_lost() {
    let history = |seed| {
        let mut history = Run::of_seats(seed);
        (0..300).for_each(|_| history.step());
        history.end();
    };
    of_each(0..150, history).for_each(drop);
}

#[test]
fn no_more_calls_are_in_flight_than_there_are_seats_though_the_store_loses_its_data() {
    let history = |seed| {
        let mut history = Run::of_seats(seed);
        // Nor does who has a new name, until it has told the store what it holds.
        (history.checks.wipes, history.has_clones) = (true, false);
        (0..300).for_each(|_| history.step());
        let wiped = history.checks.wiped;
        history.end();
        wiped
    };
    let wiped: u32 = of_each(0..80, history).sum();
    assert!(wiped > 50, "{wiped}");
}
