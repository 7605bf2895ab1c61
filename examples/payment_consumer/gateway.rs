//! A gateway that forgives nothing.

use std::io;
use std::time::Duration;

use http::Response;
use outgate::testing::{Arrival, Shape, StrictUpstream};

use crate::ledger::Ledger;
use crate::limits::{OF_ALL, SEATS};

/// How long a call takes, at least and at most.
const TAKES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(400)];

/// A gateway: it answers 429 to what is beyond the limits of all calls, of a merchant or of calls in flight.
pub(crate) struct Gateway {
    upstream: StrictUpstream,
    pub(crate) ledger: Ledger,
}

impl Gateway {
    pub(crate) fn start() -> io::Result<Self> {
        let ledger = Ledger::new();
        let book = ledger.clone();
        let upstream = StrictUpstream::builder()
            .limit(OF_ALL.into(), Duration::from_secs(1), Shape::SlidingLog)
            .in_flight(SEATS.into())
            .response_delay(TAKES[0]..TAKES[1])
            .handler(move |request| {
                let (status, answer) = book.record().answer(request);
                let mut response = Response::new(answer.into());
                *response.status_mut() = status;
                response
            })
            .start()?;
        Ok(Self { upstream, ledger })
    }

    /// Host and port.
    pub(crate) fn host(&self) -> String {
        self.upstream.addr().to_string()
    }

    /// How many calls came.
    pub(crate) fn calls(&self) -> usize {
        self.upstream.arrivals().len()
    }

    /// How many were answered with 429.
    pub(crate) fn refused(&self) -> usize {
        self.upstream.refused() + usize::try_from(self.ledger.record().refused).unwrap_or(usize::MAX)
    }

    /// The most calls in flight at once.
    pub(crate) fn most_in_flight(&self) -> i32 {
        most_in_flight(&self.upstream.arrivals())
    }
}

fn most_in_flight(arrivals: &[Arrival]) -> i32 {
    let admitted = arrivals.iter().filter(|arrival| arrival.admitted);
    let mut changes: Vec<(i64, i32)> =
        admitted.flat_map(|arrival| [(arrival.at, 1), (arrival.left.unwrap_or(i64::MAX), -1)]).collect();
    // Who leaves makes room for who comes in the same microsecond.
    changes.sort_unstable();
    let now = changes.iter().scan(0, |now, (_, change)| {
        *now += change;
        Some(*now)
    });
    now.max().unwrap_or_default()
}
