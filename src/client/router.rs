//! Routing: which upstream a request belongs to, however many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use reqwest::Url;

use crate::config::host::{domains, name};
use crate::config::path::{PathPrefix, canonical, prefixes};
use crate::config::request_head::RequestHead;
use crate::config::upstream::Upstream;

/// Finds the first upstream that a request belongs to by the request's host and path.
///
/// What could match is brought together when the table is made: for each host and domain that upstreams name, the
/// candidates below each path prefix, in the order of registration. Those that name no host stand apart.
#[derive(Debug, Default)]
pub(crate) struct Table {
    hosts: BTreeMap<Box<str>, Paths>,
    /// The hosts below a domain that have no entry of their own.
    below: BTreeMap<Box<str>, Paths>,
    /// How many labels a domain has: longer ones need no look.
    most_labels: usize,
    anywhere: Paths,
}

/// The candidates of one host.
#[derive(Debug, Default)]
struct Paths {
    /// Below each prefix, the candidates of that and of every shorter one.
    below: BTreeMap<Box<str>, Box<[Candidate]>>,
    /// How many parts a prefix has: longer ones need no look.
    most_parts: usize,
}

/// An upstream, by its place among those registered, and the port of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    upstream: usize,
    port: Option<u16>,
}

/// Candidates, each with a path prefix of its own.
type Entries<'a> = Vec<(&'a str, Candidate)>;

impl Table {
    pub(crate) fn new<'a>(upstreams: impl IntoIterator<Item = &'a Upstream>) -> Self {
        let (mut hosts, mut below) = (BTreeMap::<_, Entries<'_>>::new(), BTreeMap::<_, Entries<'_>>::new());
        let mut anywhere = Entries::new();
        for (index, upstream) in upstreams.into_iter().enumerate().filter(|(_, upstream)| upstream.is_routed()) {
            let every_path = upstream.paths().is_empty().then_some("");
            let prefixes: Vec<_> = upstream.paths().iter().map(PathPrefix::as_str).chain(every_path).collect();
            let entries = |port| prefixes.iter().map(move |prefix| (*prefix, Candidate { upstream: index, port }));
            for host in upstream.hosts() {
                let named = if host.is_wildcard { &mut below } else { &mut hosts };
                named.entry(&*host.name).or_default().extend(entries(host.port));
            }
            if upstream.hosts().is_empty() {
                anywhere.extend(entries(None));
            }
        }
        let with_domains = |host: &str, own: &Entries<'a>| {
            let inherited = domains(host).filter_map(|domain| below.get(domain)).flatten();
            (host.into(), Paths::new(own.iter().chain(inherited)))
        };
        Self {
            hosts: hosts.iter().map(|(host, own)| with_domains(host, own)).collect(),
            below: below.iter().map(|(domain, own)| with_domains(domain, own)).collect(),
            most_labels: below.keys().map(|domain| domain.split('.').count()).max().unwrap_or(0),
            anywhere: Paths::new(&anywhere),
        }
    }

    /// The first upstream that is on the request's host, below its path, and accepts it.
    #[inline]
    pub(crate) fn find(&self, request: &RequestHead<'_>, accepts: impl Fn(usize) -> bool) -> Option<usize> {
        let url = request.url();
        let here = self.host(url).map(|paths| paths.candidates(url)).unwrap_or_default();
        in_order(here, self.anywhere.candidates(url))
            .filter(|candidate| candidate.port.is_none_or(|own| Some(own) == url.port_or_known_default()))
            .map(|candidate| candidate.upstream)
            .find(|&upstream| accepts(upstream))
    }

    /// Whether no request can belong to an upstream, by its place among all: then, the one before it that takes the first of them.
    pub(crate) fn hidden_by(&self, hidden: usize, all: &[&Upstream]) -> Option<usize> {
        let upstream = all.get(hidden).filter(|upstream| upstream.is_routed())?;
        let every_path = upstream.paths().is_empty().then_some("");
        let prefixes = || upstream.paths().iter().map(PathPrefix::as_str).chain(every_path);
        let on = |paths: &'_ Paths, prefix: &str, port: Option<u16>| {
            let takes = |candidate: &&Candidate| {
                let Candidate { upstream: before, port: own } = **candidate;
                let takes_all = || all.get(before).is_some_and(|before| before.accepts_all_of(upstream));
                before < hidden && (own.is_none() || own == port) && takes_all()
            };
            paths.at(prefix).iter().find(takes).map(|candidate| candidate.upstream)
        };
        let mut first = None;
        let anywhere = upstream.hosts().is_empty().then_some(None);
        for host in upstream.hosts().iter().map(Some).chain(anywhere) {
            let named = host.and_then(|host| if host.is_wildcard { &self.below } else { &self.hosts }.get(&host.name));
            for prefix in prefixes() {
                let here = named.and_then(|paths| on(paths, prefix, host.and_then(|host| host.port)));
                let by = here.or_else(|| on(&self.anywhere, prefix, None))?;
                first = first.or(Some(by));
            }
        }
        first
    }

    fn host(&self, url: &Url) -> Option<&Paths> {
        let host = name(url)?;
        let longest = || domains(host).take(self.most_labels).filter_map(|domain| self.below.get(domain)).last();
        self.hosts.get(host).or_else(longest)
    }
}

impl Paths {
    fn new<'a>(entries: impl IntoIterator<Item = &'a (&'a str, Candidate)>) -> Self {
        let mut own = BTreeMap::<&str, Vec<Candidate>>::new();
        for (prefix, candidate) in entries {
            own.entry(prefix).or_default().push(*candidate);
        }
        let all_below = |path: &str| {
            let found: BTreeSet<_> =
                iter::once("").chain(prefixes(path)).filter_map(|prefix| own.get(prefix)).flatten().copied().collect();
            let mut found: Vec<_> = found.into_iter().collect();
            // Without a port it matches anyway, and comes first.
            found.dedup_by(|later, first| later.upstream == first.upstream && first.port.is_none());
            (path.into(), found.into())
        };
        Self {
            below: own.keys().map(|prefix| all_below(prefix)).collect(),
            most_parts: own.keys().map(|prefix| prefix.matches('/').count()).max().unwrap_or(0),
        }
    }

    /// What may match the path of a URL, in the order of registration.
    #[inline]
    fn candidates(&self, url: &Url) -> &[Candidate] {
        if self.most_parts == 0 {
            return self.below.get("").map(|found| &**found).unwrap_or_default();
        }
        self.at(&canonical(url.path()))
    }

    /// What may match a path, in the order of registration.
    fn at(&self, path: &str) -> &[Candidate] {
        let shorter_first = iter::once("").chain(prefixes(path).take(self.most_parts));
        shorter_first.filter_map(|prefix| self.below.get(prefix)).last().map(|found| &**found).unwrap_or_default()
    }
}

/// Two lists as one, in the order of registration.
fn in_order<'a>(one: &'a [Candidate], other: &'a [Candidate]) -> impl Iterator<Item = &'a Candidate> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if second < first => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

#[cfg(test)]
mod tests;
