//! Dates as upstreams write them: the three HTTP forms, ISO 8601, and the near misses seen in the wild.

use super::moment::Moment;
use super::number::Number;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The instant that `text` names.
///
/// A missing zone means UTC, and a weekday is not held against the date; but every word must be one that dates are made
/// of, and a date with the name of its month has a weekday.
pub(super) fn parse(text: &str) -> Option<Moment> {
    if let Ok(time) = httpdate::parse_http_date(text) {
        return Some(Moment::of(time));
    }
    let mut date = Parts::default();
    // JavaScript's `Date.toString()` ends with the zone's name in brackets.
    let text = text.split_once('(').map_or(text, |(before, _)| before);
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        date.take(word)?;
    }
    date.moment()
}

/// What the words of a date have said so far.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    /// Which of the seven, or whichever it is where no word is needed.
    weekday: Option<i64>,
    day: Option<i64>,
    /// Seconds and nanoseconds since midnight.
    time: Option<(i64, u32)>,
    /// Seconds by which the date's clock is ahead of UTC.
    offset: Option<i64>,
}

impl Parts {
    fn take(&mut self, word: &str) -> Option<()> {
        if let Some(seconds) = zone(word) {
            // Go prints `+0000 UTC`: the first one is the offset.
            self.offset.get_or_insert(seconds);
            return Some(());
        }
        // A zone may follow at once, as Python prints it.
        let time = word.find(['+', '-']).map_or(word, |zone| &word[..zone]);
        if time.contains(':') {
            return self.take_time(word);
        }
        if word.as_bytes().get(4) == Some(&b'-') {
            return self.take_iso(word);
        }
        if let Some((day, rest)) = word.split_once('-') {
            let (month, year) = rest.split_once('-')?;
            return self.take_dashed(day, month, year);
        }
        if let Some(month) = index_of(&MONTHS, word) {
            return set(&mut self.month, month);
        }
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            return self.take_number(word);
        }
        set(&mut self.weekday, index_of(&WEEKDAYS, word)?)
    }

    /// `03-Jun-19`, as of RFC 850, or with four digits of the year.
    fn take_dashed(&mut self, day: &str, month: &str, year: &str) -> Option<()> {
        set(&mut self.day, number(day)?)?;
        set(&mut self.month, index_of(&MONTHS, month)?)?;
        let short = number(year)?;
        let year = match year.len() {
            // The same pivot as in `httpdate`.
            2 if short < 70 => 2_000 + short,
            2 => 1_900 + short,
            4 => short,
            _ => return None,
        };
        set(&mut self.year, year)
    }

    fn take_number(&mut self, word: &str) -> Option<()> {
        match word.len() {
            1 | 2 => set(&mut self.day, number(word)?),
            4 => set(&mut self.year, number(word)?),
            _ => None,
        }
    }

    /// `2024-05-05`, alone or with `T18:02Z`.
    fn take_iso(&mut self, word: &str) -> Option<()> {
        let (date, time) = (word.get(..10)?, word.get(10..)?);
        let mut fields = date.split('-');
        for field in [&mut self.year, &mut self.month, &mut self.day] {
            set(field, number(fields.next()?)?)?;
        }
        self.weekday = Some(0);
        if time.is_empty() {
            return Some(());
        }
        self.take_time(time.strip_prefix(['T', 't'])?)
    }

    /// `18:02`, `18:02:07` or `18:02:07.25`, perhaps with a zone at its end.
    fn take_time(&mut self, word: &str) -> Option<()> {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(word.len());
        let (time, rest) = word.split_at(end);
        if !rest.is_empty() {
            set(&mut self.offset, zone(rest)?)?;
        }
        let mut fields = time.splitn(3, ':');
        let (hours, minutes) = (two(fields.next()?)?, two(fields.next()?)?);
        let seconds = Number::parse(fields.next().unwrap_or("0"))?;
        // A leap second is the last that a minute may have.
        if hours > 23 || minutes > 59 || seconds.floor() > 60 {
            return None;
        }
        let whole = i64::try_from(seconds.floor()).ok()?;
        let time = (hours * 3_600 + minutes * 60 + whole, seconds.seconds().subsec_nanos());
        if self.time.replace(time).is_some() { None } else { Some(()) }
    }

    fn moment(self) -> Option<Moment> {
        let (year, month, day, (seconds, nanos)) = (self.year?, self.month?, self.day?, self.time?);
        self.weekday?;
        if !(1..=12).contains(&month) || day < 1 || day > days_in(month, year) {
            return None;
        }
        let midnight = days_since_1970(year, month, day) * 86_400;
        Some(Moment::at(midnight + seconds - self.offset.unwrap_or(0), nanos))
    }
}

