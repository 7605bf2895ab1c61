//! Counts calls in flight.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How many calls are in flight, were at most, and for how long seats were used.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(Arc<Mutex<InFlight>>);

#[derive(Debug)]
struct InFlight {
    since: Instant,
    now: u32,
    most: u32,
    used: Duration,
}

impl Gauge {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(InFlight { since: Instant::now(), now: 0, most: 0, used: Duration::ZERO })))
    }

    fn change(&self, change: impl FnOnce(u32) -> u32) {
        let mut all = self.0.lock().unwrap();
        let InFlight { since, now, most, used } = &mut *all;
        let before = std::mem::replace(since, Instant::now());
        *used += (*since - before) * *now;
        *now = change(*now);
        *most = (*most).max(*now);
    }

    /// One call of some length, or until it is cancelled.
    pub(crate) async fn call(&self, length: Duration) {
        struct Call<'a>(&'a Gauge);
        impl Drop for Call<'_> {
            fn drop(&mut self) {
                self.0.change(|now| now - 1);
            }
        }
        self.change(|now| now + 1);
        let _call = Call(self);
        sleep(length).await;
    }

    pub(crate) fn most(&self) -> u32 {
        self.0.lock().unwrap().most
    }

    /// The part of so many seats that was used since the last look.
    pub(crate) fn share(&self, seats: u32, of: Duration) -> f64 {
        self.change(|now| now);
        let used = std::mem::take(&mut self.0.lock().unwrap().used);
        used.as_secs_f64() / (of * seats).as_secs_f64()
    }
}
