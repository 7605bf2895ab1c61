//! When the store loses data: what processes remember keeps law 1, and costs little of the quota.

use std::future::IntoFuture as _;
use std::time::Duration;

use outgate::feedback::{Feedback, Reach, Refusal};
use outgate::ledger::{Body, Cause, Message, Stamp};
use outgate::store::Applying;
use outgate::testing::oracle::{assert_never_more_than, worst_window};
use outgate::{Error, Limit, Scope, Store, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

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
async fn no_window_is_overrun_when_all_data_is_lost_or_logs_are_evicted() {
    fastrand::seed(42);
    let windows = [1, 9, 60, 600, 3_600].into_iter().flat_map(|window| [(window, false), (window, true)]);
    for (window, is_evicted) in windows {
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

const MINUTE: i64 = 60 * SECOND;

/// A fleet that has used 60 of 100 calls a minute 20 s ago or less, and no more.
struct Fleet {
    store: Counting,
    begin: Instant,
    processes: Vec<Throttle>,
    starts: Vec<i64>,
}

impl Fleet {
    async fn of_60_calls() -> Self {
        let store = Counting::default();
        let processes = (0..4).map(|_| store.limited(Limit::per_minute(100))).collect::<Vec<_>>();
        let (mut fleet, mut drops) = (Self { store, begin: Instant::now(), processes, starts: Vec::new() }, Vec::new());
        for call in 0..60 {
            let permit = fleet.processes[call % 4].acquire("up").await.unwrap();
            drops.push(permit);
            fleet.starts.push(fleet.now());
            sleep(Duration::from_millis(300)).await;
        }
        fleet
    }

    fn now(&self) -> i64 {
        i64::try_from(self.begin.elapsed().as_micros()).unwrap()
    }

    /// All of them call without end; what they sent in all, and when they went on after this moment.
    async fn goes_on(mut self, lasting: Duration) -> (Vec<i64>, Vec<i64>) {
        let (since, mut callers) = (self.now(), JoinSet::new());
        let until = Instant::now() + lasting;
        for throttle in self.processes.clone() {
            let begin = self.begin;
            callers.spawn(async move { endless(&throttle, 8, begin, until).await });
        }
        let after = callers.join_all().await.concat();
        self.starts.extend(&after);
        let after = after.into_iter().map(|start| start - since).collect();
        (self.starts, after)
    }
}

#[tokio::test(start_paused = true)]
async fn calls_go_on_after_6_s_with_what_is_left_of_a_minute_when_all_data_is_lost() {
    fastrand::seed(43);
    for is_evicted in [false, true] {
        let fleet = Fleet::of_60_calls().await;
        if is_evicted {
            fleet.store.lose_logs();
        } else {
            fleet.store.lose_data();
        }
        let (starts, after) = fleet.goes_on(secs(130)).await;
        assert_never_more_than(100, MINUTE, &starts);
        let before = |at: i64| after.iter().filter(|start| **start < at).count();
        println!("{is_evicted}: first after {:?} µs", after.iter().min());
        assert_eq!((before(6 * SECOND), before(7 * SECOND)), (0, 40), "{is_evicted}");
        assert!(starts.len() > 250, "{}: nothing is wasted", starts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_loss_while_the_first_is_seen_to_changes_nothing_but_the_wait() {
    fastrand::seed(44);
    for is_evicted in [false, true] {
        let fleet = Fleet::of_60_calls().await;
        let store = fleet.store.clone();
        let strike = move || if is_evicted { store.lose_logs() } else { store.lose_data() };
        strike();
        tokio::spawn(async move {
            for after in [100, 400, 3_000] {
                sleep(Duration::from_millis(after)).await;
                strike();
            }
        });
        let (starts, after) = fleet.goes_on(secs(100)).await;
        assert_never_more_than(100, MINUTE, &starts);
        let first = after.iter().min().copied().unwrap();
        println!("{is_evicted}: first after {first} µs");
        assert!((6 * SECOND..16 * SECOND).contains(&first), "{first}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_back_after_a_loss_takes_no_room_that_others_have() {
    fastrand::seed(45);
    let store = Counting::default();
    let processes = (0..4).map(|_| store.limited(Limit::per_minute(100))).collect::<Vec<_>>();
    let begin = Instant::now();
    let (mut starts, mut permits) = (Vec::new(), Vec::new());
    for process in &processes {
        for _ in 0..15 {
            permits.push(process.acquire("up").await.unwrap());
        }
    }
    // All of them start at one time, and every third is not sent.
    store.lose_data();
    for (nth, permit) in permits.into_iter().enumerate() {
        if nth % 3 == 0 {
            permit.hand_back();
        } else {
            starts.push(0);
            drop(permit);
        }
    }
    let mut callers = JoinSet::new();
    for throttle in processes {
        callers.spawn(async move { endless(&throttle, 8, begin, begin + secs(150)).await });
    }
    starts.extend(callers.join_all().await.concat());
    assert_never_more_than(100, MINUTE, &starts);
    let first_minute = starts.iter().filter(|start| **start < MINUTE).count();
    assert_eq!(first_minute, 100, "what was handed back is used");
}

/// How long a call waits from now on, of the whole upstream or of a scope.
fn waits(throttle: &Throttle, scope: Option<&'static str>) -> tokio::task::JoinHandle<Duration> {
    let acquire = throttle.acquire("up");
    let acquire = if let Some(scope) = scope { acquire.scope(scope) } else { acquire };
    tokio::spawn(async move {
        let begin = Instant::now();
        drop(acquire.await.unwrap());
        begin.elapsed()
    })
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_store_has_lost_is_told_again_and_holds_for_processes_that_start_later() {
    for scope in [None, Some("a")] {
        let store = Counting::default();
        let [one, other] = [(); 2].map(|()| store.limited(Limit::per_second(10)));
        match scope {
            None => one.report("up", &Feedback::refused(secs(600))).await.unwrap(),
            Some(scope) => one.report_in("up", scope, &Feedback::refused(secs(600))).await.unwrap(),
        }
        let begin = Instant::now();
        let [one, other] = [&one, &other].map(|throttle| waits(throttle, scope));
        sleep(secs(10)).await;
        for _ in 0..3 {
            store.lose_data();
            sleep(secs(2)).await;
        }
        let told = store.told();
        println!("{scope:?}: {told} pauses were told, {} looks", store.looks());
        // Once at first, and by one of the processes or both after each loss.
        assert!((4..=7).contains(&told), "{told}");
        let late = waits(&store.limited(Limit::per_second(10)), scope).await.unwrap() + secs(16);
        for waited in [one.await.unwrap(), other.await.unwrap(), late] {
            assert!(waited >= Duration::from_millis(599_900) && waited < secs(602), "{scope:?}: {waited:?}");
        }
        assert!(begin.elapsed() < secs(602));
    }
}

#[tokio::test(start_paused = true)]
async fn who_sees_a_loss_has_the_pauses_of_other_scopes_told_again_at_once() {
    let store = Counting::default();
    let [one, other] = [(); 2].map(|()| store.limited(Limit::per_second(10)));
    drop(one.acquire("up").scope("b").await.unwrap());
    one.report_in("up", "a", &Feedback::refused(secs(600))).await.unwrap();
    let paused = waits(&one, Some("a"));
    sleep(secs(2)).await;
    store.lose_data();
    // It asks for another scope, and hears of it.
    let goes_on = waits(&one, Some("b"));
    sleep(Duration::from_millis(50)).await;
    let late = waits(&other, Some("a"));
    assert!(goes_on.await.unwrap() < secs(2));
    sleep(secs(10)).await;
    assert!(!paused.is_finished() && !late.is_finished());
    assert_eq!(store.told(), 2, "by whom it is known, and once");
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_the_store_has_lost_is_told_again_as_a_ban() {
    let store = Counting::default();
    let throttle = store.limited(Limit::per_second(10));
    let ban = Feedback::default().with_refusal(Refusal::Ban).with_wait(secs(600)).with_reach(Reach::Upstream);
    throttle.report("up", &ban).await.unwrap();
    assert!(throttle.acquire("up").await.is_err());
    sleep(secs(10)).await;
    store.lose_data();
    // It looks now and then although nobody calls any more.
    sleep(secs(4)).await;
    let told = store.limited(Limit::per_second(10)).acquire("up").await;
    assert!(matches!(told, Err(Error::Barred { cause: Cause::Ban, .. })), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_was_released_is_not_told_again() {
    let store = Counting::default();
    let [one, other] = [(); 2].map(|()| store.limited(Limit::per_second(10)));
    one.report("up", &Feedback::refused(secs(600))).await.unwrap();
    let calls = [&one, &other].map(|throttle| waits(throttle, None));
    sleep(secs(10)).await;
    one.release("up").await.unwrap();
    sleep(secs(2)).await;
    assert!(calls.iter().all(tokio::task::JoinHandle::is_finished));
    store.lose_data();
    sleep(secs(10)).await;
    assert!(waits(&other, None).await.unwrap() < secs(2));
    assert_eq!(store.told(), 1);
}

/// A store that hears of each pause as of a call from long ago.
#[derive(Clone, Debug)]
struct Late(Counting);

impl Store for Late {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let mut message = message.clone();
        if let Body::Pause { pause, .. } = &mut message.body {
            pause.started = Some(Stamp::from_micros(1));
        }
        Applying::pending(async move { self.0.apply(&message).await })
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_store_never_took_is_not_told_again() {
    let store = Counting::default();
    let upstream = Upstream::new("up").limit(Limit::per_second(10));
    let throttle = Throttle::builder().store(Late(store.clone())).upstream(upstream).build().unwrap();
    drop(throttle.acquire("up").await.unwrap());
    throttle.release("up").await.unwrap();
    sleep(secs(10)).await;
    throttle.report("up", &Feedback::refused(secs(600))).await.unwrap();
    let waited = waits(&throttle, None).await.unwrap();
    assert!(waited < secs(8), "the call that was refused had started before the release: {waited:?}");
    assert_eq!(store.told(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_granted_to_a_scope_is_said_again_though_thousands_of_others_came_since() {
    let store = Counting::default();
    let throttle = store.process(|up| up.limit(Limit::per_hour(10).each(Scope::bearer_token())));
    let ask = async |scope: u32, calls: u32| {
        for _ in 0..calls {
            let call = throttle.acquire("up").scope(scope.to_string());
            drop(timeout(secs(60), call.into_future()).await.map_err(|_| scope)?.unwrap());
        }
        Ok::<_, u32>(())
    };
    ask(0, 10).await.unwrap();
    for scope in 1..=5_000 {
        ask(scope, 1).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    store.lose_data();
    for scope in 1..=20 {
        ask(scope, 1).await.unwrap();
        sleep(secs(1)).await;
    }
    assert_eq!(ask(0, 1).await, Err(0), "eleven of ten in an hour");
}

#[tokio::test(start_paused = true)]
async fn what_each_of_many_merchants_of_one_token_was_granted_is_known_after_a_loss() {
    let (store, window) = (Counting::default(), secs(600));
    let of_each = Limit::new(2, window).each(Scope::header("x-merchant"));
    let throttle =
        store.process(|up| up.limit(Limit::new(100_000, window)).limit(of_each).scope_by(Scope::header("x-token")));
    let call = async |merchant: u32| {
        let call = throttle.acquire("up").scope_of("x-token", "t").scope_of("x-merchant", merchant.to_string());
        call.cost(2).await.map(drop).unwrap();
    };
    let begin = Instant::now();
    for merchant in 0..200 {
        call(merchant).await;
        // The store need not count it any more among those that wait.
        sleep(secs(1)).await;
    }
    store.lose_data();
    for merchant in 0..200 {
        call(merchant).await;
        assert!(begin.elapsed() >= window, "{merchant} after {:?}", begin.elapsed());
    }
}
