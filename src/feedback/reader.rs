//! Reads a response, header by header.

use std::cell::OnceCell;
use std::time::{Duration, SystemTime};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::dialect::Dialect;
use super::moment::{Moment, age};
use super::name::{self, Field, Name};
use super::number::Number;
use super::quota::stricter;
use super::reset::Reset;
use super::signs::Signs;
use super::tally::Tally;
use super::time_unit::TimeUnit;
use super::{Feedback, date, text, usage, verdict, wait};

/// The spellings of `Retry-After` in milliseconds.
const IN_MILLIS: [&str; 3] = ["retry-after-ms", "x-retry-after-ms", "x-ms-retry-after-ms"];

/// The same of a gRPC server; negative where the call should not be tried again.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// What a call cost.
const COMPLEXITY: &str = "x-complexity";

/// What `headers` say under `status`: received then, and the first of them so long before.
pub(super) fn read(
    dialect: &Dialect,
    status: StatusCode,
    headers: &HeaderMap,
    received: (SystemTime, Duration),
) -> Feedback {
    let mut reader = Reader::new(*dialect, headers, received);
    if !is_from_cache(status, headers) {
        for name in headers.keys() {
            reader.take(name);
        }
    }
    reader.finish(status)
}

/// An answer from a cache tells how things stood when it was stored.
pub(crate) fn is_from_cache(status: StatusCode, headers: &HeaderMap) -> bool {
    status.is_success() && age(headers) > 0
}

/// What became of one line of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// It is about something else.
    Unknown,
    /// It is about limits and cannot be read.
    Invalid,
    /// Read, although a strict parser would have dropped it.
    Repaired,
    Read,
}

/// A response that is being read.
pub(super) struct Reader<'a> {
    pub(super) dialect: Dialect,
    headers: &'a HeaderMap,
    received: (SystemTime, Duration),
    now: OnceCell<Moment>,
    pub(super) signs: Signs,
    pub(super) tally: Tally,
    invalid: Vec<HeaderName>,
    malformed: Vec<HeaderName>,
}

impl<'a> Reader<'a> {
    fn new(dialect: Dialect, headers: &'a HeaderMap, received: (SystemTime, Duration)) -> Self {
        Self {
            dialect,
            headers,
            received,
            now: OnceCell::new(),
            signs: Signs::default(),
            tally: Tally::default(),
            invalid: Vec::new(),
            malformed: Vec::new(),
        }
    }

    /// From when the response counts its times. Most name none.
    pub(super) fn now(&self) -> Moment {
        *self.now.get_or_init(|| Moment::of_response(self.headers, self.received))
    }

    fn finish(self, status: StatusCode) -> Feedback {
        let Self { dialect, signs, tally, invalid, malformed, .. } = self;
        let quotas = tally.finish();
        let refusal = verdict::refusal(status, &signs, &quotas, &dialect);
        Feedback {
            refusal,
            certainty: verdict::certainty(status, &signs, &quotas),
            reach: verdict::reach(status, &signs, refusal),
            is_global: signs.global.is_some(),
            wait: wait::wait(status, refusal, &signs, &quotas, &dialect),
            quotas,
            cost: signs.cost,
            near_limit: signs.near_limit,
            invalid,
            malformed,
        }
    }

    /// Reads all lines of one header; it is ignored only if none of them can be read.
    fn take(&mut self, name: &HeaderName) {
        let parsed = name::parse(name.as_str());
        if parsed.is_none() && !may_tell(name.as_str()) {
            return;
        }
        self.tally.read(name);
        let lines = || self.headers.get_all(name).iter();
        let outcome = match &parsed {
            // Lists may be split over several lines.
            Some(parsed) if matches!(parsed.field, Field::Bare | Field::Policy) => {
                let lines: Option<Vec<&str>> = lines().map(text_of).collect();
                lines.map_or(Outcome::Invalid, |lines| self.quota(parsed, &lines.join(", ")))
            }
            parsed => lines().map(|line| self.line(name, parsed.as_ref(), line)).max().unwrap_or(Outcome::Unknown),
        };
        match outcome {
            Outcome::Invalid => self.invalid.push(name.clone()),
            Outcome::Repaired => self.malformed.push(name.clone()),
            Outcome::Read | Outcome::Unknown => {}
        }
    }

    fn line(&mut self, name: &HeaderName, parsed: Option<&Name>, line: &HeaderValue) -> Outcome {
        let name = name.as_str();
        if may_be_usage(name) && line.as_bytes().starts_with(b"{") {
            return self.usage(line);
        }
        let asks = asks_to_wait(name);
        self.signs.has_retry_after |= asks;
        let Some(text) = text_of(line) else {
            return if asks || parsed.is_some() { Outcome::Invalid } else { Outcome::Unknown };
        };
        match name {
            "retry-after" => self.retry_after(text),
            _ if asks => self.retry_after_millis(text),
            COMPLEXITY => self.cost(text),
            PUSHBACK => self.pushback(text),
            _ if self.signs.other(name, text) => Outcome::Read,
            _ => parsed.map_or(Outcome::Unknown, |parsed| self.quota(parsed, text)),
        }
    }

    fn retry_after(&mut self, text: &str) -> Outcome {
        let (now, unit) = (self.now(), self.dialect.retry_after);
        let number = |text: &str| Number::parse(text).map(|number| Reset::of_number(number, unit, now).after);
        let date = |text: &str| date::parse(text).map(|moment| moment.after(now));
        let told = text::joined(text, |member| number(member).or_else(|| date(member)), Duration::max);
        self.signs.retry_after = stricter(self.signs.retry_after, told, Duration::max);
        read_if(told.is_some())
    }

