//! An upstream as its processes describe it to others: its limits as text and in the store's own terms, and its scopes. Nothing secret
//! is in it: scopes are hashes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::config::charges::Charges;
use crate::config::limit::Limit;
use crate::config::scope::Scope;
use crate::config::upstream::Upstream;
use crate::config::upstream::shards::shard_of;
use crate::ledger::{Boundary, Bucket, Calendar, Log, ScopeId, SeatLimit, Shape, Stamp, Term};

/// So many scopes are described by their names.
const MOST_NAMES: usize = 100;

/// How a process describes an upstream, for whoever looks from outside: shown as JSON, and [read](Self::read) from it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::processes::Description;
/// use outgate::{Limit, Scope, Throttle, Upstream};
///
/// let github = Upstream::new("github").limit(Limit::per_hour(5_000).each(Scope::bearer_token()));
/// let throttle = Throttle::builder().upstream(github.name_scope("s3cret", "release-bot")).build()?;
/// drop(throttle.acquire("github").scope("s3cret").await?);
///
/// let (_hash, _seen, text) = &throttle.processes("github").await?.descriptions[0];
/// let description = Description::read(text).ok_or("of another version")?;
/// assert_eq!(&*description.limits[0].text, "5000/h each bearer_token");
/// let scope = description.kinds[0].scope_of(b"s3cret");
/// assert_eq!(description.name_of(scope).map(|name| &**name), Some("release-bot"));
/// assert_eq!(description.shard_of(Some(scope)), None); // it is not spread over any
/// let (logs, seats) = description.of_scope(0, Some(scope)); // for `Body::Usage`
/// assert_eq!((logs.len(), seats.len()), (1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Who shares limits: everybody, each token, each merchant.
    pub kinds: Vec<Kind>,
    /// Its limits, in the order in which it says them; those on calls in flight come last.
    pub limits: Vec<DescribedLimit>,
    /// What its calls are charged in, and by the place of its kind whose each is; none of any scope yet.
    pub logs: Vec<(usize, Log)>,
    /// What the program calls some scopes: 100 at most.
    pub names: Vec<(ScopeId, Arc<str>)>,
    /// Where its scopes lie, where they are spread over [shards](Upstream::shards): what the store calls these. Else there is none.
    pub shards: Vec<Arc<str>>,
}

/// Who shares a limit.
///
/// ```
/// use outgate::ledger::ScopeId;
/// use outgate::processes::Description;
///
/// let text = r#"{"kinds":[{"name":"x-merchant","everybody":false,"salt":null}],"limits":[],"logs":[],"names":[]}"#;
/// let kind = &Description::read(text).unwrap().kinds[0];
/// assert_eq!((kind.scope_of(b"m1"), kind.without_value()), (ScopeId::of(b"m1"), None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kind {
    /// The name of the scope: `upstream`, `bearer_token`, that of a header. Of limits that several upstreams
    /// [share](Upstream::shares) it follows theirs: `account/bearer_token`.
    pub name: Arc<str>,
    /// All callers of the upstream share it.
    pub is_everybody: bool,
    salt: Option<ScopeId>,
}

/// A limit.
///
/// ```
/// use outgate::processes::{Counted, Description};
///
/// let text = r#"{"kinds":[],"limits":[{"text":"25 in flight","kind":0,"quota":25}],"logs":[],"names":[]}"#;
/// let limit = &Description::read(text).unwrap().limits[0];
/// assert_eq!((&*limit.text, limit.quota, limit.counted), ("25 in flight", 25, Counted::InFlight));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescribedLimit {
    /// As the [limit](Limit) shows itself, with whom it is for.
    pub text: Arc<str>,
    /// Whose, by the place of its kind.
    pub kind: usize,
    /// Units allowed in a window; calls in flight.
    pub quota: u32,
    /// Where it is counted.
    pub counted: Counted,
}

/// Where a limit is counted.
///
/// ```
/// use outgate::processes::{Counted, Description};
///
/// let limit = r#"{"text":"100/s","kind":0,"quota":100,"in_log":[0,0,1]}"#;
/// let text = format!(r#"{{"kinds":[],"limits":[{limit}],"logs":[],"names":[]}}"#);
/// let counted = Description::read(&text).unwrap().limits[0].counted;
/// assert!(matches!(counted, Counted::InLog { log: 0, term: 0, units: 1, .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counted {
    /// In a log.
    InLog {
        /// By its place.
        log: usize,
        /// The first of the limit's terms there.
        term: usize,
        /// How many units an entry of it stands for.
        units: u32,
    },
    /// As seats.
    InFlight,
}

