use std::time::Duration;

use super::room::Room;
use super::{SECOND, at, granted, per_second};
use crate::ledger::{Log, Stamp, Term};

#[test]
fn a_queue_contends_in_the_scopes_that_it_waits_for() {
    let logs = [per_second(3, None), per_second(3, Some("a")), per_second(3, Some("b"))];
    // What is used of each log, and where a queue is counted that wants one of each.
    let cases =
        [([0, 0, 0], ""), ([3, 0, 0], "0"), ([0, 3, 0], "1"), ([3, 3, 0], "01"), ([0, 3, 3], "12"), ([3, 3, 3], "012")];
    for (used, expected) in cases {
        let mut room = Room::default();
        for (log, used) in logs.iter().zip(used) {
            room.ask(1, std::slice::from_ref(log), used, &[1]);
        }
        let grant = room.ask(2, &logs, 1, &[1, 1, 1]);
        let counted: String = (0..3)
            .filter(|&scope| grant.counted.get(scope).is_some_and(|of| *of != Stamp::NEVER))
            .map(|of| of.to_string())
            .collect();
        assert_eq!(counted, expected, "{used:?}");
        for (scope, log) in logs.iter().enumerate() {
            let others = room.ask(3, std::slice::from_ref(log), 0, &[]).contenders;
            assert_eq!(others, u32::from(expected.contains(&scope.to_string())), "{used:?}, {scope}");
        }
    }
}

#[test]
fn nobody_delays_a_large_call_that_insists_in_any_of_its_scopes() {
    let logs = [per_second(10, None), per_second(4, Some("a")), per_second(4, Some("b"))];
    // What somebody else wants at 0.5 s, while a call of eight of all and four of a waits until 1 s; and whether it is granted.
    let cases = [
        (&logs[..1], &[2][..], true),
        (&logs[..1], &[3], false),
        (&logs[1..2], &[1], false),
        (&logs[2..], &[4], true),
        (&logs[..], &[2, 0, 4], true),
        (&logs[..], &[3, 0, 1], false),
        (&logs[..], &[1, 1, 0], false),
    ];
    for (wanted, charges, is_granted) in cases {
        let mut room = Room::default();
        room.ask(1, &logs[..2], 1, &[3, 3]);
        let grant = room.insist(2, &logs[..2], &[8, 4]);
        assert_eq!((granted(&grant, 1).0, grant.next), (0, at(SECOND)));
        room.now = SECOND / 2;
        let grant = room.asking(3, wanted, 1, charges, |ask| ask.horizon = Duration::ZERO);
        assert_eq!(granted(&grant, 1).0, u32::from(is_granted), "{charges:?}");
        room.now = SECOND;
        assert_eq!(granted(&room.insist(2, &logs[..2], &[8, 4]), 1).1, Some((SECOND, SECOND)), "{charges:?}");
    }
}

#[test]
fn who_claims_in_vain_is_waited_for_no_longer_than_it_promised() {
    // Taken back by an ask of nobody, or never heard of again.
    for (is_taken_back, now, is_granted) in
        [(true, 1, true), (false, 1, false), (false, 1_249_999, false), (false, 1_250_000, true)]
    {
        let logs = [per_second(4, None)];
        let mut room = Room::default();
        room.ask(1, &logs, 1, &[2]);
        room.insist(2, &logs, &[4]);
        room.now = now;
        if is_taken_back {
            room.ask(2, &logs, 0, &[]);
        }
        let grant = room.asking(3, &logs, 1, &[1], |ask| ask.horizon = Duration::ZERO);
        assert_eq!(granted(&grant, 1).0, u32::from(is_granted), "{now}");
    }
}

#[test]
fn queues_that_wait_are_counted_once_and_forgotten_after_a_silence() {
    let logs = [per_second(1, None)];
    // A period is eight horizons and two more; one in which four wait is as long as it takes each to start a call.
    let (period, of_four) = (2 * SECOND + SECOND / 2, 4 * SECOND + SECOND / 2);
    let mut room = Room::default();
    room.ask(1, &logs, 1, &[1]);
    let others = |room: &mut Room, queue| room.ask(queue, &logs, 5, &[1]).contenders;
    assert_eq!([2, 3, 4].map(|queue| others(&mut room, queue)), [0, 1, 2], "each counts itself when it waits");
    assert_eq!([2, 3, 4].map(|queue| others(&mut room, queue)), [2, 2, 2], "and only once");
    room.counted.remove(&4);
    assert_eq!(others(&mut room, 4), 3, "who does not say that it was counted is taken for another");
    room.now = period;
    assert_eq!([2, 3].map(|queue| others(&mut room, queue)), [3, 3], "in the next period nobody is forgotten yet");
    room.now = period + of_four - 1;
    assert_eq!(others(&mut room, 2), 3);
    room.now = period + of_four;
    assert_eq!(others(&mut room, 2), 1, "but who has not come back by its end is");
    room.now += 2 * period;
    assert_eq!(others(&mut room, 3), 0, "as everybody is after two");
}

