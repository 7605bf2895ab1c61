mod room;
mod waiting;

use std::time::Duration;

use self::room::Room;
use super::*;
use crate::ledger::{Answer, Cold, LEAP, Message, Refused, Remembered, Run, Slots, Term};

const SECOND: i64 = 1_000_000;

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(micros)
}

/// So many calls in any second, of the whole upstream or of a merchant.
fn per_second(quota: u32, merchant: Option<&str>) -> Log {
    Log::new("calls", [Term::new(quota, SECOND)]).of(merchant.map(|name| ScopeId::of(name.as_bytes())))
}

/// The callers that were granted, and the starts of the first and the last.
fn granted(grant: &Grant, callers: u32) -> (u32, Option<(i64, i64)>) {
    let all: Vec<Answer> = grant.answers(callers).filter(|answer| answer.verdict.is_granted()).collect();
    let ends = all.first().zip(all.last()).map(|(first, last)| (first.start.as_micros(), last.start.as_micros()));
    (all.iter().map(|answer| answer.callers).sum(), ends)
}

#[test]
fn all_logs_of_a_call_are_charged_with_one_start_or_none_is() {
    // What merchant a has used, what b has; the horizon; and when a call of both starts, if it is granted at all.
    let cases = [
        (0, 0, 0, Some(0)),
        (1, 1, 0, Some(0)),
        (2, 0, 0, None),
        (0, 2, 0, None),
        (2, 2, SECOND - 1, None),
        (2, 2, SECOND, Some(SECOND)),
        // Neither of two merchants is pushed for the other.
        (2, 0, SECOND, None),
    ];
    let logs = [per_second(2, Some("a")), per_second(2, Some("b"))];
    for (of_a, of_b, horizon, start) in cases {
        let mut room = Room::default();
        for (log, used) in logs.iter().zip([of_a, of_b]) {
            room.ask(1, std::slice::from_ref(log), used, &[1]);
        }
        let horizon = Duration::from_micros(horizon.unsigned_abs());
        let grant = room.asking(2, &logs, 1, &[1, 1], |ask| ask.horizon = horizon);
        let what = format!("{of_a} and {of_b} used, {horizon:?} ahead");
        assert_eq!(granted(&grant, 1).1, start.map(|start| (start, start)), "{what}");
        let more = u32::from(start.is_some());
        assert_eq!(room.used(&logs), [of_a + more, of_b + more], "{what}");
        if let Some(start) = start {
            room.hand_back(&logs, Slots::new(1, at(start), [1, 1]));
            assert_eq!(room.used(&logs), [of_a, of_b], "{what}, handed back");
        }
    }
}

#[test]
fn a_refusal_at_a_glance_says_what_the_whole_decision_says() {
    let logs = [per_second(2, None), per_second(1, Some("a"))];
    let mut room = Room::default();
    room.ask(1, &logs, 1, &[1, 1]);
    for wait in [0, SECOND / 2, SECOND - 1].map(|wait| Duration::from_micros(wait.unsigned_abs())) {
        for charges in [[1, 1], [0, 1], [2, 0]] {
            let mut refused =
                |back| room.asking(2, &logs, 1, &charges, |ask| (ask.runs[0].max_wait, ask.back) = (Some(wait), back));
            // What was never given changes nothing, but for the path.
            let (glance, whole) = (refused(Vec::new()), refused(vec![Slots::new(1, at(-1), [1, 1])]));
            assert_eq!(glance, Grant { remembered: false, ..whole }, "{wait:?} {charges:?}");
            assert_eq!(glance.answers, [Answer::refused(1, at(SECOND))], "{wait:?} {charges:?}");
        }
    }
}

#[test]
fn who_is_refused_is_remembered_where_nothing_was_for_half_a_minute() {
    let logs = [Log::new("calls", [Term::new(1, 60 * SECOND)])];
    let mut room = Room::default();
    room.now = 100 * SECOND;
    assert_eq!(granted(&room.ask(1, &logs, 1, &[1]), 1).0, 1);
    let told = at(room.now);
    // Who has another name since has no message there.
    for (now, number, is_remembered) in [(101 * SECOND, 0, true), (130 * SECOND - 1, 1, false), (130 * SECOND, 1, true)]
    {
        room.now = now;
        let grant = room.asking(1, &logs, 1, &[1], |ask| {
            (ask.runs[0].max_wait, ask.remembered) = (Some(Duration::ZERO), Remembered::new(number, told, [told]));
        });
        assert_eq!((granted(&grant, 1).0, grant.remembered), (0, is_remembered), "{now}");
    }
}

