//! Processes of different priority and weight that share a quota.

use std::time::Duration;

use outgate::testing::oracle::assert_never_more_than;
use outgate::{Limit, Priority, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::{Counting, endless_of, micros_since};

const SECOND: Duration = Duration::from_secs(1);
/// When counting begins, and how many seconds it lasts.
const BEGIN: i64 = 5_000_000;
const SECONDS: u32 = 20;
/// Histories of processes that differ in when they ask. Of one history the parts vary by a tenth or more; of the mean of 8 by 0.025, which
/// would be out of bounds for some seeds, and of that of 32 by 0.012.
const SEEDS: u64 = 32;
const END: Duration = Duration::from_secs(25);
/// Starts in a second of 100 and its guard.
const ALL: f64 = 100.0 / 1.05;

fn per_second(starts: &[i64]) -> f64 {
    let counted = starts.iter().filter(|&&at| at >= BEGIN).count();
    f64::from(u32::try_from(counted).unwrap()) / f64::from(SECONDS)
}

fn store_calls_per_call(store: &Counting, calls: usize) -> f64 {
    f64::from(u32::try_from(store.calls()).unwrap()) / f64::from(u32::try_from(calls).unwrap())
}

/// Callers that ask again as soon as they are served.
fn saturate(throttle: &Throttle, callers: usize, priority: Priority, begin: Instant, tasks: &mut JoinSet<Vec<i64>>) {
    let throttle = throttle.clone();
    tasks.spawn(async move { endless_of(&throttle, callers, priority, begin, begin + END).await });
}

/// Callers that come at an even pace and wait as long as it takes: when they went, and how long they waited, ascending.
async fn come(throttle: &Throttle, rate: u32, priority: Priority, begin: Instant) -> (Vec<i64>, Vec<Duration>) {
    let mut tasks = JoinSet::new();
    while begin.elapsed() < END {
        let throttle = throttle.clone();
        tasks.spawn(async move {
            let permit = throttle.acquire("up").priority(priority).into_future();
            let permit = timeout_at(begin + END, permit).await.ok()?.unwrap();
            Some((micros_since(begin), permit.waited()))
        });
        sleep(SECOND / rate).await;
    }
    let (starts, mut waits): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().flatten().unzip();
    waits.sort_unstable();
    (starts, waits)
}

/// What high callers of one process had of the 40/s that they want beside `processes` others that saturate 100/s; what those had;
/// and store calls per call.
async fn high_beside(processes: usize, priority: Priority) -> (f64, f64, Duration) {
    fastrand::seed(31);
    let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
    let limited = || store.limited(Limit::per_second(100));
    for _ in 0..processes {
        saturate(&limited(), 4, priority, begin, &mut tasks);
    }
    let (high, waits) = come(&limited(), 40, Priority::High, begin).await;
    let others = tasks.join_all().await.concat();
    assert_never_more_than(100, 1_050_000, &[&high[..], &others].concat());
    let (of_high, of_others, p99) = (per_second(&high), per_second(&others), waits[waits.len() * 99 / 100]);
    let calls = store_calls_per_call(&store, high.len() + others.len());
    println!(
        "beside {processes}: high {of_high:.1}/s, waiting {:?} at p50, {p99:?} at p99; others {of_others:.1}/s; {calls:.2} store calls a call",
        waits[waits.len() / 2]
    );
    (of_high, of_others, p99)
}

#[tokio::test(start_paused = true)]
async fn beside_fifty_low_processes_a_high_one_has_what_it_wants_and_they_the_rest() {
    let (high, low, _) = high_beside(50, Priority::Low).await;
    assert!(high >= 39.0 && high + low >= 0.97 * ALL, "{high} {low}");
}

#[tokio::test(start_paused = true)]
async fn beside_one_low_process_a_high_one_has_what_it_wants_and_that_the_rest() {
    let (high, low, _) = high_beside(1, Priority::Low).await;
    assert!(high >= 39.0 && high + low >= 0.97 * ALL, "{high} {low}");
}

#[tokio::test(start_paused = true)]
async fn beside_high_processes_it_has_its_share() {
    let (high, _, _) = high_beside(9, Priority::High).await;
    assert!(high >= 0.98 * ALL / 10.0, "{high}");
}

/// Processes of these weights and priorities that all want more than there is: what each has a second, and store calls per call.
async fn saturating(processes: &[(u32, Priority)], seed: u64) -> (Vec<f64>, f64) {
    fastrand::seed(seed);
    let (store, begin) = (Counting::default(), Instant::now());
    let mut tasks: Vec<JoinSet<Vec<i64>>> = Vec::new();
    for &(weight, priority) in processes {
        let upstream = Upstream::new("up").limit(Limit::per_second(100));
        let throttle = Throttle::builder().store(store.clone()).weight(weight).upstream(upstream).build().unwrap();
        let mut all = JoinSet::new();
        saturate(&throttle, 150, priority, begin, &mut all);
        tasks.push(all);
    }
    let mut starts = Vec::new();
    for all in tasks {
        starts.push(all.join_all().await.concat());
    }
    let all = starts.concat();
    assert_never_more_than(100, 1_050_000, &all);
    let each: Vec<f64> = starts.iter().map(|starts| per_second(starts)).collect();
    assert!(each.iter().sum::<f64>() >= 0.99 * ALL, "{each:?}");
    (each, store_calls_per_call(&store, all.len()))
}

#[tokio::test(start_paused = true)]
async fn processes_have_shares_by_their_weight() {
    for weights in [&[1, 4][..], &[1, 1, 4], &[2, 8, 2, 8], &[1, 1, 1, 1, 1, 1, 4]] {
        let processes: Vec<_> = weights.iter().map(|&weight| (weight, Priority::Normal)).collect();
        let mut had = vec![0.0; weights.len()];
        for seed in 0..SEEDS {
            let (each, _) = saturating(&processes, seed).await;
            had.iter_mut().zip(each).for_each(|(had, each)| *had += each / f64::from(u32::try_from(SEEDS).unwrap()));
        }
        let all: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        let of_due: Vec<f64> =
            had.iter().zip(weights).map(|(had, &weight)| had * all / ALL / f64::from(weight)).collect();
        println!("weights {weights:?}: {had:.1?}/s, of what is due {of_due:.3?}");
        assert!(of_due.iter().all(|part| (0.9..1.1).contains(part)), "{weights:?}: {of_due:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn equals_share_equally_whatever_their_priority_and_weight() {
    let mut calls = Vec::new();
    for (weight, priority) in [(1, Priority::Normal), (1, Priority::Low), (1, Priority::High), (7, Priority::Normal)] {
        let (each, of_this) = saturating(&[(weight, priority); 8], 32).await;
        println!("{weight}, {priority:?}: {each:.1?}/s, {of_this:.3} store calls a call");
        let part = ALL / 8.0;
        assert!(each.iter().all(|had| (had - part).abs() <= 0.2 * part), "{each:?}");
        calls.push(of_this);
    }
    assert!(calls.iter().all(|of| (of - calls[0]).abs() <= 0.1 * calls[0]), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn high_processes_that_want_all_leave_little_to_low_ones() {
    let (high, low) = ((1, Priority::High), (1, Priority::Low));
    let (each, _) = saturating(&[high, low, high, low], 32).await;
    println!("high, low, high, low: {each:.1?}/s");
    assert!(each[0] + each[2] >= 0.9 * ALL && each[0].min(each[2]) >= 0.4 * ALL, "{each:?}");
}

#[tokio::test(start_paused = true)]
async fn a_low_caller_of_another_process_that_has_waited_for_long_enough_goes_before_all() {
    let of = async |patience: Option<Duration>| {
        fastrand::seed(33);
        let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
        saturate(&store.limited(Limit::per_second(100)), 200, Priority::High, begin, &mut tasks);
        let throttle = store.process(|up| {
            let up = up.limit(Limit::per_second(100));
            if let Some(patience) = patience { up.promote_low_after(patience) } else { up }
        });
        sleep(SECOND).await;
        let permit = throttle.acquire("up").priority(Priority::Low).into_future();
        timeout_at(begin + END, permit).await.ok().map(|permit| permit.unwrap().waited())
    };
    let (without, patient) = (of(None).await, of(Some(5 * SECOND)).await.expect("it comes to its turn"));
    println!("promoted after 5 s it waited {patient:?}, else {without:?}");
    assert!(without.is_none() && (5 * SECOND..8 * SECOND).contains(&patient), "{without:?} {patient:?}");
}

#[tokio::test(start_paused = true)]
async fn a_low_caller_goes_first_as_soon_as_it_has_waited_for_long_enough_however_long_its_queue_rests() {
    fastrand::seed(35);
    let store = Counting::default();
    let process = || store.process(|up| up.limit(Limit::per_minute(10)).promote_low_after(5 * SECOND));
    let other = process();
    // One place comes free every 6 s.
    for _ in 0..10 {
        drop(other.acquire("up").await.unwrap());
        sleep(6 * SECOND).await;
    }
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    saturate(&other, 4, Priority::Normal, begin, &mut tasks);
    sleep(SECOND).await;
    let permit = process().acquire("up").priority(Priority::Low).await.unwrap();
    assert!((5 * SECOND..7 * SECOND).contains(&permit.waited()), "{:?}", permit.waited());
}

#[tokio::test(start_paused = true)]
async fn a_high_caller_does_not_rest_for_the_low_ones_of_its_own_process() {
    fastrand::seed(34);
    let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
    let limited = || store.limited(Limit::per_second(100));
    for _ in 0..49 {
        saturate(&limited(), 4, Priority::Low, begin, &mut tasks);
    }
    let mixed = limited();
    saturate(&mixed, 4, Priority::Low, begin, &mut tasks);
    let (high, waits) = come(&mixed, 40, Priority::High, begin).await;
    let low = tasks.join_all().await.concat();
    let (of_high, of_low, p50) = (per_second(&high), per_second(&low), waits[waits.len() / 2]);
    println!("high {of_high:.1}/s, waiting {p50:?} at p50; low {of_low:.1}/s");
    assert!(of_high >= 39.0 && of_high + of_low >= 0.97 * ALL, "{of_high} {of_low}");
}

#[tokio::test(start_paused = true)]
async fn low_callers_have_what_normal_ones_leave_though_there_are_high_ones() {
    for limit in [Limit::per_second(100).burst(10), Limit::per_second(100).burst(1)] {
        fastrand::seed(35);
        let (store, begin, mut tasks) = (Counting::default(), Instant::now(), JoinSet::new());
        let limited = || store.limited(limit.clone());
        for _ in 0..2 {
            saturate(&limited(), 16, Priority::Normal, begin, &mut tasks);
        }
        let mut low = JoinSet::new();
        saturate(&limited(), 16, Priority::Low, begin, &mut low);
        let (high, waits) = come(&limited(), 20, Priority::High, begin).await;
        let [normal, low] = [tasks.join_all().await.concat(), low.join_all().await.concat()];
        assert_never_more_than(100, 1_000_000, &[&high[..], &normal[..], &low[..]].concat());
        let [high, normal, low] = [high, normal, low].map(|starts| per_second(&starts));
        println!("{limit}: {high:.1} {normal:.1} {low:.1} a second; high waits {:?}", waits[waits.len() / 2]);
        assert!(high >= 19.0 && low <= 4.0 && normal >= 70.0, "{limit}: {high} {normal} {low}");
    }
}

/// What normal callers of each of eight processes had a second that all want more than there is, where the first also makes 20 high calls a
/// second; how long these waited, ascending; and store calls per call.
async fn one_with_high_calls(limit: &Limit, reserve: u8, each: usize) -> (Vec<f64>, Vec<Duration>, f64) {
    fastrand::seed(36);
    let (store, begin) = (Counting::default(), Instant::now());
    let process = || store.process(|up| up.limit(limit.clone()).reserve(Priority::High, reserve));
    let processes: Vec<_> =
        (0..8).map(|_| if reserve > 0 { process() } else { store.limited(limit.clone()) }).collect();
    let mut normal = Vec::new();
    for throttle in &processes {
        let mut all = JoinSet::new();
        saturate(throttle, each, Priority::Normal, begin, &mut all);
        normal.push(all);
    }
    let (high, waits) = come(&processes[0], 20, Priority::High, begin).await;
    let mut starts = Vec::new();
    for all in normal {
        starts.push(all.join_all().await.concat());
    }
    let calls = store_calls_per_call(&store, high.len() + starts.concat().len());
    let each = starts.iter().map(|starts| per_second(starts)).collect();
    (each, waits, calls)
}

#[tokio::test(start_paused = true)]
async fn normal_callers_have_about_as_much_as_those_of_others_whoever_makes_high_calls() {
    let second = || Limit::per_second(100);
    for (limit, reserve) in
        [(second(), 0), (second().burst(10), 0), (second().burst(1), 0), (second(), 20), (second().burst(10), 20)]
    {
        for each in [4, 16] {
            let (had, waits, calls) = one_with_high_calls(&limit, reserve, each).await;
            let (first, others) = (had[0], had[1..].iter().sum::<f64>() / 7.0);
            let at = |percent: usize| waits[waits.len() * percent / 100];
            println!(
                "{limit}, {reserve} % reserved, {each} each: {first:.1} beside {others:.1}/s; high waits {:?} at p50, {:?} at p99; {calls:.2} store calls a call",
                at(50),
                at(99)
            );
            // Where calls differ in size, as what is reserved makes them, nobody is left out of an early ask.
            let most = if reserve == 0 { 1.6 } else { 3.5 };
            let is_even = (0.45..most).contains(&(first / others));
            assert!(is_even && calls < 1.4, "{limit} {reserve}: {first} {others} {calls}");
        }
    }
}
