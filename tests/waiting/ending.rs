//! Closing, and runtimes that end before the throttle does.

use std::time::Duration;

use outgate::{Error, Limit, Throttle, Upstream};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::support::Counting;

#[tokio::test(start_paused = true)]
async fn closing_refuses_who_waits_and_hands_back_what_is_booked() {
    let store = Counting::default();
    let throttle = store.limited(Limit::new(5, Duration::from_millis(200)));
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let throttle = throttle.clone();
            tokio::spawn(async move { throttle.acquire("up").await.map(drop) })
        })
        .collect();
    sleep(Duration::from_millis(10)).await;
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 10, "five sent, five booked");
    throttle.close().await;
    let mut served = 0;
    for task in waiting {
        match task.await.unwrap() {
            Ok(()) => served += 1,
            Err(error) => assert!(matches!(error, Error::Closed)),
        }
    }
    assert_eq!(served, 5);
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 5);
    assert!(matches!(throttle.acquire("up").await, Err(Error::Closed)));
    throttle.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_panics_leaves_no_seat_and_no_slot_behind() {
    let up = Upstream::new("up").limit(Limit::per_hour(100)).limit(Limit::in_flight(1));
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    for _ in 0..20 {
        let (holding, waiting) = (throttle.clone(), throttle.clone());
        let holding = tokio::spawn(async move {
            let _permit = holding.acquire("up").await.unwrap();
            sleep(Duration::from_millis(10)).await;
            panic!("a caller panics that holds a permit");
        });
        let waiting = tokio::spawn(async move {
            let panics = async {
                sleep(Duration::from_millis(5)).await;
                panic!("a caller panics that waits");
            };
            tokio::join!(async { waiting.acquire("up").await.map(drop) }, panics)
        });
        assert!(holding.await.is_err() && waiting.await.is_err());
    }
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 20, "those that held a permit may have called");
    drop(timeout(Duration::from_secs(1), async { throttle.acquire("up").await }).await.unwrap().unwrap());
}

#[test]
fn a_throttle_outlives_the_runtime_that_drove_it() {
    let throttle = Counting::default().limited(Limit::new(1, Duration::from_millis(50)));
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    first.block_on(async { throttle.acquire("up").await.map(drop) }).unwrap();
    // The first runtime's task drives the queue while a caller of the second one waits.
    let clone = throttle.clone();
    first.spawn(async move { clone.acquire("up").await.map(drop) });
    first.block_on(async { sleep(Duration::from_millis(10)).await });
    let clone = throttle.clone();
    let waiter = second.spawn(async move { clone.acquire("up").await.map(drop) });
    second.block_on(async { sleep(Duration::from_millis(5)).await });
    drop(first);
    second.block_on(async {
        timeout(Duration::from_secs(5), waiter).await.expect("it does not hang").unwrap().unwrap();
        timeout(Duration::from_secs(5), async { throttle.acquire("up").await }).await.unwrap().map(drop).unwrap();
    });
}

#[test]
fn a_caller_does_not_hang_when_the_driver_s_runtime_stands_still() {
    let throttle = Counting::default().limited(Limit::new(1, Duration::from_millis(300)));
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let clone = throttle.clone();
    first.spawn(async move {
        clone.acquire("up").await.map(drop).unwrap();
        clone.acquire("up").await.map(drop).unwrap();
    });
    first.block_on(async { sleep(Duration::from_millis(10)).await });
    // The first runtime lives on, with the task that drives the queue, but its only thread is busy with something else.
    // Patience with the driver, a slot, and what a busy machine adds.
    let bound = Duration::from_millis(5_000 + 350 + 1_000);
    let acquired = second.block_on(async { timeout(bound, async { throttle.acquire("up").await }).await });
    acquired.expect("it does not hang").map(drop).unwrap();
    drop(first);
}

#[test]
fn a_caller_dropped_outside_any_runtime_does_no_harm() {
    let throttle = Counting::default().limited(Limit::per_second(1));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut caller = Box::pin(async { throttle.acquire("up").await.map(drop) });
    runtime.block_on(async {
        throttle.acquire("up").await.map(drop).unwrap();
        assert!(timeout(Duration::from_millis(10), &mut caller).await.is_err());
    });
    drop(runtime);
    drop(caller);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        timeout(Duration::from_secs(5), async { throttle.acquire("up").await }).await.unwrap().map(drop).unwrap();
    });
}
