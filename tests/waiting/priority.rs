//! Calls of higher priority go first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::{Error, Limit, Priority, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::Counting;

const SECOND: Duration = Duration::from_secs(1);

/// Two calls a second, no guard.
fn upstream(up: Upstream) -> Upstream {
    up.limit(Limit::per_second(2).guard(Duration::ZERO))
}

/// Callers that write down in which order they went.
#[derive(Default)]
struct Callers {
    went: Arc<Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

impl Callers {
    /// A caller comes, and is in the queue before anything else happens.
    async fn come(&mut self, throttle: &Throttle, name: &str, priority: Priority) {
        let (throttle, went, name) = (throttle.clone(), Arc::clone(&self.went), name.to_owned());
        self.tasks.spawn(async move {
            drop(throttle.acquire("up").priority(priority).await.unwrap());
            went.lock().unwrap().push(name);
        });
        tokio::task::yield_now().await;
    }

    async fn all(self) -> String {
        self.tasks.join_all().await;
        self.went.lock().unwrap().join(" ")
    }
}

#[tokio::test(start_paused = true)]
async fn callers_go_by_priority_and_of_one_priority_in_the_order_in_which_they_came() {
    let throttle = Counting::default().process(upstream);
    for _ in 0..2 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let mut callers = Callers::default();
    for name in ["l1", "n1", "h1", "l2", "n2", "h2"] {
        let priority = match &name[..1] {
            "h" => Priority::High,
            "n" => Priority::Normal,
            _ => Priority::Low,
        };
        callers.come(&throttle, name, priority).await;
    }
    assert_eq!(callers.all().await, "h1 h2 n1 n2 l1 l2");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_booked_goes_to_whoever_comes_with_a_higher_priority() {
    let throttle = Counting::default().process(upstream);
    for _ in 0..2 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let mut callers = Callers::default();
    callers.come(&throttle, "n1", Priority::Normal).await;
    // Within the horizon of the slot.
    sleep(SECOND * 9 / 10).await;
    callers.come(&throttle, "h1", Priority::High).await;
    callers.come(&throttle, "n2", Priority::Normal).await;
    assert_eq!(callers.all().await, "h1 n1 n2");
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_with_low_priority_for_long_enough_goes_first() {
    let of = async |up: fn(Upstream) -> Upstream| {
        let throttle = Counting::default().process(up);
        let mut callers = Callers::default();
        callers.come(&throttle, "n0", Priority::Normal).await;
        callers.come(&throttle, "n0", Priority::Normal).await;
        for name in ["l1", "l2"] {
            callers.come(&throttle, name, Priority::Low).await;
        }
        // Two come each second, which is all that there is.
        for second in 1..6 {
            for _ in 0..2 {
                callers.come(&throttle, &format!("n{second}"), Priority::Normal).await;
            }
            sleep(SECOND).await;
        }
        callers.all().await
    };
    assert_eq!(of(upstream).await, "n0 n0 n1 n1 n2 n2 n3 n3 n4 n4 n5 n5 l1 l2");
    let promoting = |up| upstream(up).promote_low_after(5 * SECOND / 2);
    assert_eq!(of(promoting).await, "n0 n0 n1 n1 n2 n2 l1 l2 n3 n3 n4 n4 n5 n5");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_is_judged_by_those_who_go_before() {
    let throttle = Counting::default().process(upstream);
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let throttle = throttle.clone();
        waiting.spawn(async move { throttle.acquire("up").await.map(drop) });
    }
    sleep(SECOND / 10).await;
    let of = async |priority| throttle.acquire("up").priority(priority).max_wait(2 * SECOND).await.map(drop);
    assert!(of(Priority::High).await.is_ok());
    for priority in [Priority::Normal, Priority::Low] {
        let refused = of(priority).await;
        assert!(
            matches!(refused, Err(Error::Throttled { retry_after, .. }) if retry_after > 7 * SECOND),
            "{refused:?}"
        );
    }
}
