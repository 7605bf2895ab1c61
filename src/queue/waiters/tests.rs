use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::config::costs::Costs;
use crate::ledger::Stamp;
use crate::queue::glance::WaitsFor;

fn waiter(ticket: u64, cost: u32) -> Waiter {
    Waiter {
        ticket,
        costs: Costs::of(&[cost].into()),
        joined: Instant::now(),
        wish: Wish::Soon,
        priority: Priority::Normal,
    }
}

fn slot(epoch: Instant, ms: u64, cost: u32) -> Slot {
    let start = epoch + Duration::from_millis(ms);
    let stamp = Stamp::from_micros(i64::try_from(ms).unwrap());
    Slot {
        stamp,
        start,
        costs: Costs::of(&[cost].into()),
        excess: Duration::ZERO,
        sender: 0,
        looks: false,
        waited_for: WaitsFor::Store,
    }
}

fn stamps(slots: &[Slot]) -> Vec<i64> {
    slots.iter().map(|slot| slot.stamp.as_micros()).collect()
}

/// Each caller's ticket and slot.
fn pairs(waiters: &Waiters, now: Instant) -> Vec<(u64, Option<i64>)> {
    waiters.matching(now).map(|(waiter, slot)| (waiter.ticket, slot.map(|slot| slot.stamp.as_micros()))).collect()
}

fn waiters(costs: &[u32]) -> Waiters {
    let mut waiters = Waiters::default();
    for (ticket, &cost) in (0..).zip(costs) {
        waiters.join(waiter(ticket, cost));
    }
    waiters
}

#[test]
fn the_earliest_slot_is_the_earliest_callers_in_whatever_order_they_come() {
    let epoch = Instant::now();
    let mut waiters = waiters(&[1, 1, 1, 1]);
    for ms in [30, 10, 20] {
        assert!(waiters.give([slot(epoch, ms, 1)], epoch).is_empty());
    }
    assert_eq!(pairs(&waiters, epoch), [(0, Some(10)), (1, Some(20)), (2, Some(30)), (3, None)]);
    let before = waiters.units_before(Priority::Normal, 3).of(0);
    assert_eq!((waiters.has_unslotted(), waiters.units_wanted().of(0), before), (true, 1, 0));
}

#[test]
fn a_slot_that_begins_within_the_microsecond_of_the_answer_is_in_time_for_a_caller_for_now_or_never() {
    let epoch = Instant::now();
    for (nanos, is_served) in [(0, true), (8, true), (999, true), (1_000, false)] {
        let mut waiters = Waiters::default();
        waiters.join(Waiter { wish: Wish::AtOnce { within: Duration::ZERO }, ..waiter(0, 1) });
        let slot = Slot { start: epoch + Duration::from_nanos(nanos), ..slot(epoch, 0, 1) };
        assert_eq!(waiters.give([slot], epoch).is_empty(), is_served, "{nanos} ns after the answer");
    }
}

#[test]
fn when_a_caller_leaves_everybody_behind_it_moves_up() {
    let epoch = Instant::now();
    let mut waiters = waiters(&[1, 1, 1, 1]);
    waiters.give([10, 20, 30].map(|ms| slot(epoch, ms, 1)), epoch);
    assert!(waiters.leave(0, epoch).unwrap().is_empty());
    assert_eq!(pairs(&waiters, epoch), [(1, Some(10)), (2, Some(20)), (3, Some(30))]);
    let left = waiters.leave(1, epoch).unwrap();
    assert_eq!(pairs(&waiters, epoch), [(2, Some(10)), (3, Some(20))]);
    assert_eq!(stamps(&left), [30], "the last slot is left");
    assert!(waiters.leave(1, epoch).is_none());
}

#[test]
fn a_slot_goes_only_to_a_caller_of_its_cost() {
    let epoch = Instant::now();
    let mut waiters = waiters(&[5, 1, 5]);
    assert!(waiters.give([slot(epoch, 10, 1)], epoch).is_empty());
    assert_eq!(pairs(&waiters, epoch), [(0, None), (1, Some(10)), (2, None)]);
    assert_eq!(stamps(&waiters.give([slot(epoch, 20, 1)], epoch)), [20]);
    let started = waiters.pop_started(epoch + Duration::from_millis(10)).unwrap();
    assert_eq!(waiters.pop_owner(&started, epoch).unwrap().ticket, 1);
    assert!(waiters.pop_started(epoch + Duration::from_secs(1)).is_none());
}

