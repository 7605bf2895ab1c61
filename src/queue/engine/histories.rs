//! Random histories of two queues before one store: whatever happens, nobody is forgotten and no slot is lost.

mod process;
mod run;
mod seats;

use std::ops::Range;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use self::process::Process;
use self::run::{Checks, MS, Run};
use super::scene::{self, World, costs};
use crate::config::priority::Priority;
use crate::ledger::{Cause, Reason};
use crate::queue::events::Event;
use crate::queue::settling::Correction;
use crate::queue::waiters::{Slot, Waiter, Wish};
use crate::store::WithoutStore;

const QUOTA: u32 = 5;
const SPAN: Duration = Duration::from_millis(300);

struct Slots {
    /// How long the window is.
    span: Duration,
    /// Starts of slots that were told and not returned.
    starts: Vec<i64>,
    /// The store loses its data now and then.
    wipes: bool,
    /// How many times it has.
    wiped: u32,
}

impl Checks for Slots {
    fn got(run: &mut Run<Self>, which: usize, slot: Slot) {
        let (process, now) = (&mut run.processes[which], run.world.now);
        assert!(slot.start <= now && !slot.is_stale(now, 24 * MS), "{:?} late", now - slot.start);
        process.told += 1;
        run.checks.starts.push(slot.stamp.as_micros());
        process.permits.push(slot);
    }

    fn idle(process: &Process) {
        assert_eq!(process.kept(), 0, "no slot is");
    }

    fn always(process: &Process) {
        assert_eq!(
            process.granted,
            process.told + process.handed_back + process.kept() + process.dropped,
            "every slot that was granted is told, handed back or kept"
        );
    }
}

impl Run<Slots> {
    fn of_slots(seed: u64) -> Self {
        let policies =
            [WithoutStore::Wait, WithoutStore::Refuse, WithoutStore::ThrottleLocally, WithoutStore::SendUnthrottled];
        Self::of(seed, SPAN, &policies)
    }

    fn of(seed: u64, span: Duration, policies: &[WithoutStore]) -> Self {
        let world = World::new();
        let mut rng = Rng::with_seed(!seed);
        let process = |sender| {
            let mut scene = scene::Process::new(&world, sender, QUOTA, span);
            Arc::make_mut(&mut scene.engine.settings).without_store = policies[rng.usize(0..policies.len())];
            Process::new(scene, sender)
        };
        let processes = [1_000, 2_000].map(process).into();
        Self::new(world, Rng::with_seed(seed), processes, Slots { span, starts: Vec::new(), wipes: false, wiped: 0 })
    }

    /// Some callers come at once, mostly one, now and then with a ticket of before.
    fn join(&mut self, which: usize, wish: Wish, units: u32, mut priority: Priority) {
        let now = self.world.now;
        for _ in 0..[1, 1, 2, 3][self.rng.usize(0..4)] {
            let process = &mut self.processes[which];
            let old = self.rng.u64(0..=process.tickets);
            let comes_back = self.rng.u8(0..8) == 0 && old > 0 && !process.waiting.contains_key(&old);
            process.tickets += u64::from(!comes_back);
            let ticket = if comes_back { old } else { process.tickets };
            let until = match wish {
                Wish::Soon => None,
                Wish::By(until) => Some(until),
                Wish::AtOnce { .. } => Some(now + 1_000 * MS),
            };
            process.waiting.insert(ticket, until);
            let waiter = Waiter { ticket, costs: costs(units), joined: now, wish, priority };
            self.event(which, Event::Joined(waiter));
            priority = [Priority::High, Priority::Normal, Priority::Low][self.rng.usize(0..3)];
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
            0..40 => self.join(which, wish, units, priority),
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
                    let of = self.checks.starts.iter().position(|start| *start == slot.stamp.as_micros()).unwrap();
                    self.checks.starts.swap_remove(of);
                    self.event(which, Event::Returned(slot));
                }
            }
            60..63 => {
                let cause = if self.rng.u8(0..5) == 0 { Cause::Ban } else { Cause::Refusal };
                let until = now + self.rng.u32(0..500) * MS;
                self.event(which, Event::Paused(until, Reason::new(cause, 0)));
            }
            63 if process.may_rename(&self.world) => self.rename(which),
            68 if self.checks.wipes => {
                // Who remembers nothing is as good as new: a log that nobody remembers is taken for a new one.
                if self.processes.iter().all(|process| process.would_miss(&self.world)) {
                    self.processes.iter_mut().for_each(|process| process.is_unheard = true);
                    // Logs alone as well, where the window is not waited for.
                    if self.checks.span > SPAN && self.rng.bool() {
                        self.world.store.lose_logs(None);
                    } else {
                        self.world.store.lose_data();
                    }
                    self.checks.wiped += 1;
                }
            }
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
        let mut starts = self.checks.starts;
        starts.sort_unstable();
        let span = i64::try_from(self.checks.span.as_micros()).unwrap();
        let full = starts.windows(QUOTA as usize + 1).find(|starts| starts[QUOTA as usize] - starts[0] < span);
        assert_eq!(full, None, "no window holds more than the quota");
    }
}

/// What a history of each seed comes to; one that fails is named.
fn of_each<T>(seeds: Range<u64>, history: impl Fn(u64) -> T + RefUnwindSafe) -> impl Iterator<Item = T> {
    seeds.map(move |seed| catch_unwind(|| history(seed)).unwrap_or_else(|_| panic!("seed {seed}")))
}

#[test]
fn after_any_events_everybody_is_told_once_and_no_slot_is_lost() {
    let history = |seed| {
        let mut history = Run::of_slots(seed);
        (0..300).for_each(|_| history.step());
        history.end(seed % 2 == 0);
    };
    of_each(0..400, history).for_each(drop);
}

#[test]
fn no_window_holds_more_than_the_quota_though_the_store_loses_its_data() {
    let history = |seed| {
        let mut history = Run::of_slots(seed);
        history.checks.wipes = true;
        (0..300).for_each(|_| history.step());
        let wiped = history.checks.wiped;
        history.end(seed % 2 == 0);
        wiped
    };
    let wiped: u32 = of_each(0..400, history).sum();
    assert!(wiped > 200, "{wiped}");
}

#[test]
fn no_window_that_is_not_waited_for_holds_more_than_the_quota_though_the_store_loses_its_data() {
    let history = |seed| {
        let mut history = Run::of(seed, Duration::from_secs(20), &[WithoutStore::Wait, WithoutStore::Refuse]);
        for step in 0..3_000 {
            // Now and then, and several times in a row.
            history.checks.wipes = step % 1_000 < 60;
            history.step();
        }
        let wiped = history.checks.wiped;
        history.end(false);
        wiped
    };
    let wiped: u32 = of_each(0..100, history).sum();
    assert!(wiped > 50, "{wiped}");
}