impl Kind {
    /// The scope of a value: a token, a merchant.
    #[must_use]
    pub fn scope_of(&self, value: &[u8]) -> ScopeId {
        self.salt.map_or_else(|| ScopeId::of(value), |salt| ScopeId::of(value).mixed_with(salt))
    }

    /// The scope of everybody, where the whole upstream's logs are not its own alone, or of callers without a value.
    #[must_use]
    pub const fn without_value(&self) -> Option<ScopeId> {
        self.salt
    }
}

impl Description {
    pub(crate) fn of(upstream: &Upstream, charges: &Charges, logs: &[Log], names: &HashMap<ScopeId, Arc<str>>) -> Self {
        let kind = |(scope, is_common, salt): (&Scope, bool, Option<ScopeId>)| {
            let name = Arc::clone(scope.name());
            // One of its own may have the same name.
            let name = if is_common { format!("{}/{name}", upstream.ledger()).into() } else { name };
            Kind { name, is_everybody: scope.is_upstream(), salt }
        };
        let kinds: Vec<_> = charges.kinds().map(kind).collect();
        let logs: Vec<_> = charges.kinds_of_logs().zip(logs.iter().cloned()).collect();
        let text = |limit: &Limit, kind: usize| {
            let by_default = kinds.get(kind).filter(|kind| limit.own_scope().is_none() && !kind.is_everybody);
            by_default.map_or_else(|| limit.to_string(), |kind| format!("{limit} each {}", kind.name)).into()
        };
        let in_logs = upstream.limits.iter().zip(charges.limits()).map(|(limit, (log, term, units))| {
            let (kind, counted) = (logs.get(log).map_or(0, |(kind, _)| *kind), Counted::InLog { log, term, units });
            DescribedLimit { text: text(limit, kind), kind, quota: limit.quota(), counted }
        });
        let in_flight = charges.seats().iter().filter_map(|&(kind, quota, at)| {
            let limit = upstream.in_flight.get(at)?;
            Some(DescribedLimit { text: text(limit, kind), kind, quota, counted: Counted::InFlight })
        });
        let limits = in_logs.chain(in_flight).collect();
        let mut names: Vec<_> = names.iter().map(|(scope, name)| (*scope, Arc::clone(name))).collect();
        names.sort_unstable();
        names.truncate(MOST_NAMES);
        let shards = if upstream.shards.is_some() { upstream.ledgers() } else { Vec::new() };
        Self { kinds, limits, logs, names, shards }
    }

    /// The logs and the seats of a kind of scope, for one scope of it; `None` for the whole upstream.
    #[must_use]
    pub fn of_scope(&self, kind: usize, scope: Option<ScopeId>) -> (Vec<Log>, Vec<SeatLimit>) {
        let logs = self.logs.iter().filter(|(of, _)| *of == kind).map(|(_, log)| log.clone().of(scope));
        let seats = self.limits.iter().filter(|limit| limit.kind == kind && limit.counted == Counted::InFlight);
        (logs.collect(), seats.map(|limit| SeatLimit::new(scope, limit.quota)).collect())
    }

    /// The shard in which a scope lies, where there are several.
    #[must_use]
    pub fn shard_of(&self, scope: Option<ScopeId>) -> Option<&Arc<str>> {
        self.shards.get(shard_of(scope, self.shards.len()))
    }

    /// What a scope is called.
    #[must_use]
    pub fn name_of(&self, scope: ScopeId) -> Option<&Arc<str>> {
        self.names.iter().find(|(of, _)| *of == scope).map(|(_, name)| name)
    }

