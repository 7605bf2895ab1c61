use std::time::Duration;

use super::*;
use crate::ledger::{Body, Grant, Log, Message, Reply, Run, Slots, Term};

const SPAN: i64 = 1_000_000;
const MS: i64 = 1_000;

const fn at(millis: i64) -> Stamp {
    Stamp::from_micros(50_000_000 + millis * MS)
}

/// An ask of the process `sender` for one caller, which remembers these.
fn ask(ledger: &mut Ledger, now: Stamp, sender: u64, number: u64, remembered: Remembered) -> Grant {
    let log = Log::new("calls", [Term::new(2, SPAN)]);
    let ask = Ask { remembered, ..Ask::new([log], vec![Run::new(1, [1])]) };
    match ledger.apply(now, &Message::new("up", MessageId::new(sender, "", number), ask)) {
        Ok(Reply::Grant(grant)) => grant,
        other => unreachable!("{other:?}"),
    }
}

/// How many milliseconds after the first a caller may start, and whether it was told of a loss.
fn said(grant: &Grant) -> (i64, bool) {
    let start = grant.answers(1).next().map_or(grant.next, |answer| answer.start);
    ((start.as_micros() - at(0).as_micros()) / MS, grant.lost)
}

#[test]
fn what_is_missing_keeps_everybody_waiting_for_a_span_from_the_last_slot_that_may_be_booked() {
    let none = Remembered::default;
    for (name, remembered, start) in [
        ("nothing is remembered", none(), 0),
        ("a message is missing", Remembered::new(1, at(-10), []), 1_250),
        ("an entry is missing", Remembered::new(0, at(0), [at(-10)]), 1_250),
        ("an entry is missing that was booked ahead", Remembered::new(0, at(0), [at(400)]), 1_400),
        ("an entry is missing that has counted lately", Remembered::new(0, at(0), [at(-5_999)]), 1_250),
        ("an entry has not counted for 5 s", Remembered::new(0, at(0), [at(-6_000)]), 0),
    ] {
        let mut ledger = Ledger::new();
        assert_eq!(said(&ask(&mut ledger, at(0), 1, 2, remembered)), (start, start > 0), "{name}");
        let other = said(&ask(&mut ledger, at(1), 2, 2, none()));
        assert_eq!(other, (if start > 0 { start } else { 1 }, start > 0), "{name}, for others");
    }
}

#[test]
fn what_others_may_have_sent_in_an_outage_is_no_loss_when_it_counts_no_more() {
    let outage = Remembered::new(1, at(-8_000), [at(-1_001)]);
    assert!(!said(&ask(&mut Ledger::new(), at(0), 1, 2, outage)).1, "no answer named a start like that");
    let granted = Remembered::new(1, at(-1_200), [at(-1_001)]);
    assert!(said(&ask(&mut Ledger::new(), at(0), 1, 2, granted)).1);
}

#[test]
fn what_is_there_is_no_loss() {
    let told = |remembered| {
        let mut ledger = Ledger::new();
        ask(&mut ledger, at(0), 1, 1, Remembered::default());
        said(&ask(&mut ledger, at(5), 1, 2, remembered))
    };
    assert_eq!(told(Remembered::new(1, at(0), [at(0)])), (5, false));
    assert_eq!(told(Remembered::new(1, at(0), [at(-1)])), (5, false), "others booked since");
    assert!(told(Remembered::new(2, at(0), [at(0)])).1, "a later message is gone");
    assert!(told(Remembered::new(1, at(0), [at(1)])).1, "a later entry is gone");
}

#[test]
fn others_may_have_sent_by_themselves_unless_an_entry_of_before_the_outage_counts_still() {
    let told = |lost_at: i64, until: i64| {
        let mut ledger = Ledger::new();
        ask(&mut ledger, at(0), 1, 1, Remembered::default());
        let outage = Remembered { apart: vec![at(until)], lost_at: at(lost_at), ..Remembered::default() };
        said(&ask(&mut ledger, at(900), 2, 1, outage))
    };
    assert_eq!(told(0, 1_900), (900, false), "it was booked when the store was lost");
    assert_eq!(told(-1, 1_900), (2_900, true), "it was booked later, maybe when the store was back");
    assert_eq!(told(-1, -100), (900, false), "what was sent counts no more");
    let mut ledger = Ledger::new();
    ask(&mut ledger, at(0), 1, 1, Remembered::default());
    let outage = Remembered { apart: vec![at(2_000)], lost_at: at(500), ..Remembered::default() };
    assert_eq!(said(&ask(&mut ledger, at(1_000), 2, 1, outage)), (3_000, true), "it counts no more");
}

