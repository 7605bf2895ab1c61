//! A model that forgives nothing.

use std::io;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use outgate::testing::{Arrival, Shape, StrictUpstream, oracle};

use crate::answer;
use crate::limits::{CALLS, QUOTA};

/// How long an answer takes, at least and at most: so many hundredths of a minute.
const TAKES: [u32; 2] = [1, 33];

/// A model: it counts the true tokens of each call from the moment it comes, and answers 429 to what does not fit.
pub(crate) struct Model(StrictUpstream);

impl Model {
    pub(crate) fn start(minute: Duration) -> io::Result<Self> {
        let [least, most] = TAKES.map(|hundredths| minute * hundredths / 100);
        let upstream = StrictUpstream::builder()
            .limit(QUOTA.into(), minute, Shape::SlidingLog)
            .cost_by(|request| answer::tokens(answer::question(request.uri().path())).into())
            .limit_each(CALLS.into(), minute, Shape::SlidingLog, |_| (String::new(), 1))
            .handler(|request| {
                let events = answer::events(answer::question(request.uri().path()));
                let mut response = Response::new(events.into());
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                response
            })
            .body_delay(least..most)
            .start()?;
        Ok(Self(upstream))
    }

    /// Host and port.
    pub(crate) fn host(&self) -> String {
        self.0.addr().to_string()
    }

    /// How many were answered with 429.
    pub(crate) fn refused(&self) -> usize {
        self.0.refused()
    }

    /// The calls that were admitted until so long after the first, and the tokens that they used.
    pub(crate) fn served(&self, time: Duration) -> (u32, u64) {
        let admitted = self.admitted();
        let end = admitted.first().map_or(0, |first| first.at) + micros(time);
        let served = admitted.iter().filter(|call| call.at < end);
        served.fold((0, 0), |(calls, tokens), call| (calls + 1, tokens + call.cost))
    }

    /// The true tokens of the fullest minute.
    pub(crate) fn fullest(&self, minute: Duration) -> u64 {
        let admitted: Vec<_> = self.admitted().iter().map(|call| (call.at, call.cost)).collect();
        oracle::worst_window_of_units(&admitted, micros(minute)).count
    }

    fn admitted(&self) -> Vec<Arrival> {
        self.0.arrivals().into_iter().filter(|call| call.admitted).collect()
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
