//! Load whose costs are known only when calls are over: how much of the quota is used, and that no window holds more.

use std::time::Duration;

use outgate::Limit;
use outgate::testing::oracle::{assert_never_more_units_than, worst_window_of_units};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::{Counting, micros_since};

const QUOTA: u32 = 20_000;
const WINDOW: i64 = 60_000_000;
/// How long the load lasts.
const LASTS: Duration = Duration::from_secs(600);

/// When a call started, when it ended, and what it used.
type Call = (i64, i64, u64);

/// How calls use what they reserve.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// 10 to 100 % of it.
    Parts,
    /// All of it.
    Exact,
}

/// Four processes of 16 tasks that call as often as they may, reserve as much as a call can use, and know 0.1 to 20 s later what it did
/// use. Says what calls there were, and how many messages for each.
async fn calls(limit: &Limit, load: Load, settles: bool) -> (Vec<Call>, f64) {
    let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
    let processes = [(); 4].map(|()| store.limited(limit.clone()));
    for (seed, throttle) in (0_u64..).zip(processes.iter().cycle().take(64)) {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            let (mut rng, mut calls) = (fastrand::Rng::with_seed(seed), Vec::new());
            loop {
                let reserve = rng.u32(20..200);
                let asked = timeout_at(begin + LASTS, async { throttle.acquire("up").cost(reserve).await });
                let Ok(permit) = asked.await else { return calls };
                let (permit, start) = (permit.unwrap(), micros_since(begin));
                let part = if load == Load::Exact { 100 } else { rng.u32(10..=100) };
                let used = u64::from(reserve * part / 100).max(1);
                sleep(Duration::from_millis(rng.u64(100..20_000))).await;
                if settles {
                    permit.settle("calls", used);
                }
                calls.push((start, micros_since(begin), used));
            }
        });
    }
    let all: Vec<Call> = tasks.join_all().await.concat();
    let count = |number| f64::from(u32::try_from(number).unwrap());
    let messages = count(usize::try_from(store.calls()).unwrap()) / count(all.len());
    (all, messages)
}

fn by_start(calls: &[Call]) -> Vec<(i64, u64)> {
    calls.iter().map(|(start, _, used)| (*start, *used)).collect()
}

fn by_end(calls: &[Call]) -> Vec<(i64, u64)> {
    calls.iter().map(|(_, end, used)| (*end, *used)).collect()
}

/// What part of the quota was used, where windows and guards follow each other without a pause.
fn share(calls: &[Call]) -> f64 {
    let used: u64 = calls.iter().map(|(_, _, used)| used).sum();
    f64::from(u32::try_from(used).unwrap()) / (f64::from(QUOTA) * LASTS.as_secs_f64() / 61.0)
}

#[tokio::test(start_paused = true)]
async fn settled_calls_use_the_quota_and_never_more() {
    let mut shares = Vec::new();
    for settles in [true, false] {
        let (calls, messages) = calls(&Limit::per_minute(QUOTA), Load::Parts, settles).await;
        assert_never_more_units_than(QUOTA.into(), WINDOW, &by_start(&calls));
        let share = share(&calls);
        println!("settled: {settles}; {} calls, share {share:.3}, {messages:.2} messages a call", calls.len());
        shares.push(share);
    }
    assert!(shares[0] > 0.85 && shares[1] < 0.65, "{shares:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_counts_when_calls_end_sees_no_more_than_the_quota() {
    for load in [Load::Exact, Load::Parts] {
        let (calls, messages) = calls(&Limit::per_minute(QUOTA).counted_at_end(), load, true).await;
        assert_never_more_units_than(QUOTA.into(), WINDOW, &by_end(&calls));
        println!("counted at the end: share {:.3}, {messages:.2} messages a call", share(&calls));
    }
    let (calls, _) = calls(&Limit::per_minute(QUOTA), Load::Exact, true).await;
    let worst = worst_window_of_units(&by_end(&calls), WINDOW).count;
    println!("counted at the start instead: {worst} of {QUOTA} in a window");
    assert!(worst > u64::from(QUOTA), "{worst}");
}
