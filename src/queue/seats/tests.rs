use super::*;
use crate::ledger::{Answer, Seated, Stamp};

const SECOND: Duration = Duration::from_secs(1);

fn seats(limit: u32) -> Seats {
    Seats::new(SeatRules { limits: [SeatLimit::new(None, limit)].into(), lease: 60 * SECOND })
}

/// Says what it keeps, and is answered that so many callers got seats.
fn exchange(seats: &mut Seats, granted: u32, told: Seated, now: Instant) -> (u32, u32) {
    let said = seats.state(true, false, now);
    let answers = vec![Answer::granted(granted, Stamp::NEVER)];
    let grant = Grant { seats: Some(told), ..Grant::new(Stamp::NEVER, answers, Stamp::NEVER) };
    seats.answered(&grant, (granted, granted), 0.0, now);
    (said.kept, said.idle)
}

fn told(keep: u32, again_ms: u64) -> Seated {
    Seated::new(keep, Duration::from_millis(again_ms))
}

#[test]
fn a_message_says_what_is_used_and_brings_what_is_free() {
    let (mut seats, now) = (seats(9), Instant::now());
    assert_eq!(exchange(&mut seats, 5, told(9, 0), now), (0, 0));
    seats.leave(3, now);
    assert_eq!(exchange(&mut seats, 2, told(9, 0), now), (5, 3));
    assert_eq!((seats.used, seats.free), (4, 1), "one is left of those it brought");
    assert_eq!(exchange(&mut seats, 4, told(9, 0), now), (5, 1));
    assert_eq!((seats.used, seats.free), (8, 0), "three of them are new");
    seats.leave(2, now);
    let said = seats.state(false, true, now);
    assert_eq!((said.kept, said.idle), (6, 0), "who asks for nobody gives back what is free");
}

#[test]
fn the_store_is_told_of_seats_that_nobody_knows_whose_they_are() {
    let (mut seats, now) = (seats(9), Instant::now());
    exchange(&mut seats, 1, told(9, 0), now);
    seats.doubt(now);
    seats.leave(1, now);
    seats.pass(now);
    assert!(!seats.is_sure(now) && seats.has_any());
    assert_eq!(seats.tell_at(false, false, now), Some(now));
    exchange(&mut seats, 0, told(9, 0), now);
    assert!(!seats.has_any());
}

#[test]
fn seats_beyond_what_may_be_kept_are_given_back_at_once() {
    let (mut seats, now) = (seats(9), Instant::now());
    exchange(&mut seats, 9, told(6, 250), now);
    assert_eq!(seats.tell_at(true, false, now), Some(now + 20 * SECOND), "calls use nine of six");
    seats.leave(1, now);
    assert_eq!(seats.tell_at(true, false, now), Some(now));
    seats.leave(3, now);
    assert!(seats.take(now), "the sixth");
    assert!(!seats.take(now));
    assert_eq!(seats.state(true, false, now).kept, 6);
}

#[test]
fn what_is_free_lingers_where_nobody_waits() {
    let (mut seats, now) = (seats(9), Instant::now());
    let at = |ms: u64| now + Duration::from_millis(ms);
    exchange(&mut seats, 1, told(u32::MAX, 0), now);
    assert_eq!(seats.tell_at(false, false, now), Some(at(20_000)), "the lease is renewed after a third");
    seats.leave(1, at(10));
    assert_eq!(seats.tell_at(false, false, at(10)), Some(at(260)));
    assert_eq!(seats.tell_at(false, true, at(10)), Some(at(10)), "closed, it goes back at once");
    assert_eq!(seats.tell_at(true, false, at(10)), None, "somebody here wants it");
    let said = seats.state(false, false, at(259));
    assert_eq!((said.kept, said.idle), (1, 1), "a message meanwhile does not give it back");
    seats.give_up(at(259));
    assert_eq!(seats.state(false, false, at(260)).kept, 0);
    exchange(&mut seats, 1, told(u32::MAX, 0), now);
    seats.leave(1, at(10));
    assert!(seats.take(at(11)));
    assert_eq!(
        seats.tell_at(false, false, at(11)),
        Some(at(500)),
        "who uses it again hears whether others wait by now"
    );
    exchange(&mut seats, 0, told(8, 0), at(20));
    seats.leave(1, at(30));
    assert_eq!(seats.tell_at(false, false, at(30)), Some(at(30)), "others wait for it");
}