    fn retry_after_millis(&mut self, text: &str) -> Outcome {
        let now = self.now();
        let number =
            |text: &str| Number::parse(text).map(|number| Reset::of_number(number, TimeUnit::Millis, now).after);
        let told = text::joined(text, number, Duration::max);
        self.signs.retry_after_millis = stricter(self.signs.retry_after_millis, told, Duration::max);
        read_if(told.is_some())
    }

    fn pushback(&mut self, text: &str) -> Outcome {
        let told = Number::parse(text).map(Number::millis);
        self.signs.grpc.pushback = stricter(self.signs.grpc.pushback, told, Duration::max);
        read_if(told.is_some() || text.starts_with('-'))
    }

    fn usage(&mut self, line: &HeaderValue) -> Outcome {
        let Some(quotas) = usage::read(line.as_bytes()) else { return Outcome::Invalid };
        for quota in quotas {
            self.tally.push(quota);
        }
        Outcome::Read
    }

    pub(super) fn cost(&mut self, text: &str) -> Outcome {
        let cost = Number::parse(text).map(Number::ceil);
        self.signs.cost = stricter(self.signs.cost, cost, u64::max);
        read_if(cost.is_some())
    }
}

/// Whether a header may say anything although its name has no word of a limit in it.
fn may_tell(name: &str) -> bool {
    name == COMPLEXITY || name == PUSHBACK || may_be_usage(name) || asks_to_wait(name) || Signs::may_tell(name)
}

fn may_be_usage(name: &str) -> bool {
    name.ends_with("-usage") || name.ends_with("-throttle")
}

fn asks_to_wait(name: &str) -> bool {
    name == "retry-after" || IN_MILLIS.contains(&name)
}

/// The text of a value without the space around it; `None` if it is none.
fn text_of(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok().map(str::trim)
}

fn read_if(read: bool) -> Outcome {
    if read { Outcome::Read } else { Outcome::Invalid }
}

#[cfg(test)]
mod tests {
    use super::super::TimeUnit;
    use super::super::sample::{Lines, read};
    use super::*;

    #[test]
    fn an_answer_from_a_cache_says_nothing() {
        let cases: [(u16, &str, bool); 4] =
            [(200, "60", true), (200, "0", false), (200, "old", false), (429, "60", false)];
        for (status, age, silent) in cases {
            let lines = Box::leak(Box::new([("age", age), ("x-ratelimit-remaining", "0")]));
            assert_eq!(read(Dialect::GENERAL, status, lines).quotas().is_empty(), silent, "{status} {age}");
        }
    }

    #[test]
    fn a_policy_may_be_split_over_lines() {
        const LINES: Lines = &[("ratelimit-policy", r#""a";q=1;w=2"#), ("ratelimit-policy", r#""b";q=3;w=4"#)];
        assert_eq!(read(Dialect::GENERAL, 200, LINES).policies().count(), 2);
    }

    #[test]
    fn what_is_ignored_and_what_is_repaired_is_listed() {
        const LINES: Lines = &[
            ("retry-after", "soon"),
            ("ratelimit", "quota;t=1"),
            ("ratelimit-policy", r#""fixed window";"api";q=500;w=300"#),
            ("x-app-usage", "{"),
            ("x-ratelimit-remaining", "5"),
        ];
        let feedback = read(Dialect::GENERAL, 429, LINES);
        let mut invalid: Vec<&str> = feedback.invalid().iter().map(HeaderName::as_str).collect();
        invalid.sort_unstable();
        assert_eq!(invalid, ["ratelimit", "retry-after", "x-app-usage"]);
        assert_eq!(feedback.malformed(), ["ratelimit-policy"]);
    }

    #[test]
    fn a_grpc_server_says_in_headers_or_trailers_that_a_quota_is_spent() {
        let cases: [(Lines, bool, Option<u64>); 6] = [
            (&[("grpc-status", "0")], false, None),
            (&[("grpc-status", "8")], true, None),
            (&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "1500")], true, Some(1_500)),
            (&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")], true, None),
            (&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "1500")], false, None),
            (&[("grpc-status", "eight")], false, None),
        ];
        for (lines, refused, wait) in cases {
            let feedback = read(Dialect::GENERAL, 200, lines);
            assert_eq!(feedback.is_limited(), refused, "{lines:?}");
            assert_eq!(feedback.wait(), wait.map(Duration::from_millis), "{lines:?}");
            assert!(!feedback.not_executed(), "{lines:?}");
            assert!(feedback.invalid().is_empty(), "{lines:?}");
        }
    }

    #[test]
    fn the_unit_of_retry_after_is_the_dialects() {
        let told = |unit| read(Dialect::GENERAL.retry_after_in(unit), 429, &[("retry-after", "147987")]).told_wait();
        assert_eq!(told(TimeUnit::Millis), Some(Duration::from_millis(147_987)));
        assert_eq!(told(TimeUnit::EpochSeconds), Some(Duration::from_secs(147_987)));
    }

    #[test]
    fn octets_that_are_no_text_are_invalid() {
        let mut headers = HeaderMap::new();
        for value in [&b"\xb2"[..], &b"\xff\xfe"[..]] {
            headers.append("retry-after", HeaderValue::from_bytes(value).unwrap());
        }
        let feedback = Feedback::read_as(&Dialect::GENERAL, StatusCode::FORBIDDEN, &headers, SystemTime::UNIX_EPOCH);
        assert_eq!((feedback.wait(), feedback.invalid().len()), (None, 1));
        assert!(feedback.is_limited(), "it asked to wait, however badly");
    }
}
