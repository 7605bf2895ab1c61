//! `RateLimit` and `RateLimit-Policy` in all their generations, and lists in the old `RateLimit-Limit`.

use std::time::Duration;

use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};

use super::number::Number;
use super::unit::Unit;

/// What was read of a field, and whether a strict parser would have dropped it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reading<T> {
    pub(super) members: Vec<T>,
    pub(super) repaired: bool,
}

/// An amount of units, perhaps per window: one member of `RateLimit-Policy` or of `RateLimit-Limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) name: Option<String>,
    pub(super) amount: u64,
    pub(super) window: Option<Duration>,
    pub(super) unit: Unit,
}

/// What is left of a quota: one member of `RateLimit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) name: Option<String>,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    /// In seconds.
    pub(super) reset: Option<Number>,
}

/// The policies of `RateLimit-Policy`: `"burst";q=100;w=60` or `100;w=60`.
pub(super) fn policies(text: &str) -> Option<Reading<Policy>> {
    items(text, |item| policy(item).or_else(|| amount(item)))
}

/// The amounts of an old list: `10, 10;w=1;name="per-ip", 1000;w=3600`.
pub(super) fn amounts(text: &str) -> Option<Reading<Policy>> {
    items(text, amount)
}

/// The members of `RateLimit`: `"default";r=50;t=30` or `limit=100, remaining=50, reset=5`.
pub(super) fn statuses(text: &str) -> Option<Reading<Status>> {
    items(text, status).or_else(|| dictionary(text).map(|status| Reading { members: vec![status], repaired: false }))
}

/// The members that `read` understands; the field is repaired if some of it had to be left out for that.
fn items<T>(text: &str, read: impl Fn(&Item) -> Option<T>) -> Option<Reading<T>> {
    let list = Parser::new(text).parse::<List>();
    let repaired = list.is_err();
    let list = list.unwrap_or_else(|_| repair(text));
    let count = list.len();
    let members: Vec<T> = list.iter().filter_map(|entry| read(item(entry)?)).collect();
    let repaired = repaired || members.len() < count;
    if members.is_empty() { None } else { Some(Reading { members, repaired }) }
}

fn item(entry: &ListEntry) -> Option<&Item> {
    match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    }
}

/// The members that parse once the parameters that break them are left out.
fn repair(text: &str) -> List {
    let parse = |member: &str| {
        let mut parts = split(member, b';').into_iter().map(str::trim);
        let mut repaired = parts.next()?.to_owned();
        for parameter in parts.filter(|parameter| Parser::new(&format!("1;{parameter}")).parse::<Item>().is_ok()) {
            repaired.push(';');
            repaired.push_str(parameter);
        }
        Parser::new(&repaired).parse::<Item>().ok()
    };
    split(text, b',').into_iter().filter_map(|member| parse(member.trim())).map(ListEntry::Item).collect()
}

/// The parts of `text` between separators that stand outside of quoted strings.
fn split(text: &str, separator: u8) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == separator && !quoted => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts
}

/// `"burst";q=100;w=60`; the partition key `pk` is not needed, and all other parameters are comments.
fn policy(item: &Item) -> Option<Policy> {
    let unit = item.params.get("qu").and_then(|unit| unit.as_string()).map(|unit| Unit::of_policy(unit.as_str()));
    Some(Policy {
        name: Some(item.bare_item.as_string()?.as_str().to_owned()),
        amount: parameter(item, "q")?.floor(),
        window: window(item),
        unit: unit.unwrap_or_default(),
    })
}

/// `100;w=60`.
fn amount(item: &Item) -> Option<Policy> {
    let name = item.params.get("name").and_then(|name| name.as_string()).map(|name| name.as_str().to_owned());
    Some(Policy { name, amount: number(&item.bare_item)?.floor(), window: window(item), unit: Unit::default() })
}

/// `"default";r=50;t=30`.
fn status(item: &Item) -> Option<Status> {
    Some(Status {
        name: Some(item.bare_item.as_string()?.as_str().to_owned()),
        limit: None,
        remaining: Some(parameter(item, "r")?.floor()),
        reset: parameter(item, "t"),
    })
}

/// `limit=100, remaining=50, reset=5`; with semicolons, as some write it, the rest are parameters of the first.
fn dictionary(text: &str) -> Option<Status> {
    let dictionary = Parser::new(text).parse::<Dictionary>().ok()?;
    let items = || dictionary.iter().filter_map(|(key, entry)| Some((key.as_str(), item(entry)?)));
    let value = |key: &str| {
        let member = items().find(|(name, _)| *name == key).map(|(_, item)| &item.bare_item);
        member.or_else(|| items().find_map(|(_, item)| item.params.get(key))).and_then(number)
    };
    told(Status {
        name: None,
        limit: value("limit").map(Number::floor),
        remaining: value("remaining").map(Number::floor),
        reset: value("reset"),
    })
}

