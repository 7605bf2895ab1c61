use super::*;
use crate::ledger::{Ask, Grant, Ledger, Log, Message, MessageId, Remembered, Run, Term, Verdict};

const SECOND: i64 = 1_000_000;

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(1_000 * SECOND + micros)
}

/// A ledger whose seats some processes share.
struct Scene {
    ledger: Ledger,
    seats: u32,
    number: u64,
    logs: Vec<Log>,
}

impl Scene {
    fn new(seats: u32) -> Self {
        Self { ledger: Ledger::new(), seats, number: 0, logs: vec![Log::new("calls", [])] }
    }

    /// What a process is granted that keeps so many seats, `idle` of them unused, and has so many callers.
    fn ask(&mut self, micros: i64, sender: u64, kept: u32, idle: u32, callers: u32) -> (u32, Grant) {
        let runs = if callers > 0 { vec![Run::new(callers, [1])] } else { Vec::new() };
        self.say(micros, sender, kept, idle, runs)
    }

    fn say(&mut self, micros: i64, sender: u64, kept: u32, idle: u32, runs: Vec<Run>) -> (u32, Grant) {
        self.number += 1;
        let seats = Some(Seats::new([SeatLimit::new(None, self.seats)]).keeping(kept, idle));
        let ask = Ask { seats, ..Ask::new(self.logs.clone(), runs) };
        let callers = ask.callers();
        let message = Message::new("up", MessageId::new(sender, "", self.number), ask);
        let grant = self.ledger.apply(at(micros), &message).unwrap().grant().unwrap();
        let granted = grant.answers(callers).filter(|answer| answer.verdict.is_granted());
        (granted.map(|answer| answer.callers).sum(), grant)
    }

    fn granted(&mut self, micros: i64, sender: u64, kept: u32, callers: u32) -> u32 {
        self.ask(micros, sender, kept, 0, callers).0
    }

    fn told(&mut self, micros: i64, sender: u64, kept: u32, callers: u32) -> Seated {
        self.ask(micros, sender, kept, 0, callers).1.seats.unwrap()
    }
}

#[test]
fn no_more_than_all_seats_are_taken_and_one_that_is_left_is_taken_again() {
    let mut scene = Scene::new(3);
    assert_eq!(scene.granted(0, 1, 0, 2), 2);
    assert_eq!(scene.granted(1, 2, 0, 2), 1);
    assert_eq!(scene.granted(2, 3, 0, 1), 0);
    assert_eq!(scene.granted(3, 2, 0, 0), 0, "the second gives its seat back, and waits no more");
    assert_eq!(scene.granted(4, 3, 0, 2), 1);
}

#[test]
fn who_brings_seats_along_needs_no_further_ones() {
    let mut scene = Scene::new(4);
    assert_eq!(scene.granted(0, 1, 0, 4), 4);
    assert_eq!(scene.ask(1, 1, 4, 3, 2).0, 2);
    assert_eq!(scene.ask(2, 1, 4, 2, 5).0, 2, "no more than it brings");
    assert_eq!(scene.ask(3, 2, 0, 0, 1).0, 0);
}

#[test]
fn a_lapsed_lease_is_free_and_a_renewed_one_is_not() {
    let mut scene = Scene::new(2);
    assert_eq!(scene.granted(0, 1, 0, 1), 1);
    assert_eq!(scene.granted(0, 2, 0, 1), 1);
    scene.ask(30 * SECOND, 2, 1, 0, 0);
    assert_eq!(scene.granted(60 * SECOND - 1, 3, 0, 2), 0);
    assert_eq!(scene.granted(60 * SECOND, 3, 0, 2), 1, "that of the first is free");
    assert_eq!(scene.granted(90 * SECOND, 4, 0, 2), 1, "and now that of the second");
}

#[test]
fn to_give_back_what_has_lapsed_changes_nothing_whether_it_was_forgotten_or_not() {
    for (now, changes) in [(59 * SECOND, true), (60 * SECOND, false), (90 * SECOND, false)] {
        let mut scene = Scene::new(2);
        scene.granted(0, 1, 0, 1);
        assert_eq!(scene.ask(now, 1, 0, 0, 0).1.remembered, changes, "{now}");
    }
}

