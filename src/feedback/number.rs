//! Numbers as upstreams write them: digits, perhaps a fraction, nothing else.

use std::time::Duration;

const BILLION: u32 = 1_000_000_000;

/// A number that is zero or more, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    whole: u64,
    billionths: u32,
}

impl Number {
    /// The number that `text` is, rounded up to billionths; `None` for signs, exponents, words and what no `u64` holds. Thousands may be set
    /// apart by commas where it has a fraction: without one it may be a list.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        if is_grouped(whole) && !fraction.is_empty() {
            return Self::parse(&text.replace(',', ""));
        }
        // `u64::from_str` would accept a plus sign.
        if whole.is_empty() || !digits(whole) || !digits(fraction) {
            return None;
        }
        let number = Self { whole: whole.parse().ok()?, billionths: 0 };
        number.plus_fraction(fraction)
    }

    fn plus_fraction(self, fraction: &str) -> Option<Self> {
        let mut billionths = 0;
        let mut place = BILLION / 10;
        for digit in fraction.bytes().take(9) {
            billionths += place * u32::from(digit - b'0');
            place /= 10;
        }
        // A wait that is rounded down is too short.
        if fraction.bytes().skip(9).any(|digit| digit != b'0') {
            billionths += 1;
        }
        let whole = self.whole.checked_add(u64::from(billionths / BILLION))?;
        Some(Self { whole, billionths: billionths % BILLION })
    }

    /// The number without its fraction.
    pub(super) const fn floor(self) -> u64 {
        self.whole
    }

    /// The number of whole units that it takes to cover it.
    pub(super) const fn ceil(self) -> u64 {
        if self.billionths == 0 { self.whole } else { self.whole.saturating_add(1) }
    }

    /// So many seconds.
    pub(super) const fn seconds(self) -> Duration {
        // Billionths stay below a billion, so that nothing carries over.
        Duration::new(self.whole, self.billionths)
    }

    /// So many milliseconds, rounded up to nanoseconds.
    pub(super) fn millis(self) -> Duration {
        Duration::from_millis(self.whole)
            .saturating_add(Duration::from_nanos(u64::from(self.billionths.div_ceil(1_000))))
    }

    /// So many minutes.
    pub(super) fn minutes(self) -> Duration {
        self.seconds().saturating_mul(60)
    }

    /// So many millionths of the number, rounded up; saturates at about four thousand.
    pub(super) fn millionths(self) -> u32 {
        let whole = self.whole.saturating_mul(1_000_000);
        u32::try_from(whole.saturating_add(u64::from(self.billionths.div_ceil(1_000)))).unwrap_or(u32::MAX)
    }

    /// The number as a fraction in lowest terms of ten: `0.0167` is 167 of 10,000.
    pub(super) fn ratio(self) -> Option<(u32, u32)> {
        let mut over = u64::from(self.billionths).checked_add(self.whole.checked_mul(u64::from(BILLION))?)?;
        let mut under = BILLION;
        while under > 1 && over % 10 == 0 {
            over /= 10;
            under /= 10;
        }
        Some((u32::try_from(over).ok()?, under))
    }
}

/// `1,200`: thousands set apart by commas.
fn is_grouped(whole: &str) -> bool {
    let mut groups = whole.split(',');
    groups.next().is_some_and(|first| (1..4).contains(&first.len()) && digits(first))
        && whole.contains(',')
        && groups.all(|group| group.len() == 3 && digits(group))
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_with_or_without_a_fraction_are_a_number() {
        let cases = [
            ("0", 0, 0),
            ("007", 7, 0),
            ("3.2", 3, 200_000_000),
            ("599.0", 599, 0),
            ("45.837906927", 45, 837_906_927),
            ("0.0000000001", 0, 1),
            ("0.9999999999", 1, 0),
            ("1,200.00", 1_200, 0),
            ("12,345,678.5", 12_345_678, 500_000_000),
            ("18446744073709551615", u64::MAX, 0),
        ];
        for (text, whole, billionths) in cases {
            assert_eq!(Number::parse(text), Some(Number { whole, billionths }), "{text}");
        }
    }

    #[test]
    fn everything_else_is_not_a_number() {
        let long = "9".repeat(35);
        let nines = format!("{}.9999999999", u64::MAX);
        for text in [
            "",
            ".",
            "5.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "²",
            "inf",
            "nan",
            "1 0",
            "1,0",
            "1,200",
            "1200,300.5",
            "1,20.5",
            ",200.5",
            "1.2.3",
            "0x1",
            &long,
            &nines,
        ] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_is_an_amount_a_time_and_a_share() {
        let number = |text| Number::parse(text).unwrap();
        assert_eq!((number("7.9").floor(), number("7.1").ceil(), number("7").ceil()), (7, 8, 7));
        assert_eq!(number("0.25").seconds(), Duration::from_millis(250));
        assert_eq!(number("120001").millis(), Duration::from_millis(120_001));
        assert_eq!(number("0.0000001").millis(), Duration::from_nanos(1));
        assert_eq!(number("19").minutes(), Duration::from_secs(1_140));
        assert_eq!(number("0.0967").millionths(), 96_700);
        assert_eq!(number("18446744073709551615").millionths(), u32::MAX);
        assert_eq!(number("0.0167").ratio(), Some((167, 10_000)));
        assert_eq!(number("20").ratio(), Some((20, 1)));
        assert_eq!(number("18446744073709551615").ratio(), None);
    }
}
