//! What upstreams of every shape admit, to the microsecond.

use outgate::testing::{Judge, Shape, oracle};
use proptest::{collection::vec, prelude::*};

const SLIDING: Shape = Shape::SlidingLog;
const FIXED: Shape = Shape::FixedWindow { phase: 0 };
const FROM_FIRST: Shape = Shape::FixedWindowFromFirstCall;
const BUCKET: Shape = Shape::TokenBucket;
const COUNTER: Shape = Shape::SlidingWindowCounter { phase: 0 };
/// None of these refuses what a sliding log admits.
const EXACT: [Shape; 5] = [SLIDING, FIXED, Shape::FixedWindow { phase: 7 }, FROM_FIRST, BUCKET];
const SHAPES: [Shape; 7] =
    [EXACT[0], EXACT[1], EXACT[2], EXACT[3], EXACT[4], COUNTER, Shape::SlidingWindowCounter { phase: 7 }];

/// What `judge` says to the calls of a `story`, told the same way: `9 ok` is a call at 9 that is
/// admitted, `9x2 wait 5` one of cost 2 that is told to wait for 5, `9x2 never` one that need not
/// come again.
fn retell(mut judge: Judge, story: &str) -> String {
    let retold = story.split(", ").map(|step| {
        let call = step.split(' ').next().unwrap_or_default();
        let (now, cost) = call.split_once('x').unwrap_or((call, "1"));
        let verdict = judge.admit(now.parse().unwrap_or_default(), cost.parse().unwrap_or_default());
        match verdict.retry_after {
            _ if verdict.admitted => format!("{call} ok"),
            Some(wait) => format!("{call} wait {wait}"),
            None => format!("{call} never"),
        }
    });
    retold.collect::<Vec<_>>().join(", ")
}

#[test]
fn each_shape_counts_in_its_own_way() {
    for (rule, shape, story) in [
        ("a sliding log frees each call a window after it", SLIDING, "0 ok, 4 ok, 9 wait 1, 10 ok, 13 wait 1, 14 ok"),
        (
            "a large cost waits for as many units as it needs",
            SLIDING,
            "0 ok, 4 ok, 5x2 wait 9, 14x2 ok, 15x3 never, 15x0 ok",
        ),
        (
            "an aligned window allows twice the quota around its edge",
            FIXED,
            "8x2 ok, 9 wait 1, 10x2 ok, 11 wait 9, 35 ok, 39x2 wait 1",
        ),
        ("the phase moves the edge", Shape::FixedWindow { phase: 3 }, "0x2 ok, 2 wait 1, 3x2 ok, 12 wait 1, 13x2 ok"),
        (
            "a phase ahead of the clock is whole windows away",
            Shape::FixedWindow { phase: 1_003 },
            "2x2 ok, 2 wait 1, 3 ok",
        ),
        (
            "the first call opens the window, the first one after its end the next",
            FROM_FIRST,
            "3 ok, 12 ok, 12 wait 1, 17x2 ok, 26 wait 1, 27 ok",
        ),
        (
            "a refused call opens no window, nor does a free one",
            FROM_FIRST,
            "0x3 never, 1x0 ok, 2x2 ok, 11 wait 1, 12 ok",
        ),
        (
            "a bucket starts full and gets a token each half window",
            BUCKET,
            "0x2 ok, 0 wait 5, 4 wait 1, 5 ok, 5x2 wait 10, 99x2 ok, 99 wait 5",
        ),
        (
            "a counter takes the last window's calls for an even flow",
            COUNTER,
            "9x2 ok, 9 wait 6, 14 wait 1, 15 ok, 15 wait 5, 19 wait 1, 20 ok, 24 wait 6, 25x2 wait 15, 40x2 ok",
        ),
        (
            "a counter forgets the window before the last",
            Shape::SlidingWindowCounter { phase: 1_003 },
            "2x2 ok, 2x2 wait 11, 13x2 ok, 33x2 ok, 43x2 wait 10, 53x2 ok",
        ),
        ("time that goes back is time that stands still", SLIDING, "9x2 ok, 0 wait 10, 19 ok"),
    ] {
        assert_eq!(retell(Judge::new().limit(2, 10, shape), story), story, "{rule}");
    }
}