#[test]
fn what_a_process_says_of_its_seats_is_what_it_holds_even_beyond_the_limit() {
    let mut scene = Scene::new(2);
    assert_eq!(scene.granted(0, 1, 0, 2), 2);
    scene.ledger = Ledger::new();
    assert_eq!(scene.granted(1, 2, 0, 2), 2, "the store has lost its data");
    assert_eq!(scene.granted(2, 1, 2, 1), 0);
    assert_eq!(scene.granted(3, 2, 1, 1), 0, "three are taken of two");
    assert_eq!(scene.granted(4, 1, 0, 0), 0);
    assert_eq!(scene.granted(5, 2, 1, 1), 1);
}

#[test]
fn the_next_seat_goes_to_who_has_the_fewest_and_then_to_who_has_waited_longest() {
    let mut scene = Scene::new(4);
    assert_eq!(scene.granted(0, 1, 0, 9), 4);
    assert_eq!((scene.granted(1, 2, 0, 9), scene.granted(2, 3, 0, 9)), (0, 0));
    // Two come back.
    assert_eq!(scene.granted(3, 1, 2, 9), 0, "they are not for who has two already");
    assert_eq!(scene.granted(4, 3, 0, 9), 1, "one is the second's, who came before");
    assert_eq!(scene.granted(5, 3, 1, 9), 0);
    assert_eq!(scene.granted(6, 2, 0, 9), 1);
}

#[test]
fn who_does_not_ask_again_in_time_keeps_nobody_from_a_seat_and_keeps_its_place() {
    let mut scene = Scene::new(1);
    assert_eq!(scene.granted(0, 1, 0, 1), 1);
    assert_eq!((scene.granted(0, 2, 0, 1), scene.granted(0, 3, 0, 1)), (0, 0));
    scene.ask(1, 1, 0, 0, 0);
    assert_eq!(scene.granted(400_000 - 1, 3, 0, 1), 0, "it is the second's");
    assert_eq!(scene.granted(400_000, 3, 0, 1), 1, "who does not come");
    scene.ask(500_000, 4, 0, 0, 1);
    assert_eq!(scene.granted(600_000, 2, 0, 1), 0);
    scene.ask(700_000, 3, 0, 0, 0);
    assert_eq!(scene.granted(700_001, 4, 0, 1), 0, "it comes after the second");
    assert_eq!(scene.granted(700_002, 2, 0, 1), 1);
}

#[test]
fn who_has_more_than_others_that_wait_gives_seats_back_as_far_as_they_want_them() {
    let keep = |held: u32, others: &[(u64, u64)], seats: u64, age: i64| {
        let others = others.iter().map(|&(held, wanted)| Other { held, wanted, is_before: true }).collect();
        let seating = Seating {
            now: at(age),
            named: 25,
            seats,
            kept: held.into(),
            since: None,
            was_there: true,
            waited: false,
            roll_call: None,
            is_lost: false,
            others,
        };
        seating.keep(held.into(), at(0))
    };
    assert_eq!(keep(25, &[], 25, 0), u64::from(u32::MAX));
    assert_eq!(keep(20, &[(5, 0)], 25, 0), u64::from(u32::MAX), "nobody waits");
    assert_eq!(keep(25, &[(0, 50)], 25, 0), 13);
    assert_eq!(keep(13, &[(12, 50)], 25, 0), 13);
    assert_eq!(keep(25, &[(0, 2)], 25, 0), 23, "it wants no more");
    assert_eq!(keep(20, &[(0, 2)], 25, 0), 20, "and there are enough");
    assert_eq!(keep(4, &[(4, 9), (4, 9), (4, 9), (3, 9), (3, 9), (3, 9), (0, 9)], 25, 0), 3);
    assert_eq!(keep(3, &[(3, 9), (3, 9), (3, 9), (3, 9), (3, 9), (3, 9), (0, 9)], 25, 0), 3);
    assert_eq!(
        [0, TURN - 1, TURN].map(|age| keep(1, &[(1, 9), (0, 9)], 2, age)),
        [1, 1, 0],
        "more wait than there are"
    );
}

