//! Upstreams from a file.

use std::fmt;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderName;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::text::length;
use crate::config::host::HostPattern;
use crate::config::limit::Limit;
use crate::config::name::fault;
use crate::config::path::PathPrefix;
use crate::config::scope::Scope;
use crate::config::upstream::Upstream;
use crate::config::upstream::check::method_fault;
use crate::error::ConfigError;
use crate::feedback::Dialect;
use crate::store::WithoutStore;

/// An upstream as it stands in a file. What is left out is as [`Upstream`] says by default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Text<Name>,
    #[serde(default)]
    hosts: Vec<Text<Host>>,
    #[serde(default)]
    paths: Vec<Text<Path>>,
    #[serde(default)]
    methods: Vec<Text<Method>>,
    scope: Option<Text<Scope>>,
    limits: Vec<Limit>,
    shards: Option<u32>,
    max_wait: Option<Text<Duration>>,
    max_waiting: Option<usize>,
    without_store: Option<Text<WithoutStore>>,
    dialect: Option<Text<Dialect>>,
    max_pause: Option<Text<Duration>>,
    recovery: Option<Text<Duration>>,
    retry_refused: Option<u32>,
    retries_per_thousand: Option<u32>,
    break_after_unauthorized: Option<u32>,
    #[serde(default)]
    learn_from_responses: bool,
    #[serde(default)]
    observe: bool,
}

/// Something that a text says.
trait FromText: Sized {
    /// What is expected.
    const WHAT: &'static str;

    /// What the text says, or what is wrong with it. It may hold a secret: no fault shows it.
    fn from_text(text: &str) -> Result<Self, String>;
}

/// That of a text.
struct Text<T>(T);

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer, T::WHAT, |text| T::from_text(text).map(Self))
    }
}

impl<'de> Deserialize<'de> for Limit {
    /// From text, as it is [parsed](str::parse).
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer, "a limit, such as \"100/s burst 20\"", |text| {
            let limit: Self = text.parse().map_err(|error: ConfigError| error.reason().to_owned())?;
            let checked = if limit.is_in_flight() { limit.check_seats("") } else { limit.terms("").map(drop) };
            checked.map(|()| limit).map_err(|error| error.to_string())
        })
    }
}

/// Reads a text, so that the format names the place where it is wrong.
fn read<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    what: &'static str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    struct Reads<F>(&'static str, F);

    impl<T, F: Fn(&str) -> Result<T, String>> Visitor<'_> for Reads<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Reads(what, parse))
}

struct Name(String);

impl FromText for Name {
    const WHAT: &'static str = "the name of an upstream";

    fn from_text(text: &str) -> Result<Self, String> {
        fault(text).map_or_else(|| Ok(Self(text.to_owned())), |fault| Err(format!("the upstream's name {fault}")))
    }
}

struct Host(String);

impl FromText for Host {
    const WHAT: &'static str = "a host, such as \"api.example.com\" or \"*.example.com\"";

    fn from_text(text: &str) -> Result<Self, String> {
        HostPattern::parse(text).map(|_| Self(text.to_owned())).map_err(|fault| format!("the host {fault}"))
    }
}

struct Path(String);

impl FromText for Path {
    const WHAT: &'static str = "the path of a URL, such as \"/v1\"";

    fn from_text(text: &str) -> Result<Self, String> {
        PathPrefix::parse(text).map(|_| Self(text.to_owned())).map_err(|fault| format!("the path {fault}"))
    }
}

impl FromText for Method {
    const WHAT: &'static str = "a method, such as \"GET\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let method = text.parse().map_err(|_| "is no method, such as GET".to_owned())?;
        method_fault(&method).map_or(Ok(method), Err)
    }
}

impl FromText for Duration {
    const WHAT: &'static str = "a length of time, such as \"30s\" or \"250ms\"";

    fn from_text(text: &str) -> Result<Self, String> {
        length(text).map_err(|error| error.reason().to_owned())
    }
}

impl FromText for Scope {
    const WHAT: &'static str =
        "\"upstream\", \"bearer_token\", \"host\", \"header NAME\", \"query NAME\" or \"given NAME\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let none = || format!("is no scope: {}", Self::WHAT);
        let text = text.trim();
        let (kind, name) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match (kind, name.trim_start()) {
            ("upstream", "") => Ok(Self::upstream()),
            ("bearer_token", "") => Ok(Self::bearer_token()),
            ("host", "") => Ok(Self::host()),
            ("header", name) => name.parse::<HeaderName>().map(Self::header).map_err(|_| none()),
            ("query", name) if !name.is_empty() => Ok(Self::query(name)),
            ("given", name) if !name.is_empty() => Ok(Self::given(name)),
            _ => Err(none()),
        }
    }
}

