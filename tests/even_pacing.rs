//! Evenly paced calls, judged by an upstream that approximates its sliding window by two counts.

use std::time::Duration;

use fastrand::Rng;
use outgate::ledger::{SlidingLog, Stamp, Term};
use outgate::testing::{Judge, Shape};
use outgate::{Limit, Throttle, Upstream};
use tokio::time::Instant;

const QUOTA: u32 = 100;
const WINDOW: i64 = 1_000_000;
const GUARD: i64 = 50_000;
const CALLS: usize = 6_000;
/// How long calls are on their way: less than half of the guard.
const DELAYS: std::ops::Range<i64> = 0..20_000;

/// What a counter refuses of such calls, at the phase at which it refuses most.
fn refused_at_worst(starts: impl Iterator<Item = i64>) -> usize {
    let mut delays = Rng::with_seed(9);
    let mut arrivals: Vec<_> = starts.map(|start| start + delays.i64(DELAYS)).collect();
    arrivals.sort_unstable();
    let refused = |phase| {
        let mut judge = Judge::new().limit(QUOTA.into(), WINDOW, Shape::SlidingWindowCounter { phase });
        arrivals.iter().filter(|&&at| !judge.admit(at, 1).admitted).count()
    };
    (0..WINDOW).step_by(5_000).map(refused).max().unwrap_or(0)
}

/// Starts without a pause, each as early as the terms allow.
fn starts(terms: &[Term]) -> impl Iterator<Item = i64> {
    let mut log = SlidingLog::new();
    (0..CALLS).map(move |_| {
        let start = log.earliest(Stamp::from_micros(0), terms, 1);
        log.append(start, 1, WINDOW + GUARD);
        start.as_micros()
    })
}

#[test]
fn a_guard_on_the_window_alone_leaves_spans_that_an_approximating_counter_refuses() {
    let window = Term::new(QUOTA, WINDOW + GUARD);
    let pace = |span: i64| [window, Term::new(1, span / i64::from(QUOTA))];
    // A hundred calls in 990 ms and a pause of 60: where a window of the upstream's begins in the pause, its count is full, and
    // whoever comes a little late or early is one too many.
    assert!(refused_at_worst(starts(&pace(WINDOW))) > 0);
    assert_eq!(refused_at_worst(starts(&pace(WINDOW + GUARD))), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_with_a_burst_of_one_earns_no_refusal_from_an_approximating_counter() -> Result<(), outgate::ConfigError>
{
    let limit = Limit::per_second(QUOTA).burst(1);
    let throttle = Throttle::builder().upstream(Upstream::new("up").limit(limit)).build()?;
    let began = Instant::now();
    let mut starts = Vec::new();
    for _ in 0..CALLS {
        assert!(throttle.acquire("up").await.is_ok());
        starts.push(i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX));
    }
    let spans = Duration::from_micros((WINDOW + GUARD).unsigned_abs()) * u32::try_from(CALLS).unwrap_or(0) / QUOTA;
    assert!(began.elapsed() <= spans + spans / 50, "{:?} instead of {spans:?}", began.elapsed());
    assert_eq!(refused_at_worst(starts.into_iter()), 0);
    Ok(())
}