    /// By what descriptions are told apart.
    pub(crate) fn hash(text: &str) -> u64 {
        Sha256::digest(text.as_bytes()).into_iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(byte))
    }

    /// Reads what a process said; `None` where that makes no sense, as of another version it may.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let whole: Value = serde_json::from_str(text).ok()?;
        let list = |name: &str| whole.get(name)?.as_array();
        let of_kind = |kind: &Value| {
            let salt = kind.get("salt").filter(|salt| !salt.is_null());
            Some(Kind {
                name: kind.get("name")?.as_str()?.into(),
                is_everybody: kind.get("everybody")?.as_bool()?,
                salt: salt.map_or(Some(None), |salt| scope(salt).map(Some))?,
            })
        };
        let of_limit = |limit: &Value| {
            let counted = match limit.get("in_log") {
                None => Counted::InFlight,
                Some(place) => {
                    let [log, term, units] = place.as_array()?.as_slice() else { return None };
                    Counted::InLog { log: size(log)?, term: size(term)?, units: small(units)? }
                }
            };
            let (text, kind) = (limit.get("text")?.as_str()?.into(), size(limit.get("kind")?)?);
            Some(DescribedLimit { text, kind, quota: small(limit.get("quota")?)?, counted })
        };
        let of_log = |log: &Value| {
            let terms = log.get("terms")?.as_array()?.iter().map(term).collect::<Option<Vec<_>>>()?;
            Some((size(log.get("kind")?)?, Log::new(log.get("unit")?.as_str()?, terms)))
        };
        let of_name = |name: &Value| Some((scope(name.get(0)?)?, name.get(1)?.as_str()?.into()));
        let of_shard = |shard: &Value| Some(shard.as_str()?.into());
        Some(Self {
            kinds: list("kinds")?.iter().map(of_kind).collect::<Option<_>>()?,
            limits: list("limits")?.iter().map(of_limit).collect::<Option<_>>()?,
            logs: list("logs")?.iter().map(of_log).collect::<Option<_>>()?,
            names: list("names")?.iter().map(of_name).collect::<Option<_>>()?,
            shards: list("shards").into_iter().flatten().map(of_shard).collect::<Option<_>>()?,
        })
    }

    fn value(&self) -> Value {
        let kind = |kind: &Kind| {
            let salt = kind.salt.map(|salt| salt.to_string());
            json!({ "name": *kind.name, "everybody": kind.is_everybody, "salt": salt })
        };
        let limit = |limit: &DescribedLimit| {
            let mut value = json!({ "text": *limit.text, "kind": limit.kind, "quota": limit.quota });
            if let Counted::InLog { log, term, units } = limit.counted {
                value["in_log"] = json!([log, term, units]);
            }
            value
        };
        let log = |(kind, log): &(usize, Log)| json!({ "kind": kind, "unit": *log.unit, "terms": log.terms.iter().map(numbers).collect::<Vec<_>>() });
        let names = self.names.iter().map(|(scope, name)| json!([scope.to_string(), **name]));
        let mut whole = json!({
            "kinds": self.kinds.iter().map(kind).collect::<Vec<_>>(),
            "limits": self.limits.iter().map(limit).collect::<Vec<_>>(),
            "logs": self.logs.iter().map(log).collect::<Vec<_>>(),
            "names": names.collect::<Vec<_>>(),
        });
        if !self.shards.is_empty() {
            whole["shards"] = self.shards.iter().map(|shard| json!(**shard)).collect();
        }
        whole
    }
}

/// As JSON, in one line.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

/// A term in numbers: its quota, its span, and for how long cold calls count; of a bucket how it drains; of a calendar window its guard and
/// its boundaries.
fn numbers(term: &Term) -> Vec<i64> {
    let mut numbers = vec![i64::from(term.quota), term.span, term.cold];
    match term.shape {
        Shape::Window => {}
        Shape::Bucket(bucket) => numbers.extend([bucket.interval, bucket.depth]),
        Shape::Calendar(calendar) => {
            numbers.push(calendar.guard);
            let ends = calendar.boundaries.iter().flat_map(|boundary| [boundary.from, boundary.to]);
            numbers.extend(ends.map(Stamp::as_micros));
        }
    }
    numbers
}

fn term(value: &Value) -> Option<Term> {
    let numbers = value.as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<_>>>()?;
    let (&[quota, span, cold], rest) = numbers.split_first_chunk::<3>()?;
    let quota = u32::try_from(quota).ok()?;
    let term = match *rest {
        [] => Term::new(quota, span),
        [interval, depth] => Term { quota, span, ..Term::bucket(Bucket::new(interval, depth)) },
        [guard, ref ends @ ..] => {
            let (ends, rest) = ends.as_chunks::<2>();
            let of = |&[from, to]: &[i64; 2]| Boundary::new(Stamp::from_micros(from), Stamp::from_micros(to));
            let boundaries = ends.iter().map(of).collect::<Vec<_>>().try_into().ok()?;
            if !rest.is_empty() {
                return None;
            }
            Term::calendar(quota, span, Calendar::new(guard, boundaries))
        }
    };
    Some(term.cold(cold))
}

