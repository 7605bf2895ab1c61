use std::time::Duration;

use super::*;
use crate::ledger::Term;
use crate::ledger::view::tests::{Book, within};

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(micros)
}

fn run(callers: u32, units: u32) -> Run {
    Run::new(callers, [units])
}

#[test]
fn a_process_gets_an_equal_share_of_what_is_free() {
    // Entries at 0 in a log of 100 in 1,000 µs; callers and units of each; the horizon; processes; callers that are granted.
    let cases = [
        (0, (100, 1), 0, 1, 100),
        (0, (100, 1), 0, 2, 50),
        (0, (100, 1), 0, 3, 34),
        (0, (100, 1), 0, 200, 1),
        (0, (20, 1), 0, 2, 20),
        (40, (100, 1), 0, 2, 30),
        (41, (100, 1), 0, 2, 30),
        // Its part of a quarter of the quota, and of what the rate lets start by the horizon.
        (88, (100, 1), 0, 2, 12),
        (88, (100, 1), 0, 4, 7),
        (99, (100, 1), 0, 2, 1),
        (100, (100, 1), 0, 2, 0),
        (0, (20, 10), 0, 2, 5),
        (0, (20, 10), 0, 4, 3),
        // At the rate of the limit twenty more start by the horizon, beside what is free: of those it is a share as well.
        (0, (200, 1), 1_200, 2, 61),
        (100, (200, 1), 1_200, 2, 50),
    ];
    for (used, (callers, units), horizon, processes, expected) in cases {
        let (terms, starts) = ([Term::new(100, 1_000)], vec![0; used]);
        let book = Book::new(&[(None, &terms, &starts)]);
        let (mut view, runs, bounds) = (book.view(), [run(callers, units)], within(horizon));
        let others = |_, priority| if priority == Priority::High { 0 } else { processes - 1 };
        let mut shares = Shares::of(&view, &runs, &bounds, 1, others);
        let decision = decide(&mut view, &runs, bounds, &mut shares, Vec::new(), 0);
        assert_eq!(decision.granted, expected, "{used} used, {callers} of {units}, {processes} processes");
        let waits = decision.granted < callers;
        assert_eq!(decision.waits_for, vec![true; usize::from(waits)], "who gets less than it wants contends");
    }
}

#[test]
fn shares_are_by_weight_and_among_those_of_equal_or_higher_priority() {
    // Of 100 in 1,000 µs; own weight, weights of others of high, normal and low priority; callers that are granted of each priority.
    let cases = [
        (1, [0, 0, 1], [100, 100, 50]),
        (1, [0, 3, 0], [100, 25, 25]),
        (1, [1, 0, 50], [50, 50, 2]),
        (4, [0, 1, 0], [100, 70, 70]),
        (1, [0, 4, 0], [100, 20, 20]),
        (3, [0, 4, 0], [100, 40, 40]),
        (100, [0, 1, 0], [100, 82, 82]),
    ];
    for (own, others, expected) in cases {
        for (priority, expected) in Priority::ALL.into_iter().zip(expected) {
            let terms = [Term::new(100, 1_000)];
            let book = Book::new(&[(None, &terms, &[])]);
            let (mut view, runs, bounds) = (book.view(), [run(200, 1).priority(priority)], within(0));
            let weights = |_, priority: Priority| others[..=priority.place()].iter().sum();
            let mut shares = Shares::of(&view, &runs, &bounds, own, weights);
            let decision = decide(&mut view, &runs, bounds, &mut shares, Vec::new(), 0);
            assert_eq!(decision.granted, expected, "{own} beside {others:?}, {priority:?}");
        }
    }
}

#[test]
fn callers_of_a_lower_priority_have_what_their_own_process_leaves_of_their_share() {
    // Of 100; a high run of so many, then 200 low ones, beside three low processes: who is granted.
    for (high, expected) in [(10, 25), (25, 25), (40, 40), (200, 100)] {
        let terms = [Term::new(100, 1_000)];
        let book = Book::new(&[(None, &terms, &[])]);
        let runs = [run(high, 1).priority(Priority::High), run(200, 1).priority(Priority::Low)];
        let (mut view, bounds) = (book.view(), within(0));
        let weights = |_, priority: Priority| if priority == Priority::Low { 3 } else { 0 };
        let mut shares = Shares::of(&view, &runs, &bounds, 1, weights);
        let decision = decide(&mut view, &runs, bounds, &mut shares, Vec::new(), 0);
        assert_eq!(decision.granted, expected, "{high} high ones");
    }
}

#[test]
fn each_scope_has_shares_of_its_own() {
    // Of the whole upstream, of the merchant: processes that contend, and callers that are granted.
    let cases = [((1, 1), 8), ((2, 1), 5), ((1, 2), 4), ((5, 2), 2), ((10, 8), 1)];
    for ((of_all, of_merchant), expected) in cases {
        let terms = [[Term::new(10, 1_000)], [Term::new(8, 1_000)]];
        let book = Book::new(&[(None, &terms[0], &[]), (Some("a"), &terms[1], &[])]);
        let (mut view, runs, bounds) = (book.view(), [Run::new(20, [1, 1])], within(0));
        let mut shares = Shares::of(&view, &runs, &bounds, 1, |scope, _| [of_all, of_merchant][scope] - 1);
        let decision = decide(&mut view, &runs, bounds, &mut shares, Vec::new(), 0);
        assert_eq!(decision.granted, expected, "{of_all} of all, {of_merchant} of the merchant");
    }
}

/// What stands in the log, the callers in their order, and the answers: so many, since when, and what became of them. And the
/// start of the first that waits.
type Case<'a> = (&'a [i64], Vec<Run>, Vec<Answer>, Option<i64>);

