//! When the store loses data: what processes remember keeps law 1, and costs little of the quota.

use std::time::Duration;

use outgate::Limit;
use outgate::testing::oracle::{assert_never_more_than, worst_window};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Counting, endless};

const SECOND: i64 = 1_000_000;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// When four processes of eight callers each called, whose store was struck at a time.
async fn struck(limit: &Limit, at: Duration, lasting: Duration, strike: impl FnOnce(&Counting)) -> Vec<i64> {
    let (store, begin, mut processes) = (Counting::default(), Instant::now(), JoinSet::new());
    for _ in 0..4 {
        let throttle = store.limited(limit.clone());
        processes.spawn(async move { endless(&throttle, 8, begin, begin + lasting).await });
    }
    sleep(at).await;
    strike(&store);
    processes.join_all().await.concat()
}

#[tokio::test(start_paused = true)]
async fn nine_tenths_of_the_quota_are_used_in_the_20_s_around_a_loss_of_all_data() {
    fastrand::seed(41);
    let starts = struck(&Limit::per_second(100), secs(10), secs(20), Counting::lose_data).await;
    assert_never_more_than(100, SECOND, &starts);
    let whole = struck(&Limit::per_second(100), secs(10), secs(20), |_| ()).await;
    let [used, whole] = [starts, whole].map(|starts| u32::try_from(starts.len()).unwrap());
    println!("{used} calls in 20 s, {whole} without a loss: {:.3}", f64::from(used) / f64::from(whole));
    assert!(used * 10 >= whole * 9, "{used} of {whole}");
}

#[tokio::test(start_paused = true)]
async fn no_window_of_up_to_9_s_is_overrun_when_all_data_is_lost_nor_one_of_a_minute_when_logs_are_evicted() {
    fastrand::seed(42);
    for (window, is_evicted) in [(1, false), (9, false), (1, true), (9, true), (60, true)] {
        let strike = if is_evicted { Counting::lose_logs } else { Counting::lose_data };
        // In the middle of a window, and calls go on when what was lost counts no more.
        let (at, lasting) = (secs(window) * 3 / 2, secs(window) * 4);
        let starts = struck(&Limit::new(40, secs(window)), at, lasting, strike).await;
        let window_micros = i64::try_from(window).unwrap() * SECOND;
        println!(
            "{window} s, evicted {is_evicted}: {} in the fullest window",
            worst_window(&starts, window_micros).count
        );
        assert_never_more_than(40, window_micros, &starts);
        assert!(starts.iter().any(|&start| start > 3 * window_micros), "{window} s: calls go on");
    }
}
