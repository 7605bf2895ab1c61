//! Limits and lengths of time as text: `100/s burst 20`, `90s`.

#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use reqwest::header::HeaderName;

use self::words::{Word, Words, is_one_slip};
use crate::config::limit::Limit;
use crate::config::name::unit_fault;
use crate::config::scope::Scope;
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
/// What may follow a limit's quota: no unit goes by these names unless `of` stands before it.
const KEYWORDS: [&str; 12] = [
    "of",
    // Whoever writes so means calls.
    "call",
    "request",
    "requests",
    "burst",
    "spread",
    "guard",
    "each",
    "lease",
    "until",
    "counted_at_end",
    "resets",
];
/// Those that are meant by a word which is nearly the same, and whether a value follows that begins with a digit.
const MEANT: [(&str, bool); 7] = [
    ("burst", true),
    ("spread", false),
    ("guard", true),
    ("each", false),
    ("lease", true),
    ("until", false),
    ("counted_at_end", false),
];

/// What else cannot be said.
const NOTHING: &str = "nothing that may be said of a limit: a unit, burst, spread, guard, each, counted_at_end, lease or until \
                       headers";
/// What `each` is followed by.
const SCOPES: [&str; 6] = ["upstream", "host", "bearer_token", "header", "query", "given"];

/// A limit as text: how many in what window, of what, and then what else is said of it.
///
/// * how many: `100/s`, `bucket 40 at 2/s` or `25 in flight`
/// * of what: `tokens`, or `of tokens`; calls, where nothing is said. What looks like another of these words is a unit only after `of`
/// * for whom: `each` and `host`, `bearer_token`, `upstream`, `header NAME`, `query NAME` or `given NAME`
/// * and `burst 20`, `spread`, `guard 2s`, `counted_at_end`; of calls in flight `lease 30s` and `until headers`
///
/// Scopes by a closure or of another name, and when a limit [resets](Limit::resets) by the calendar, cannot be said.
///
/// ```
/// use outgate::{Limit, Scope};
/// use std::time::Duration;
///
/// assert_eq!("100/s burst 20".parse(), Ok(Limit::per_second(100).burst(20)));
/// assert_eq!("5_000/h".parse(), Ok(Limit::per_hour(5_000)));
/// assert_eq!("120/90s guard 250ms".parse(), Ok(Limit::new(120, Duration::from_secs(90)).guard(Duration::from_millis(250))));
/// assert_eq!("bucket 40 at 2/s".parse(), Ok(Limit::bucket(40, 2, Duration::from_secs(1))));
///
/// let tokens = Limit::per_minute(200_000).of("tokens").each(Scope::bearer_token());
/// assert_eq!("200_000/min tokens each bearer_token".parse(), Ok(tokens));
/// let seats = Limit::in_flight(25).each(Scope::header("x-merchant"));
/// assert_eq!("25 in flight each header x-merchant".parse(), Ok(seats));
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
        let mut words = Words::new(text);
        let mut limit = how_many(&mut words)?;
        let mut said: Vec<&str> = Vec::new();
        while let Some(word) = words.next() {
            let is_unit = is_plain(word.text);
            let what = match word.text {
                "spread" => "burst",
                _ if is_unit => "of",
                what => what,
            };
            if said.contains(&what) {
                return Err(word.is("said twice"));
            }
            said.push(what);
            let mut value = || words.next().ok_or_else(|| word.is("said of nothing: its value is missing"));
            limit = match word.text {
                unit if is_unit => limit.of(unit),
                "of" => limit.of(value()?.unit()?),
                "burst" => limit.burst(value()?.number()?),
                "spread" => limit.spread(),
                "guard" => limit.guard(value()?.length()?),
                "counted_at_end" => limit.counted_at_end(),
                "lease" => limit.lease(value()?.length()?),
                "until" => value()?.must_be("headers").map(|()| limit.until_headers())?,
                "each" => limit.each(scope(&mut words, word)?),
                "call" | "request" | "requests" => {
                    return Err(word.is(
                        "what is counted where no unit is said: leave it out, or write `of` before a unit of that name",
                    ));
                }
                "resets" => {
                    return Err(word.is("nothing that text can say: when a limit resets is given by .resets()"));
                }
                unit => {
                    let of = if unit_fault(unit).is_none() {
                        format!(", or `of {unit}` for a unit of that name")
                    } else {
                        String::new()
                    };
                    let no_unit = |meant| format!("no unit: write `{meant}`{of}");
                    return Err(word.is(&meant(unit).map_or_else(|| NOTHING.to_owned(), no_unit)));
                }
            };
        }
        Ok(limit)
    }
}

/// The first words of a limit.
fn how_many(words: &mut Words<'_>) -> Result<Limit, ConfigError> {
    let first = words.next().ok_or_else(|| wrong("nothing stands where a limit should be, such as 100/s"))?;
    let mut next = || words.next().ok_or_else(|| first.is("no whole limit, such as bucket 40 at 2/s or 25 in flight"));
    if first.text == "bucket" {
        let capacity = next()?.number()?;
        next()?.must_be("at")?;
        let (refill, per) = next()?.parts().ok_or_else(|| first.is("said of no refill, as in bucket 40 at 2/s"))?;
        return Ok(Limit::bucket(capacity, refill.number()?, per.window()?));
    }
    if let Some((quota, window)) = first.parts() {
        return Ok(Limit::new(quota.number()?, window.window()?));
    }
    let none = || first.is("no quota and window, such as 100/s");
    let calls = first.number().map_err(|_| none())?;
    next().map_err(|_| none())?.must_be("in")?;
    next()?.must_be("flight")?;
    Ok(Limit::in_flight(calls))
}

