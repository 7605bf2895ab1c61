//! Limits and lengths of time as text: `100/s burst 20`, `90s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::config::limit::Limit;
use crate::error::ConfigError;

/// Units of time in nanoseconds, the longest first.
const UNITS: [(&str, u128); 7] = [
    ("day", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
/// More of a wrong word is not shown.
const SHOWN: usize = 24;

/// A limit as text: a quota and its window, then what else is said of it.
///
/// ```
/// use outgate::Limit;
/// use std::time::Duration;
///
/// assert_eq!("100/s burst 20".parse(), Ok(Limit::per_second(100).burst(20)));
/// assert_eq!("5_000/h".parse(), Ok(Limit::per_hour(5_000)));
/// assert_eq!("120/90s guard 250ms".parse(), Ok(Limit::new(120, Duration::from_secs(90)).guard(Duration::from_millis(250))));
///
/// let wrong = "100/fortnight".parse::<Limit>().unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "limit: \"fortnight\", at character 5, is no length of time, such as s, min, h, day, 90s or 250ms"
/// );
/// ```
///
/// # Errors
///
/// A [`ConfigError`] that names what cannot be read, and where it stands. Whether such a limit is possible is checked when the
/// throttle is built.
impl FromStr for Limit {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut words = Words { text, at: 0 };
        let first = words.next().ok_or_else(|| wrong("nothing stands where a limit should be, such as 100/s"))?;
        let Some((quota, window)) = first.text.split_once('/') else {
            return Err(first.is("no quota and window, such as 100/s"));
        };
        let quota = Word { text: quota, ..first };
        let window = Word { text: window, at: first.at + quota.text.len() + 1 };
        let mut limit = Self::new(quota.number()?, window.window()?);
        let (mut has_burst, mut has_guard) = (false, false);
        while let Some(word) = words.next() {
            let said = match word.text {
                "burst" => &mut has_burst,
                "guard" => &mut has_guard,
                _ => return Err(word.is("nothing that may be said of a limit: burst or guard")),
            };
            if std::mem::replace(said, true) {
                return Err(word.is("said twice"));
            }
            let value = words.next().ok_or_else(|| word.is("said of nothing: its value is missing"))?;
            limit = if word.text == "burst" { limit.burst(value.number()?) } else { limit.guard(value.length()?) };
        }
        Ok(limit)
    }
}

/// As [`from_str`](str::parse) reads it back.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.quota())?;
        match in_units(self.window()) {
            (1, unit) => f.write_str(unit)?,
            (count, unit) => write!(f, "{count}{unit}")?,
        }
        if let Some(burst) = self.burst_or_none() {
            write!(f, " burst {burst}")?;
        }
        if let Some(guard) = self.guard_or_none() {
            let (count, unit) = in_units(guard);
            write!(f, " guard {count}{unit}")?;
        }
        Ok(())
    }
}

/// A length of time, in the largest unit that leaves no rest.
fn in_units(length: Duration) -> (u128, &'static str) {
    let nanos = length.as_nanos();
    let unit = UNITS.iter().find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit));
    unit.map_or((nanos, "s"), |(name, unit)| (nanos / unit, name))
}

/// The length of time that a text says: `30s`, `250ms`.
#[cfg(feature = "serde")]
pub(crate) fn length(text: &str) -> Result<Duration, ConfigError> {
    Word { text, at: 0 }.length()
}

fn wrong(reason: impl Into<String>) -> ConfigError {
    ConfigError::new("", "limit", reason)
}

/// The words of a text, one after another.
struct Words<'a> {
    text: &'a str,
    /// As far as it has been read, in bytes.
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<Word<'a>> {
        let rest = self.text.get(self.at..)?;
        let begin = self.at + rest.len() - rest.trim_start().len();
        let text = self.text.get(begin..)?.split_whitespace().next()?;
        self.at = begin + text.len();
        Some(Word { text, at: self.text.get(..begin)?.chars().count() })
    }
}

/// A word, and how many characters stand before it.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    at: usize,
}

impl Word<'_> {
    /// Why it cannot be read.
    fn is(self, what: &str) -> ConfigError {
        let mut shown: String = self.text.chars().take(SHOWN).collect();
        if shown.len() < self.text.len() {
            shown.push('…');
        }
        wrong(format!("{shown:?}, at character {}, is {what}", self.at + 1))
    }

    fn number(self) -> Result<u32, ConfigError> {
        digits(self.text)
            .filter(|_| self.text.starts_with(|first: char| first.is_ascii_digit()))
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| self.is("no whole number below 4,294,967,296, such as 100 or 5_000"))
    }

    /// A length of time, or a unit alone: `s` is `1s`.
    fn window(self) -> Result<Duration, ConfigError> {
        let unit = UNITS.iter().find(|(name, _)| *name == self.text).and_then(|(_, unit)| duration(*unit));
        unit.map_or_else(|| self.length(), Ok)
    }

    fn length(self) -> Result<Duration, ConfigError> {
        let end = self.text.find(|other: char| !other.is_ascii_digit() && other != '_').unwrap_or(self.text.len());
        let (count, name) = self.text.split_at(end);
        let unit = UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
        let nanos = digits(count).zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
        nanos.and_then(duration).ok_or_else(|| self.is("no length of time, such as s, min, h, day, 90s or 250ms"))
    }
}