/// Writes a field that nothing has been written to before.
fn set(field: &mut Option<i64>, value: i64) -> Option<()> {
    if field.replace(value).is_some() { None } else { Some(()) }
}

/// The value of at most four digits, so that no sum of them overflows.
fn number(text: &str) -> Option<i64> {
    if text.len() > 4 || text.bytes().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn two(text: &str) -> Option<i64> {
    if (1..=2).contains(&text.len()) { number(text) } else { None }
}

/// Which of `names` the word is, counted from one: in full, or by its first three letters.
fn index_of(names: &[&str], word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    let index = names.iter().position(|name| *name == word || name.get(..3) == Some(word.as_str()))?;
    i64::try_from(index + 1).ok()
}

/// Seconds ahead of UTC: `GMT`, `UTC`, `Z`, `+0100`, `+01:00`, `-05`, `GMT+0100`.
fn zone(word: &str) -> Option<i64> {
    let bare = ["GMT", "UTC", "UT", "Z", "z"].iter().find_map(|name| word.strip_prefix(name)).unwrap_or(word);
    if bare.is_empty() {
        return Some(0);
    }
    let sign = if bare.starts_with('+') { 1 } else { -1 };
    let offset = bare.strip_prefix(['+', '-'])?.replace(':', "");
    let (hours, minutes) = match offset.len() {
        2 => (number(&offset)?, 0),
        4 => (number(offset.get(..2)?)?, number(offset.get(2..)?)?),
        _ => return None,
    };
    if hours > 23 || minutes > 59 { None } else { Some(sign * (hours * 3_600 + minutes * 60)) }
}

fn days_in(month: i64, year: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01, by counting years from the first of March, so that the leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_date_is_read() {
        let cases = [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Sun Nov 6 08:49:37 1994", 784_111_777),
            ("Mon, 3 Jun 2019 12:00:00 UTC", 1_559_563_200),
            ("Mon, 03-Jun-2019 12:00:00 GMT", 1_559_563_200),
            ("Wed, 10 Feb 2024 11:38:39 UTC", 1_707_565_119),
            ("Tue, 01 Jul 2003 10:52:37 +0200", 1_057_049_557),
            ("Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)", 1_613_462_562),
            ("2024-03-01T12:00:02+0000", 1_709_294_402),
            ("2024-05-05T18:02Z", 1_714_932_120),
            ("2024-05-05T18:02:00-05:30", 1_714_951_920),
            ("2024-05-05 18:02:00", 1_714_932_120),
            ("2024-05-05 18:02:00+00:00", 1_714_932_120),
            ("2024-05-05 18:02:00-05:30", 1_714_951_920),
            ("2024-05-05 18:02:00 +0000 UTC", 1_714_932_120),
            ("2024-02-29T00:00:00Z", 1_709_164_800),
            ("0001-01-01T00:00:00Z", -62_135_596_800),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse(text), Some(Moment::at(seconds, 0)), "{text}");
        }
        assert_eq!(parse("2023-08-25T00:53:10.0000001Z"), Some(Moment::at(1_692_924_790, 100)));
    }

    #[test]
    fn a_date_with_a_word_too_strange_is_refused() {
        let cases = [
            "",
            "GMT",
            "Zun, 29 Sep 2023 16:26:27 GMT",
            "Fri, 29 Sep 100000 16:26:57 GMT",
            "Fri, 31 Feb 2023 16:26:57 GMT",
            "Fri, 29 Sep 2023 24:00:00 GMT",
            "Fri, 29 Sep 2023 16:26:57 CEST",
            "Fri, 29 Sep 2023",
            "29 Sep 2023 16:26:57 GMT",
            "Fri, Fri, 29 Sep 2023 16:26:57 GMT",
            "Fri, 29 Sep 2023 16:26:57 GMT, Fri, 29 Sep 2023 16:26:57 GMT",
            "29 30 Sep 2023 16:26:57",
            "2023-09-29",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-09-29X16:26:57Z",
            "2023-09-29T16:26:57+99:00",
            "123.4s",
            "6m0s",
            "00:05:00",
            "²",
        ];
        for text in cases {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
