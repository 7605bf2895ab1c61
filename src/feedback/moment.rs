//! Instants on the calendar, and how far apart they are.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{AGE, DATE};

use super::date;
use super::number::Number;

const SECOND: i128 = 1_000_000_000;

/// An instant, in nanoseconds since 1970; earlier ones are negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(i128);

impl Moment {
    /// The instant from which a response counts its times: its `Date`, else when it was received.
    ///
    /// An upstream writes absolute times by its own clock, so that only its own `Date` tells how far away they are, and where a cache kept the
    /// response, its `Age`, how long ago that was; its head was received so long before all of it was.
    pub(super) fn of_response(headers: &HeaderMap, (received_at, since_head): (SystemTime, Duration)) -> Self {
        let told = headers.get(DATE).and_then(|value| date::parse(value.to_str().ok()?.trim()));
        let later = i128::from(age(headers)) * SECOND + Self::since_epoch(since_head).0;
        let after = |told: Self| Self(told.0.saturating_add(later));
        told.map_or_else(|| Self::of(received_at), after)
    }

    /// The instant of the system's calendar.
    pub(super) fn of(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self::since_epoch(since),
            Err(before) => Self(Self::since_epoch(before.duration()).0.saturating_neg()),
        }
    }

    /// The instant so long after 1970 began.
    pub(super) fn since_epoch(since: Duration) -> Self {
        Self(i128::from(since.as_secs()) * SECOND + i128::from(since.subsec_nanos()))
    }

    /// The instant so many seconds and then nanoseconds after 1970 began.
    pub(super) fn at(seconds: i64, nanos: u32) -> Self {
        Self(i128::from(seconds) * SECOND + i128::from(nanos))
    }

    /// How long after `now` this is; zero when it has passed.
    pub(super) fn after(self, now: Self) -> Duration {
        let nanos = self.0.saturating_sub(now.0).max(0);
        let seconds = u64::try_from(nanos / SECOND).unwrap_or(u64::MAX);
        Duration::new(seconds, u32::try_from(nanos % SECOND).unwrap_or(0))
    }

    /// This instant on the system's calendar, if that reaches so far.
    pub(super) fn system_time(self) -> Option<SystemTime> {
        let since =
            |nanos: i128| Some(Duration::new(u64::try_from(nanos / SECOND).ok()?, u32::try_from(nanos % SECOND).ok()?));
        if self.0 < 0 { UNIX_EPOCH.checked_sub(since(-self.0)?) } else { UNIX_EPOCH.checked_add(since(self.0)?) }
    }
}

/// For how many seconds a cache has kept a response; 0 where it says nothing of that.
pub(super) fn age(headers: &HeaderMap) -> u64 {
    let text = headers.get(AGE).and_then(|age| std::str::from_utf8(age.as_bytes()).ok());
    text.and_then(|text| Number::parse(text.trim())).map_or(0, Number::floor)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_way_to_an_instant_is_never_negative() {
        let (early, late) = (Moment::at(100, 0), Moment::at(103, 500_000_000));
        assert_eq!(late.after(early), Duration::from_millis(3_500));
        assert_eq!(early.after(late), Duration::ZERO);
        assert_eq!(Moment::at(i64::MAX, 0).after(Moment::at(i64::MIN, 0)).as_secs(), u64::MAX);
        assert_eq!(Moment::since_epoch(Duration::MAX).after(Moment::at(-1, 0)).as_secs(), u64::MAX);
    }

    #[test]
    fn system_times_before_and_after_1970_go_both_ways() {
        for time in [UNIX_EPOCH, UNIX_EPOCH + Duration::from_millis(1_500), UNIX_EPOCH - Duration::from_millis(1_500)] {
            assert_eq!(Moment::of(time).system_time(), Some(time));
        }
        assert_eq!(Moment::since_epoch(Duration::MAX).system_time(), None);
    }

    #[test]
    fn a_response_counts_from_its_date_and_age_and_else_from_its_receipt() {
        let received_at = UNIX_EPOCH + Duration::from_secs(7);
        let cases = [
            (None, 7),
            (Some("Thu, 01 Jan 1970 00:01:40 GMT"), 100),
            (Some("Thu, 01 Jan 1970 00:01:40 UTC"), 100),
            (Some("yesterday"), 7),
        ];
        for (date, seconds) in cases {
            let mut headers = HeaderMap::new();
            headers.extend(date.map(|date| (DATE, HeaderValue::from_static(date))));
            let of = |headers: &HeaderMap, since_head| Moment::of_response(headers, (received_at, since_head));
            assert_eq!(of(&headers, Duration::ZERO), Moment::at(seconds, 0), "{date:?}");
            let in_an_hour = if seconds == 7 { 7 } else { seconds + 3_600 };
            assert_eq!(of(&headers, Duration::from_secs(3_600)), Moment::at(in_an_hour, 0), "{date:?}");
            for (age, later) in [("55", 55), ("soon", 0), ("-5", 0)] {
                let later = if seconds == 7 { 0 } else { later };
                headers.insert(AGE, HeaderValue::from_static(age));
                assert_eq!(of(&headers, Duration::ZERO), Moment::at(seconds + later, 0), "{date:?} {age}");
            }
        }
    }
}
