//! What is told long after it was said, or long after the store may have been told.

use super::*;
use crate::ledger::{Evidence, Ledger, Refused};

/// A second of log time.
const STAMPS: i64 = 1_000_000;

impl Desk {
    /// The store does not answer for so long.
    fn is_down(&mut self, secs: u32) {
        self.sent();
        self.answer(Err(StoreError::late()));
        self.now += secs * SECOND;
    }
}

fn evidence() -> Evidence {
    Evidence::new(Log::new("calls", [Limit::per_second(9).window_term()]), 1, Vec::new())
}

#[test]
fn a_pause_that_is_told_late_says_when_it_was_said() {
    let mut desk = Desk::new();
    desk.background(pause(600));
    assert_eq!(desk.sent_pause().started, None, "it is of now");
    desk.is_down(60);
    assert!(matches!(desk.sent().body, Body::Look { .. }), "what time is it there?");
    desk.answer(Err(StoreError::late()));
    desk.now += 3 * SECOND;
    assert!(matches!(desk.sent().body, Body::Look { .. }));
    desk.now += SECOND;
    desk.looked(1_000 * STAMPS);
    let sent = desk.sent_pause();
    assert_eq!((sent.started, &sent.waits[..]), (Some(Stamp::from_micros(936 * STAMPS)), &[536 * SECOND][..]));
    desk.paused(536 * SECOND, true);
    assert!(desk.is_idle());
}

#[test]
fn a_release_by_hand_is_not_undone_by_a_pause_that_was_said_before_it_and_told_after_it() -> Result<(), Refused> {
    let (mut ledger, mut desk) = (Ledger::default(), Desk::new());
    let at = |secs: i64| Stamp::from_micros(secs * STAMPS);
    desk.background(pause(600));
    desk.is_down(60);
    let release = Body::Release { scope: None, served: None };
    ledger.apply(at(1_059), &ledger::Message::new("up", MessageId::new(9, "by hand", 1), release))?;
    for _ in 0..2 {
        let Message { id, body } = desk.sent();
        let reply = ledger.apply(at(1_060), &ledger::Message::new("up", id, body))?;
        desk.answer(Ok(reply));
    }
    assert!(desk.is_idle() && desk.released.len() == 1 && desk.taken == 0);
    Ok(())
}

#[test]
fn of_pauses_that_are_told_as_one_the_last_says_when_they_were_said() {
    for (started, expected) in [(None, 50), (Some(30), 50), (Some(58), 58)] {
        let mut desk = Desk::new();
        desk.background(pause(600));
        desk.sent();
        desk.background(pause(610));
        desk.now += 10 * SECOND;
        // A call that started then was refused now, when log time is a minute.
        let started = started.map(|secs| Stamp::from_micros(secs * STAMPS));
        desk.background(Pause { started: started.or(Some(Stamp::from_micros(1))), ..pause(620) });
        desk.looked(60 * STAMPS);
        desk.paused(590 * SECOND, true);
        let Next::Wait(at) = desk.turn() else { panic!("it only lengthens") };
        desk.now = at;
        assert!(matches!(desk.sent().body, Body::Look { .. }));
        desk.looked(61 * STAMPS);
        assert_eq!(desk.sent_pause().started, Some(Stamp::from_micros(expected * STAMPS)));
    }
}

#[test]
fn a_message_that_the_store_may_have_forgotten_is_told_again_without_what_would_count_twice() {
    for (is_lost, secs, is_kept) in [(false, 29, true), (false, 30, false), (true, 29, true), (true, 30, false)] {
        let mut desk = Desk::new();
        let refused = Pause { evidence: Some(Box::new(evidence())), ..of_a_call(pause(600)) };
        desk.background(refused);
        let first = desk.sent().id;
        if is_lost {
            desk.handle(Event::Lost(desk.errand()));
            desk.now += secs * SECOND;
            desk.background(pause(1));
        } else {
            desk.is_down(secs);
        }
        assert_eq!(desk.sent().id, first);
        assert_eq!(desk.sent_pause().evidence.is_some(), is_kept, "after {secs} s, lost: {is_lost}");
    }
}

#[test]
fn what_was_never_sent_keeps_its_evidence() {
    let mut desk = Desk::new();
    desk.background(pause(600));
    desk.is_down(1);
    desk.background(Pause { evidence: Some(Box::new(evidence())), ..of_a_call(pause(600)) });
    desk.now += 90 * SECOND;
    desk.looked(STAMPS);
    desk.paused(509 * SECOND, true);
    if let Next::Wait(at) = desk.turn() {
        desk.now = at;
    }
    assert!(desk.sent_pause().evidence.is_some());
}

#[test]
fn old_reports_are_not_told() {
    // It follows a pause, is under way, or waits to be.
    for (pauses, is_sent) in [(Some(pause(600)), true), (None, true), (None, false)] {
        let (mut desk, has_pause) = (Desk::new(), pauses.is_some());
        desk.said(pauses.map(of_a_call), Some(report(None, Some(1))));
        if is_sent {
            desk.sent();
        }
        desk.handle(Event::Lost(desk.errand()));
        desk.now += 30 * SECOND;
        desk.background(of_a_call(pause(1)));
        if has_pause {
            desk.paused(570 * SECOND, true);
        } else if is_sent {
            assert!(matches!(desk.turn(), Next::Over));
            desk.over();
        }
        if let Next::Send(message) = desk.turn() {
            assert!(matches!(message.body, Body::Pause { .. }), "{message:?}");
            desk.paused(SECOND, true);
        }
        if !is_sent {
            assert!(matches!(desk.turn(), Next::Over));
            desk.over();
        }
        assert!(desk.is_idle());
        assert_eq!(desk.outcomes, BTreeMap::from([(1, has_pause)]));
    }
}

#[test]
fn a_report_that_is_told_late_says_when_it_was_said() {
    let mut desk = Desk::new();
    desk.said(None, Some(report(None, Some(1))));
    desk.now += 20 * SECOND;
    assert!(matches!(desk.sent().body, Body::Look { .. }));
    desk.looked(60 * STAMPS);
    assert_eq!(desk.sent_report().started, Some(Stamp::from_micros(40 * STAMPS)));
}
