use crate::ledger::rate::lowered;
use crate::ledger::rule::{Entries as _, earliest};
use crate::ledger::{Bucket, SlidingLog, Stamp, Term};

const SECOND: i64 = 1_000_000;

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(micros)
}

/// Ten units, of which one drains in each second.
fn ten() -> Bucket {
    Bucket::new(1_000 * SECOND, 10_000 * SECOND)
}

/// A log that is written for it, with units that started then, in seconds.
fn filled(starts: &[(i64, u32)]) -> SlidingLog {
    let mut log = SlidingLog::new();
    for &(start, units) in starts {
        fill(&mut log, start, units);
    }
    log
}

fn fill(log: &mut SlidingLog, start: i64, units: u32) {
    let terms = [Term::bucket(ten())];
    log.fill(&terms, &terms, &[(at(start * SECOND), units as usize)], 10 * SECOND);
}

/// When so many units may start, in seconds, at `now`.
fn start(log: &SlidingLog, now: i64, units: u32) -> i64 {
    let start = log.earliest(at(now * SECOND), &[Term::bucket(ten())], units).as_micros();
    assert_eq!(start % SECOND, 0);
    start / SECOND
}

#[test]
fn all_that_it_holds_start_at_once_and_then_one_after_another() {
    assert_eq!(start(&SlidingLog::new(), 0, 10), 0);
    let log = filled(&[(0, 9)]);
    assert_eq!([1, 2, 10].map(|units| start(&log, 0, units)), [0, 1, 9]);
    let log = filled(&[(0, 10)]);
    assert_eq!([0, 1, 5, 99].map(|now| start(&log, now, 1)), [1, 1, 5, 99]);
    assert_eq!([1, 3, 10].map(|units| start(&log, 4, units)), [4, 4, 10]);
    let log = filled(&[(0, 10), (1, 1), (2, 1), (30, 4)]);
    assert_eq!([6, 7].map(|units| start(&log, 30, units)), [30, 31], "it was empty meanwhile");
}

#[test]
fn a_debt_delays_as_long_as_it_takes_to_drain() {
    let mut log = filled(&[(0, 4)]);
    log.append(at(2 * SECOND), 30, 10 * SECOND);
    assert_eq!([1, 10].map(|units| start(&log, 2, units)), [25, 34], "of 34, two have drained");
    fill(&mut log, 25, 1);
    assert_eq!(start(&log, 25, 1), 26);
}

#[test]
fn what_somebody_wrote_who_knows_of_no_bucket_counts() {
    let mut log = filled(&[(0, 5)]);
    log.append(at(0), 2, 10 * SECOND);
    log.append(at(SECOND), 3, 10 * SECOND);
    assert_eq!([1, 2].map(|units| start(&log, 1, units)), [1, 2]);
    let mut log = SlidingLog::new();
    log.append(at(0), 2, 10 * SECOND);
    assert_eq!(
        [1, 10].map(|units| start(&log, 3, units)),
        [3, 11],
        "of whom nothing is known may have filled it before"
    );
}

#[test]
fn a_slot_handed_back_leaves_room_as_far_as_the_log_proves() {
    let mut log = filled(&[(0, 10), (1, 1), (2, 1)]);
    log.hand_back(at(2 * SECOND), 1);
    assert_eq!(start(&log, 2, 1), 2, "the newest");
    log.hand_back(at(0), 4);
    assert_eq!([5, 6].map(|units| start(&log, 2, units)), [2, 3], "and of those before it");
    fill(&mut log, 2, 5);
    assert_eq!(start(&log, 2, 1), 3, "to the last unit");
    // Six units at 0, of which none would be left at 20.
    let mut log = filled(&[(0, 6), (20, 10)]);
    log.hand_back(at(0), 6);
    assert_eq!(start(&log, 20, 1), 21, "but not what has drained already");
    log.hand_back(at(20 * SECOND), 10);
    assert_eq!(start(&log, 20, 10), 20);
    log.hand_back(at(20 * SECOND), 10);
    assert_eq!(log.level(ten()).units(at(20 * SECOND), ten()), 0, "handed back twice changes nothing");
}

