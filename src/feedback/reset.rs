//! When a quota resets.

use std::time::{Duration, SystemTime};

use super::moment::Moment;
use super::number::Number;
use super::time_unit::TimeUnit;
use super::{date, span};

/// When a quota resets, and how well that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reset {
    /// From the response until then; zero if it has passed.
    pub(super) after: Duration,
    /// The instant, where the upstream named one.
    pub(super) at: Option<SystemTime>,
    /// The header's name promised a time from now, so that no clock is involved.
    pub(super) relative: bool,
}

impl Reset {
    /// A reset so long from now.
    pub(super) const fn after(after: Duration) -> Self {
        Self { after, at: None, relative: false }
    }

    fn at(moment: Moment, now: Moment) -> Self {
        Self { after: moment.after(now), at: moment.system_time(), relative: false }
    }

    /// What `text` says in any of its forms; the unit of a number is told by its magnitude unless `unit` is given.
    pub(super) fn parse(text: &str, unit: Option<TimeUnit>, now: Moment) -> Option<Self> {
        if let Some(number) = Number::parse(text) {
            return Some(Self::of_number(number, unit.unwrap_or(TimeUnit::of(number)), now));
        }
        let after = span::parse(text).map(Self::after);
        after.or_else(|| date::parse(text).map(|moment| Self::at(moment, now)))
    }

    /// The reset that a number tells in this unit, or since 1970 where it is too large to be a length of time.
    pub(super) fn of_number(number: Number, unit: TimeUnit, now: Moment) -> Self {
        match unit.or_epoch(number) {
            TimeUnit::Seconds => Self::after(number.seconds()),
            TimeUnit::Millis => Self::after(number.millis()),
            TimeUnit::EpochSeconds => Self::at(Moment::since_epoch(number.seconds()), now),
            TimeUnit::EpochMillis => Self::at(Moment::since_epoch(number.millis() / parts_of_millis(number)), now),
        }
    }

    /// Whether it was told as a length of time, so that no clock is involved.
    pub(super) const fn is_length(self) -> bool {
        self.relative || self.at.is_none()
    }

    /// What two headers say together: a time from now beats a clock's, and else the later one holds.
    pub(super) fn and(self, other: Self) -> Self {
        let at = self.at.max(other.at);
        let after = match (self.relative, other.relative) {
            (true, false) => self.after,
            (false, true) => other.after,
            _ => self.after.max(other.after),
        };
        Self { after, at, relative: self.relative || other.relative }
    }

    /// How much later than told it may be: upstreams that count in whole seconds do not say when in that second.
    pub(super) fn margin(self) -> Duration {
        if self.after.subsec_nanos() == 0 { Duration::from_secs(1) } else { Duration::ZERO }
    }
}

/// Micro- and nanoseconds since 1970 are so many times as many: read as milliseconds they would be thousands of years away.
const fn parts_of_millis(number: Number) -> u32 {
    match number.floor() {
        1_000_000_000_000_000_000.. => 1_000_000,
        1_000_000_000_000_000.. => 1_000,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn after(text: &str, unit: Option<TimeUnit>) -> Option<Duration> {
        Reset::parse(text, unit, Moment::at(NOW, 0)).map(|reset| reset.after)
    }

    #[test]
    fn the_magnitude_of_a_number_tells_its_unit() {
        let cases = [
            ("5", 5_000),
            ("64.57", 64_570),
            ("2163603", 2_163_603_000),
            ("1700000053", 53_000),
            ("1700000053.5", 53_500),
            ("1700000053250", 53_250),
            ("1700000053250000", 53_250),
            ("1700000053250000000", 53_250),
            ("1600000000", 0),
            ("6m0s", 360_000),
            ("00:00:05", 5_000),
            ("2023-11-14T22:14:20Z", 60_000),
            ("Tue, 14 Nov 2023 22:14:20 GMT", 60_000),
        ];
        for (text, millis) in cases {
            assert_eq!(after(text, None), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-43", "soon", "+5", "²"] {
            assert_eq!(after(text, None), None, "{text}");
        }
    }

    #[test]
    fn a_unit_that_is_given_beats_the_magnitude_and_leaves_texts_alone() {
        let cases = [
            ("58000", TimeUnit::Millis, 58_000),
            ("1700000053", TimeUnit::Millis, 1_700_000_053),
            ("1700000053000", TimeUnit::EpochMillis, 53_000),
            ("5", TimeUnit::EpochSeconds, 0),
            ("1s", TimeUnit::EpochMillis, 1_000),
        ];
        for (text, unit, millis) in cases {
            assert_eq!(after(text, Some(unit)), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn no_length_of_time_is_as_long_as_it_is_since_1970() {
        let cases = [
            ("999999999", TimeUnit::Seconds, 999_999_999_000),
            ("1700000053", TimeUnit::Seconds, 53_000),
            ("1700000053250", TimeUnit::Seconds, 53_250),
            ("1700000053250", TimeUnit::Millis, 53_250),
        ];
        for (text, unit, millis) in cases {
            assert_eq!(after(text, Some(unit)), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn of_two_resets_the_one_without_a_clock_holds_and_else_the_later() {
        let plain = |seconds| Reset::after(Duration::from_secs(seconds));
        let relative = |seconds| Reset { relative: true, ..plain(seconds) };
        let cases = [
            (plain(5), plain(7), 7),
            (plain(9), relative(7), 7),
            (relative(7), plain(9), 7),
            (relative(7), relative(9), 9),
        ];
        for (one, other, seconds) in cases {
            assert_eq!(one.and(other).after, Duration::from_secs(seconds));
        }
    }

    #[test]
    fn whole_seconds_have_a_margin_of_one() {
        assert_eq!(Reset::after(Duration::from_secs(5)).margin(), Duration::from_secs(1));
        assert_eq!(Reset::after(Duration::from_millis(5_500)).margin(), Duration::ZERO);
    }
}
