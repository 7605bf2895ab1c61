use crate::ledger::{Boundary, Calendar, SlidingLog, Stamp, Term};

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(micros)
}

const fn exactly(micros: i64) -> Boundary {
    Boundary::new(at(micros), at(micros))
}

/// Two units in each window, which begin at 0, 1,000, 2,000 and 3,000, with a guard of 50.
const TERM: Term =
    Term::calendar(2, 1_100, Calendar::new(50, [exactly(0), exactly(1_000), exactly(2_000), exactly(3_000)]));

/// When units start that start at `now` or later beside those that started then.
fn start(entries: &[i64], now: i64, term: Term) -> i64 {
    let mut log = SlidingLog::new();
    for &entry in entries {
        log.append(at(entry), 1, 9_000);
    }
    log.earliest(at(now), &[term], 1).as_micros()
}

#[test]
fn all_units_come_back_at_the_boundary_and_a_guard() {
    assert_eq!(start(&[], 1_500, TERM), 1_500);
    assert_eq!(start(&[1_100], 1_500, TERM), 1_500, "one is free");
    assert_eq!(start(&[1_100, 1_949], 1_949, TERM), 2_050, "both come back at once");
    assert_eq!(start(&[900, 940], 1_049, TERM), 1_050);
    assert_eq!(start(&[900, 940], 1_050, TERM), 1_050);
    assert_eq!(start(&[900, 1_000], 1_049, TERM), 1_050, "of the window before");
    assert_eq!(start(&[1_000, 1_049], 1_050, TERM), 2_050, "and after the boundary in the next");
}

#[test]
fn nothing_starts_within_a_guard_before_a_boundary() {
    assert_eq!([1_949, 1_950, 1_999, 2_000].map(|now| start(&[], now, TERM)), [1_949, 2_000, 2_000, 2_000]);
}

#[test]
fn where_a_boundary_is_not_known_exactly_it_is_quiet_from_before_it_to_after_it() {
    let wide = [exactly(0), exactly(1_000), Boundary::new(at(2_000), at(2_400)), exactly(3_000)];
    let term = Term::calendar(2, 1_500, Calendar::new(50, wide));
    assert_eq!([1_949, 1_950, 2_399, 2_400].map(|now| start(&[], now, term)), [1_949, 2_400, 2_400, 2_400]);
    assert_eq!(start(&[1_100, 1_200], 1_500, term), 2_450);
}

#[test]
fn beyond_what_is_named_windows_are_taken_for_equally_long() {
    assert_eq!(start(&[2_951, 2_960], 2_900, TERM), 4_050);
    assert_eq!(start(&[5_100, 5_100], 2_900, TERM), 6_050);
}

#[test]
fn nobody_starts_where_it_is_past_all_that_is_named() {
    assert_eq!([-1, 2_949, 2_950].map(|now| start(&[], now, TERM)), [1_999_999, 2_949, 2_002_950]);
}