#[test]
fn a_caller_that_comes_back_with_its_ticket_has_its_old_place() {
    let now = Instant::now();
    let mut waiters = waiters(&[1, 1, 1]);
    waiters.leave(0, now).unwrap();
    waiters.leave(1, now).unwrap();
    for ticket in [1, 0] {
        waiters.join(waiter(ticket, 1));
    }
    let order: Vec<_> = waiters.unslotted(now).map(|waiter| waiter.ticket).collect();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn the_hopeless_are_told_and_do_not_count_for_those_behind() {
    let now = Instant::now();
    let mut waiters = waiters(&[1, 1, 1]);
    let mut seen = Vec::new();
    let gone = waiters.drop_hopeless(now, |waiter, ahead| {
        seen.push(ahead.of(0));
        (waiter.ticket == 1).then_some(Error::Closed)
    });
    assert!(matches!(gone[..], [(1, Error::Closed)]), "{gone:?}");
    assert_eq!((seen, waiters.len()), (vec![0, 1, 1], 2));
}

#[test]
fn whoever_is_refused_but_has_a_slot_by_now_stays() {
    let now = Instant::now();
    let mut waiters = waiters(&[1, 1, 1]);
    waiters.give([slot(now, 10, 1)], now);
    let refused = waiters.refuse(vec![(0, Error::Closed), (2, Error::Closed), (9, Error::Closed)], now);
    assert!(matches!(refused[..], [(2, _)]), "{refused:?}");
    assert_eq!(pairs(&waiters, now), [(0, Some(10)), (1, None)]);
}

#[test]
fn what_a_million_callers_took_is_given_back_when_they_have_gone() {
    let now = Instant::now();
    let mut waiters = Waiters::default();
    let callers = 1_000_000;
    for ticket in 0..callers {
        waiters.join(waiter(ticket, 1));
    }
    // From the middle to both ends, so that places lie empty.
    for ticket in (0..callers / 2).rev().chain(callers / 2..callers).filter(|ticket| *ticket != 7) {
        waiters.leave(ticket, now).unwrap();
    }
    let before = waiters.units_before(Priority::Normal, callers).of(0);
    assert_eq!((waiters.len(), waiters.units_wanted().of(0), before), (1, 1, 1));
    let room: usize = waiters.parts.iter().map(Part::room).sum();
    assert!(room < 1_000, "{room}");
}

/// Something that happens to a waiters.
#[derive(Clone, Debug)]
enum Event {
    Join { cost: u32, wish: u64, priority: Priority },
    Rejoin { nth: usize },
    Leave { nth: usize },
    Give { ms: Vec<u64>, cost: u32 },
    HandOut,
    TakeBefore { ms: u64 },
    Pass { ms: u64 },
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![1 => Just(Priority::High), 2 => Just(Priority::Normal), 1 => Just(Priority::Low)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..3_u32, 0..400_u64, priority()).prop_map(|(cost, wish, priority)| Event::Join { cost, wish, priority }),
        1 => (0..8_usize).prop_map(|nth| Event::Rejoin { nth }),
        2 => (0..8_usize).prop_map(|nth| Event::Leave { nth }),
        3 => (vec(0..300_u64, 1..4), 1..3_u32).prop_map(|(ms, cost)| Event::Give { ms, cost }),
        3 => Just(Event::HandOut),
        1 => (0..100_u64).prop_map(|ms| Event::TakeBefore { ms }),
        2 => (0..50_u64).prop_map(|ms| Event::Pass { ms }),
    ]
}

/// What the waiters must be: said once more, as plainly as can be.
#[derive(Default)]
struct Model {
    waiters: Vec<Waiter>,
    slots: Vec<(i64, u32)>,
}

/// So long callers of low priority wait before they go first.
const PATIENCE: Duration = Duration::from_millis(60);

impl Model {
    /// The earliest slot to the earliest caller: each in turn takes the first of its cost that is left, if that is in time.
    fn pairs(&self, epoch: Instant, now: Instant) -> Vec<(u64, Option<i64>)> {
        let mut slots = self.slots.clone();
        slots.sort_unstable();
        let pair = |waiter: &Waiter| {
            let deadline = match waiter.wish {
                Wish::Soon => i64::MAX,
                Wish::By(at) => i64::try_from(at.duration_since(epoch).as_millis()).unwrap(),
                Wish::AtOnce { .. } => i64::try_from(now.duration_since(epoch).as_millis()).unwrap(),
            };
            let first = slots.iter().position(|(_, of)| *of == waiter.costs[0]);
            let slot = first.filter(|at| slots[*at].0 <= deadline).map(|at| slots.remove(at).0);
            (waiter.ticket, slot)
        };
        self.in_order(now).iter().map(pair).collect()
    }

    /// First those of low priority who have waited for long, then by priority; of each, who came first.
    fn in_order(&self, now: Instant) -> Vec<Waiter> {
        let mut all = self.waiters.clone();
        let place = |waiter: &Waiter| match waiter.priority {
            Priority::Low if now.duration_since(waiter.joined) >= PATIENCE => 0,
            priority => 1 + priority.place(),
        };
        all.sort_by_key(|waiter| (place(waiter), waiter.ticket));
        all
    }

