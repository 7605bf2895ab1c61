//! Two releases give one log different limits, as while one replaces the other: those of both hold for all.

use std::time::Duration;

use outgate::testing::oracle::{assert_never_more_than, jain};
use outgate::{Limit, Throttle, Upstream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{Counting, endless};

const SECOND: i64 = 1_000_000;
/// A second and its guard.
const WINDOW: i64 = 1_050_000;
/// What was sent before the stricter limit was known counts no more.
const KNOWN: i64 = 2 * SECOND;

/// Sixteen callers of a process with endless demand, for so many seconds from the beginning: when its calls went.
fn demand(throttle: &Throttle, begin: Instant, seconds: u64) -> JoinHandle<Vec<i64>> {
    let throttle = throttle.clone();
    tokio::spawn(async move { endless(&throttle, 16, begin, begin + Duration::from_secs(seconds)).await })
}

fn between(starts: &[i64], from: i64, until: i64) -> Vec<i64> {
    starts.iter().copied().filter(|start| (from..until).contains(start)).collect()
}

fn count(starts: &[i64]) -> f64 {
    f64::from(u32::try_from(starts.len()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn while_both_ask_the_stricter_limit_holds_for_all_and_all_get_their_share() {
    for (lax, strict) in [(1, 1), (3, 1), (1, 3)] {
        fastrand::seed(1);
        let (store, begin) = (Counting::default(), Instant::now());
        let limits = [vec![100; lax], vec![20; strict]].concat();
        let tasks: Vec<_> =
            limits.into_iter().map(|calls| demand(&store.limited(Limit::per_second(calls)), begin, 30)).collect();
        let mut starts = Vec::new();
        for task in tasks {
            starts.push(between(&task.await.unwrap(), KNOWN, 30 * SECOND));
        }
        assert_never_more_than(20, WINDOW, &starts.concat());
        let fairness = jain(&starts.iter().map(|starts| count(starts)).collect::<Vec<_>>());
        let used = count(&starts.concat()) / (20.0 * 28.0 / 1.05);
        println!("{lax} lax and {strict} strict: Jain {fairness:.3}, {used:.3} of the stricter limit used");
        assert!(fairness >= 0.9 && used >= 0.95, "{lax} and {strict}: {fairness} {used}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_over_different_windows_hold_together() {
    fastrand::seed(2);
    let (store, begin) = (Counting::default(), Instant::now());
    let long = store.limited(Limit::new(100, Duration::from_secs(10)).guard(Duration::from_millis(500)));
    let short = demand(&store.limited(Limit::per_second(20)), begin, 60);
    let starts = [demand(&long, begin, 60).await.unwrap(), short.await.unwrap()];
    // What the one sent before the other was known of counts for 10.5 s.
    let starts = starts.map(|starts| between(&starts, 12 * SECOND, 60 * SECOND));
    assert_never_more_than(20, WINDOW, &starts.concat());
    assert_never_more_than(100, 10_500_000, &starts.concat());
    let fairness = jain(&starts.each_ref().map(|starts| count(starts)));
    assert!(fairness >= 0.9, "{fairness}");
}

#[tokio::test(start_paused = true)]
async fn when_the_stricter_or_the_laxer_is_gone_the_limit_of_the_other_holds_before_long() {
    for (lax_until, strict_until, quota) in [(30, 10, 100), (10, 30, 20)] {
        fastrand::seed(3);
        let (store, begin) = (Counting::default(), Instant::now());
        let lax = demand(&store.limited(Limit::per_second(100)), begin, lax_until);
        let strict = demand(&store.limited(Limit::per_second(20)), begin, strict_until).await.unwrap();
        let all = [lax.await.unwrap(), strict].concat();
        assert_never_more_than(20, WINDOW, &between(&all, KNOWN, 10 * SECOND));
        let rest = between(&all, 14 * SECOND, 30 * SECOND);
        assert_never_more_than(quota, WINDOW, &rest);
        let used = count(&rest) / (f64::from(u32::try_from(quota).unwrap()) * 16.0 / 1.05);
        assert!(used >= 0.95, "{used} of {quota} a second");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_lowered_and_raised_in_one_process_alone_holds_at_once() {
    fastrand::seed(4);
    let (store, begin) = (Counting::default(), Instant::now());
    let throttle = store.limited(Limit::per_second(100));
    let starts = demand(&throttle, begin, 20);
    for (millis, calls) in [(5_200, 20), (2_000, 100)] {
        sleep(Duration::from_millis(millis)).await;
        throttle.update(Upstream::new("up").limit(Limit::per_second(calls))).unwrap();
    }
    let starts = starts.await.unwrap();
    assert_never_more_than(20, WINDOW, &between(&starts, 6_300_000, 7_200_000));
    // All that the raised limit allows, as soon as it holds.
    let raised = between(&starts, 7_200_000, 8_400_000);
    assert!(raised.len() >= 80, "{}", raised.len());
}

#[tokio::test(start_paused = true)]
async fn usage_shows_the_strictest_limit_of_others_as_long_as_they_ask() {
    fastrand::seed(5);
    let (store, begin) = (Counting::default(), Instant::now());
    let [lax, strict] = [100, 20].map(|calls| store.limited(Limit::per_second(calls)));
    let other_limit = async |of: &Throttle| of.usage("up").await.unwrap().limits[0].other_limit;
    let demands = [demand(&lax, begin, 5), demand(&strict, begin, 5)];
    sleep(Duration::from_secs(4)).await;
    let span = Duration::from_millis(1_050);
    assert_eq!([other_limit(&lax).await, other_limit(&strict).await], [Some((20, span)), Some((100, span))]);
    for demand in demands {
        demand.await.unwrap();
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!([other_limit(&lax).await, other_limit(&strict).await], [None; 2]);
}

#[tokio::test(start_paused = true)]
async fn where_all_give_the_same_limit_nothing_is_known_of_others() {
    fastrand::seed(6);
    let (store, begin) = (Counting::default(), Instant::now());
    let [one, other] = [(); 2].map(|()| store.limited(Limit::per_second(20)));
    let demands = [demand(&one, begin, 5), demand(&other, begin, 5)];
    sleep(Duration::from_secs(4)).await;
    assert_eq!(one.usage("up").await.unwrap().limits[0].other_limit, None);
    for demand in demands {
        demand.await.unwrap();
    }
}