#[test]
fn the_lowest_limit_of_those_who_hold_seats_or_want_some_holds_for_all() {
    let mut scene = Scene::new(9);
    let ask = |scene: &mut Scene, seats: u32, micros: i64, sender: u64, kept: u32, callers: u32| {
        scene.seats = seats;
        let (granted, grant) = scene.ask(micros, sender, kept, 0, callers);
        (granted, grant.seats.unwrap().keep)
    };
    assert_eq!(ask(&mut scene, 9, 0, 1, 0, 9), (9, u32::MAX));
    assert_eq!(ask(&mut scene, 4, 1, 2, 0, 9), (0, u32::MAX), "nine of four are taken");
    assert_eq!(ask(&mut scene, 9, 2, 1, 9, 0), (0, 5), "a part is two now, and it comes near it in steps");
    assert_eq!(ask(&mut scene, 9, 3, 1, 5, 0), (0, 3));
    assert_eq!(ask(&mut scene, 9, 4, 1, 3, 0), (0, 2));
    assert_eq!(ask(&mut scene, 4, 5, 2, 0, 9).0, 1, "one is left of four");
    assert_eq!(ask(&mut scene, 9, 6, 1, 2, 9).0, 0, "and the next is for who has fewer");
    assert_eq!(ask(&mut scene, 4, 7, 2, 1, 9).0, 1);
    assert_eq!(ask(&mut scene, 9, 8, 3, 0, 1).0, 0, "another finds all four taken");
    ask(&mut scene, 4, 9, 2, 0, 0);
    assert_eq!(
        ask(&mut scene, 9, 10, 1, 2, 9).0,
        6,
        "who holds none and wants none binds nobody; one is left for the third"
    );
}

#[test]
fn what_a_process_named_before_does_not_bind_itself() {
    let mut scene = Scene::new(2);
    let mut ask = |stream: &str, seats: u32, callers: u32| {
        scene.number += 1;
        let seats = Some(Seats::new([SeatLimit::new(None, seats)]));
        let ask = Ask { seats, ..Ask::new(scene.logs.clone(), vec![Run::new(callers, [1])]) };
        let message = Message::new("up", MessageId::new(1, stream, scene.number), ask);
        scene.ledger.apply(at(0), &message).unwrap().grant().unwrap().answered(callers)
    };
    assert_eq!(ask("before", 2, 2), 2);
    assert_eq!(ask("raised", 4, 9), 2, "two of four are taken");
}

#[test]
fn who_has_its_part_asks_more_seldom_and_who_is_far_behind_too() {
    let mut scene = Scene::new(2);
    let ms = |told: Seated| told.again.as_millis();
    assert_eq!(ms(scene.told(0, 1, 0, 2)), 0);
    assert_eq!(ms(scene.told(0, 1, 2, 1)), 250);
    assert_eq!((2..8).map(|sender| ms(scene.told(0, sender, 0, 1))).collect::<Vec<_>>(), [50, 50, 100, 100, 150, 150]);
}

#[test]
fn a_seat_comes_with_a_slot_that_starts_within_20_ms_and_with_no_other() {
    let mut scene = Scene::new(9);
    scene.logs = vec![Log::new("calls", [Term::new(1, 100_000)])];
    assert_eq!(scene.granted(0, 1, 0, 2), 1, "the slot of the second is 100 ms away");
    let (granted, grant) = scene.ask(79_999, 1, 1, 0, 1);
    assert_eq!((granted, grant.next, grant.within.as_millis()), (0, at(100_000), 20));
    let (granted, grant) = scene.ask(80_000, 1, 1, 0, 1);
    assert_eq!((granted, grant.seats.unwrap().again), (1, Duration::ZERO));
    assert_eq!(scene.granted(80_000, 2, 0, 9), 0);
    assert_eq!(scene.granted(200_000, 2, 0, 9), 1, "and who waits for its slot takes no seat");
}

