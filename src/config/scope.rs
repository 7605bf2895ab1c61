//! Who shares a quota: everybody, or whoever sends the same token, header, parameter.

use std::fmt;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};

use crate::config::host;
use crate::config::request_head::RequestHead;
use crate::ledger::ScopeId;

/// Tells calls apart that do not share a quota: one log for each value.
///
/// A value is hashed (SHA-256, cut to 128 bits, and mixed with the scope's name) before it goes anywhere: tokens never reach the store, traces or
/// errors. Its logs are the same whatever other limits the upstream has, until it begins to [share](crate::Upstream::shares) some.
/// Requests without the value share one log of their own.
///
/// A scope has a name, by which [`Call::scope_of`](crate::Call::scope_of) and [`Acquire::scope_of`](crate::Acquire::scope_of) say
/// its value: `bearer_token`, `host`, `upstream`, that of the header or parameter, or the one given by [`given`](Self::given) or
/// [`named`](Self::named). Two
/// scopes of one name are one.
///
/// # Default
///
/// The whole upstream shares one log.
///
/// ```
/// use outgate::{Limit, Scope, Upstream};
///
/// let by_region = Scope::by(|request| request.url().host_str()?.split('.').next().map(str::to_owned));
/// let upstream = Upstream::new("shop")
///     .scope_by(Scope::bearer_token())
///     .limit(Limit::per_second(40)) // of each token
///     .limit(Limit::per_second(500).each(Scope::upstream())) // of everybody
///     .limit(Limit::per_second(2).each(Scope::header("x-merchant")))
///     .limit(Limit::per_minute(90).each(Scope::query("account")))
///     .limit(Limit::per_second(90).each(Scope::host()))
///     .limit(Limit::per_second(30).each(Scope::given("model"))) // as calls say
///     .limit(Limit::per_hour(9_000).each(by_region.named("region")));
/// # let _ = upstream;
/// ```
#[derive(Clone)]
pub struct Scope {
    kind: Kind,
    name: Arc<str>,
}

type Value = dyn Fn(&RequestHead<'_>) -> Option<String> + Send + Sync;

#[derive(Clone)]
enum Kind {
    Upstream,
    BearerToken,
    Host,
    Header(HeaderName),
    Query(Arc<str>),
    By(Arc<Value>),
    Given,
    /// What was to be a header's name.
    Wrong,
}

impl Scope {
    fn new(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self { kind, name: name.into() }
    }

    /// One log for the whole upstream.
    #[must_use]
    pub fn upstream() -> Self {
        Self::new(Kind::Upstream, "upstream")
    }

    /// One log for each bearer token in the request's `Authorization`. One that the client adds itself, by `default_headers`, is not
    /// seen: then all requests are of one log, unless each [says its scope](crate::Call::scope).
    #[must_use]
    pub fn bearer_token() -> Self {
        Self::new(Kind::BearerToken, "bearer_token")
    }

    /// One log for each host, whatever its port: for an upstream of many hosts. Where the upstream [names](crate::Upstream::host) none of them, as
    /// a crawler's, a refusal is about the host that refused, whatever it says of others.
    #[must_use]
    pub fn host() -> Self {
        Self::new(Kind::Host, "host")
    }

    /// One log for each value of a header of the request, not of those that the client adds itself by `default_headers`. A name that can be
    /// no header's is an error when the throttle is built.
    #[must_use]
    pub fn header(name: impl TryInto<HeaderName>) -> Self {
        match name.try_into() {
            Ok(name) => Self { name: name.as_str().into(), kind: Kind::Header(name) },
            Err(_) => Self::new(Kind::Wrong, ""),
        }
    }

    /// One log for each value of a parameter of the URL's query.
    #[must_use]
    pub fn query(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self::new(Kind::Query(Arc::clone(&name)), name)
    }

    /// One log for each value that calls give themselves, by [`Call::scope_of`](crate::Call::scope_of), as nothing of a request says it: a merchant, the
    /// model that a body names.
    ///
    /// ```
    /// # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::{Limit, Scope, Throttle, Upstream};
    ///
    /// let gateway = Upstream::new("gateway").limit(Limit::per_second(10).each(Scope::given("merchant")));
    /// let throttle = Throttle::builder().upstream(gateway).build()?;
    /// let permit = throttle.acquire("gateway").scope_of("merchant", "m-17").await?;
    /// # drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn given(name: impl Into<Arc<str>>) -> Self {
        Self::new(Kind::Given, name)
    }

    /// One log for each result of a closure. Give it a [name](Self::named) where an upstream has several such scopes.
    #[must_use]
    pub fn by(value: impl Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::new(Kind::By(Arc::new(value)), "by")
    }

    /// The same under another name. All processes that share a store must use one.
    #[must_use]
    pub fn named(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// By what its values are said.
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// As text says it, where any does: not of a closure, nor under another name.
    pub(crate) fn as_text(&self) -> Option<String> {
        let is_word = !self.name.is_empty() && !self.name.contains(char::is_whitespace);
        let (own, text) = match &self.kind {
            Kind::Upstream => ("upstream", "upstream".to_owned()),
            Kind::BearerToken => ("bearer_token", "bearer_token".to_owned()),
            Kind::Host => ("host", "host".to_owned()),
            Kind::Header(name) => (name.as_str(), format!("header {name}")),
            Kind::Query(name) => (&**name, format!("query {name}")),
            Kind::Given => (&*self.name, format!("given {}", self.name)),
            Kind::By(_) | Kind::Wrong => return None,
        };
        (is_word && *self.name == *own).then_some(text)
    }

    /// Everybody shares one log.
    pub(crate) const fn is_upstream(&self) -> bool {
        matches!(self.kind, Kind::Upstream)
    }

    /// Its values are tokens.
    pub(crate) fn is_token(&self) -> bool {
        match &self.kind {
            Kind::BearerToken => true,
            Kind::Header(name) => *name == AUTHORIZATION,
            _ => false,
        }
    }

    /// Its values are hosts.
    pub(crate) const fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Host)
    }

    /// Its values are those of a header.
    pub(crate) const fn is_header(&self) -> bool {
        matches!(self.kind, Kind::Header(_))
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Wrong => Some("Scope::header was given a text that can be no header's name"),
            Kind::Given if self.name.is_empty() => Some("Scope::given was given no name"),
            _ => None,
        }
    }

    /// Whether it takes its values from the same place as another of its name.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Header(one), Kind::Header(other)) => one == other,
            (Kind::Query(one), Kind::Query(other)) => one == other,
            (Kind::By(one), Kind::By(other)) => Arc::ptr_eq(one, other),
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// The hash of a request's value.
    pub(crate) fn of(&self, request: &RequestHead<'_>) -> Option<ScopeId> {
        match &self.kind {
            Kind::Upstream | Kind::Given | Kind::Wrong => None,
            Kind::BearerToken => {
                let value = request.headers().get(AUTHORIZATION)?.as_bytes();
                let (scheme, token) = value.split_at_checked(7)?;
                scheme.eq_ignore_ascii_case(b"bearer ").then(|| ScopeId::of(token.trim_ascii()))
            }
            Kind::Host => host::name(request.url()).map(|host| ScopeId::of(host.as_bytes())),
            Kind::Header(name) => request.headers().get(name).map(|value| ScopeId::of(value.as_bytes())),
            Kind::Query(name) => {
                let mut pairs = request.url().query_pairs();
                pairs.find(|(key, _)| *key == **name).map(|(_, value)| ScopeId::of(value.as_bytes()))
            }
            Kind::By(value) => value(request).map(|value| ScopeId::of(value.as_bytes())),
        }
    }
}

