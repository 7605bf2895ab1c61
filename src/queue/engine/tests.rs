//! Stories of a queue whose limit is one call a second: at what time, what happens, and what is to be done about it.

mod aside;
mod late;

use std::time::Duration;

use super::story::Story;

/// A window and its guard.
const SPAN: Duration = Duration::from_millis(1_050);

/// Whether what was said is what was expected, where `_` is any number.
fn is_like(expected: &str, said: &str) -> bool {
    let (expected, said): (Vec<_>, Vec<_>) = (expected.split(' ').collect(), said.split(' ').collect());
    let word = |(expected, said): (&&str, &&str)| expected.trim_end_matches(',') == "_" || expected == said;
    expected.len() == said.len() && expected.iter().zip(&said).all(word)
}

#[track_caller]
fn check(steps: &[(&str, &str)]) {
    let mut story = Story::new(SPAN);
    for (step, (what, expected)) in steps.iter().enumerate() {
        let said = story.happen(what);
        assert!(is_like(expected, &said), "step {step}, {what}: {said:?}, not {expected:?}");
    }
}

#[test]
fn a_caller_alone_asks_at_once_and_is_told() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("1: answer", "tell 1 0"),
        ("turn", "idle"),
        ("close", ""),
    ]);
}

#[test]
fn who_comes_while_a_message_is_under_way_goes_into_the_next() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("join 2", ""),
        ("join 3", ""),
        ("turn", "wake 5000"),
        ("1: answer", "tell 1 0"),
        ("turn", "ask 2 3, wake 5001"),
    ]);
}

#[test]
fn a_slot_is_told_at_its_start() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("answer", "tell 1 0"),
        ("join 2", "wake 0"),
        ("turn", "ask 2, wake 5000"),
        ("answer", ""),
        // It rests until its slot is near.
        ("turn", "wake _"),
        ("900: turn", "wake _"),
        ("1000: turn", "ask 2, wake _"),
        ("answer", ""),
        ("turn", "wake 1050"),
        ("1049: turn", "wake 1050"),
        ("1050: turn", "tell 2 1050, wake 1250"),
        // It has not come back: the store need not count it any more.
        ("1250: turn", "ask, wake _"),
        ("answer", ""),
        ("turn", "idle"),
    ]);
}

/// One call has gone at 0, and a slot is booked at 1,050 for the next of two callers, at 1,000.
const BOOKED: [(&str, &str); 9] = [
    ("0: join 1", "wake 0"),
    ("turn", "ask 1, wake 5000"),
    ("answer", "tell 1 0"),
    ("turn", "idle"),
    ("1000: join 2", "wake 1000"),
    ("join 3", "wake 1000"),
    ("turn", "ask 2 3, wake 6000"),
    ("answer", ""),
    ("turn", "wake 1050"),
];

#[track_caller]
fn check_booked(steps: &[(&str, &str)]) {
    check(&[&BOOKED, steps].concat());
}

#[test]
fn a_stale_slot_goes_back_with_the_ask_for_another() {
    check_booked(&[("1080: turn", "ask 2 3 -1, wake _"), ("answer", "tell 2 1080"), ("turn", "wake _")]);
}

#[cfg(target_os = "linux")]
#[test]
fn slots_of_before_a_machine_was_suspended_go_back_with_the_ask_for_others() {
    check_booked(&[
        ("1010: suspend", "wake 1010"),
        ("turn", "ask 2 3 -1, wake _"),
        // There is room by now, and the store's clock has not leapt.
        ("answer", "tell 2 1010"),
        ("turn", "wake _"),
    ]);
}

#[test]
fn the_slot_of_who_leaves_is_the_next_ones() {
    check_booked(&[
        ("1010: leave 2", "wake 1010"),
        // Nobody is without a slot any more, which the store does not know.
        ("turn", "ask, wake 1050"),
        ("answer", ""),
        ("turn", "wake 1050"),
        ("1050: turn", "tell 3 1050, idle"),
    ]);
}

#[test]
fn what_nobody_wants_is_handed_back() {
    check_booked(&[
        ("1010: leave 2", "wake 1010"),
        ("leave 3", "wake 1010"),
        ("leave 3", "wake 1010"),
        ("turn", "ask -1, wake _"),
        ("answer", ""),
        ("turn", "idle"),
    ]);
}

