//! A runtime that is kept, and polls nothing any more, as of a thread that has something else to do: what others of the process wait for is done in
//! theirs.

use std::future::{IntoFuture as _, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use outgate::feedback::Feedback;
use outgate::ledger::{Body, Message};
use outgate::store::{Applying, StoreError, StoreErrorKind, WithoutStore};
use outgate::{Error, Limit, MemoryStore, Scope, Store, Throttle, Upstream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::support::Counting;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Has this happen in a runtime of its own, whose only thread has something else to do afterwards. Both show the same time: the clock of a machine is
/// one, and a paused one begins anew in each runtime.
pub(crate) fn elsewhere<F: Future<Output = ()>>(happens: impl FnOnce() -> F + Send + 'static) -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let here = Instant::now();
    let stands_still = std::thread::spawn(move || {
        runtime.block_on(async move {
            advance(here.saturating_duration_since(Instant::now())).await;
            happens().await;
        });
        runtime
    });
    stands_still.join().unwrap()
}

/// One call in each of these scopes.
async fn call(throttle: &Throttle, scopes: impl Iterator<Item = u32>) {
    for scope in scopes {
        drop(throttle.acquire("up").scope(scope.to_string()).await.unwrap());
    }
}

/// How late a caller is served whose queue is driven by a runtime that stands still: of the next slot nobody makes anything there.
async fn served_beside(joins_before: bool) -> Duration {
    let throttle = Counting::default().limited(Limit::new(1, Duration::from_millis(300)));
    let (first, begin) = (throttle.clone(), Instant::now());
    let runtime = elsewhere(async move || {
        drop(first.acquire("up").await.unwrap());
        tokio::spawn(async move { first.acquire("up").await.map(drop) });
        yield_now().await;
        if !joins_before {
            sleep(Duration::from_millis(10)).await;
        }
    });
    drop(throttle.acquire("up").await.unwrap());
    runtime.shutdown_background();
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn it_holds_up_nobody_who_waits_for_a_slot_elsewhere_for_more_than_a_tenth_of_a_second() {
    let late = served_beside(false).await;
    assert!(late <= Duration::from_millis(2 * 315 + 100), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn nor_who_came_while_its_message_was_under_way_for_more_than_half_a_second() {
    let late = served_beside(true).await;
    assert!(late <= Duration::from_millis(2 * 315 + 500), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn it_keeps_no_process_from_hearing_of_a_loss() {
    let store = Counting::default();
    let of_each = |up: Upstream| up.limit(Limit::per_hour(100).each(Scope::header("x-m")));
    let [one, other] = [(); 2].map(|()| store.process(of_each));
    // The first call has a task begin that watches; and of the last queue a task drives in which somebody waits.
    let first = one.clone();
    let runtime = elsewhere(async move || call(&first, 0..1).await);
    call(&one, 1..21).await;
    let last = one.clone();
    let second = elsewhere(async move || {
        sleep(secs(1)).await;
        call(&last, [21; 100].into_iter()).await;
        let waits = tokio::spawn(async move { call(&last, 21..22).await });
        sleep(secs(1)).await;
        drop(waits);
    });
    // Nobody calls any more.
    sleep(secs(30)).await;
    store.lose_unused_logs(secs(1));
    sleep(secs(60)).await;
    for scope in 0..22_u32 {
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            let call = other.acquire("up").scope(scope.to_string()).max_wait(secs(60));
            calls.spawn(async move { call.await.is_ok() });
        }
        let further = calls.join_all().await.into_iter().filter(|gone| *gone).count();
        let granted = if scope == 21 { 100 } else { 1 };
        assert_eq!(further, 100 - granted, "{granted} of 100 were granted in scope {scope}");
    }
    runtime.shutdown_background();
    second.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn what_all_are_to_say_after_a_loss_is_said_though_it_was_told_of_it() {
    for calls_after in [false, true] {
        let store = Counting::default();
        let each = Limit::per_second(1_000).each(Scope::header("x-m"));
        let [one, other] = [(); 2].map(|()| store.process(|up| up.limit(Limit::per_hour(300)).limit(each.clone())));
        call(&one, 0..200).await;
        store.lose_data();
        let first = one.clone();
        let runtime = elsewhere(async move || {
            // It is told of the loss, and has a few of them ask.
            assert!(timeout(Duration::from_millis(2), call(&first, 199..200)).await.is_err());
        });
        if calls_after {
            call(&one, 0..1).await;
        }
        sleep(secs(60)).await;
        let mut calls = JoinSet::new();
        for _ in 0..300 {
            let call = other.acquire("up").scope("z").max_wait(secs(60));
            calls.spawn(async move { call.await.is_ok() });
        }
        let further = calls.join_all().await.into_iter().filter(|gone| *gone).count();
        assert_eq!(further, 100 - usize::from(calls_after));
        runtime.shutdown_background();
    }
}

/// One call may be in flight, of whatever scope, and each scope has a quota of its own.
fn with_one_seat() -> Throttle {
    let of_each = Limit::per_second(100).each(Scope::header("x-m"));
    Counting::default().process(|up| up.limit(Limit::in_flight(1)).limit(of_each))
}

#[tokio::test(start_paused = true)]
async fn it_keeps_no_seat_for_a_caller_that_has_given_up_or_waits_elsewhere() {
    for has_given_up in [true, false] {
        let throttle = with_one_seat();
        let permit = throttle.acquire("up").scope("0").await.unwrap();
        let first = throttle.clone();
        let runtime = elsewhere(async move || {
            let call = first.acquire("up").scope("1").max_wait(secs(1)).into_future();
            if has_given_up {
                assert!(call.await.is_err());
            } else {
                tokio::spawn(async move { call.await.map(drop) });
                sleep(Duration::from_millis(10)).await;
            }
        });
        let waits = throttle.clone();
        let waits = tokio::spawn(async move { waits.acquire("up").scope("1").await.map(drop) });
        sleep(Duration::from_millis(10)).await;
        drop(permit);
        for scope in ["0", "1"] {
            let call = timeout(secs(20), throttle.acquire("up").scope(scope).into_future());
            drop(call.await.expect("the seat is free").unwrap());
        }
        waits.await.unwrap().unwrap();
        runtime.shutdown_background();
    }
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_a_seat_with_a_caller_there_that_has_given_up_gets_it() {
    let throttle = with_one_seat();
    let permit = throttle.acquire("up").scope("0").await.unwrap();
    let (first, (sender, receiver)) = (throttle.clone(), std::sync::mpsc::channel());
    let runtime = elsewhere(async move || {
        let call = first.acquire("up").scope("1").max_wait(secs(1)).into_future();
        let gives_up = tokio::spawn(async move { call.await.map(drop) });
        yield_now().await;
        let mut waits = Box::pin(first.acquire("up").scope("1").into_future());
        assert!(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
        sender.send(waits).unwrap();
        assert!(gives_up.await.unwrap().is_err());
    });
    let waits = tokio::spawn(receiver.recv().unwrap());
    sleep(Duration::from_millis(10)).await;
    drop(permit);
    drop(timeout(secs(20), waits).await.expect("the seat is free").unwrap().unwrap());
    drop(timeout(secs(1), throttle.acquire("up").scope("0").into_future()).await.unwrap().unwrap());
    runtime.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn nobody_drives_a_queue_whose_callers_have_given_up_on_a_seat() {
    let throttle = with_one_seat();
    let _permit = throttle.acquire("up").scope("0").await.unwrap();
    let mut tasks = Vec::new();
    for scope in 1..10_u32 {
        assert!(throttle.acquire("up").scope(scope.to_string()).max_wait(Duration::from_millis(50)).await.is_err());
        sleep(secs(1)).await;
        tasks.push(tokio::runtime::Handle::current().metrics().num_alive_tasks());
    }
    // That of the seat, one that looks after its lease, and at times one that tells who waits.
    assert!(tasks.iter().all(|tasks| *tasks <= 3), "{tasks:?}");
}

/// The same, and whose only thread has ended since, if `is_gone`.
pub(crate) fn elsewhere_and_gone<F: Future<Output = ()>>(
    is_gone: bool,
    happens: impl FnOnce() -> F + Send + 'static,
) -> Option<Runtime> {
    let runtime = elsewhere(happens);
    if !is_gone {
        return Some(runtime);
    }
    std::thread::spawn(move || drop(runtime)).join().unwrap();
    None
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_keep_their_seats_though_it_was_to_renew_them() {
    for (is_gone, lease) in [(false, 60), (true, 60), (false, 2), (true, 2)] {
        let seats = Limit::in_flight(1).lease(secs(lease));
        let with_quotas = |up: Upstream| up.limit(Limit::per_second(100).each(Scope::header("x-m")));
        for are_shared in [false, true] {
            let store = Counting::default();
            let limited = |up: Upstream| up.limit(seats.clone());
            let process = || store.process(|up| if are_shared { with_quotas(limited(up)) } else { limited(up) });
            let [throttle, other] = [(); 2].map(|()| process());
            let first = throttle.clone();
            let runtime = elsewhere_and_gone(is_gone, async move || {
                drop(first.acquire("up").scope("0").await.unwrap());
            });
            let permit = throttle.acquire("up").scope("0").await.unwrap();
            sleep(secs(2 * lease)).await;
            assert!(other.try_acquire("up").scope("0").await.is_err(), "gone {is_gone}, {lease} s");
            drop(permit);
            sleep(secs(1)).await;
            assert!(other.try_acquire("up").scope("0").await.is_ok());
            runtime.into_iter().for_each(Runtime::shutdown_background);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_was_taken_there_is_free_soon_after_its_call() {
    for (is_gone, lasts) in [(false, 1), (true, 1), (false, 60), (true, 60)] {
        let store = Counting::default();
        let [throttle, other] = [(); 2].map(|()| store.limited(Limit::in_flight(1).lease(secs(600))));
        let (first, (sender, receiver)) = (throttle.clone(), std::sync::mpsc::channel());
        let runtime = elsewhere_and_gone(is_gone, async move || {
            sender.send(first.acquire("up").await.unwrap()).unwrap();
            sleep(Duration::from_millis(10)).await;
        });
        sleep(secs(lasts)).await;
        drop(receiver.recv().unwrap());
        sleep(secs(11)).await;
        assert!(other.try_acquire("up").await.is_ok(), "gone {is_gone}, after {lasts} s");
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_already_is_told_of_a_release_though_it_looked() {
    for waits_before in [false, true] {
        let store = Counting::default();
        let [throttle, other] = [(); 2].map(|()| store.process(|up| up.limit(Limit::per_second(10))));
        let callers = || (0..50).map(|_| throttle.acquire("up").max_wait(secs(900)).into_future()).collect();
        let mut waits: JoinSet<_> = if waits_before { callers() } else { JoinSet::new() };
        sleep(Duration::from_millis(100)).await;
        let first = throttle.clone();
        let runtime = elsewhere(async move || {
            first.report("up", &Feedback::refused(secs(600))).await.unwrap();
            sleep(secs(2)).await;
        });
        if !waits_before {
            waits = callers();
        }
        sleep(secs(60)).await;
        assert!(!waits.is_empty());
        let begin = Instant::now();
        other.release("up").await.unwrap();
        let gone = timeout(secs(30), waits.join_all()).await.expect("they are told");
        assert!(gone.iter().all(Result::is_ok) && begin.elapsed() < secs(10), "{:?}", begin.elapsed());
        runtime.shutdown_background();
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_throttles_by_itself_is_counted_all_the_time() {
    let store = Late::default();
    let throttle = store.process_of(Limit::per_second(100), WithoutStore::ThrottleLocally);
    let first = throttle.clone();
    let runtime = elsewhere(async move || {
        for _ in 0..10 {
            drop(first.acquire("up").await.unwrap());
            sleep(secs(1)).await;
        }
    });
    // For 20 s it is known of after each time.
    for _ in 0..20 {
        for _ in 0..19 {
            drop(throttle.acquire("up").await.unwrap());
            sleep(secs(1)).await;
        }
        let [told, _] = store.counted();
        assert!(told > 0);
    }
    runtime.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_of_a_release_though_it_drove_before() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_second(10)));
    let first = throttle.clone();
    let runtime = elsewhere(async move || {
        first.report("up", &Feedback::refused(secs(3))).await.unwrap();
        let waits = first.clone();
        drop(tokio::spawn(async move { waits.acquire("up").await.map(drop) }));
        sleep(Duration::from_millis(100)).await;
    });
    timeout(secs(60), async { throttle.acquire("up").await }).await.unwrap().map(drop).unwrap();
    sleep(secs(60)).await;
    for _ in 0..3 {
        throttle.report("up", &Feedback::refused(secs(600))).await.unwrap();
        let waits = throttle.clone();
        let waits = tokio::spawn(async move { waits.acquire("up").await.map(drop).unwrap() });
        sleep(secs(10)).await;
        let begin = Instant::now();
        throttle.release("up").await.unwrap();
        waits.await.unwrap();
        assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
        sleep(secs(60)).await;
    }
    runtime.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn whether_a_pause_holds_is_looked_at_elsewhere_and_one_that_is_lost_is_told_again() {
    for (is_gone, is_lost) in [(false, false), (false, true), (true, false), (true, true)] {
        let store = Counting::default();
        let [throttle, other] = [(); 2].map(|()| store.process(|up| up.limit(Limit::per_second(10))));
        let first = throttle.clone();
        let runtime = elsewhere(async move || {
            first.report("up", &Feedback::refused(secs(600))).await.unwrap();
            let waits = first.clone();
            let waits = tokio::spawn(async move { waits.acquire("up").await.map(drop) });
            sleep(secs(12)).await;
            waits.abort();
            sleep(secs(1)).await;
        });
        let runtime = if is_gone {
            std::thread::spawn(move || drop(runtime)).join().unwrap();
            None
        } else {
            Some(runtime)
        };
        sleep(secs(40)).await;
        if is_lost {
            store.lose_data();
        }
        let waits = throttle.clone();
        let waits = tokio::spawn(async move { waits.acquire("up").await.map(drop).unwrap() });
        sleep(secs(60)).await;
        assert!(!waits.is_finished(), "gone {is_gone}, lost {is_lost}: the pause lasts");
        let begin = Instant::now();
        other.release("up").await.unwrap();
        timeout(secs(10), waits).await.expect("it looks again").unwrap();
        assert!(begin.elapsed() < secs(3), "{:?}", begin.elapsed());
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }
}

/// A store whose answers are not read before they are let through, for so long at most.
#[derive(Clone, Debug)]
struct Held(MemoryStore, Arc<Notify>, Duration);

impl Held {
    fn within(secs: u64) -> Self {
        Self(MemoryStore::new(), Arc::default(), Duration::from_secs(secs))
    }
}

impl Store for Held {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            match timeout(self.2, self.1.notified()).await {
                Ok(()) => self.0.apply(message).await,
                Err(_) => Err(StoreError::new(StoreErrorKind::Unreachable, "no answer in time")),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_itself_does_not_take_the_store_for_lost() {
    let policies = [WithoutStore::Wait, WithoutStore::Refuse, WithoutStore::SendUnthrottled];
    let cases = policies.into_iter().flat_map(|policy| [(policy, 1), (policy, 3)]);
    for (policy, callers, within) in cases.flat_map(|(policy, callers)| [1, 60].map(|secs| (policy, callers, secs))) {
        let store = Held::within(within);
        let up = Upstream::new("up").limit(Limit::per_second(100)).without_store(policy);
        let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
        let mut waits = JoinSet::new();
        for _ in 0..callers {
            waits.spawn(throttle.acquire("up").into_future());
        }
        sleep(Duration::from_millis(1)).await;
        advance(secs(9)).await;
        sleep(Duration::from_millis(1)).await;
        let opens = tokio::spawn(async move {
            loop {
                store.1.notify_one();
                sleep(Duration::from_millis(1)).await;
            }
        });
        for permit in waits.join_all().await {
            assert!(!permit.unwrap().went_without_store(), "{policy:?}, {callers} callers, {within} s");
        }
        opens.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn nor_do_callers_whose_time_was_up_meanwhile_go_without_it() {
    for policy in [WithoutStore::Refuse, WithoutStore::SendUnthrottled] {
        let up = Upstream::new("up").limit(Limit::per_second(100)).without_store(policy);
        let throttle = Throttle::builder().store(Held::within(60)).upstream(up).build().unwrap();
        let mut waits = JoinSet::new();
        for _ in 0..3 {
            waits.spawn(throttle.acquire("up").max_wait(secs(2)).into_future());
        }
        sleep(Duration::from_millis(1)).await;
        advance(secs(9)).await;
        for outcome in waits.join_all().await {
            assert!(matches!(outcome, Err(Error::Throttled { .. })), "{policy:?}: {outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_is_late_a_store_that_is_silent_is_lost_in_the_end() {
    let up = Upstream::new("up").limit(Limit::per_second(100));
    let throttle = Throttle::builder().store(Held::within(60)).upstream(up).build().unwrap();
    let waits = tokio::spawn(throttle.acquire("up").into_future());
    let begin = Instant::now();
    while !waits.is_finished() {
        advance(secs(6)).await;
        yield_now().await;
        assert!(begin.elapsed() < secs(60));
    }
    assert!(matches!(waits.await.unwrap(), Err(Error::StoreUnavailable { .. })));
}

/// A store that counts who tells and looks, and answers late and in vain at times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late {
    store: MemoryStore,
    by_secs: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
    told: Arc<AtomicU64>,
    looked: Arc<AtomicU64>,
}

impl Late {
    pub(crate) fn process(&self) -> Throttle {
        self.process_of(Limit::per_minute(5), WithoutStore::Wait)
    }

    pub(crate) fn process_of(&self, limit: Limit, without_store: WithoutStore) -> Throttle {
        let up = Upstream::new("up").limit(limit).without_store(without_store);
        Throttle::builder().store(self.clone()).upstream(up).build().unwrap()
    }

    fn counted(&self) -> [u64; 2] {
        [&self.told, &self.looked].map(|count| count.swap(0, Ordering::SeqCst))
    }
}

impl Store for Late {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            self.told.fetch_add(u64::from(matches!(message.body, Body::Renew(_))), Ordering::SeqCst);
            self.looked.fetch_add(u64::from(matches!(message.body, Body::Look { .. })), Ordering::SeqCst);
            sleep(Duration::from_millis(1)).await;
            if self.fails.load(Ordering::SeqCst) {
                sleep(secs(self.by_secs.load(Ordering::SeqCst))).await;
                return Err(StoreError::new(StoreErrorKind::Unreachable, "the answer was lost"));
            }
            self.store.apply(message).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_to_the_store_in_another() {
    let store = Late::default();
    let throttle = store.process();
    let first = throttle.clone();
    let runtime = elsewhere(async move || {
        for _ in 0..6 {
            let waits = first.clone();
            drop(tokio::spawn(async move { waits.acquire("up").await.map(drop) }));
        }
        sleep(secs(3)).await;
    });
    let waits =
        tokio::spawn(async move { (throttle.acquire("up").await.map(drop), throttle.acquire("up").await.map(drop)) });
    sleep(secs(15)).await;
    store.counted();
    sleep(secs(40)).await;
    let [told, _] = store.counted();
    assert!((2..=4).contains(&told), "{told} times in 40 s");
    waits.abort();
    runtime.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_late_is_told_and_looked_at_by_one_at_a_time() {
    for by_secs in [12, 60] {
        for is_paused in [false, true] {
            let store = Late::default();
            store.by_secs.store(by_secs, Ordering::SeqCst);
            let throttle = store.process();
            for _ in 0..5 {
                drop(throttle.acquire("up").await.unwrap());
            }
            if is_paused {
                throttle.report("up", &Feedback::refused(secs(900))).await.unwrap();
            }
            sleep(secs(3)).await;
            store.fails.store(true, Ordering::SeqCst);
            store.counted();
            for _ in 0..600 {
                let waits = throttle.clone();
                drop(tokio::spawn(async move { drop(waits.acquire("up").max_wait(secs(30)).await) }));
                sleep(secs(1)).await;
            }
            let counted = store.counted();
            let most = 600 / by_secs + 1;
            assert!(counted.iter().all(|times| *times <= most), "{by_secs} s, paused {is_paused}: {counted:?}");
        }
    }
}
