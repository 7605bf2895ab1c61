//! Lengths of time as upstreams write them: `1m30s`, `hh:mm:ss`, and the words in a header's name.

use std::time::Duration;

use super::number::Number;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The length of time that `text` is, if it says its unit: a duration as Go prints it, or `hh:mm:ss`.
pub(super) fn parse(text: &str) -> Option<Duration> {
    units(text).or_else(|| clock(text))
}

/// The window that a name such as `minute`, `24hour`, `unified-5h` or `GetVMScaleSet3Min` speaks of.
pub(super) fn named(name: &str) -> Option<Duration> {
    let word = name.rsplit('-').next()?;
    if let Some(seconds) = window_word(word) {
        return Some(Duration::from_secs(seconds));
    }
    let unit = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let start = unit.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    units(&word.get(start..)?.to_ascii_lowercase()).filter(|window| !window.is_zero())
}

/// The window of `600/15m` and `100/hour`, the part behind the stroke; a number alone is in seconds.
pub(super) fn window(text: &str) -> Option<Duration> {
    let word = text.to_ascii_lowercase();
    let seconds = || Number::parse(&word).map(Number::seconds);
    let window = unit(&word).or_else(|| units(&word)).or_else(seconds)?;
    Some(window).filter(|window| !window.is_zero())
}

/// Numbers with units, one after the other: `6m0s`, `17ms`, `2m30.5s`, `90 seconds`.
fn units(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = None;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        // The whole word is the unit, so that `ms` is never taken for minutes.
        let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (word, next) = tail.split_at(end);
        let length = scaled(Number::parse(number)?, unit(word)?);
        total = Some(length.saturating_add(total.unwrap_or(Duration::ZERO)));
        rest = next.trim_start();
    }
    total
}

/// `hh:mm:ss`, with a fraction or with days in front: `1.02:03:04`.
fn clock(text: &str) -> Option<Duration> {
    let mut fields = text.splitn(3, ':');
    let (front, minutes, seconds) = (fields.next()?, fields.next()?, fields.next()?);
    let (days, hours) = front.split_once('.').unwrap_or(("0", front));
    let mut total = Number::parse(seconds)?.seconds();
    for (text, unit) in [(days, DAY), (hours, HOUR), (minutes, MINUTE)] {
        let count = Number::parse(text).filter(|count| count.floor() == count.ceil())?;
        total = total.saturating_add(scaled(count, Duration::from_secs(unit)));
    }
    Some(total)
}

/// So many of a unit, rounded up to nanoseconds.
fn scaled(number: Number, unit: Duration) -> Duration {
    let nanos = number.seconds().as_nanos().saturating_mul(unit.as_nanos()).div_ceil(1_000_000_000);
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).unwrap_or(0))
}

fn unit(word: &str) -> Option<Duration> {
    Some(match word {
        "ns" => Duration::from_nanos(1),
        "us" | "µs" | "μs" => Duration::from_micros(1),
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => Duration::from_millis(1),
        "s" | "sec" | "secs" | "seconds" => Duration::from_secs(1),
        "m" | "min" | "mins" | "minutes" => Duration::from_secs(MINUTE),
        "h" | "hr" | "hrs" | "hours" => Duration::from_secs(HOUR),
        "d" | "days" => Duration::from_secs(DAY),
        "w" | "weeks" => Duration::from_secs(7 * DAY),
        _ => Duration::from_secs(window_word(word)?),
    })
}

/// Seconds of a window that is one unit long; months and years are as long as gateways count them.
fn window_word(word: &str) -> Option<u64> {
    Some(match word {
        "second" | "secondly" => 1,
        "minute" | "minutely" => MINUTE,
        "hour" | "hourly" => HOUR,
        "day" | "daily" => DAY,
        "week" | "weekly" => 7 * DAY,
        "month" | "monthly" => 30 * DAY,
        "year" | "yearly" => 365 * DAY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_with_their_units() {
        let cases = [
            ("1s", 1_000),
            ("17ms", 17),
            ("6m0s", 360_000),
            ("1m30s", 90_000),
            ("2m30.5s", 150_500),
            ("23h47m36.648s", 85_656_648),
            ("123.4s", 123_400),
            ("90 seconds", 90_000),
            ("1 hour 5 min", 3_900_000),
            ("00:00:05", 5_000),
            ("01:02:03.5", 3_723_500),
            ("1.02:03:04", 93_784_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("1µs"), Some(Duration::from_micros(1)));
        assert_eq!(parse("18446744073709551615h").map(|length| length.as_secs()), Some(u64::MAX));
    }

    #[test]
    fn what_has_no_unit_or_a_strange_one_is_not_a_length() {
        for text in ["", "5", "s", "-5s", "5x", "5s5", "1.s", "00:05", "1:2:3:4", "a:b:c", "1.5.2:00:00", "5²"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_may_tell_its_window() {
        let cases = [
            ("minute", Some(60)),
            ("minutely", Some(60)),
            ("daily", Some(86_400)),
            ("24hour", Some(86_400)),
            ("unified-5h", Some(18_000)),
            ("GetVMScaleSet30Min", Some(1_800)),
            ("requests", None),
            ("5", None),
            ("0s", None),
            ("m", None),
            ("", None),
        ];
        for (name, seconds) in cases {
            assert_eq!(named(name), seconds.map(Duration::from_secs), "{name}");
        }
    }

    #[test]
    fn a_window_behind_a_stroke_is_a_length_a_word_or_seconds() {
        for (text, seconds) in [("15m", Some(900)), ("Hour", Some(3_600)), ("60", Some(60)), ("0", None), ("red", None)]
        {
            assert_eq!(window(text), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