#[test]
fn who_was_served_is_counted_until_it_wants_no_more() {
    let logs = [per_second(1, None)];
    let mut room = Room::default();
    room.ask(1, &logs, 1, &[1]);
    room.ask(2, &logs, 1, &[1]);
    room.now = SECOND;
    let grant = room.ask(2, &logs, 1, &[1]);
    assert_eq!(
        (granted(&grant, 1).0, grant.counted),
        (1, vec![at(2 * SECOND + SECOND / 2)]),
        "probably it is back soon"
    );
    assert_eq!(room.ask(3, &logs, 0, &[]).contenders, 1);
    room.ask(2, &logs, 0, &[]);
    assert_eq!(room.ask(3, &logs, 0, &[]).contenders, 0);
}

#[test]
fn a_queue_contends_where_it_waits_a_little_less_long_too() {
    // When the other log of the call has room, by how much earlier than the one that decides.
    for (earlier, contends) in [(0, true), (20_000, true), (20_001, false)] {
        let logs = [per_second(1, None), per_second(1, Some("a"))];
        let mut room = Room::default();
        room.ask(1, &logs[1..], 1, &[1]);
        room.now = earlier;
        room.ask(1, &logs[..1], 1, &[1]);
        let grant = room.ask(2, &logs, 1, &[1, 1]);
        let counted: Vec<_> = grant.counted.iter().map(|counted| *counted != Stamp::NEVER).collect();
        assert_eq!(counted, [true, contends], "{earlier} µs");
    }
}

#[test]
fn who_waits_for_a_claim_contends_in_all_its_scopes() {
    let logs = [per_second(4, None), per_second(9, Some("a"))];
    let mut room = Room::default();
    room.ask(1, &logs[..1], 1, &[1]);
    room.insist(2, &logs[..1], &[4]);
    room.now = 1;
    let grant = room.ask(3, &logs, 1, &[1, 1]);
    assert_eq!(granted(&grant, 1).0, 0);
    assert!(grant.counted.iter().all(|counted| *counted != Stamp::NEVER), "{grant:?}");
}

#[test]
fn no_share_is_left_for_who_claims() {
    let logs = [per_second(9, None)];
    let mut room = Room::default();
    room.ask(1, &logs, 3, &[1]);
    // Nobody may delay it: what it leaves until then is for the other alone.
    assert_eq!(granted(&room.insist(2, &logs, &[7]), 1).0, 0);
    let grant = room.ask(3, &logs, 9, &[1]);
    assert_eq!((granted(&grant, 9).0, grant.contenders), (6, 1));
}

#[test]
fn who_is_near_books_as_far_ahead_as_who_is_far() {
    let logs = [per_second(1, None), per_second(9, Some("a"))];
    // What somebody asks for 400 ms ahead and cannot have; and whether another books as far, who asks from now.
    for (far, now, books) in [(&logs[..1], 350_000, true), (&logs[..1], 349_999, false), (&logs[1..], 350_000, false)] {
        let mut room = Room::default();
        room.ask(1, &logs, 1, &[1, 9]);
        room.asking(2, far, 1, &[1], |ask| ask.ahead = Duration::from_millis(400));
        room.now = now;
        let grant = room.ask(3, &logs[..1], 1, &[1]);
        assert_eq!(granted(&grant, 1).1, books.then_some((SECOND, SECOND)), "{now}");
    }
}

#[test]
fn beside_many_claimed_units_all_start_who_delay_nobody() {
    let logs = [Log::new("calls", [Term::new(100_000, 10 * SECOND)])];
    let mut room = Room::default();
    room.ask(1, &logs, 1, &[91_000]);
    for queue in 2..10 {
        room.ask(queue, &logs, 1, &[10_000]);
        room.insist(queue, &logs, &[10_000]);
    }
    let grant = room.ask(10, &logs, 1_000, &[1]);
    assert_eq!(granted(&grant, 1_000).0, 1_000, "{grant:?}");
}
