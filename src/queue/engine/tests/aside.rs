//! Stories of callers who are left out while it is asked for those who go before them.

use super::{check, check_booked};

/// One call has gone at 0; the next caller is put off, and its queue rests.
const RESTING: [(&str, &str); 7] = [
    ("0: join 1", "wake 0"),
    ("turn", "ask 1, wake 5000"),
    ("answer", "tell 1 0"),
    ("join 2", "wake 0"),
    ("turn", "ask 2, wake 5000"),
    ("answer", ""),
    ("turn", "wake _"),
];

#[track_caller]
fn check_resting(steps: &[(&str, &str)]) {
    check(&[&RESTING, steps].concat());
}

#[test]
fn who_goes_before_the_others_is_asked_for_without_them() {
    check_resting(&[
        ("100: high 3", "wake 100"),
        ("turn", "ask 3, wake 5100"),
        ("answer", ""),
        ("leave 3", "wake 100"),
        // It rests as it was told before.
        ("turn", "wake _"),
        ("700: high 4", "wake 700"),
        ("turn", "ask 4, wake 5700"),
        ("answer", ""),
        ("turn", "wake _"),
        ("1000: turn", "ask 4 2, wake _"),
    ]);
}

#[test]
fn whose_slot_is_taken_is_asked_for_in_the_place_of_who_took_it() {
    check(&[
        ("0: join 1", "wake 0"),
        ("turn", "ask 1, wake 5000"),
        ("answer", "tell 1 0"),
        ("join 2", "wake 0"),
        ("join 3", "wake 0"),
        ("turn", "ask 2 3, wake 5000"),
        ("answer", ""),
        ("1000: turn", "ask 2 3, wake _"),
        ("answer", ""),
        ("turn", "wake 1050"),
        ("high 4", "wake 1000"),
        ("turn", "ask 2, wake 1050"),
        ("answer", ""),
        ("1050: turn", "tell 4 1050, wake _"),
    ]);
}

#[test]
fn a_slot_that_was_taken_by_who_leaves_again_is_taken_no_more() {
    check_booked(&[
        ("1010: high 4", "wake 1010"),
        ("leave 4", "wake 1010"),
        ("turn", "wake 1050"),
        ("1050: turn", "tell 2 1050, wake _"),
    ]);
}

#[test]
fn a_slot_that_is_taken_by_who_goes_before_nobody_that_rests_is_not_asked_for_again() {
    check_booked(&[("1010: join 1", "wake _"), ("turn", "wake 1050"), ("1050: turn", "tell 1 1050, wake _")]);
}

#[test]
fn who_is_left_out_and_cannot_wait_until_it_is_time_is_asked_for_with_all() {
    check_resting(&[
        ("100: high 3", "wake 100"),
        ("hurry 4 300", "wake 100"),
        ("turn", "ask 3 2 4, wake _"),
        ("answer", "tell 4 throttled _"),
    ]);
}

#[test]
fn after_the_answer_under_way_it_is_asked_for_all_where_somebody_was_left_out_who_cannot_wait() {
    check_resting(&[
        ("100: high 3", "wake 100"),
        ("turn", "ask 3, wake 5100"),
        ("hurry 4 300", ""),
        // Its own answer comes too late: two go before it.
        ("answer", "tell 4 throttled 3050"),
        ("turn", "ask 3 2, wake _"),
    ]);
}

#[test]
fn room_that_is_given_back_is_asked_for_by_all() {
    check_resting(&[("settle 1 1 0", "wake 0"), ("high 3", "wake 0"), ("turn", "ask 3 2 -1, wake _")]);
}