/// Scopes of one name are one.
impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Scope {}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use reqwest::Request;

    use super::*;

    fn request(url: &str, headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::new(reqwest::Method::GET, url.parse().unwrap());
        for &(name, value) in headers {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        request
    }

    #[test]
    fn a_header_may_be_given_as_text_and_a_wrong_one_is_a_fault() {
        let merchant = request("http://h/", &[("x-merchant", "m1")]);
        assert_eq!(Scope::header("X-Merchant").of(&(&merchant).into()), Some(ScopeId::of(b"m1")));
        assert_eq!(&**Scope::header("X-Merchant").name(), "x-merchant");
        assert!(Scope::header("no header").fault().is_some() && Scope::header("x").fault().is_none());
        assert!(Scope::given("").fault().is_some() && Scope::given("x").fault().is_none());
    }

    #[test]
    fn a_scope_is_the_hash_of_its_value() {
        let digest = |text: &str| Some(ScopeId::of(text.as_bytes()));
        let plain = request("http://h/?key=a%20b&key=c", &[]);
        let token = request("http://h/", &[("authorization", "bEaReR  s3cret ")]);
        let basic = request("http://h/", &[("authorization", "Basic s3cret")]);
        let short = request("http://h/", &[("authorization", "x")]);
        let header = Scope::header(HeaderName::from_static("x-merchant"));
        let cases = [
            (Scope::upstream(), &token, None),
            (Scope::bearer_token(), &token, digest("s3cret")),
            (Scope::bearer_token(), &basic, None),
            (Scope::bearer_token(), &short, None),
            (Scope::bearer_token(), &plain, None),
            (Scope::query("key"), &plain, digest("a b")),
            (Scope::host(), &request("http://H.example:81/", &[]), digest("h.example")),
            (Scope::host(), &request("http://h.example./", &[]), digest("h.example")),
            (Scope::query("key").named("other"), &plain, digest("a b")),
            (Scope::query("other"), &plain, None),
            (header.clone(), &plain, None),
            (header, &request("http://h/", &[("x-merchant", "m1")]), digest("m1")),
            (Scope::given("x-merchant"), &request("http://h/", &[("x-merchant", "m1")]), None),
            (Scope::by(|request| request.url().host_str().map(str::to_owned)), &plain, digest("h")),
        ];
        for (scope, request, expected) in cases {
            assert_eq!(scope.of(&request.into()), expected, "{scope:?} {request:?}");
        }
    }
}
