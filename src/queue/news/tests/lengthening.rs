//! Refusals while a pause lasts that the store knows of.

use super::*;

#[test]
fn what_only_lengthens_a_pause_is_one_message_a_second_while_half_of_it_is_left() {
    let mut desk = Desk::new();
    desk.background(pause(8));
    desk.sent();
    desk.paused(8 * SECOND, true);
    let (begin, ms) = (desk.now, SECOND / 1_000);
    assert!(desk.is_idle());
    for _ in 0..1_000 {
        desk.background(pause(8));
        desk.now += ms;
    }
    // The first adds nothing. The second would wait for half of what was left then, but no longer than a second.
    let half = begin + ms + SECOND;
    assert!(matches!(desk.turn(), Next::Wait(at) if at == half));
    assert_eq!((desk.begun, desk.paused.len()), (2, 1_002), "this process knows at once");
    desk.now = half;
    let left = begin + 999 * ms + 8 * SECOND - half;
    assert_eq!(desk.sent_pause().waits, [left], "the longest");
    desk.paused(left, false);
    assert!(desk.is_idle());
    desk.now = begin + 9 * SECOND;
    desk.background(pause(8));
    assert_eq!(desk.sent_pause().waits, [8 * SECOND], "the next pause is told at once");
}

#[test]
fn a_graver_cause_or_somebody_who_waits_has_a_pause_told_at_once() {
    for graver in [false, true] {
        let mut desk = Desk::new();
        desk.said(Some(pause(8)), None);
        desk.sent();
        desk.paused(8 * SECOND, true);
        desk.background(pause(9));
        assert!(matches!(desk.turn(), Next::Wait(_)));
        if graver {
            desk.background(Pause { cause: Cause::Ban, ..pause(1) });
        } else {
            desk.said(Some(pause(1)), None);
            assert_eq!(desk.outcomes.len(), 2, "it adds nothing");
            desk.said(Some(pause(9)), None);
        }
        assert_eq!((desk.hurried, desk.sent_pause().waits), (1, vec![9 * SECOND]));
        desk.paused(9 * SECOND, false);
        assert!(desk.is_idle());
    }
}

#[test]
fn a_message_that_waits_for_its_turn_tells_what_is_left_of_its_pause_and_nothing_that_is_over() {
    let mut desk = Desk::new();
    desk.said(Some(of_a_call(pause(10))), None);
    let first = desk.sent().id;
    desk.now += 4 * SECOND;
    let Message { id, body } = desk.sent();
    assert!(id == first && matches!(body, Body::Pause { pause, .. } if pause.waits == [6 * SECOND]));
    desk.now += 6 * SECOND;
    let Body::Pause { pause, .. } = desk.sent().body else { panic!("a pause") };
    assert_eq!(pause.waits, [Duration::ZERO], "that it was refused is news still");
    desk.now += 5 * SECOND;
    assert!(matches!(desk.turn(), Next::Over));
    desk.over();
    assert!(desk.is_idle() && desk.outcomes == BTreeMap::from([(1, true)]), "the store has nothing to know");
    desk.said(Some(super::pause(0)), None);
    assert_eq!(desk.sent_pause().waits, [Duration::ZERO], "one of no time may be the next in a row");
}