fn scope(value: &Value) -> Option<ScopeId> {
    u128::from_str_radix(value.as_str()?, 16).ok().map(ScopeId::from_bits)
}

fn size(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

fn small(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::plan::Registered;
    use crate::config::reset::Reset;

    fn described(upstream: Upstream) -> Description {
        let (hash, text) = Registered::new(0, upstream).unwrap().description();
        assert_eq!(hash, Description::hash(&text));
        let read = Description::read(&text).unwrap();
        assert_eq!(read.to_string(), *text);
        read
    }

    #[test]
    fn an_upstream_is_read_as_it_was_described() {
        let upstream = Upstream::new("up")
            .scope_by(Scope::bearer_token())
            .name_scope("s3cret", "release-bot")
            .limit(Limit::per_second(100).burst(20).each(Scope::upstream()))
            .limit(Limit::per_minute(5_000_000).of("tokens"))
            .limit(Limit::bucket(40, 2, Duration::from_secs(1)).each(Scope::header("x-merchant")))
            .limit(Limit::per_day(9).resets(Reset::daily("UTC")).each(Scope::upstream()))
            .limit(Limit::in_flight(25));
        let read = described(upstream);
        let texts: Vec<_> = read.limits.iter().map(|limit| &*limit.text).collect();
        let expected = [
            "100/s each upstream burst 20",
            "5000000/min tokens each bearer_token",
            "bucket 40 at 2/s each header x-merchant",
            "9/day resets daily (UTC) each upstream",
            "25 in flight each bearer_token",
        ];
        assert_eq!(texts, expected);
        assert!(!read.to_string().contains("s3cret"));
        let token = read.kinds.iter().position(|kind| *kind.name == *"bearer_token").unwrap();
        let scope = read.kinds[token].scope_of(b"s3cret");
        assert_eq!(read.name_of(scope).map(|name| &**name), Some("release-bot"));
        let (logs, seats) = read.of_scope(token, Some(scope));
        assert_eq!((logs.len(), &*logs[0].unit, logs[0].scope), (1, "tokens-256", Some(scope)));
        assert_eq!(seats, [SeatLimit::new(Some(scope), 25)]);
        let Counted::InLog { log, term, units } = read.limits[0].counted else { panic!("in a log") };
        assert_eq!((read.logs[log].1.terms[term].quota, units), (100, 1));
    }

    #[test]
    fn kinds_of_one_name_are_told_apart_where_limits_are_shared() {
        let each = |count| Limit::per_second(count).each(Scope::bearer_token());
        let read = described(Upstream::new("up").limit(each(5)).shares("account", [Limit::per_second(9), each(9)]));
        let kinds: Vec<_> = read.kinds.iter().map(|kind| &*kind.name).collect();
        assert_eq!(kinds, ["account/upstream", "bearer_token", "account/bearer_token"]);
        let texts: Vec<_> = read.limits.iter().map(|limit| &*limit.text).collect();
        assert_eq!(texts, ["5/s each bearer_token", "9/s", "9/s each bearer_token"]);
    }

    #[test]
    fn shards_are_read_with_the_scopes_that_lie_there() {
        let up = Upstream::new("shop").scope_by(Scope::header("x-merchant")).limit(Limit::per_second(10)).shards(24);
        let (registered, read) = (Registered::new(0, up.clone()).unwrap(), described(up));
        for merchant in 0..100_u32 {
            let scope = registered.scope_of(&merchant.to_be_bytes());
            assert_eq!(read.shard_of(scope), Some(&registered.shard(scope).ledger));
        }
        assert_eq!((read.shards.len(), read.shard_of(None)), (24, Some(&"shop".into())));
    }

    #[test]
    fn what_is_no_description_is_not_read_as_one() {
        for text in ["", "{}", "[]", "7", r#"{"kinds":[],"limits":[{}],"logs":[],"names":[]}"#] {
            assert_eq!(Description::read(text), None, "{text}");
        }
        let whole = described(Upstream::new("up").limit(Limit::per_second(5))).to_string();
        for end in 1..whole.len() {
            assert_eq!(Description::read(&whole[..end]), None);
        }
    }
}