#[test]
fn a_permit_that_is_returned_goes_to_the_next_at_once_else_back() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("answer", "tell 1 0"),
        ("join 2", "wake 0"),
        ("10: return 1", "tell 2 0"),
        ("turn", "idle"),
        ("20: return 2", "wake 20"),
        ("turn", "ask -1, wake _"),
        ("answer", ""),
        ("turn", "idle"),
    ]);
}

#[test]
fn during_a_pause_slots_go_back_and_callers_wait() {
    check_booked(&[
        ("1010: pause 0 1500", "look, wake 1010"),
        ("turn", "ask 2 3 -1, wake _"),
        // The store does not know of the pause: what it grants is no use.
        ("1050: answer", ""),
        ("turn", "ask -1, wake _"),
        ("answer", ""),
        ("turn", "wake 1500"),
    ]);
}

#[test]
fn during_a_pause_a_doubt_asks_for_no_caller_and_what_goes_back_for_all() {
    check_booked(&[
        ("1010: pause 0 9000", "look, wake 1010"),
        ("turn", "ask 2 3 -1, wake _"),
        ("answer", ""),
        ("turn", "ask -1, wake _"),
        ("answer", ""),
        ("turn", "wake 9000"),
        ("5000: doubt", "wake 5000"),
        ("turn", "ask, wake _"),
        ("answer", ""),
        ("turn", "wake 9000"),
        // What a call used less than it was charged goes back.
        ("5500: settle 1 1 0", "wake 5631"),
        ("5632: turn", "ask 2 3 -1, wake _"),
        // The store does not know of the pause: what it grants is no use, and is not asked for again before the end.
        ("answer", ""),
        ("turn", "ask -1, wake _"),
        ("answer", ""),
        ("turn", "wake 9000"),
    ]);
}

#[test]
fn whom_waiting_does_not_help_is_told() {
    check_booked(&[
        ("1010: ban 0 61010", "look, tell 2 barred 60000, tell 3 barred 60000, wake 1010"),
        ("join 4", "look, tell 4 barred 60000"),
        ("turn", "ask -1, wake _"),
    ]);
}

#[test]
fn a_message_that_is_not_answered_is_sent_again() {
    check(&[
        ("0: join 1", "wake 0"),
        ("try 2", "wake 0"),
        ("turn", "ask 1 2, wake 5000"),
        // Now or never is no time for another try.
        ("10: lose", "tell 2 unavailable"),
        ("turn", "wake _"),
        ("join 3", "wake 10"),
        ("60: turn", "ask 1 2, wake _"),
        // It acted once, 51 ms ago.
        ("61: answer", ""),
        ("turn", "ask 1 3 -1, wake _"),
        ("answer", "tell 1 61"),
    ]);
}

#[test]
fn a_message_that_nobody_waits_for_any_more_is_sent_again_at_once() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("100: lost", "wake 100"),
        // The store may have answered meanwhile: it is silent from now on, if it is.
        ("turn", "ask 1, wake 5100"),
        ("answer", "tell 1 100"),
        ("turn", "idle"),
    ]);
}

#[test]
fn a_queue_whose_name_is_taken_goes_on_under_another_and_drops_its_slots() {
    check_booked(&[
        ("1010: join 4", "wake _"),
        ("1040: turn", "wake 1050"),
        ("renamed 8", "wake 1040"),
        ("1040: turn", "ask 2 3 4, wake _"),
        ("outdated", "rename 8"),
        ("renamed 9", "wake 1040"),
        ("turn", "ask 2 3 4, wake _"),
        // The slot at 1,050 is nobody's.
        ("answer", ""),
        ("turn", "wake _"),
    ]);
}

#[test]
fn an_answer_to_another_name_is_no_ones() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("renamed 8", ""),
        ("answer", ""),
        ("turn", "ask 1, wake 5000"),
    ]);
}

#[test]
fn closed_everybody_is_told_and_every_slot_goes_back() {
    check_booked(&[
        ("1010: close", "tell 2 closed, tell 3 closed, wake 1010"),
        ("join 4", "tell 4 closed"),
        ("turn", "ask -1, wake _"),
        ("answer", ""),
        ("turn", "idle"),
    ]);
}