#[test]
fn callers_are_answered_in_their_order_and_smaller_ones_go_into_what_a_larger_one_leaves() {
    // Four units in any 1,000 µs, booked up to 100 µs ahead.
    let (granted, refused, waits) = (Answer::granted, Answer::refused, Answer::waiting);
    let soon = |run: Run| run.max_wait(Duration::from_micros(500));
    let cases: [Case<'_>; 13] = [
        (&[], vec![run(4, 1)], vec![granted(4, at(0))], None),
        (&[], vec![run(9, 1)], vec![granted(4, at(0))], Some(1_000)),
        (&[-950, -950], vec![run(9, 1)], vec![granted(2, at(0)), granted(2, at(50))], Some(1_000)),
        (&[0, 0], vec![run(1, 3)], vec![], Some(1_000)),
        (&[0, 0], vec![run(1, 3), run(9, 1)], vec![waits(1, at(1_000)), granted(2, at(0))], Some(1_000)),
        (&[-500, -500], vec![run(1, 3), run(9, 1)], vec![waits(1, at(500)), granted(1, at(0))], Some(500)),
        (&[-500, -500], vec![run(1, 4), run(9, 1)], vec![], Some(500)),
        (&[-950, -500, -500], vec![run(1, 2), run(9, 1)], vec![granted(1, at(50))], Some(500)),
        (&[0], vec![run(1, 4), run(2, 3), run(1, 1)], vec![waits(1, at(1_000)), granted(1, at(0))], Some(1_000)),
        (&[0, 0, 0, 0], vec![soon(run(2, 1))], vec![refused(2, at(1_000))], None),
        (&[0, 0, 0, 0], vec![soon(run(3, 2))], vec![refused(2, at(1_000)), refused(1, at(2_000))], None),
        (&[0, 0, 0], vec![soon(run(1, 2)), run(1, 1)], vec![refused(1, at(1_000)), granted(1, at(0))], None),
        (&[0, 0, 0], vec![run(1, 2), soon(run(2, 1))], vec![waits(1, at(1_000)), granted(1, at(0))], Some(1_000)),
    ];
    for (starts, runs, answers, next) in cases {
        let terms = [Term::new(4, 1_000)];
        let book = Book::new(&[(None, &terms, starts)]);
        let mut view = book.view();
        let decision = decide(&mut view, &runs, within(100), &mut Shares::default(), Vec::new(), 0);
        assert_eq!(decision.answers, answers, "{starts:?} {runs:?}");
        assert_eq!(decision.waiting.map(|turn| turn.start), next.map(at), "{starts:?} {runs:?}");
    }
}

#[test]
fn nobody_delays_who_claims_whatever_log_they_share() {
    let terms = [[Term::new(10, 1_000)], [Term::new(4, 1_000)], [Term::new(4, 1_000)]];
    let book = Book::new(&[(None, &terms[0], &[0, 0]), (Some("a"), &terms[1], &[0]), (Some("b"), &terms[2], &[])]);
    let claim = || vec![Turn { charges: [8, 4, 0].into(), start: at(0), priority: Priority::Normal }];
    // What is asked for beside a claim of eight of all and four of a, which waits for a until 1,000; and who is granted it now.
    let cases = [([1, 0, 1], 4, true), ([1, 1, 0], 3, true), ([2, 3, 0], 1, true), ([1, 4, 0], 1, false)];
    for (charges, callers, now) in cases {
        let mut view = book.view();
        let runs = [Run::new(callers, charges)];
        let mut shares = Shares::default();
        let decision = decide(&mut view, &runs, within(0), &mut shares, claim(), 1);
        assert_eq!(decision.granted, if now { callers } else { 0 }, "{charges:?}");
    }
    let later = Bounds { soonest: at(500), now: at(500), ..within(500) };
    let cases = [([1, 0, 1], 2, 2), ([3, 0, 1], 1, 0), ([1, 1, 0], 1, 0)];
    for (charges, callers, granted) in cases {
        let mut view = book.view();
        let decision = decide(&mut view, &[Run::new(callers, charges)], later, &mut Shares::default(), claim(), 1);
        assert_eq!(decision.granted, granted, "{charges:?} at 500, which count when the claim's turn comes");
        assert_eq!(decision.waiting.is_some(), granted == 0);
    }
}

#[test]
fn a_caller_that_waits_is_told_the_place_that_those_before_it_leave() {
    // All ten come back at 1,000. A claim of four waits for another log until 1,500.
    let (terms, starts) = ([Term::new(10, 1_000)], [0; 10]);
    let book = Book::new(&[(None, &terms, &starts)]);
    for (units, start) in [(6, 1_000), (7, 2_500)] {
        let claims = vec![Turn { charges: [4].into(), start: at(1_500), priority: Priority::Normal }];
        let decision = decide(&mut book.view(), &[run(1, units)], within(100), &mut Shares::default(), claims, 1);
        assert_eq!(decision.waiting.map(|turn| turn.start), Some(at(start)), "{units} beside a claim of four");
    }
    // Two that claim, and the later one starts before the earlier: neither is held up by the other.
    let claim = |units, start| Turn { charges: [units].into(), start: at(start), priority: Priority::Normal };
    let mut turns = vec![claim(4, 1_500), claim(5, 1_000), claim(9, 2_000)];
    book.view().settle(&mut turns);
    assert_eq!(
        turns.iter().map(|turn| turn.start.as_micros()).collect::<Vec<_>>(),
        [1_500, 1_000, 2_500],
        "nine have to wait for the four"
    );
}
