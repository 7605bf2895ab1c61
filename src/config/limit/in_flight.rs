//! Limits on calls in flight.

use std::time::Duration;

use super::Limit;
use crate::error::ConfigError;

/// The most seats of a limit on calls in flight; how long a process holds them that says nothing more.
const MAX_SEATS: u32 = 100_000;
const DEFAULT_LEASE: Duration = Duration::from_secs(60);
const MIN_LEASE: Duration = Duration::from_secs(1);
const MAX_LEASE: Duration = Duration::from_secs(3_600);

/// How calls in flight are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeatSettings {
    lease: Duration,
    until_headers: bool,
}

impl Limit {
    /// At most `calls` in flight at once, in all processes together: 1 to 100,000 seats, of which each call takes one, whatever it costs. A call that
    /// takes nothing of any unit that is counted is refused all the same.
    ///
    /// A call through the middleware has its seat until its response's body has ended, or was dropped: read bodies, or drop
    /// them. One made with a permit of [`acquire`](crate::Throttle::acquire) has it until the permit is dropped. A call that is
    /// cancelled, or times out, leaves its seat, whatever the upstream still does with it. So does one whose connection is upgraded, as to a
    /// WebSocket: hold a permit of `acquire` for as long as that lasts.
    ///
    /// A seat that a call leaves goes to the next caller of the same process without a message to the store, as long as no other
    /// process that waits has fewer. Among processes the next seat goes to the one that has the fewest, then to the one that has
    /// waited longest. Who waits costs up to 20 store calls a second and process, and up to 4 where the process has its part. Nobody
    /// knows when a seat will be free: a call with a longest wait is refused when that is over, and one that does not wait at once.
    ///
    /// Where other limits hold [each](Limit::each) for a scope of their own, so that many merchants of a process need the same seats, all of this
    /// holds for the process: its merchants share its seats, first come, first served. Who has a seat then asks for its slot, so a first call
    /// costs two messages in a row, and later ones one. Who waits for its own limit keeps no seat meanwhile, and comes after those who wait
    /// when it is its turn there.
    ///
    /// How many seats are used and free in all processes is in [`Throttle::usage`](crate::Throttle::usage).
    ///
    /// A process holds its seats for a [lease](Limit::lease), which it renews with one message for all of them. Where no renewal reached
    /// the store for a whole lease, it may give out seats that calls still use, until it hears of these again. Where it lost its data, and a
    /// process remembers that, it gives none until each process has had the time to renew: a third of the lease, 20 s at most, and a second.
    #[must_use]
    pub const fn in_flight(calls: u32) -> Self {
        let seats = Some(SeatSettings { lease: DEFAULT_LEASE, until_headers: false });
        let mut limit = Self::new(calls, Duration::ZERO);
        limit.seats = seats;
        limit
    }