#[test]
fn seats_that_callers_here_cannot_use_yet_go_to_others() {
    let at = |now: Instant, ms: u64| now + Duration::from_millis(ms);
    for (keep, back) in [(u32::MAX, 250), (8, 0)] {
        let (mut seats, now) = (seats(9), Instant::now());
        exchange(&mut seats, 2, told(u32::MAX, 0), now);
        seats.leave(1, now);
        assert_eq!(seats.state(true, false, now).idle, 1);
        let grant = Grant { seats: Some(told(keep, 0)), ..Grant::new(Stamp::NEVER, Vec::new(), Stamp::NEVER) };
        seats.answered(&grant, (0, 1), 0.0, now);
        assert_eq!(seats.tell_at(true, false, now), Some(at(now, back)), "its caller waits for its slot");
        assert_eq!(seats.state(true, false, at(now, back)).idle, 0);
    }
}

#[test]
fn seats_that_are_left_while_callers_here_wait_for_something_else_go_to_others() {
    let grant = |told| Grant { seats: Some(told), ..Grant::new(Stamp::NEVER, Vec::new(), Stamp::NEVER) };
    for (again, back) in [(0, Some(Duration::from_millis(250))), (50, None)] {
        let (mut seats, now) = (seats(9), Instant::now());
        exchange(&mut seats, 1, told(u32::MAX, 0), now);
        assert_eq!(seats.state(true, false, now).idle, 0);
        seats.answered(&grant(told(u32::MAX, again)), (0, 1), 0.0, now);
        seats.leave(1, now);
        let back = back.map(|after| now + after);
        assert_eq!(seats.tell_at(true, false, now), back, "who is short of a seat takes it");
    }
}

#[test]
fn who_is_short_asks_no_sooner_than_it_was_told() {
    let (mut seats, now) = (seats(2), Instant::now());
    exchange(&mut seats, 2, told(2, 50), now);
    assert_eq!(seats.ask_at(now), Some(now + Duration::from_millis(50)));
    seats.leave(1, now);
    assert_eq!(seats.ask_at(now), None, "one is free here");
    exchange(&mut seats, 1, told(2, 0), now);
    assert_eq!(seats.ask_at(now), None);
}

#[test]
fn no_seat_is_used_again_when_the_lease_may_have_ended() {
    let (mut seats, now) = (seats(2), Instant::now());
    exchange(&mut seats, 2, told(2, 0), now);
    let late = now + 50 * SECOND;
    seats.leave(1, now);
    assert!(seats.may_take(late - Duration::from_nanos(1)) && !seats.may_take(late));
    seats.pass(late);
    assert_eq!((seats.used, seats.free), (1, 0), "that of the call is said again with the next message");
    assert_eq!(seats.tell_at(false, false, late).map(|at| at <= late), Some(true), "which is overdue");
    assert_eq!(exchange(&mut seats, 0, told(2, 0), late), (1, 0));
    seats.leave(1, late);
    assert!(seats.may_take(late));
}

#[test]
fn what_a_message_took_whose_answer_was_lost_is_put_right_by_the_next() {
    let (mut seats, now) = (seats(2), Instant::now());
    seats.state(true, false, now);
    seats.give_up(now + 30 * SECOND);
    assert!(seats.has_any(), "the store may count some");
    assert_eq!(seats.tell_at(false, false, now + 30 * SECOND), Some(now + 30 * SECOND));
    seats.pass(now + 90 * SECOND);
    assert!(!seats.has_any(), "until its lease ends");
}

#[test]
fn under_another_name_the_seats_of_calls_are_said_again() {
    let (mut seats, now) = (seats(9), Instant::now());
    exchange(&mut seats, 5, told(9, 0), now);
    seats.leave(2, now);
    seats.rename();
    assert_eq!(seats.tell_at(false, false, now), Some(now));
    assert_eq!(exchange(&mut seats, 0, told(9, 0), now), (3, 0));
}