fn told(status: Status) -> Option<Status> {
    if status == Status::default() { None } else { Some(status) }
}

fn window(item: &Item) -> Option<Duration> {
    parameter(item, "w").map(Number::seconds).filter(|window| !window.is_zero())
}

fn parameter(item: &Item, key: &str) -> Option<Number> {
    number(item.params.get(key)?)
}

fn number(value: &BareItem) -> Option<Number> {
    match value {
        // Both print as plain digits, and with a sign where they are negative.
        BareItem::Integer(integer) => Number::parse(&integer.to_string()),
        BareItem::Decimal(decimal) => Number::parse(&decimal.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plain = (Option<&'static str>, u64, Option<u64>);

    fn plain(reading: Option<&Reading<Policy>>) -> Vec<(Option<&str>, u64, Option<u64>)> {
        let members = reading.map(|reading| reading.members.as_slice()).unwrap_or_default();
        let plain = |policy: &'_ Policy| (policy.amount, policy.window.map(|window| window.as_secs()));
        members.iter().map(|policy| (policy.name.as_deref(), plain(policy).0, plain(policy).1)).collect()
    }

    #[test]
    fn every_generation_of_policies_is_read() {
        let cases: [(&str, &[Plain]); 7] = [
            (r#""burst";q=100;w=60,"daily";q=1000"#, &[(Some("burst"), 100, Some(60)), (Some("daily"), 1_000, None)]),
            (r#""peruser";q=100;w=60;pk=:cHsdsRa894==:"#, &[(Some("peruser"), 100, Some(60))]),
            ("5;w=60", &[(None, 5, Some(60))]),
            (
                r#"100, 100;w=60;burst=1000;comment="sliding, window", 5000;w=3600"#,
                &[(None, 100, None), (None, 100, Some(60)), (None, 5_000, Some(3_600))],
            ),
            (r#""a\"b;c";q=1;w=0"#, &[(Some("a\"b;c"), 1, None)]),
            ("quota;q=100;w=1", &[]),
            (r#""noquota";w=1"#, &[]),
        ];
        for (text, expected) in cases {
            let reading = policies(text);
            assert_eq!(plain(reading.as_ref()), expected, "{text}");
            assert!(!reading.is_some_and(|reading| reading.repaired), "{text}");
        }
    }

    #[test]
    fn a_policy_that_counts_something_else_says_so() {
        let unit = |text| policies(text).map(|reading| reading.members[0].unit);
        assert_eq!(unit(r#""a";q=65535;qu="content-bytes";w=10"#), Some(Unit::Bytes));
        assert_eq!(unit(r#""a";q=65535;w=10"#), Some(Unit::Calls));
    }

    #[test]
    fn what_breaks_a_policy_is_left_out_and_told() {
        let cases: [(&str, &[Plain]); 6] = [
            (r#""no base64";q=5;w=7;pk=:x:"#, &[(Some("no base64"), 5, Some(7))]),
            (r#""fixed window";"api";q=500;w=300"#, &[(Some("fixed window"), 500, Some(300))]),
            (r#""a";q=1;w=2,"#, &[(Some("a"), 1, Some(2))]),
            (r#""a";q=1;w=2, quota;q=3"#, &[(Some("a"), 1, Some(2))]),
            (r#""a;"b";q=1"#, &[]),
            (r#"("a" "b");q=1"#, &[]),
        ];
        for (text, expected) in cases {
            let reading = policies(text);
            assert_eq!(plain(reading.as_ref()), expected, "{text}");
            assert!(reading.is_none_or(|reading| reading.repaired), "{text}");
        }
    }

    #[test]
    fn every_generation_of_what_is_left_is_read() {
        let cases = [
            (r#""default";r=50;t=30"#, Some((None, Some(50), Some(30)))),
            (r#""sliding";q=12;r=6"#, Some((None, Some(6), None))),
            ("limit=100, remaining=50, reset=5", Some((Some(100), Some(50), Some(5)))),
            ("limit=100; remaining=50; reset=5", Some((Some(100), Some(50), Some(5)))),
            ("remaining=50", Some((None, Some(50), None))),
            (r#""default";t=30"#, None),
            (r#""default";r=-1"#, None),
            ("quota;t=1", None),
            ("100", None),
            ("gold", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let first = statuses(text).map(|reading| reading.members[0].clone());
            let first = first.map(|status| (status.limit, status.remaining, status.reset.map(Number::floor)));
            assert_eq!(first, expected, "{text}");
        }
    }
}