#[test]
fn a_slot_ahead_that_is_handed_back_takes_nothing_of_what_came_before_it() {
    let mut log = filled(&[(0, 10), (1, 1)]);
    log.hand_back(at(SECOND), 1);
    assert_eq!([1, 2].map(|units| start(&log, 0, units)), [1, 2]);
    fill(&mut log, 1, 1);
    assert_eq!(start(&log, 0, 1), 2, "given again, it counts again");
}

#[test]
fn a_lowered_bucket_drains_more_slowly_and_holds_less() {
    let (given, left) = ([Term::bucket(ten())], [Term::bucket(Bucket::new(4_000 * SECOND, 10_000 * SECOND))]);
    assert_eq!(left[0].quota, 2);
    let mut log = SlidingLog::new();
    log.fill(&given, &left, &[(at(0), 2)], 10 * SECOND);
    let slow = left[0].as_bucket().unwrap();
    assert_eq!(log.level(ten()).earliest(at(0), slow, 1), at(2 * SECOND));
    assert_eq!(log.level(ten()).units(at(0), slow), 2);
}

#[test]
fn calls_that_arrive_late_fill_it_then() {
    let mut log = filled(&[(0, 9)]);
    log.arrive(ten(), at(0), at(3 * SECOND));
    assert_eq!([1, 2].map(|units| start(&log, 0, units)), [3, 4], "as if they had started then");
    let mut log = filled(&[(0, 10), (1, 1)]);
    log.arrive(ten(), at(SECOND), at(2 * SECOND));
    assert_eq!(start(&log, 1, 1), 2, "where it was full before it makes no difference");
}

#[test]
fn what_an_upstream_misses_beside_ours_is_of_others() {
    let fills = 11_000 * SECOND;
    let mut log = filled(&[(0, 4)]);
    let told = |log: &mut SlidingLog, left| log.told(ten(), fills, left, at(0), at(0));
    assert_eq!([9, 7, 6].map(|left| told(&mut log, left)), [0, 0, 0], "more, or as much, is what we know");
    assert_eq!(told(&mut log, 1), 5);
    assert_eq!([1, 2].map(|units| start(&log, 0, units)), [0, 1], "nine of its eleven are in it");
    assert_eq!(start(&log, 9, 10), 9, "and drain as ours do");
}

#[test]
fn a_bucket_that_is_lowered_is_never_faster() {
    const DAY: i64 = 86_400_000_000_000;
    for days in [1, 11, 12, 20, 60] {
        let bucket = Bucket::new(days * DAY, 60 * DAY);
        for times in [1.0, 1.5, 2.0, 1e6] {
            let lowered = bucket.lowered(times);
            assert!(
                lowered.interval >= bucket.interval && lowered.depth >= bucket.depth,
                "{days} days, {times}: {lowered:?}"
            );
        }
    }
}

/// A log of this bucket, after one unit at 0 while so little is left of its rate.
fn slowed(given: Bucket, factor: i64, units: u32) -> (SlidingLog, Term) {
    let term = Term::bucket(given);
    let left = lowered(term, factor);
    let mut log = SlidingLog::new();
    log.fill(&[term], &[left], &[(at(0), units as usize)], left.span);
    (log, left)
}

/// When one unit may start, in milliseconds, where that is left of it.
fn next(log: &SlidingLog, given: Bucket, left: Term) -> i64 {
    next_at(log, given, left, 0)
}

fn next_at(log: &SlidingLog, given: Bucket, left: Term, now: i64) -> i64 {
    let now = at(now);
    let start = earliest(now, now, std::iter::once((Term::bucket(given), left)), 1, log);
    start.as_micros() / 1_000
}