/// The scope that `each` is followed by.
fn scope(words: &mut Words<'_>, each: Word<'_>) -> Result<Scope, ConfigError> {
    let kind = words.next().ok_or_else(|| each.is("said of nothing: its value is missing"))?;
    let mut name = || words.next().ok_or_else(|| kind.is("said of nothing: its name is missing"));
    match kind.text {
        "upstream" => Ok(Scope::upstream()),
        "host" => Ok(Scope::host()),
        "bearer_token" => Ok(Scope::bearer_token()),
        "header" => {
            let name = name()?;
            name.text.parse::<HeaderName>().map(Scope::header).map_err(|_| name.is("no name of a header"))
        }
        "query" => Ok(Scope::query(name()?.text)),
        "given" => Ok(Scope::given(name()?.text)),
        _ => Err(kind.is(
            "no scope that text can say: host, bearer_token, upstream, header NAME, query NAME or given NAME; one by a \
             closure or of another name is given by .each()",
        )),
    }
}

/// Whether a unit is taken for one without `of` before it.
fn is_plain(unit: &str) -> bool {
    let is_sound = unit_fault(unit).is_none() && !unit.starts_with(|first: char| first.is_ascii_digit());
    is_sound && !KEYWORDS.contains(&unit) && meant(unit).is_none()
}

/// What is meant by a word that stands where a unit may, but is nearly another word, or lacks one before it.
fn meant(word: &str) -> Option<String> {
    if SCOPES.contains(&word) {
        let name = if matches!(word, "header" | "query" | "given") { " NAME" } else { "" };
        return Some(format!("each {word}{name}"));
    }
    MEANT.iter().find_map(|&(keyword, has_value)| {
        let value = word.strip_prefix(keyword).filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
        let parted = value.filter(|_| has_value).map(|value| format!("{keyword} {value}"));
        // Words of their own end so, or in so many `s`: teach, leases.
        let is_word = word.ends_with(keyword) || word.strip_suffix('s') == Some(keyword);
        parted.or_else(|| (!is_word && is_one_slip(word, keyword)).then(|| keyword.to_owned()))
    })
}

/// As [`from_str`](str::parse) reads it back, but for what cannot be said as text, which is an error then: a scope by a closure or of another
/// name is shown as `each NAME`, a calendar window as `5/day resets daily (UTC)`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quota = self.quota();
        match self.refill_or_none() {
            Some((refill, per)) => write!(f, "bucket {quota} at {refill}/{}", Window(per))?,
            None if self.is_in_flight() => write!(f, "{quota} in flight")?,
            None => match self.resets_or_none().filter(|reset| reset.window() == self.window()) {
                Some(reset) => write!(f, "{quota}/{}", reset.window_name())?,
                None => write!(f, "{quota}/{}", Window(self.window()))?,
            },
        }
        match self.unit_or_none() {
            Some(unit) if !is_plain(unit) => write!(f, " of {unit}")?,
            Some(unit) => write!(f, " {unit}")?,
            None => {}
        }
        if let Some(reset) = self.resets_or_none() {
            write!(f, " resets {reset}")?;
        }
        match self.own_scope().map(|scope| (scope.as_text(), scope.name())) {
            Some((Some(text), _)) => write!(f, " each {text}")?,
            // So that it is not read back as another scope.
            Some((None, name)) if is_kind(name) => write!(f, " each by {name}")?,
            Some((None, name)) => write!(f, " each {name}")?,
            None => {}
        }
        if let Some(burst) = self.burst_or_none() {
            write!(f, " burst {burst}")?;
        }
        if let Some(guard) = self.guard_or_none() {
            write!(f, " guard {}", Length(guard))?;
        }
        if let Some(lease) = self.lease_or_none() {
            write!(f, " lease {}", Length(lease))?;
        }
        if self.ends_with_headers() {
            f.write_str(" until headers")?;
        }
        if self.is_counted_at_end() {
            f.write_str(" counted_at_end")?;
        }
        Ok(())
    }
}

/// Whether a name begins with a word that says what a scope is.
fn is_kind(name: &str) -> bool {
    let first = name.split_whitespace().next().unwrap_or_default();
    first.is_empty() || SCOPES.contains(&first)
}

/// A length of time, shown.
struct Length(Duration);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = in_units(self.0);
        write!(f, "{count}{unit}")
    }
}

/// The same, in which a unit alone is one.
struct Window(Duration);

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match in_units(self.0) {
            (1, unit) => f.write_str(unit),
            _ => Length(self.0).fmt(f),
        }
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
    Word::new(text).length()
}

fn wrong(reason: impl Into<String>) -> ConfigError {
    ConfigError::new("", "limit", reason)
}
