//! Responses for tests.

use std::time::UNIX_EPOCH;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Dialect, Feedback};

/// The lines of a response's header.
pub(super) type Lines = &'static [(&'static str, &'static str)];

/// What a response received in 1970 says.
pub(super) fn read(dialect: Dialect, status: u16, lines: Lines) -> Feedback {
    let line =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let headers: HeaderMap = lines.iter().map(line).collect();
    Feedback::read_as(&dialect, StatusCode::from_u16(status).unwrap(), &headers, UNIX_EPOCH)
}
