//! Responses for tests.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Dialect, Feedback};

/// The lines of a response's header.
pub(super) type Lines = &'static [(&'static str, &'static str)];

/// What a response received in 1970 says.
pub(super) fn read(dialect: Dialect, status: u16, lines: Lines) -> Feedback {
    read_at(dialect, status, lines, 0)
}

/// What a response received so many seconds later says.
pub(super) fn read_at(dialect: Dialect, status: u16, lines: Lines, seconds: u64) -> Feedback {
    let received = UNIX_EPOCH + Duration::from_secs(seconds);
    let line =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let headers: HeaderMap = lines.iter().map(line).collect();
    Feedback::read_as(&dialect, StatusCode::from_u16(status).unwrap(), &headers, received)
}
