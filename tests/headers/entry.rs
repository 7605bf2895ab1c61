//! One response of the corpus.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use outgate::Feedback;
use outgate::feedback::{Dialect, TimeUnit};
use serde_json::Value;

use super::body;

/// The receipt of responses that say nothing of the time: 2026-01-01.
const RECEIPT: u64 = 1_767_225_600;

/// The dialects of those upstreams that need one, by the beginning of their names; the first that fits holds.
const DIALECTS: [(&str, Dialect); 7] = [
    ("Discord API v6", Dialect::GENERAL.retry_after_in(TimeUnit::Millis)),
    ("Discord", Dialect::DISCORD),
    ("Riot", Dialect::RIOT),
    ("Stripe", Dialect::STRIPE),
    ("Anthropic", Dialect::ANTHROPIC),
    ("Airtable", Dialect::AIRTABLE),
    ("Prisjakt", Dialect::GENERAL.reset_in(TimeUnit::Millis)),
];

pub(crate) struct Entry(Value);

/// All responses of the corpus.
pub(crate) fn corpus() -> Vec<Entry> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/header_corpus.json");
    let path = std::env::var_os("HEADER_CORPUS").unwrap_or_else(|| own.into());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    entries.into_iter().map(Entry).collect()
}

impl Entry {
    pub(crate) fn id(&self) -> &str {
        self.text("id").unwrap()
    }

    pub(crate) fn upstream(&self) -> &str {
        self.text("upstream").unwrap()
    }

    pub(crate) fn status(&self) -> u16 {
        self.0["status"].as_u64().unwrap().try_into().unwrap()
    }

    pub(crate) fn expectations(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0["expect"].as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value))
    }

    pub(crate) fn expected(&self, key: &str) -> Option<&Value> {
        self.0["expect"].get(key)
    }

    /// What the reader says, and after it the user's closure for an upstream whose verdict stands in the body.
    pub(crate) fn feedback(&self) -> Feedback {
        let dialect = DIALECTS.iter().find(|(name, _)| self.upstream().starts_with(name));
        let dialect = dialect.map_or(Dialect::GENERAL, |(_, dialect)| *dialect);
        let status = StatusCode::from_u16(self.status()).unwrap();
        let read = Feedback::read_as(&dialect, status, &self.headers(), self.received_at());
        match self.0.get("body") {
            Some(body) => body::told_by(self.upstream(), body, read),
            None => read,
        }
    }

    /// The instant from which the response counts: its `Date`, else the clock of its recording, else the fixed receipt.
    pub(crate) fn now(&self) -> SystemTime {
        self.date().unwrap_or_else(|| self.clock())
    }

    /// Where there is a `Date`, the local clock is wrong by two and a half seconds, which must make no difference.
    fn received_at(&self) -> SystemTime {
        self.date().map_or_else(|| self.clock(), |date| date + Duration::from_millis(2_500))
    }

    fn clock(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.0["now_epoch"].as_u64().unwrap_or(RECEIPT))
    }

    /// The `Date`, which in the wild ends in `UTC` and may be on the wrong day of the week.
    fn date(&self) -> Option<SystemTime> {
        let rest = self.text("date_header_if_any")?.replace("UTC", "GMT").get(3..)?.to_owned();
        let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        days.iter().find_map(|day| httpdate::parse_http_date(&format!("{day}{rest}")).ok())
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut append = |name: &str, value: &str| {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value_of(value));
        };
        match self.0.get("header_lines").and_then(Value::as_array) {
            Some(lines) => lines
                .iter()
                .filter_map(|line| line.as_str()?.split_once(':'))
                .for_each(|(name, value)| append(name, value)),
            None => self.0["headers"]
                .as_object()
                .unwrap()
                .iter()
                .for_each(|(name, value)| append(name, value.as_str().unwrap())),
        }
        if let Some(date) = self.text("date_header_if_any") {
            headers.append(DATE, value_of(date));
        }
        headers
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }
}

/// The octets of a value, which are Latin-1 where they can be.
fn value_of(text: &str) -> HeaderValue {
    let latin: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
    HeaderValue::from_bytes(&latin.unwrap_or_else(|_| text.as_bytes().to_vec())).unwrap()
}