#[test]
fn what_started_at_a_low_rate_takes_as_long_to_drain_as_at_the_full_one_once_the_rate_is_over() {
    // 39 units, two in each second.
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let full = Term::bucket(bucket);
    let (log, left) = slowed(bucket, 1_000, 1);
    assert_eq!(
        (next(&log, bucket, left), next(&log, bucket, full)),
        (500_000, 0),
        "a thousandth of it: one each 500 s"
    );
    let (log, left) = slowed(bucket, 100_000, 1);
    assert_eq!(next(&log, bucket, left), 0, "a tenth: three at once, one each 5 s");
    let (log, left) = slowed(bucket, 100_000, 3);
    assert_eq!((next(&log, bucket, left), next(&log, bucket, full)), (50, 0));
    let (log, left) = slowed(bucket, 100_000, 39);
    assert_eq!(next(&log, bucket, left), 5_000 * 39 - 14_950, "more than it holds drain as slowly");
    assert_eq!(next(&log, bucket, full), 50);
}

#[test]
fn the_same_units_take_as_long_as_the_rate_leaves_them_now() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let (log, _) = slowed(bucket, 100_000, 39);
    let wait = |factor| next(&log, bucket, lowered(Term::bucket(bucket), factor));
    assert_eq!([100_000, 500_000, 900_000, 1_000_000].map(wait), [180_050, 20_050, 2_272, 50]);
    // What came at the full rate takes no longer than it would.
    let (log, _) = slowed(bucket, 1_000_000, 39);
    let wait = |factor| next(&log, bucket, lowered(Term::bucket(bucket), factor));
    assert_eq!([100_000, 500_000, 900_000, 1_000_000].map(wait), [4_550, 550, 105, 50]);
}

#[test]
fn at_the_end_of_a_rate_no_more_are_free_than_it_left() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    for (factor, free) in [(500_000, 19), (990_000, 0), (1_000_000, 0)] {
        let (term, mut log) = (Term::bucket(bucket), SlidingLog::new());
        let left = lowered(term, factor);
        // Whoever waits goes as soon as the rate allows.
        for _ in 0..200 {
            let start = earliest(at(0), at(0), std::iter::once((term, left)), 1, &log);
            log.fill(&[term], &[left], &[(start, 1)], 40 * SECOND);
        }
        let newest = log.nth_newest(1).unwrap();
        let at_once = (1..40).take_while(|&units| log.earliest(newest, &[term], units) == newest).count();
        assert_eq!(at_once, free, "{factor}");
    }
}

#[test]
fn after_a_unit_at_the_full_rate_a_lower_one_begins_as_high_as_that_is() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let (mut log, left) = slowed(bucket, 100_000, 39);
    let full = Term::bucket(bucket);
    log.fill(&[full], &[full], &[(at(50_000), 1)], left.span);
    assert_eq!(next(&log, bucket, left), 5_050);
}

#[test]
fn what_is_handed_back_of_a_slowed_bucket_leaves_room_by_every_rate() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let (mut log, left) = slowed(bucket, 100_000, 39);
    log.hand_back(at(0), 39);
    assert_eq!((next(&log, bucket, left), next(&log, bucket, Term::bucket(bucket))), (0, 0));
    let (mut log, left) = slowed(bucket, 100_000, 39);
    log.hand_back(at(0), 36);
    assert_eq!(next(&log, bucket, left), 50, "as after three");
}

#[test]
fn what_has_drained_by_a_rate_does_not_come_back_by_a_lower_one() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let by = |factor| lowered(Term::bucket(bucket), factor);
    let (log, _) = slowed(bucket, 500_000, 19);
    assert_eq!(next_at(&log, bucket, by(1_000), 30 * SECOND), 30_000, "empty since 19 s");
    assert_eq!(next_at(&log, bucket, by(500_000), 18 * SECOND), 18_000);
    assert_eq!(next_at(&log, bucket, by(1_000), 18 * SECOND), 19_000, "a lower rate makes them take no longer");
    assert_eq!(next_at(&log, bucket, by(900_000), 10 * SECOND), 10_000, "nine of a second are left");
}

