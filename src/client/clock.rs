//! What responses show of their upstream's clock.

use std::time::UNIX_EPOCH;

use http::HeaderMap;
use http::header::{AGE, DATE};
use tokio::time::Instant;

use crate::client::permit::Permit;
use crate::config::plan::Registered;

/// Learns the upstream's clock from the head of a response to a permit's call, where calls count by a calendar.
pub(crate) fn hear_clock(registered: &Registered, permit: &Permit, headers: &HeaderMap) {
    let shard = registered.shard(permit.scope());
    if shard.calendars.is_empty() {
        return;
    }
    let upstream = permit.upstream();
    let Ok(seconds) = date(headers) else {
        tracing::debug!(upstream, "the response's date makes no sense, or is a cache's: ignored");
        return;
    };
    let Some(((seconds, start), (earliest, latest))) =
        seconds.zip(permit.stamp()).zip(shard.time.bounds_at(Instant::now()))
    else {
        return;
    };
    // It was sent after its start, which was placed by what was known of the store's clock.
    let sent = start.plus(earliest.as_micros() - latest.as_micros());
    let [sent, latest] = [sent, latest].map(|stamp| shard.calendars.clock(stamp));
    if shard.calendars.skew().shown(seconds, sent, latest) {
        tracing::warn!(
            upstream,
            "the upstream's clock and the store's differ by more than a minute, which is all that is kept quiet at its resets; said once"
        );
    }
}

/// The seconds since 1970 that a response shows, if any: those of its upstream, and not of what a cache kept.
fn date(headers: &HeaderMap) -> Result<Option<i64>, ()> {
    if headers.get(AGE).is_some_and(|age| age.as_bytes() != b"0") {
        return Err(());
    }
    let Some(date) = headers.get(DATE) else { return Ok(None) };
    let date = date.to_str().ok().and_then(|text| httpdate::parse_http_date(text.trim()).ok()).ok_or(())?;
    let seconds = date.duration_since(UNIX_EPOCH).map_err(|_| ())?.as_secs();
    i64::try_from(seconds).map(Some).map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&str, &str)]) -> Result<Option<i64>, ()> {
        let named = |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        date(&headers.iter().map(named).collect::<HeaderMap>())
    }

    #[test]
    fn a_date_is_read_in_each_form_of_http() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(read(&[("date", text)]), Ok(Some(784_111_777)), "{text}");
        }
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn a_date_that_is_none_or_a_caches_is_ignored() {
        for text in ["", "0", "yesterday", "Sun, 99 Nov 1994 08:49:37 GMT", "Thu, 01 Jan 1901 00:00:00 GMT"] {
            assert_eq!(read(&[("date", text)]), Err(()), "{text}");
        }
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(read(&[date, ("age", "7")]), Err(()));
        assert_eq!(read(&[date, ("age", "0")]), Ok(Some(784_111_777)));
    }
}