#[test]
fn a_bucket_does_not_drift_when_tokens_take_a_broken_number_of_microseconds() {
    // 7 per 1,000,000 µs is a token every 142,857.14 µs.
    let mut judge = Judge::new().limit(7, 1_000_000, BUCKET);
    assert!(judge.admit(0, 7).admitted);
    let mut now = 0;
    for token in 1..=7_000_i64 {
        now += judge.admit(now, 1).retry_after.unwrap_or(0);
        assert!(judge.admit(now, 1).admitted);
        assert_eq!(now, (token * 1_000_000 + 6) / 7, "token {token}");
    }
}

#[test]
fn nothing_counts_anywhere_when_one_limit_refuses() {
    let judge = Judge::new().limit(1, 10, SLIDING).limit(2, 100, FROM_FIRST);
    let story = "0 ok, 1 wait 9, 2 wait 8, 10 ok, 20 wait 80, 100 ok";
    assert_eq!(retell(judge, story), story);
}

#[test]
fn a_judge_without_limits_admits_and_one_with_quota_0_refuses() {
    assert!(Judge::new().admit(0, u64::MAX).admitted);
    for shape in SHAPES {
        let story = "0 never, 99 never, 99x0 ok";
        assert_eq!(retell(Judge::new().limit(0, 10, shape), story), story);
    }
}

#[test]
fn what_is_counted_unasked_delays_what_comes_after() {
    for (shape, wait) in [(SLIDING, 9), (FIXED, 9), (FROM_FIRST, 9), (BUCKET, 4), (COUNTER, 17)] {
        let mut judge = Judge::new().limit(2, 10, shape);
        judge.count(0, 5);
        assert_eq!(judge.admit(1, 1).retry_after, Some(wait), "{shape:?}");
        judge.reset();
        assert!(judge.admit(1, 2).admitted, "{shape:?}");
    }
}

fn any_shape() -> impl Strategy<Value = Shape> {
    proptest::sample::select(SHAPES.to_vec())
}

/// Calls as (µs since the one before, cost).
fn any_calls() -> impl Strategy<Value = Vec<(i64, u64)>> {
    vec((0..12_i64, 1..4_u64), 0..200)
}

fn admitted(mut judge: Judge, calls: &[(i64, u64)]) -> Vec<(i64, u64)> {
    let mut now = 0;
    let stamped = calls.iter().map(|&(gap, cost)| {
        now += gap;
        (now, cost)
    });
    stamped.filter(|&(now, cost)| judge.admit(now, cost).admitted).collect()
}

proptest! {
    #[test]
    fn a_sliding_log_never_admits_more_than_its_quota_in_any_window(
        calls in any_calls(),
        quota in 1..20_u64,
        window in 1..60_i64,
    ) {
        let passed = admitted(Judge::new().limit(quota, window, SLIDING), &calls);
        oracle::assert_never_more_units_than(quota, window, &passed);
    }

    #[test]
    fn no_shape_admits_more_than_twice_its_quota_in_any_window(
        calls in any_calls(),
        quota in 1..20_u64,
        window in 1..60_i64,
        shape in any_shape(),
    ) {
        let passed = admitted(Judge::new().limit(quota, window, shape), &calls);
        oracle::assert_never_more_units_than(2 * quota, window, &passed);
    }

    #[test]
    fn what_a_sliding_log_admits_no_other_exact_shape_refuses(
        calls in any_calls(),
        quota in 1..20_u64,
        window in 1..60_i64,
        shape in proptest::sample::select(EXACT.to_vec()),
    ) {
        let passed = admitted(Judge::new().limit(quota, window, SLIDING), &calls);
        let mut judge = Judge::new().limit(quota, window, shape);
        for (now, cost) in passed {
            prop_assert!(judge.admit(now, cost).admitted, "{shape:?} refused a call at {now}");
        }
    }

    #[test]
    fn retry_after_is_the_first_instant_that_works(
        calls in any_calls(),
        quota in 3..20_u64,
        window in 1..60_i64,
        shape in any_shape(),
        cost in 1..4_u64,
    ) {
        let mut judge = Judge::new().limit(quota, window, shape).limit(30, 100, SLIDING);
        let mut now = 0;
        for (gap, units) in calls {
            now += gap;
            judge.admit(now, units);
        }
        let verdict = judge.admit(now, cost);
        if let Some(wait) = verdict.retry_after {
            prop_assert!(!verdict.admitted && wait > 0);
            prop_assert!(!judge.clone().admit(now + wait - 1, cost).admitted);
            prop_assert!(judge.admit(now + wait, cost).admitted);
        } else {
            prop_assert!(verdict.admitted);
        }
    }
}