    /// Of a limit on calls in flight: a process that dies frees its seats after so long, 1 s to an hour; 60 s by default. It renews
    /// them after a third of it, and after 20 s at the latest. All limits on calls in flight of an upstream have the same.
    ///
    /// ```
    /// use outgate::Limit;
    /// use std::time::Duration;
    ///
    /// let reports = Limit::in_flight(5).lease(Duration::from_secs(600));
    /// let streams = Limit::in_flight(25).until_headers();
    /// # let _ = (reports, streams);
    /// ```
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        let until_headers = self.ends_with_headers();
        self.seats = Some(SeatSettings { lease, until_headers });
        self
    }

    /// Of a limit on calls in flight: a call through the middleware has its seat only until the headers of its response come. Either all
    /// limits on calls in flight of an upstream have this, or none.
    #[must_use]
    pub const fn until_headers(mut self) -> Self {
        self.seats = Some(SeatSettings { lease: self.lease_or_default(), until_headers: true });
        self
    }

    /// Whether it limits calls in flight.
    pub(crate) const fn is_in_flight(&self) -> bool {
        self.seats.is_some() && self.window.is_zero()
    }

    pub(crate) const fn ends_with_headers(&self) -> bool {
        matches!(self.seats, Some(SeatSettings { until_headers: true, .. }))
    }

    /// The lease, where one was given: of calls in flight, another than the default.
    pub(crate) fn lease_or_none(&self) -> Option<Duration> {
        let lease = self.seats.map(|seats| seats.lease)?;
        (!self.is_in_flight() || lease != DEFAULT_LEASE).then_some(lease)
    }

    pub(crate) const fn lease_or_default(&self) -> Duration {
        match self.seats {
            Some(SeatSettings { lease, .. }) => lease,
            None => DEFAULT_LEASE,
        }
    }

    /// What is wrong with a limit on calls in flight beside another of the same upstream: a call has one seat for both.
    pub(crate) fn check_seats_beside(&self, other: &Self, upstream: &str) -> Result<(), ConfigError> {
        let differs = |field| {
            let reason =
                "all limits on calls in flight of an upstream have the same: a call has one seat for all of them";
            Err(ConfigError::new(upstream, field, reason))
        };
        if self.lease_or_default() != other.lease_or_default() {
            return differs("limit.lease");
        }
        if self.ends_with_headers() != other.ends_with_headers() {
            return differs("limit.until_headers");
        }
        Ok(())
    }

    /// What is wrong with a limit on calls in flight.
    pub(crate) fn check_seats(&self, upstream: &str) -> Result<(), ConfigError> {
        let wrong = |field, reason: String| Err(ConfigError::new(upstream, field, reason));
        let (calls, lease) = (self.quota, self.lease_or_default());
        if calls == 0 || calls > MAX_SEATS {
            return wrong("limit.in_flight", format!("{calls} is not between 1 and {MAX_SEATS}"));
        }
        if lease < MIN_LEASE || lease > MAX_LEASE {
            return wrong("limit.lease", format!("{lease:?} is not between 1 s and an hour"));
        }
        if self.burst.is_some() || self.guard.is_some() {
            return wrong("limit.in_flight", "calls in flight have no burst and no guard".to_owned());
        }
        if self.unit() != "calls" || self.resets.is_some() || self.at_end {
            return wrong(
                "limit.in_flight",
                "calls in flight have no unit, no reset, and count while they last".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::reset::Reset;

    #[test]
    fn a_limit_on_calls_in_flight_has_seats_a_lease_and_nothing_else() {
        let limit = Limit::in_flight(25);
        assert!(limit.is_in_flight() && !limit.ends_with_headers() && !Limit::per_second(25).is_in_flight());
        assert_eq!((limit.quota(), limit.lease_or_default().as_secs()), (25, 60));
        let limit = limit.until_headers().lease(Duration::from_secs(9));
        assert!(limit.ends_with_headers() && limit.check_seats("up").is_ok());
        assert_eq!(limit.until_headers().lease_or_default().as_secs(), 9);
        let cases = [
            (Limit::in_flight(0), "limit.in_flight"),
            (Limit::in_flight(100_001), "limit.in_flight"),
            (Limit::in_flight(5).burst(2), "limit.in_flight"),
            (Limit::in_flight(5).guard(Duration::ZERO), "limit.in_flight"),
            (Limit::in_flight(5).of("tokens"), "limit.in_flight"),
            (Limit::in_flight(5).resets(Reset::daily("UTC")), "limit.in_flight"),
            (Limit::in_flight(5).counted_at_end(), "limit.in_flight"),
            (Limit::in_flight(5).lease(Duration::from_millis(999)), "limit.lease"),
            (Limit::in_flight(5).lease(Duration::from_secs(3_601)), "limit.lease"),
        ];
        for (limit, field) in cases {
            assert_eq!(limit.check_seats("up").unwrap_err().field(), field, "{limit:?}");
        }
        assert_eq!(Limit::per_second(5).until_headers().terms("up").unwrap_err().field(), "limit.lease");
    }
}
