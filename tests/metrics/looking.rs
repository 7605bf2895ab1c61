//! How often what changes by itself is looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use outgate::{Limit, Throttle, Upstream};
use tokio::time::sleep;

/// How often a gauge was set.
#[derive(Default)]
struct Sets(AtomicU64);

impl GaugeFn for Sets {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps how often the longest waits were set, of all upstreams together.
#[derive(Default)]
struct Waits(Arc<Sets>);

impl Recorder for Waits {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let waits = (key.name() == "outgate_oldest_wait_seconds").then(|| Arc::clone(&self.0));
        waits.map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn one_look_a_second_is_for_all_upstreams_whenever_they_came() {
    let (waits, names) = (Waits::default(), ["first", "second", "third"]);
    let over = |done: &mut dyn FnMut()| metrics::with_local_recorder(&waits, done);
    let up = |name: &str, calls| Upstream::new(name).limit(Limit::per_hour(calls));
    let mut built = None;
    over(&mut || built = Some(Throttle::builder().build().unwrap()));
    let throttle = built.unwrap();
    over(&mut || names.iter().for_each(|name| throttle.add(up(name, 2)).unwrap()));
    over(&mut || throttle.update(up("second", 1)).unwrap());
    for name in names {
        drop(throttle.acquire(name).await.unwrap());
        for _ in 0..2 {
            tokio::spawn(throttle.acquire(name).into_future());
        }
        sleep(Duration::from_millis(10)).await;
    }
    let before = waits.0.0.load(Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(waits.0.0.load(Ordering::Relaxed) - before, 10 * 3, "each of them once a second");
}