#[test]
fn a_merchant_whose_own_log_is_full_does_not_push_the_common_one() {
    let logs = |merchant: &str| [per_second(100, None), per_second(1, Some(merchant))];
    for ahead in [0_u32, 20_000, 60_000] {
        let (ahead, wait) = (i64::from(ahead), Duration::from_micros(ahead.into()));
        let slack = SLACK.max(ahead);
        let mut room = Room::default();
        let ask = |room: &mut Room, merchant: &str, callers| {
            room.asking(1, &logs(merchant), callers, &[1, 1], |ask| ask.ahead = wait)
        };
        assert_eq!(granted(&ask(&mut room, "a", 1), 1).0, 1);
        let start = ahead + SECOND;
        let too_early = start - ahead - slack - 1;
        for now in [0, 400_000, too_early] {
            room.now = now;
            let grant = ask(&mut room, "a", 5);
            assert_eq!(granted(&grant, 5), (0, None), "{now}, {ahead} ahead");
            assert_eq!(grant.next, at(start), "{now}, {ahead} ahead");
            assert_eq!(granted(&ask(&mut room, "b", 1), 1).0, u32::from(now == 0), "b has one call a second");
            let other = format!("other at {now}");
            assert_eq!(
                granted(&ask(&mut room, &other, 1), 1).1,
                Some((now + ahead, now + ahead)),
                "nobody waits for it"
            );
        }
        room.now = too_early;
        assert_eq!(micros(ask(&mut room, "a", 5).within), slack, "it waits until shortly before");
        room.now = too_early + 1;
        assert_eq!(granted(&ask(&mut room, "a", 5), 5), (1, Some((start, start))), "{ahead} ahead");
    }
}

#[test]
fn where_the_common_log_is_full_too_a_merchant_is_booked_at_most_a_little_later() {
    // When the merchant's own log has room, by how much later than the common one, and whether a call is booked then.
    for (later, is_booked) in [(-100_000, true), (0, true), (19_999, true), (20_000, true), (20_001, false)] {
        let (common, own) = (per_second(1, None), per_second(1, Some("a")));
        let mut room = Room::default();
        room.now = SECOND + later.min(0);
        room.ask(1, std::slice::from_ref(if later < 0 { &own } else { &common }), 1, &[1]);
        room.now = SECOND + later.max(0);
        room.ask(1, std::slice::from_ref(if later < 0 { &common } else { &own }), 1, &[1]);
        room.now = 2 * SECOND - 150_000;
        let grant = room.ask(2, &[common, own], 1, &[1, 1]);
        let start = 2 * SECOND + later.max(0);
        assert_eq!(granted(&grant, 1).1, is_booked.then_some((start, start)), "{later}");
        let waits_for = grant.counted.iter().map(|counted| *counted != Stamp::NEVER).collect::<Vec<_>>();
        assert_eq!(waits_for, [false, !is_booked], "{later}");
    }
}

#[test]
fn a_merchant_with_a_thousand_callers_leaves_the_call_of_another_its_share() {
    let logs = |merchant: &str| [per_second(10, None), per_second(1_000, Some(merchant))];
    let mut room = Room::default();
    assert_eq!(granted(&room.ask(1, &logs("crowd"), 1_000, &[1, 1]), 1_000).0, 10, "nobody else is there");
    assert_eq!(granted(&room.ask(2, &logs("single"), 1, &[1, 1]), 1).0, 0, "nothing is left, and it waits");
    room.now = SECOND;
    assert_eq!(granted(&room.ask(1, &logs("crowd"), 990, &[1, 1]), 990).0, 5, "half is for the other");
    assert_eq!(granted(&room.ask(2, &logs("single"), 1, &[1, 1]), 1).1, Some((SECOND, SECOND)));
    assert_eq!(granted(&room.ask(1, &logs("crowd"), 985, &[1, 1]), 985).0, 2, "of the rest half again");
    let gone = room.ask(2, &logs("single"), 0, &[]);
    assert_eq!((gone.contenders, granted(&gone, 0).0), (1, 0));
    assert_eq!(granted(&room.ask(1, &logs("crowd"), 983, &[1, 1]), 983).0, 2, "the other waits no more");
}

#[test]
fn only_what_has_changed_anything_is_remembered() {
    let logs = [per_second(2, None)];
    let mut room = Room::default();
    assert!(room.ask(1, &logs, 1, &[1]).remembered, "a slot");
    assert!(!room.ask(1, &logs, 0, &[]).remembered, "nothing");
    assert!(room.ask(1, &logs, 9, &[1]).remembered, "a slot, and a place among those who wait");
    assert!(!room.ask(1, &logs, 8, &[1]).remembered, "it has that place already");
    assert!(room.insist(1, &logs, &[2]).remembered, "a claim");
    assert!(room.ask(1, &logs, 0, &[]).remembered, "the claim and the place are given up");
    let back = Slots::new(1, at(-1), [1]);
    assert!(room.asking(1, &logs, 0, &[], |ask| ask.back = vec![back]).remembered, "a slot of before");
    let nobodys = Message::new("up", MessageId::nobodys(), Ask::new(logs.clone(), vec![Run::new(9, [1])]));
    assert!(!room.say(&nobodys).grant().unwrap().remembered, "nobody waits for nobody");
}