impl FromText for WithoutStore {
    const WHAT: &'static str = "\"wait\", \"refuse\", \"throttle_locally\" or \"send_unthrottled\"";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(match text {
            "wait" => Self::Wait,
            "refuse" => Self::Refuse,
            "throttle_locally" => Self::ThrottleLocally,
            "send_unthrottled" => Self::SendUnthrottled,
            _ => return Err(format!("is no policy: {}", Self::WHAT)),
        })
    }
}

impl FromText for Dialect {
    const WHAT: &'static str = "\"general\", \"airtable\", \"anthropic\", \"discord\", \"riot\" or \"stripe\"";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(match text {
            "general" => Self::GENERAL,
            "airtable" => Self::AIRTABLE,
            "anthropic" => Self::ANTHROPIC,
            "discord" => Self::DISCORD,
            "riot" => Self::RIOT,
            "stripe" => Self::STRIPE,
            _ => return Err(format!("is no dialect: {}", Self::WHAT)),
        })
    }
}

impl<'de> Deserialize<'de> for Upstream {
    /// From a table of a file: `name`, `limits` as [text](Limit), and what else the methods of these names say.
    /// `examples/upstreams.toml` shows all of it.
    ///
    /// A file cannot say [`matching`](Self::matching), [`name_scope`](Self::name_scope), [`shares`](Self::shares),
    /// [`cost_by`](Self::cost_by), [`settle_by`](Self::settle_by), [`estimate`](Self::estimate), [`estimates_per_thousand`](Self::estimates_per_thousand), [`backoff`](Self::backoff),
    /// [`reserve`](Self::reserve), [`promote_low_after`](Self::promote_low_after), [`warn_after`](Self::warn_after), nor of a limit
    /// [`resets`](Limit::resets): call these methods on what was read, and add such a limit by [`limit`](Self::limit).
    ///
    /// A mistake is found here, not only when the throttle is built, so that the
    /// format's error names its place, or the upstream.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let upstream = Self::from(File::deserialize(deserializer)?);
        upstream.checked_charges(0).map(|_| upstream).map_err(D::Error::custom)
    }
}

impl From<File> for Upstream {
    fn from(file: File) -> Self {
        let Text(Name(name)) = file.name;
        let mut up = Self::new(name);
        up = file.hosts.into_iter().fold(up, |up, Text(Host(host))| up.host(host));
        up = file.paths.into_iter().fold(up, |up, Text(Path(path))| up.path(path));
        up = file.methods.into_iter().fold(up, |up, Text(method)| up.method(method));
        up = file.limits.into_iter().fold(up, Self::limit);
        if let Some(Text(scope)) = file.scope {
            up = up.scope_by(scope);
        }
        if let Some(Text(dialect)) = file.dialect {
            up = up.dialect(dialect);
        }
        up.shards = file.shards;
        up.max_wait = file.max_wait.map(|Text(max_wait)| max_wait);
        up.without_store = file.without_store.map(|Text(policy)| policy);
        up.max_pause = file.max_pause.map(|Text(max_pause)| max_pause);
        up.recovery = file.recovery.map(|Text(recovery)| recovery);
        up.max_waiting = file.max_waiting.unwrap_or(up.max_waiting);
        up.retries = file.retry_refused.unwrap_or(up.retries);
        up.retry_share = file.retries_per_thousand.unwrap_or(up.retry_share);
        if file.retries_per_thousand.is_some() && file.retry_refused.is_none() {
            up.refuse("retries_per_thousand", "without retry_refused", "no call is sent again: say that as well");
        }
        up.break_after = file.break_after_unauthorized;
        (up.learns, up.observes) = (file.learn_from_responses, file.observe);
        up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        upstream: Vec<Upstream>,
    }