/// Digits, which `_` may part.
fn digits(text: &str) -> Option<u128> {
    let mut number = None::<u128>;
    for digit in text.chars().filter(|digit| *digit != '_') {
        let more = u128::from(digit.to_digit(10)?);
        number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(more)?);
    }
    number
}

fn duration(nanos: u128) -> Option<Duration> {
    let (secs, rest) = (u64::try_from(nanos / 1_000_000_000).ok()?, u32::try_from(nanos % 1_000_000_000).ok()?);
    Some(Duration::new(secs, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit() -> impl Strategy<Value = Limit> {
        let length = || {
            let odd = (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
            let whole = (0..UNITS.len(), 0..100_u32).prop_map(|(unit, count)| {
                let nanos = u64::try_from(UNITS[unit].1).unwrap() * u64::from(count);
                Duration::from_nanos(nanos)
            });
            prop_oneof![whole, odd]
        };
        let (burst, guard) = (proptest::option::of(any::<u32>()), proptest::option::of(length()));
        (any::<u32>(), length(), burst, guard).prop_map(|(quota, window, burst, guard)| {
            let limit = Limit::new(quota, window);
            let limit = if let Some(burst) = burst { limit.burst(burst) } else { limit };
            if let Some(guard) = guard { limit.guard(guard) } else { limit }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_shown_is_read_back(limit in limit()) {
            prop_assert_eq!(limit.to_string().parse(), Ok(limit));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}", words in "([0-9_]{0,40}(/|s|ms|burst |guard |day| )){0,6}") {
            for text in [text, words] {
                if let Ok(limit) = text.parse::<Limit>() {
                    prop_assert_eq!(limit.to_string().parse(), Ok(limit));
                }
            }
        }
    }

    #[test]
    fn limits_are_shown_in_the_largest_units() {
        let (second, cases) = (
            Duration::from_secs(1),
            [
                "100/s",
                "100/s burst 20",
                "500/min",
                "5000/h",
                "9/day",
                "40/2s",
                "10/100ms",
                "1/90s",
                "7/2day",
                "3/1500us",
                "1/7ns",
                "1/0s",
                "120/90s guard 250ms",
                "5/s guard 0s",
                "100/s burst 20 guard 1h",
            ],
        );
        for text in cases {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        assert_eq!(Limit::new(3, 60 * second).to_string(), "3/min");
        assert_eq!(" 5_000/60s  guard 1s ".parse(), Ok(Limit::per_minute(5_000).guard(second)), "as people write it");
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let cases = [
            ("", "nothing stands where a limit should be, such as 100/s"),
            ("100", "\"100\", at character 1, is no quota and window"),
            ("/s", "\"\", at character 1, is no whole number"),
            ("ten/s", "\"ten\", at character 1, is no whole number"),
            ("-1/s", "\"-1\", at character 1, is no whole number"),
            ("_/s", "\"_\", at character 1, is no whole number"),
            ("4294967296/s", "\"4294967296\", at character 1, is no whole number"),
            ("1/", "\"\", at character 3, is no length of time"),
            ("1/month", "\"month\", at character 3, is no length of time"),
            ("1/1.5s", "\"1.5s\", at character 3, is no length of time"),
            ("1/99999999999999999999day", "\"99999999999999999999day\", at character 3, is no length of time"),
            ("1/s bust 2", "\"bust\", at character 5, is nothing that may be said of a limit"),
            ("1/s burst", "\"burst\", at character 5, is said of nothing"),
            ("1/s burst x", "\"x\", at character 11, is no whole number"),
            ("1/s guard 2", "\"2\", at character 11, is no length of time"),
            ("1/s burst 1 burst 2", "\"burst\", at character 13, is said twice"),
            ("ä ö", "\"ä\", at character 1, is no quota and window"),
            ("1/s ä ö", "\"ä\", at character 5, is nothing that may be said"),
            ("123456789012345678901234567890", "\"123456789012345678901234…\", at character 1, is no quota"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Limit>().unwrap_err();
            assert_eq!((error.upstream(), error.field()), ("", "limit"));
            assert!(error.reason().starts_with(expected), "{text:?}: {error}");
        }
    }
}
