//! What a runtime begins and does not end: others of the process wait for none of it.

use std::time::Duration;

use outgate::{Limit, Upstream};
use tokio::time::{Instant, sleep};

use crate::standing_still::elsewhere;
use crate::support::Counting;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn what_goes_back_as_the_last_act_of_a_runtime_holds_up_nobody_for_long() {
    for is_settled in [false, true] {
        let throttle = Counting::default().limited(Limit::per_minute(2));
        let first = throttle.clone();
        let runtime = elsewhere(async move || {
            let permit = first.acquire("up").cost(2).await.unwrap();
            sleep(SECOND).await;
            if is_settled { permit.settle("calls", 1) } else { permit.hand_back() }
        });
        let begin = Instant::now();
        drop(throttle.acquire("up").await.unwrap());
        assert!(begin.elapsed() <= Duration::from_millis(600), "{is_settled}: {:?}", begin.elapsed());
        runtime.shutdown_background();
    }
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_keep_their_seats_though_their_limits_are_replaced_and_their_runtime_stands_still() {
    let store = Counting::default();
    let limited = |up: Upstream| up.limit(Limit::in_flight(2).lease(6 * SECOND));
    let [throttle, other] = [(); 2].map(|()| store.process(limited));
    let (first, (sender, receiver)) = (throttle.clone(), std::sync::mpsc::channel());
    let runtime = elsewhere(async move || sender.send(first.acquire("up").await.unwrap()).unwrap());
    let permit = receiver.recv().unwrap();
    throttle.update(limited(Upstream::new("up"))).unwrap();
    // In this runtime a task looks after leases from now on.
    let third = throttle.acquire("up").await.unwrap();
    sleep(30 * SECOND).await;
    assert!(other.try_acquire("up").await.is_err(), "both are in flight");
    drop((permit, third));
    runtime.shutdown_background();
}
