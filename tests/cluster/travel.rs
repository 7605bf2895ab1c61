//! How long calls are on their way, from the moment in which the throttle lets them go: no throttle can help that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outgate::testing::{Arrival, StrictUpstream};

/// What a request's query says before the number of microseconds.
const LEFT_AT: &str = "left-at=";

/// The query of a request that is sent now.
pub(crate) fn departure(now: SystemTime) -> String {
    format!("{LEFT_AT}{}", since_epoch(now))
}

/// When the upstream's clock was zero, as processes of this machine tell the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zero(i64);

impl Zero {
    pub(crate) fn of(upstream: &StrictUpstream) -> Self {
        Self(since_epoch(SystemTime::now()) - upstream.now())
    }

    /// How long a call was on its way, in µs; zero where it does not say when it left.
    fn travel(self, arrival: &Arrival) -> i64 {
        let left = arrival.path.split_once(LEFT_AT).and_then(|(_, at)| at.parse::<i64>().ok());
        left.map_or(0, |left| arrival.at + self.0 - left)
    }

    /// By how much the calls differ in how long they were on their way.
    pub(crate) fn spread(self, arrivals: &[Arrival]) -> Duration {
        let travels = || arrivals.iter().map(|arrival| self.travel(arrival));
        let [longest, shortest] = [travels().max(), travels().min()].map(Option::unwrap_or_default);
        Duration::from_micros(longest.abs_diff(shortest))
    }
}

fn since_epoch(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