#[test]
fn each_process_finds_the_same_loss_and_none_makes_it_longer_than_it_must_be() {
    let mut ledger = Ledger::new();
    let mut finds = |now: i64, sender, remembered| said(&ask(&mut ledger, at(now), sender, 9, remembered));
    assert_eq!(finds(0, 1, Remembered::new(1, at(-10), [at(-10)])), (1_250, true));
    assert_eq!(finds(900, 2, Remembered::new(1, at(-20), [at(-20)])), (1_250, true));
    assert_eq!(finds(910, 3, Remembered::new(1, at(-20), [at(300)])), (1_300, true), "booked further ahead");
    assert_eq!(finds(1_301, 4, Remembered::new(1, at(-20), [])), (1_301, false), "who comes later");
    assert_eq!(finds(1_302, 5, Remembered::new(1, at(1_301), [])).0, 2_552, "another loss");
}

#[test]
fn what_a_store_may_have_forgotten_by_now_is_no_loss() {
    let finds = |after: i64| {
        let told = at(-after);
        said(&ask(&mut Ledger::new(), at(0), 1, 9, Remembered::new(1, told, [told]))).1
    };
    assert!(finds(5_999), "a span and 5 s ago");
    assert!(!finds(6_000), "its sender was cut off, or suspended");
}

#[test]
fn a_clock_that_leaps_ahead_and_is_taken_back_keeps_nobody_waiting_for_so_long() {
    const HOUR: i64 = 3_600_000;
    let mut ledger = Ledger::new();
    ask(&mut ledger, at(0), 1, 1, Remembered::default());
    ask(&mut ledger, at(HOUR), 1, 2, Remembered::new(1, at(0), [at(0)]));
    let log = Log::new("calls", [Term::new(2, SPAN)]);
    let (remembered, back) = (Remembered::new(1, at(0), [at(0)]), vec![Slots::new(1, at(HOUR), [1])]);
    let next = Ask { back, remembered, ..Ask::new([log], vec![Run::new(1, [1])]) };
    let next = Message { latest: Some(at(5)), ..Message::new("up", MessageId::new(1, "", 3), next) };
    let grant = ledger.apply(at(HOUR + 5), &next).unwrap().grant().unwrap();
    assert_eq!(said(&grant), (5, false));
}

#[test]
fn the_short_window_of_a_log_is_waited_for_that_has_a_long_one_too() {
    let log = Log::new("calls", [Term::new(500, 60 * SHORT), Term::new(2, 9 * SPAN)]);
    let mut ledger = Ledger::new();
    for (what, remembered) in [
        ("a message is missing", Remembered::new(1, at(-10), [])),
        ("an entry is missing", Remembered::new(0, at(0), [at(-10)])),
    ] {
        let ask = Ask { remembered, ..Ask::new([log.clone()], vec![Run::new(1, [1])]) };
        let grant = ledger.apply(at(0), &Message::new(what, MessageId::new(1, "", 2), ask));
        assert_eq!(said(&grant.unwrap().grant().unwrap()), (9_250, true), "{what}");
        ledger = Ledger::new();
    }
}

#[test]
fn in_a_log_that_counts_for_long_nobody_starts_until_it_may_be_entered_again() {
    for is_evicted in [false, true] {
        let (mut ledger, run) = (Ledger::new(), vec![Run::new(1, [1])]);
        let [before, log] = ["others", "calls"].map(|unit| Log::new(unit, [Term::new(2, 60 * SHORT)]));
        if is_evicted {
            let ask = Ask::new([before], run.clone());
            ledger.apply(at(0), &Message::new("up", MessageId::new(1, "", 1), ask)).unwrap();
        }
        let remembered = Remembered::new(1, at(0), [at(0)]);
        let ask = Ask { remembered, horizon: Duration::ZERO, ..Ask::new([log], run) };
        let reply = ledger.apply(at(1), &Message::new("up", MessageId::new(1, "", 2), ask)).unwrap();
        assert_eq!(said(&reply.grant().unwrap()), (1 + SETTLING / MS, true), "{is_evicted}");
    }
}

#[test]
fn what_was_forgotten_by_hand_is_no_loss_for_as_long_as_any_window() {
    const DAY: i64 = 86_400_000;
    let log = Log::new("calls", [Term::new(100, 366 * DAY * MS)]);
    let mut ledger = Ledger::new();
    let mut told = |now: i64, sender: u64, number: u64, remembered: Remembered| {
        let asks = Ask { remembered, ..Ask::new([log.clone()], vec![Run::new(1, [1])]) };
        let reply = ledger.apply(at(now), &Message::new("up", MessageId::new(sender, "", number), asks)).unwrap();
        let grant = reply.grant().unwrap();
        if number == 1 && sender == 1 {
            let body = Body::Reset { scope: None, units: ["calls".into()].into() };
            ledger.apply(at(now + 1), &Message::new("up", MessageId::new(3, "!", 1), body)).unwrap();
        }
        (grant.loss.clone(), grant.answered(1))
    };
    told(0, 1, 1, Remembered::default());
    told(2_000, 2, 1, Remembered::default());
    // Its sender has heard nothing of that.
    for day in [31, 33, 365] {
        let number = u64::try_from(day).unwrap();
        let remembered = Remembered::new(0, at(0), [at(0)]);
        assert_eq!(told(day * DAY, 1, number, remembered), (None, 1), "after {day} days");
    }
}