#[test]
fn who_cannot_be_served_in_time_is_told_when_it_could() {
    check_booked(&[
        // Two wait, and one has a slot.
        ("1010: hurry 4 1500", "tell 4 throttled _"),
        ("hurry 5 9000", "wake _"),
        ("time-up 5", "tell 5 throttled _, wake 1010"),
        ("time-up 5", "wake 1010"),
    ]);
}

#[test]
fn whose_time_is_up_before_any_answer_is_told_of_the_store() {
    check(&[
        ("0: hurry 1 700", "wake 0"),
        ("turn", "ask 1"),
        ("700: time-up 1", "tell 1 unavailable"),
        ("800: answer", ""),
        // What it could not use would be granted again at once.
        ("turn", "wake 805"),
        ("805: turn", "ask -1, wake _"),
    ]);
}

#[test]
fn who_has_a_slot_that_has_started_when_its_time_is_up_gets_it() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("answer", "tell 1 0"),
        ("turn", "idle"),
        ("1000: hurry 2 1060", "wake 1000"),
        ("turn", "ask 2"),
        ("answer", ""),
        ("turn", "wake 1050"),
        // Its timer fires before the driver looks.
        ("1060: time-up 2", "tell 2 1050"),
    ]);
}

#[test]
fn whose_time_is_up_just_after_it_asked_is_not_told_of_the_store() {
    check(&[
        ("0: pause 0 690", "look"),
        ("10: hurry 1 700", "look, wake 10"),
        ("turn", "ask 1"),
        ("answer", ""),
        ("turn", "ask -1"),
        ("answer", ""),
        ("turn", "wake 690"),
        ("600: release 690", "wake 600"),
        ("turn", "ask 1"),
        ("700: time-up 1", "tell 1 throttled 100"),
    ]);
}

#[test]
fn who_has_all_the_time_is_told_after_five_seconds_without_an_answer() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("3000: join 2", ""),
        ("5000: turn", "tell 1 unavailable, wake 8000"),
        ("8000: turn", "tell 2 unavailable, wake 30000"),
    ]);
}

#[test]
fn what_the_store_may_have_forgotten_is_not_sent_again() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("leave 1", ""),
        ("100: lose", ""),
        ("turn", "wake _"),
        ("29000: turn", "ask 1, wake 30000"),
        ("29500: fail", ""),
        ("30000: turn", "idle"),
    ]);
}

#[test]
fn a_leap_of_the_stores_clock_is_said_and_its_slots_go_back() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("answer", "tell 1 0"),
        ("leap", ""),
        ("join 2", "wake 0"),
        ("turn", "ask 2, wake 5000"),
        ("answer", ""),
        ("turn", "wake 5"),
        ("5: turn", "ask 2 -1, wake _"),
    ]);
}

#[test]
fn a_queue_that_rests_says_something_every_thirty_seconds_and_every_five_where_it_remembers_what_counts_for_long() {
    let mut story = Story::new(Duration::from_secs(3_600));
    for what in ["0: join 1", "turn", "answer", "join 2", "turn", "answer"] {
        story.happen(what);
    }
    assert_eq!(story.happen("turn"), "wake 5000");
    assert_eq!(story.happen("5000: turn"), "ask 2, wake 10000");
    story.begin_anew(8, Duration::from_secs(3_600));
    for what in ["join 1", "turn", "answer"] {
        story.happen(what);
    }
    assert_eq!(story.happen("turn"), "wake 35000");
    assert_eq!(story.happen("35000: turn"), "ask 1, wake 40000");
}

#[test]
fn who_comes_while_a_message_is_under_way_and_cannot_wait_for_the_turns_of_others_is_asked_for_next() {
    let mut story = Story::new(Duration::from_secs(1));
    for what in ["0: join 1", "turn", "answer", "join 2", "turn", "answer"] {
        story.happen(what);
    }
    story.begin_anew(8, Duration::from_secs(1));
    for (what, expected) in [
        ("1000: join 3", "wake 1000"),
        ("turn", "ask 3, wake 6000"),
        ("hurry 4 1900", ""),
        ("try 5", ""),
        ("answer", "tell 3 1000"),
        ("turn", "ask 4 5"),
    ] {
        assert_eq!(story.happen(what), expected, "{what}");
    }
}

/// A call has gone at 0 with the only slot, and its permit is held.
const GONE: [(&str, &str); 4] =
    [("0: join 1", "wake 0"), ("turn", "ask 1, wake 5000"), ("answer", "tell 1 0"), ("turn", "idle")];