    fn forget(&mut self, gone: &[Slot]) {
        for slot in gone {
            let gone = (slot.stamp.as_micros(), slot.costs[0]);
            let at = self.slots.iter().position(|slot| *slot == gone).expect("a slot that was given");
            self.slots.remove(at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_events_slots_and_callers_are_matched_in_order(events in vec(event(), 1..60)) {
        let epoch = Instant::now();
        let (mut now, mut waiters, mut model) = (epoch, Waiters::new(Some(PATIENCE)), Model::default());
        let (mut tickets, mut gone) = (0, Vec::new());
        for event in events {
            match event {
                Event::Join { cost, wish, priority } => {
                    let wish = match wish {
                        0..=199 => Wish::Soon,
                        200..=219 => Wish::AtOnce { within: Duration::ZERO },
                        ms => Wish::By(now + Duration::from_millis(ms - 200)),
                    };
                    let waiter = Waiter { wish, priority, joined: now, ..waiter(tickets, cost) };
                    waiters.join(waiter.clone());
                    model.waiters.push(waiter);
                    tickets += 1;
                }
                Event::Rejoin { nth } if nth < gone.len() => {
                    let waiter: Waiter = gone.swap_remove(nth);
                    waiters.join(waiter.clone());
                    model.waiters.push(waiter);
                }
                Event::Leave { nth } if nth < model.waiters.len() => {
                    let left = model.waiters.remove(nth);
                    model.forget(&waiters.leave(left.ticket, now).expect("a caller that waits"));
                    gone.push(left);
                }
                Event::Rejoin { .. } | Event::Leave { .. } => {}
                Event::Give { ms, cost } => {
                    let at = |ms: &u64| slot(epoch, *ms, cost);
                    model.slots.extend(ms.iter().map(|ms| (i64::try_from(*ms).unwrap(), cost)));
                    let given: Vec<_> = ms.iter().map(at).collect();
                    model.forget(&waiters.give(given, now));
                }
                Event::HandOut => {
                    let expected = model.pairs(epoch, now);
                    while let Some(slot) = waiters.pop_started(now) {
                        let owner = waiters.pop_owner(&slot, now).expect("every slot is some caller's");
                        prop_assert!(expected.contains(&(owner.ticket, Some(slot.stamp.as_micros()))));
                        model.waiters.retain(|waiter| waiter.ticket != owner.ticket);
                        model.forget(&[slot]);
                    }
                    prop_assert!(waiters.first_start().is_none_or(|start| start > now));
                }
                Event::TakeBefore { ms } => {
                    let until = epoch + Duration::from_millis(ms);
                    let taken = waiters.take_slots_before(until);
                    prop_assert!(taken.iter().all(|slot| slot.start < until));
                    model.forget(&taken);
                }
                Event::Pass { ms } => now += Duration::from_millis(ms),
            }
            model.forget(&waiters.age(now).unwrap_or_default());
            let expected = model.pairs(epoch, now);
            prop_assert_eq!(pairs(&waiters, now), expected.clone());
            let unslotted: Vec<_> = expected.iter().filter(|(_, slot)| slot.is_none()).map(|(ticket, _)| *ticket).collect();
            prop_assert_eq!(expected.len() - unslotted.len(), model.slots.len(), "no slot is nobody's");
            prop_assert_eq!((waiters.len(), waiters.has_unslotted()), (expected.len(), !unslotted.is_empty()));
            let of = |ticket: &u64| -> u64 { model.waiters.iter().find(|waiter| waiter.ticket == *ticket).unwrap().costs[0].into() };
            prop_assert_eq!(waiters.units_wanted().of(0), unslotted.iter().map(of).sum::<u64>());
            let (mut before, taken) = (0, model.slots.iter().map(|(_, cost)| u64::from(*cost)).sum::<u64>());
            for waiter in model.in_order(now) {
                prop_assert_eq!(waiters.find(waiter.ticket).map(|found| found.priority), Some(waiter.priority));
                prop_assert_eq!(waiters.units_before(waiter.priority, waiter.ticket).of(0), u64::saturating_sub(before, taken));
                before += u64::from(waiter.costs[0]);
            }
            let patient = |ticket: &&u64| model.waiters.iter().any(|of| of.ticket == **ticket && of.wish == Wish::Soon);
            let joined = |ticket| model.waiters.iter().find(|of| of.ticket == ticket).unwrap().joined;
            prop_assert_eq!(waiters.first_patient(now), unslotted.iter().filter(patient).map(|ticket| joined(*ticket)).min());
        }
    }
}