#[test]
fn a_rate_that_falls_makes_what_came_before_take_no_longer() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let (full, by) = (Term::bucket(bucket), |factor| lowered(Term::bucket(bucket), factor));
    let (mut log, _) = slowed(bucket, 1_000_000, 38);
    log.fill(&[full], &[by(900_000)], &[(at(0), 1)], 20 * SECOND);
    assert_eq!([100_000, 1_000].map(|factor| next(&log, bucket, by(factor))), [4_605, 19_555]);
    // Whoever is told a start goes then, however late that is looked at.
    assert_eq!([1, 4].map(|now| next_at(&log, bucket, by(100_000), now * SECOND)), [4_605; 2]);
}

#[test]
fn a_hand_back_makes_nobody_wait_for_longer() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let (full, left) = (Term::bucket(bucket), lowered(Term::bucket(bucket), 15_625));
    let mut log = SlidingLog::new();
    log.fill(&[full], &[full], &[(at(0), 1), (at(SECOND), 30)], 40 * SECOND);
    log.fill(&[full], &[left], &[(at(100 * SECOND), 1)], 400 * SECOND);
    let before = next_at(&log, bucket, left, 100 * SECOND);
    log.hand_back(at(0), 1);
    assert_eq!((before, next_at(&log, bucket, left, 100 * SECOND)), (132_000, 132_000));
}

#[test]
fn what_is_handed_back_late_leaves_no_room_that_was_drained_already() {
    let bucket = Bucket::new(500_000_000, 19_950_000_000);
    let (mut log, left) = slowed(bucket, 100_000, 3);
    let full = Term::bucket(bucket);
    log.fill(&[full], &[left], &[(at(100 * SECOND), 3)], 200 * SECOND);
    log.hand_back(at(0), 3);
    assert_eq!(next_at(&log, bucket, left, 100 * SECOND), 100_050, "three of 5 s in 19.95");
}

#[test]
fn whatever_is_handed_back_first_all_of_it_leaves_room_by_lower_rates() {
    let bucket = Bucket::new(500_000_000, 20_000_000_000);
    let (full, left) = (Term::bucket(bucket), lowered(Term::bucket(bucket), 900_000));
    let heights = [false, true].map(|newest_first| {
        let mut log = SlidingLog::new();
        for _ in 0..500 {
            let start = earliest(at(0), at(0), std::iter::once((full, left)), 1, &log);
            log.fill(&[full], &[left], &[(start, 1)], 400 * SECOND);
        }
        let now = log.nth_newest(1).unwrap();
        let mut starts = Vec::new();
        for _ in 0..30 {
            let start = earliest(now, now, std::iter::once((full, full)), 1, &log);
            log.fill(&[full], &[full], &[(start, 1)], 400 * SECOND);
            starts.push(start);
        }
        if newest_first {
            starts.reverse();
        }
        for start in starts {
            log.hand_back(start, 1);
        }
        let wait = |units| log.earliest(now, &[full], units).as_micros() - now.as_micros();
        [wait(1), wait(10)].map(|micros| micros / SECOND)
    });
    assert!(heights.iter().all(|[one, ten]| *one <= 1 && *ten <= 6), "{heights:?}");
}

/// Tokens: a call takes many of them.
#[test]
fn what_a_call_of_many_units_did_not_use_leaves_room_however_many_units_are_newer() {
    let bucket = Bucket::new(6_000_000, 60_000_000_000);
    let terms = [Term::bucket(bucket)];
    for (newer, is_near) in [(13, true), (333, true), (334, false)] {
        let mut log = SlidingLog::new();
        log.fill(&terms, &terms, &[(at(0), 1_500)], 60 * SECOND);
        let units = if newer > 13 { 3 } else { 1_500 };
        let starts: Vec<_> = (1..=newer).map(|call| (at(call), units)).collect();
        log.fill(&terms, &terms, &starts, 60 * SECOND);
        let all = 1_500 + u32::try_from(newer).unwrap() * u32::try_from(units).unwrap();
        assert_eq!(log.level(bucket).units(at(newer), bucket), all);
        log.hand_back(at(0), 1_200);
        let left = if is_near { all - 1_200 } else { all };
        assert_eq!(log.level(bucket).units(at(newer), bucket), left, "{newer} calls");
    }
}
