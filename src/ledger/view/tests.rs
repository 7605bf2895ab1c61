use super::*;
use crate::ledger::constraints::Constraints;
use crate::ledger::{Priority, ScopeId};

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(micros)
}

/// A log: the whole upstream's or a scope's, its terms, and what it holds.
type Written<'a> = (Option<&'a str>, &'a [Term], &'a [i64]);

/// What a view is made of, where nothing was imposed.
pub(in crate::ledger) struct Book {
    logs: Vec<(Log, SlidingLog)>,
    places: Vec<usize>,
    in_force: InForce<'static>,
}

impl Book {
    pub(in crate::ledger) fn new(logs: &[Written<'_>]) -> Self {
        let (mut all, mut places, mut last) = (Vec::new(), Vec::new(), None);
        for (scope, terms, starts) in logs {
            let log = Log::new("calls", *terms).of(scope.map(|name| ScopeId::of(name.as_bytes())));
            let mut entries = SlidingLog::new();
            starts.iter().for_each(|&start| entries.append(at(start), 1, log.retention()));
            let place = places.last().map_or(0, |place| place + usize::from(last != Some(*scope)));
            last = Some(*scope);
            places.push(place);
            all.push((log, entries));
        }
        let nothing = Constraints::nothing();
        Self { logs: all, places, in_force: nothing.in_force(at(0), nothing, None) }
    }

    pub(in crate::ledger) fn view<'a>(&'a self) -> View<'a> {
        let page = |(of, &place): (&'a (Log, SlidingLog), &usize)| (&of.0, place, &self.in_force, Some(&of.1));
        View::new(self.logs.iter().zip(&self.places).map(page))
    }
}

/// Within a horizon of so many microseconds of now, which is 0.
pub(in crate::ledger) const fn within(horizon: i64) -> Bounds {
    Bounds { now: at(0), soonest: at(0), limits: [at(horizon); 3], slack: 20, seats: u32::MAX, again: 0 }
}

#[test]
fn a_call_has_one_common_start_over_all_its_logs() {
    let book = Book::new(&[
        (None, &[Term::new(3, 100)], &[0, 10, 20]),
        (Some("a"), &[Term::new(2, 50)], &[30, 40]),
        (Some("a"), &[Term::new(10, 1_000), Term::new(5, 20)], &[44]),
    ]);
    let view = book.view();
    let cases = [
        ([1, 0, 0], 100, [100, 45]),
        ([0, 1, 0], 80, [45, 80]),
        ([1, 1, 0], 100, [100, 80]),
        ([0, 2, 1], 90, [45, 90]),
        ([0, 0, 4], 45, [45, 45]),
        ([0, 0, 5], 64, [45, 64]),
        ([2, 1, 5], 110, [110, 80]),
    ];
    for (charges, start, of_scopes) in cases {
        assert_eq!(view.earliest(at(45), &charges), at(start), "{charges:?}");
        assert_eq!([0, 1].map(|scope| view.earliest_in(scope, at(45), &charges).as_micros()), of_scopes, "{charges:?}");
    }
    assert_eq!(view.earliest(at(200), &[1, 1, 1]), at(200), "not before the floor");
}

