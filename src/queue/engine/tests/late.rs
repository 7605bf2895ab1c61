//! A machine that wakes whoever has slept for a while later than a slot may be used.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::priority::Priority;
use crate::queue::engine::scene::{Process, World, costs, reply};
use crate::queue::events::{Effect, Event};
use crate::queue::waiters::{Waiter, Wish};

const QUOTA: u32 = 10;
const SPAN: Duration = Duration::from_millis(110);
const STALE_AFTER: Duration = Duration::from_millis(5);
/// Who has slept for less is woken on time.
const DOZE: Duration = Duration::from_millis(30);

/// How many calls start in so many spans, where others come in their place at once, and whoever slept is so late; and how many turns that took.
fn starts_in(spans: u32, late: impl Fn(Duration) -> Duration) -> (u32, u32) {
    let mut world = World::new();
    let mut process = Process::hasty(&world, QUOTA, SPAN, STALE_AFTER);
    let (end, mut started) = (world.at(0) + SPAN * spans, 0);
    let joined = |ticket, now: Instant| {
        let (costs, wish, priority) = (costs(1), Wish::Soon, Priority::Normal);
        Event::Joined(Waiter { ticket, costs, joined: now, wish, priority })
    };
    let (begin, mut tickets, mut turns) = (world.now, 0.., 0);
    for ticket in tickets.by_ref().take(QUOTA as usize * 3) {
        process.handle(joined(ticket, begin), begin);
    }
    while world.now < end {
        let now = world.now;
        turns += 1;
        let (mut effects, mut wake) = (process.turn(now), None);
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Send(message) => {
                        let answered = process.read(reply(&world, &message), now, now);
                        next.extend(process.handle(Event::Answered(answered), now));
                        next.extend(process.turn(now));
                    }
                    Effect::Tell(_, Ok(_)) => {
                        started += 1;
                        next.extend(
                            tickets.next().into_iter().flat_map(|ticket| process.handle(joined(ticket, now), now)),
                        );
                    }
                    Effect::Wake(at) => wake = Some(wake.map_or(at, |wake: Instant| wake.min(at))),
                    _ => {}
                }
            }
            effects = next.into_iter().collect();
        }
        let at = wake.unwrap_or(now).max(now);
        world.pass_to(if at - now > DOZE { at + late(now - begin) } else { at });
    }
    (started, turns)
}

#[test]
fn slots_that_a_machine_wakes_too_late_for_are_missed_now_and_then_and_not_for_ever() {
    type Late = fn(Duration) -> Duration;
    let cases: [(&str, Late); 5] = [
        ("6 ms", |_| Duration::from_millis(6)),
        ("20 ms", |_| Duration::from_millis(20)),
        ("45 ms", |_| Duration::from_millis(45)),
        ("later and later", |at| at / 1_200),
        ("now and then", |at| Duration::from_millis(if at.as_secs() % 4 < 2 { 12 } else { 0 })),
    ];
    for (name, late) in cases {
        let (started, turns) = starts_in(500, late);
        assert!(started >= 500 * QUOTA * 98 / 100, "{name}: {started}");
        assert!(turns <= 500 * 5, "{name}: it looks {turns} times");
    }
}