#[test]
fn a_message_acts_once_for_as_long_as_what_it_booked_counts() {
    let logs = [per_second(1, None)];
    let ask = Ask { horizon: Duration::from_secs(2), ..Ask::new(logs.clone(), vec![Run::new(2, [1])]) };
    let mut room = Room::default();
    room.ask(2, &logs, 1, &[1]);
    let message = Message::new("up", MessageId::new(1, "", 9), ask);
    let first = room.say(&message).grant().unwrap();
    assert_eq!(granted(&first, 2), (2, Some((SECOND, 2 * SECOND))));
    // A second and two of the horizon, and as long as the clock may leap ahead.
    for now in [1, SECOND, 3 * SECOND - 1 + LEAP] {
        room.now = now;
        assert_eq!(room.say(&message).grant().unwrap(), Grant { now: at(now), ..first.clone() });
    }
    room.now = 3 * SECOND + LEAP;
    let next = (3 * SECOND + LEAP, 4 * SECOND + LEAP);
    assert_eq!(granted(&room.say(&message).grant().unwrap(), 2).1, Some(next), "and no longer");
}

#[test]
fn a_leap_of_the_clock_that_is_taken_back_forgets_nothing_that_counts() {
    let logs = [per_second(100, None)];
    let mut room = Room::default();
    for turn in 0..5 {
        room.now = turn * SECOND;
        assert_eq!(granted(&room.ask(1, &logs, 100, &[1]), 100).0, 100);
    }
    let (at_last, leapt) = (4 * SECOND, 14 * SECOND);
    room.now = leapt;
    for queue in [2, 3] {
        assert_eq!(granted(&room.ask(queue, &logs, 50, &[1]), 50).0, 50);
    }
    let ask = Ask { back: vec![Slots::new(100, at(leapt), [1])], ..Ask::new(logs, vec![Run::new(1, [1])]) };
    let message = Message::new("up", MessageId::new(2, "", 99), ask);
    let grant = room.say(&Message { latest: Some(at(at_last + 1)), ..message }).grant().unwrap();
    assert_eq!((granted(&grant, 1).0, grant.now, grant.next), (0, at(at_last + 1), at(at_last + SECOND)));
}

#[test]
fn an_ask_that_charges_callers_in_other_logs_than_it_names_is_refused() {
    let (of_all, of_one) = (per_second(9, None), per_second(9, Some("a")));
    let both = [of_all.clone(), of_one.clone()];
    let mixed = [of_one, of_all];
    let ask = |logs: &[Log], charges: &[u32]| Ask::new(logs, vec![Run::new(1, charges)]);
    let back = Ask::hand_back(both.clone(), vec![Slots::new(1, at(5), [1])]);
    let cases = [
        (ask(&both, &[1, 1]), true),
        (ask(&both, &[0, 1]), true),
        (ask(&both, &[1]), false),
        (ask(&both, &[0, 0]), false),
        (ask(&mixed, &[1, 1]), false),
        (Ask::new(both, vec![Run::new(0, [1, 1])]), false),
        (back, false),
    ];
    for (ask, is_sound) in cases {
        let answer = Ledger::new().apply(at(1), &Message::new("up", MessageId::new(1, "", 1), ask.clone()));
        assert_eq!(answer.err(), (!is_sound).then_some(Refused::Senseless), "{ask:?}");
    }
}

#[test]
fn a_cold_burst_counts_for_longer_and_is_remembered_for_as_long() {
    let logs = [Log::new("calls", [Term::new(10, SECOND).cold(250_000)])];
    for told in [10, 4] {
        let mut room = Room::default();
        assert_eq!(granted(&room.ask(1, &logs, 10, &[1]), 10).0, 10);
        room.now = 100_000;
        let cold = Cold::new(at(0), at(0), [told]);
        room.asking(1, &logs, 0, &[1], |ask| ask.cold = Some(cold));
        room.now = SECOND;
        (0..20).for_each(|_| room.sweep());
        assert_eq!(room.used(&logs), [told], "the log counts them no more");
        let grant = room.ask(2, &logs, 11, &[1]);
        let (free, later) = (10 - told, at(SECOND + 250_000));
        assert_eq!(
            grant.answers.first().copied(),
            (free > 0).then(|| Answer::granted(free, at(SECOND))).or(Some(Answer::granted(10, later)))
        );
        assert_eq!(grant.answers.get(1).copied(), (free > 0).then(|| Answer::granted(told, later)));
        assert_eq!(grant.answered(11), 10);
    }
}