#[test]
fn who_wants_a_seat_now_or_never_is_refused_and_those_beside_it_wait() {
    let mut scene = Scene::new(1);
    let run = |callers, wait: Option<u64>| Run { max_wait: wait.map(Duration::from_millis), ..Run::new(callers, [1]) };
    let runs = vec![run(1, None), run(2, None), run(2, Some(0)), run(1, Some(1)), run(1, Some(0))];
    let (granted, grant) = scene.say(0, 1, 0, 0, runs);
    let verdicts: Vec<_> = grant.answers.iter().map(|answer| (answer.callers, answer.verdict)).collect();
    let expected =
        [(1, Verdict::Granted), (2, Verdict::Waits), (2, Verdict::Refused), (1, Verdict::Waits), (1, Verdict::Refused)];
    assert_eq!((granted, verdicts.as_slice()), (1, &expected[..]));
    assert_eq!(grant.next, at(250_000));
    assert!(grant.answers[1..].iter().all(|answer| answer.start == at(250_000)), "{grant:?}");
}

#[test]
fn of_several_limits_each_gives_a_seat_or_none_does() {
    let mut ledger = Ledger::new();
    let merchant = |name: &[u8]| Some(ScopeId::of(name));
    let mut number = 0;
    let mut ask = |sender: u64, scope: &[u8], callers: u32| {
        number += 1;
        let limits = [SeatLimit::new(None, 3), SeatLimit::new(merchant(scope), 2)];
        let ask = Ask::new([Log::new("calls", [])], vec![Run::new(callers, [1])]);
        let ask = Ask { seats: Some(Seats::new(limits)), ..ask };
        let message = Message::new("up", MessageId::new(sender, "", number), ask);
        let grant = ledger.apply(at(0), &message).unwrap().grant().unwrap();
        grant.answers.iter().filter(|answer| answer.verdict.is_granted()).map(|answer| answer.callers).sum::<u32>()
    };
    assert_eq!(ask(1, b"a", 3), 2, "that of the merchant is the narrower one");
    assert_eq!(ask(2, b"b", 3), 1, "and now that of all");
    assert_eq!(ask(3, b"a", 1), 0);
}

#[test]
fn what_is_silent_is_forgotten() {
    let mut scene = Scene::new(5);
    scene.granted(0, 1, 0, 2);
    assert_eq!(scene.ledger.scopes_in_use(at(60 * SECOND - 1)), 1);
    assert_eq!(scene.ledger.scopes_in_use(at(60 * SECOND + 12 * SECOND)), 0);
}

#[test]
fn an_ask_for_seats_that_makes_no_sense_is_refused() {
    let logs = || [Log::new("calls", [])];
    let said = |sender: u64, seats: Seats| {
        let ask = Ask { seats: Some(seats), ..Ask::new(logs(), Vec::new()) };
        Ledger::new().apply(at(0), &Message::new("up", MessageId::new(sender, "", 1), ask)).is_ok()
    };
    let limit = SeatLimit::new(None, 5);
    assert!(said(1, Seats::new([limit])));
    assert!(!said(0, Seats::new([limit])), "nobody holds a seat");
    assert!(said(1, Seats::new([])) && !said(1, Seats::new([limit, limit])));
    assert!(!said(1, Seats::new([limit]).keeping(1, 2)));
}

#[test]
fn how_long_a_roll_call_takes_goes_by_the_lease_and_is_20_s_at_most() {
    for (lease, ends) in [(3, 2), (60, 21), (3_600, 21)] {
        let mut ledger = Ledger::new();
        let mut ask = |micros: i64, sender: u64| {
            let lease = Duration::from_secs(lease);
            let seats = Some(Seats { lease, ..Seats::new([SeatLimit::new(None, 2)]) });
            let remembered = Remembered::new(u64::from(sender == 1), at(-1), []);
            let ask = Ask { seats, remembered, ..Ask::new([], vec![Run::new(1, [])]) };
            let number = u64::try_from(micros + 10).unwrap();
            let grant = ledger.apply(at(micros), &Message::new("up", MessageId::new(sender, "", number), ask));
            grant.unwrap().grant().unwrap().answered(1)
        };
        assert_eq!(ask(0, 1), 0, "data was lost");
        assert_eq!((ask(ends * SECOND - 1, 2), ask(ends * SECOND, 2)), (0, 1), "{lease} s");
    }
}
