//! The words of a text, and what they say.

use std::time::Duration;

use super::{UNITS, wrong};
use crate::config::name::unit_fault;
use crate::error::ConfigError;

/// More of a wrong word is not shown.
const SHOWN: usize = 24;

/// The words of a text, one after another.
pub(super) struct Words<'a> {
    text: &'a str,
    /// As far as it has been read, in bytes.
    at: usize,
}

impl<'a> Words<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn next(&mut self) -> Option<Word<'a>> {
        let rest = self.text.get(self.at..)?;
        let begin = self.at + rest.len() - rest.trim_start().len();
        let text = self.text.get(begin..)?.split_whitespace().next()?;
        self.at = begin + text.len();
        Some(Word { text, at: self.text.get(..begin)?.chars().count() })
    }
}

/// A word, and how many characters stand before it.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    at: usize,
}

impl<'a> Word<'a> {
    /// A text of one word.
    #[cfg(feature = "serde")]
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// What stands before a `/`, and behind it.
    pub(super) fn parts(self) -> Option<(Self, Self)> {
        let (before, behind) = self.text.split_once('/')?;
        Some((Self { text: before, ..self }, Self { text: behind, at: self.at + before.chars().count() + 1 }))
    }

    pub(super) fn must_be(self, word: &str) -> Result<(), ConfigError> {
        if self.text == word { Ok(()) } else { Err(self.is(&format!("not {word:?}, which should stand here"))) }
    }

    pub(super) fn unit(self) -> Result<&'a str, ConfigError> {
        unit_fault(self.text).map_or(Ok(self.text), |fault| Err(self.is(&format!("no unit: it {fault}"))))
    }

    /// Why it cannot be read.
    pub(super) fn is(self, what: &str) -> ConfigError {
        let mut shown: String = self.text.chars().take(SHOWN).collect();
        if shown.len() < self.text.len() {
            shown.push('…');
        }
        wrong(format!("{shown:?}, at character {}, is {what}", self.at + 1))
    }

    pub(super) fn number(self) -> Result<u32, ConfigError> {
        digits(self.text)
            .filter(|_| self.text.starts_with(|first: char| first.is_ascii_digit()))
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| self.is("no whole number below 4,294,967,296, such as 100 or 5_000"))
    }

    /// A length of time, or a unit alone: `s` is `1s`.
    pub(super) fn window(self) -> Result<Duration, ConfigError> {
        let unit = UNITS.iter().find(|(name, _)| *name == self.text).and_then(|(_, unit)| duration(*unit));
        unit.map_or_else(|| self.length(), Ok)
    }

    pub(super) fn length(self) -> Result<Duration, ConfigError> {
        let end = self.text.find(|other: char| !other.is_ascii_digit() && other != '_').unwrap_or(self.text.len());
        let (count, name) = self.text.split_at(end);
        let unit = UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
        let nanos = digits(count).zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
        nanos.and_then(duration).ok_or_else(|| self.is("no length of time, such as s, min, h, day, 90s or 250ms"))
    }
}

/// Whether a letter of the word was mistyped, left out or put in, or two beside each other changed places.
pub(super) fn is_one_slip(word: &str, of: &str) -> bool {
    let same = word.bytes().zip(of.bytes()).take_while(|(one, other)| one == other).count();
    let (word, of) = (word.as_bytes().get(same..).unwrap_or_default(), of.as_bytes().get(same..).unwrap_or_default());
    let are_swapped = match (word, of) {
        ([first, second, rest @ ..], [one, other, more @ ..]) => (first, second) == (other, one) && rest == more,
        _ => false,
    };
    let (without, of_without) = (word.get(1..), of.get(1..));
    are_swapped || without == of_without || without == Some(of) || Some(word) == of_without
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