#[test]
fn what_a_call_used_is_told_before_long_and_all_in_one_message() {
    check(
        &[
            &GONE[..],
            &[
                ("100: settle 1 0 1", "wake 231"),
                ("150: settle 1 0 2", "wake 231"),
                ("turn", "wake 231"),
                ("232: turn", "ask +3, wake _"),
                ("233: settle 1 0 1", ""),
                ("answer", ""),
                ("turn", "wake 364"),
                // It delays whoever comes: the debt counts from 232 on.
                ("300: join 2", "wake 300"),
                ("turn", "ask 2 +1, wake _"),
                ("answer", ""),
                ("1300: turn", "ask 2, wake _"),
                ("answer", ""),
                ("1350: turn", "tell 2 1350, wake _"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn what_a_call_did_not_use_is_told_at_once_where_somebody_waits() {
    check(
        &[
            &GONE[..],
            &[
                ("10: join 2", "wake 10"),
                ("turn", "ask 2, wake _"),
                ("answer", ""),
                ("turn", "wake _"),
                ("100: settle 1 1", "wake 100"),
                ("turn", "ask 2 -1, wake _"),
                ("answer", "tell 2 100"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn what_a_call_did_not_use_waits_for_others_where_nobody_does() {
    check(
        &[
            &GONE[..],
            &[("100: settle 1 1 0", "wake 231"), ("200: join 2", "wake 200"), ("turn", "ask 2 -1, wake _")],
            &[("answer", "tell 2 200"), ("turn", "idle")],
        ]
        .concat(),
    );
}

#[test]
fn during_a_pause_nobody_is_helped_by_what_goes_back() {
    check(
        &[
            &GONE[..],
            &[
                ("10: join 2", "wake 10"),
                ("turn", "ask 2, wake _"),
                ("answer", ""),
                ("100: pause 0 9000", "look, wake 100"),
                ("settle 1 1", "wake 231"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn closed_the_store_is_told_at_once_what_calls_used() {
    check(
        &[
            &GONE[..],
            &[
                ("100: settle 1 0 2", "wake 231"),
                ("close", "wake 100"),
                ("turn", "ask +2, wake _"),
                ("answer", ""),
                ("turn", "idle"),
                ("200: settle 1 1", "wake 331"),
                ("turn", "ask -1, wake _"),
                ("answer", ""),
                ("turn", "idle"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn under_another_name_debts_are_told_and_nothing_goes_back() {
    check(
        &[
            &GONE[..],
            &[
                ("100: settle 1 1 2", "wake 231"),
                ("renamed 8", "wake 100"),
                ("settle 1 1 3", "wake 231"),
                ("232: turn", "ask +5, wake _"),
                ("outdated", "rename 8"),
                // That did not act.
                ("renamed 9", "wake 232"),
                ("turn", "wake 363"),
                ("364: turn", "ask +5, wake _"),
                ("answer", ""),
                ("turn", "idle"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn what_the_store_is_owed_is_told_again_as_long_as_somebody_waits() {
    check(
        &[
            &GONE[..],
            &[
                ("100: settle 1 0 2", "wake 231"),
                ("232: turn", "ask +2, wake _"),
                ("lose", ""),
                ("30200: join 2", "wake _"),
                ("30232: turn", "ask 2 +2, wake _"),
                ("answer", ""),
            ],
        ]
        .concat(),
    );
    check(
        &[
            &GONE[..],
            &[
                ("100: settle 1 0 2", "wake 231"),
                ("232: turn", "ask +2, wake _"),
                ("lose", ""),
                ("30232: turn", "idle"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn what_was_in_no_message_yet_is_told_though_the_one_before_is_given_up() {
    check(
        &[
            &GONE[..],
            &[
                ("100: settle 1 0 2", "wake 231"),
                ("232: turn", "ask +2, wake _"),
                ("lose", ""),
                ("29000: settle 1 0 3", "wake _"),
                ("30232: turn", "ask +3, wake _"),
                ("lose", ""),
                ("60232: turn", "idle"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn a_slot_of_another_name_whose_seat_is_not_sure_is_not_handed_back() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("answer", "tell 1 0"),
        ("turn", "idle"),
        ("renamed 8", ""),
        ("distrust 1", ""),
        ("turn", "idle"),
    ]);
}