    fn read(text: &str) -> Result<Vec<Upstream>, String> {
        toml::from_str(text).map(|config: Config| config.upstream).map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_says_all_that_can_be_said() {
        let upstreams = read(include_str!("../../examples/upstreams.toml")).unwrap();
        let [stripe, github, prices, model] = upstreams.as_slice() else { panic!("{upstreams:?}") };
        assert_eq!((&*stripe.name, stripe.limits.as_slice()), ("stripe", &[Limit::per_second(100).burst(20)][..]));
        assert_eq!(stripe.max_wait, Some(Duration::from_secs(30)));
        assert_eq!((stripe.retries, stripe.dialect), (2, Dialect::STRIPE));
        assert_eq!(github.limits, [Limit::per_hour(5_000), Limit::per_minute(900).guard(Duration::from_secs(2))]);
        assert_eq!(github.scope, Scope::bearer_token());
        assert_eq!((github.hosts().len(), github.learns, github.break_after), (2, true, Some(5)));
        assert_eq!(github.shards, Some(12));
        assert_eq!((prices.paths().len(), prices.observes, prices.max_waiting), (2, true, 1_000));
        assert_eq!(prices.without_store, Some(WithoutStore::SendUnthrottled));
        assert_eq!((prices.max_pause, prices.recovery), (Some(Duration::from_secs(600)), Some(Duration::from_secs(5))));
        let tokens = Limit::per_minute(200_000).of("tokens").each(Scope::bearer_token());
        assert_eq!((&*model.limits, &*model.in_flight), (&[tokens][..], &[Limit::in_flight(25)][..]));
        let throttle = upstreams.into_iter().fold(crate::Throttle::builder(), crate::ThrottleBuilder::upstream);
        throttle.build().unwrap();
    }

    #[test]
    fn blanks_around_the_words_of_a_scope_are_no_part_of_it() {
        let cases = [
            ("query key ", Scope::query("key")),
            (" query  key", Scope::query("key")),
            ("header x-merchant ", Scope::header("x-merchant")),
            ("header\tx-merchant", Scope::header("x-merchant")),
            (" host ", Scope::host()),
        ];
        for (text, expected) in cases {
            assert_eq!(Scope::from_text(text), Ok(expected), "{text:?}");
        }
        for text in ["query ", "header  ", "query", "host x", ""] {
            assert!(Scope::from_text(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        // The line and the column where the wrong value begins; then what is said of it.
        let cases = [
            ("limits = [\"1/s\", \"1/fortnight\"]", (3, 18), "\"fortnight\", at character 3, is no length of time"),
            ("limits = [\"0/s\"]", (3, 11), "limit.quota: 0 is not between 1 and 1000000"),
            ("limits = [1]", (3, 11), "expected a limit, such as \"100/s burst 20\""),
            ("limits = []", (1, 1), "limit: an upstream needs at least one limit"),
            ("limits = [\"1/s\"]\nhosts = [\"http://api\"]", (4, 10), "the host has a scheme; write the host alone"),
            ("limits = [\"1/s\"]\npaths = [\"\"]", (4, 10), "the path "),
            ("limits = [\"1/s\"]\nscope = \"token\"", (4, 9), "is no scope: \"upstream\", \"bearer_token\""),
            ("limits = [\"1/s\"]\nmax_wait = \"soon\"", (4, 12), "\"soon\", at character 1, is no length of time"),
            (
                "limits = [\"1/s\"]\nmax_pause = \"99day\"",
                (1, 1),
                "max_pause: 8553600s is not between 1 ms and 31 days",
            ),
            ("limits = [\"1/s\"]\ndialect = \"french\"", (4, 11), "is no dialect: \"general\""),
            ("limits = [\"1/s\"]\nwithout_store = \"pass\"", (4, 17), "is no policy: \"wait\", \"refuse\""),
            ("limits = [\"1/s\"]\nmethods = [\"G T\"]", (4, 12), "is no method, such as GET"),
            (
                "limits = [\"1/s\"]\nmethods = [\"GET\", \"post\"]",
                (4, 19),
                "\"post\" is the method of no request: write POST",
            ),
            ("limits = [\"1/s\"]\nshards = 0", (1, 1), "shards: 0 is not between 1 and 512"),
            ("limits = [\"1/s\"]\nshards = 12", (1, 1), "shards: a limit of the whole upstream counts all calls"),
            ("limits = [\"5_000/h\"]\nwithout_store = \"throttle_locally\"", (1, 1), "without_store: ThrottleLocally"),
            ("limits = [\"25 in flight\", \"10 in flight\"]", (1, 1), "limit.in_flight: is said twice"),
            (
                "limits = [\"1/s\"]\nretries_per_thousand = 50",
                (1, 1),
                "retries_per_thousand: without retry_refused no call is sent again",
            ),
            ("limit = [\"1/s\"]", (3, 1), "unknown field `limit`, expected one of `name`, `hosts`"),
            ("", (1, 1), "missing field `limits`"),
        ];
        for (said, (line, column), expected) in cases {
            let error = read(&format!("[[upstream]]\nname = \"up\"\n{said}\n")).unwrap_err();
            assert!(error.contains(&format!("at line {line}, column {column}\n")), "{said}: {error}");
            assert!(error.contains(expected), "{said}: {error}");
        }
    }

    #[test]
    fn of_several_upstreams_the_wrong_one_is_named() {
        let first = "[[upstream]]\nname = \"first\"\nlimits = [\"1/s\"]\n";
        let error = |second: &str| read(&format!("{first}\n[[upstream]]\n{second}\n")).unwrap_err();
        let shards = error("name = \"second\"\nlimits = [\"1/s\"]\nshards = 0");
        assert!(shards.contains("upstream \"second\", shards: 0 is not between 1 and 512"), "{shards}");
        let name = error("name = \"my api\"\nlimits = [\"1/s\"]");
        assert!(name.contains("at line 6, column 8\n") && name.contains("the upstream's name has ' '"), "{name}");
        assert!(!name.contains("1st"), "{name}");
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown_by_us() {
        let hosts = r#"{"name": "up", "limits": ["1/s"], "hosts": ["https://user:word@api.example.com"]}"#;
        let error = serde_json::from_str::<Upstream>(hosts).unwrap_err().to_string();
        assert!(!error.contains("word") && error.contains("line 1 column"), "{error}");
    }
}
