//! Values that hold several numbers at once, in the notations of single vendors.

use std::time::Duration;

use super::number::Number;
use super::quota::stricter;
use super::span;

/// `20:1,100:120`: amounts and their windows in seconds.
pub(super) fn pairs(text: &str) -> Option<Vec<(u64, Duration)>> {
    text.split(',').map(pair).collect()
}

fn pair(member: &str) -> Option<(u64, Duration)> {
    let (amount, window) = member.trim().split_once(':')?;
    let window = Number::parse(window)?.seconds();
    if window.is_zero() { None } else { Some((Number::parse(amount)?.floor(), window)) }
}

/// `600/15m` or `100/hour`: an amount and its window.
pub(super) fn rate(text: &str) -> Option<(u64, Duration)> {
    let (amount, window) = text.split_once('/')?;
    Some((Number::parse(amount.trim())?.floor(), span::window(window.trim())?))
}

/// `40/40` or `17/250(appName=sample-app)`: what is used, and the limit.
pub(super) fn used_of_limit(text: &str) -> Option<(u64, u64)> {
    let text = text.split_once('(').map_or(text, |(before, _)| before);
    let (used, limit) = text.split_once('/')?;
    Some((Number::parse(used.trim())?.ceil(), Number::parse(limit.trim())?.floor()))
}

/// `total=100; remaining=99; resets=41`: words and what they stand for.
pub(super) fn words(text: &str) -> Option<Vec<(&str, &str)>> {
    let members = text.split(';').map(str::trim).filter(|member| !member.is_empty());
    let words = members.map(|member| member.split_once('=').map(|(word, value)| (word.trim(), value.trim())));
    words.collect::<Option<Vec<_>>>().filter(|words| !words.is_empty())
}

/// `Microsoft.Compute/GetVMScaleSet3Min;197,…`: names, without the path in front, and what remains of each.
pub(super) fn named_amounts(text: &str) -> Option<Vec<(&str, u64)>> {
    text.split(',').map(named_amount).collect()
}

fn named_amount(member: &str) -> Option<(&str, u64)> {
    let (path, amount) = member.rsplit_once(';')?;
    let name = path.trim().rsplit('/').next().filter(|name| !name.is_empty())?;
    Some((name, Number::parse(amount.trim())?.floor()))
}

/// The result of `read` for a value that proxies may have joined out of several lines: of all that can be read, what
/// `choose` prefers.
pub(super) fn joined<T>(text: &str, read: impl Fn(&str) -> Option<T>, choose: impl Fn(T, T) -> T) -> Option<T> {
    if let Some(one) = read(text) {
        return Some(one);
    }
    let members: Vec<&str> = text.split(',').take(MOST_JOINED).collect();
    let (mut rest, mut best) = (members.as_slice(), None);
    while let [first, tail @ ..] = rest {
        let (found, after) = match (read(first.trim()), tail) {
            // Dates have commas of their own.
            (None, [second, after @ ..]) => match read(format!("{first},{second}").trim()) {
                None => (None, tail),
                found => (found, after),
            },
            (found, _) => (found, tail),
        };
        best = stricter(best, found, &choose);
        rest = after;
    }
    best
}

/// More lines than this were not joined by accident.
const MOST_JOINED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pairs_are_amounts_and_windows() {
        assert_eq!(pairs("20:1,100:120"), Some(vec![(20, seconds(1)), (100, seconds(120))]));
        assert_eq!(pairs("20:1, 100:120"), Some(vec![(20, seconds(1)), (100, seconds(120))]));
        for text in ["", "20", "20:0", "20:-1", ":1", "20:1,", "20:1,x", "00:00:05"] {
            assert_eq!(pairs(text), None, "{text}");
        }
    }

    #[test]
    fn strokes_divide_limits_from_windows_and_uses_from_limits() {
        assert_eq!(rate("600/15m"), Some((600, seconds(900))));
        assert_eq!(rate("100/hour"), Some((100, seconds(3_600))));
        assert_eq!((rate("600"), rate("600/"), rate("/15m"), rate("a/b")), (None, None, None, None));
        assert_eq!(used_of_limit("40/40"), Some((40, 40)));
        assert_eq!(used_of_limit("17/250(appName=sample-app)"), Some((17, 250)));
        assert_eq!((used_of_limit("40"), used_of_limit("40/"), used_of_limit("-1/40")), (None, None, None));
    }

    #[test]
    fn words_stand_for_their_values() {
        assert_eq!(words("total=100; remaining=99"), Some(vec![("total", "100"), ("remaining", "99")]));
        assert_eq!(words("a=1(b=2);"), Some(vec![("a", "1(b=2)")]));
        assert_eq!((words(""), words("gold"), words("a=1; gold")), (None, None, None));
    }

    #[test]
    fn names_lose_their_paths() {
        let expected = vec![("GetVMScaleSet3Min", 197), ("Get30Min", 1_297)];
        assert_eq!(
            named_amounts("Microsoft.Compute/GetVMScaleSet3Min;197,Microsoft.Compute/Get30Min;1297"),
            Some(expected)
        );
        assert_eq!((named_amounts("197"), named_amounts("a/;197"), named_amounts("a;b")), (None, None, None));
    }

    #[test]
    fn joined_lines_give_what_is_preferred_of_what_can_be_read() {
        let cases = [
            ("7", Some(7)),
            ("7, 9, 8", Some(9)),
            ("7, junk", Some(7)),
            ("junk, 7", Some(7)),
            ("a,b", Some(100)),
            ("a,b, a,b, 7", Some(100)),
            ("a, 7", Some(7)),
            ("junk", None),
            ("", None),
            (",,", None),
        ];
        let read = |text: &str| if text == "a,b" { Some(100) } else { text.parse::<u64>().ok() };
        for (text, expected) in cases {
            assert_eq!(joined(text, read, u64::max), expected, "{text}");
        }
    }
}