#[test]
fn a_call_waits_for_fewer_where_it_would_start_later_than_those_who_share_more_need() {
    // The start that each log allows, and whether a call of all of them waits for one that fewer share; with 20 µs to spare.
    type Case<'a> = (&'a [(Option<&'a str>, i64)], bool);
    let cases: [Case<'_>; 14] = [
        (&[(None, 500)], false),
        (&[(Some("a"), 500)], false),
        (&[(None, 0), (Some("a"), 20)], false),
        (&[(None, 0), (Some("a"), 21)], true),
        (&[(None, 100), (Some("a"), 120)], false),
        (&[(None, 100), (Some("a"), 121)], true),
        (&[(None, 500), (Some("a"), 0)], false),
        (&[(Some("a"), 0), (Some("b"), 21)], true),
        (&[(Some("a"), 21), (Some("b"), 0)], true),
        (&[(Some("a"), 50), (Some("b"), 50)], false),
        (&[(Some("a"), 50), (Some("b"), 71)], true),
        (&[(None, 0), (Some("a"), 30), (Some("b"), 30)], true),
        (&[(None, 100), (Some("a"), 30), (Some("b"), 120)], false),
        (&[(None, 100), (Some("a"), 500), (Some("b"), 0)], true),
    ];
    for (starts, expected) in cases {
        let terms: Vec<[Term; 1]> = starts.iter().map(|(_, start)| [Term::new(1, *start)]).collect();
        let logs: Vec<Written<'_>> =
            starts.iter().zip(&terms).map(|((scope, _), term)| (*scope, term.as_slice(), [0].as_slice())).collect();
        let (book, charges) = (Book::new(&logs), vec![1; starts.len()]);
        let view = book.view();
        let start = view.earliest(at(0), &charges);
        assert_eq!(view.waits_for_fewer(within(1_000), start, &charges), expected, "{starts:?}");
    }
}

#[test]
fn turns_come_one_after_another_and_leave_no_trace() {
    let book = Book::new(&[(None, &[Term::new(2, 100)], &[0, 10])]);
    let mut view = book.view();
    let turn = |units: u32, start| Turn { charges: [units].into(), start: at(start), priority: Priority::Normal };
    let mut turns = [turn(2, 0), turn(1, 0), turn(1, 500)];
    view.settle(&mut turns);
    assert_eq!(turns.each_ref().map(|turn| turn.start), [at(110), at(210), at(500)]);
    assert_eq!(view.earliest(at(0), &[1]), at(100));
    let cases = [(100, 1, Some(210)), (110, 1, Some(210)), (310, 1, None), (400, 1, None), (401, 2, Some(500))];
    for (start, units, delayed) in cases {
        let later = turns[2..].to_vec();
        let turns = if start < 300 { &turns[..] } else { &later };
        assert_eq!(view.delayed(turns, at(start), &[units]), delayed.map(at), "{units} at {start}");
    }
}

#[test]
fn all_callers_of_a_run_start_together_where_every_log_has_room() {
    let book = Book::new(&[(None, &[Term::new(9, 100)], &[0, 0]), (Some("a"), &[Term::new(5, 100)], &[])]);
    let view = book.view();
    let all = |charges: [u32; 2], callers| view.could_all_start(&Run::new(callers, charges), callers, at(0), within(0));
    let cases = [([1, 1], 5, true), ([1, 1], 6, false), ([1, 0], 7, true), ([1, 0], 8, false), ([3, 2], 2, true)];
    for (charges, callers, expected) in cases {
        assert_eq!(all(charges, callers), expected, "{callers} of {charges:?}");
    }
    assert!(!all([u32::MAX, 0], u32::MAX));
}

#[test]
fn the_rate_of_a_scope_is_that_of_its_slowest_limit() {
    let terms = [Term::new(10, 100), Term::new(20, 1_000)];
    let book = Book::new(&[(None, &terms[..1], &[]), (Some("a"), &terms, &[])]);
    let view = book.view();
    let rates = [(0, [1, 1], 50), (1, [1, 1], 10), (1, [9, 3], 3), (1, [1, 0], 0)];
    for (scope, charges, expected) in rates {
        assert_eq!(view.at_rate(scope, &charges, Duration::from_micros(500)), expected, "{scope} {charges:?}");
    }
    // A quarter of 10, of 20 and 10, and of nothing.
    for (scope, charges, expected) in [(0, [1, 1], 2), (1, [1, 1], 2), (1, [1, 2], 1), (1, [1, 0], 0)] {
        assert_eq!(view.in_a_quarter(scope, &charges), expected, "{scope} {charges:?}");
    }
}
