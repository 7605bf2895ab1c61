//! Who shares a quota: everybody, or whoever sends the same token, header, parameter.

use std::fmt;
use std::sync::Arc;

use crate::ledger::ScopeId;
use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderName};

/// Tells calls apart that do not share a quota: one log for each value.
///
/// A value is hashed (SHA-256, cut to 128 bits) before it goes anywhere: tokens never reach the store, traces or errors.
/// Requests without the value share one log of their own.
///
/// # Default
///
/// The whole upstream shares one log.
#[derive(Clone)]
pub struct Scope(Kind);

type Value = dyn Fn(&Request) -> Option<String> + Send + Sync;

#[derive(Clone)]
enum Kind {
    Upstream,
    BearerToken,
    Header(HeaderName),
    Query(Arc<str>),
    By(Arc<Value>),
}

impl Scope {
    /// One log for the whole upstream.
    #[must_use]
    pub const fn upstream() -> Self {
        Self(Kind::Upstream)
    }

    /// One log for each bearer token in `Authorization`.
    #[must_use]
    pub const fn bearer_token() -> Self {
        Self(Kind::BearerToken)
    }

    /// One log for each value of a header.
    #[must_use]
    pub const fn header(name: HeaderName) -> Self {
        Self(Kind::Header(name))
    }

    /// One log for each value of a parameter of the URL's query.
    #[must_use]
    pub fn query(name: impl Into<Arc<str>>) -> Self {
        Self(Kind::Query(name.into()))
    }

    /// One log for each result of a closure.
    #[must_use]
    pub fn by(value: impl Fn(&Request) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Kind::By(Arc::new(value)))
    }

    /// The hash of a request's value.
    pub(crate) fn of(&self, request: &Request) -> Option<ScopeId> {
        match &self.0 {
            Kind::Upstream => None,
            Kind::BearerToken => {
                let value = request.headers().get(AUTHORIZATION)?.as_bytes();
                let (scheme, token) = value.split_at_checked(7)?;
                scheme.eq_ignore_ascii_case(b"bearer ").then(|| ScopeId::of(token.trim_ascii()))
            }
            Kind::Header(name) => request.headers().get(name).map(|value| ScopeId::of(value.as_bytes())),
            Kind::Query(name) => {
                let mut pairs = request.url().query_pairs();
                pairs.find(|(key, _)| *key == **name).map(|(_, value)| ScopeId::of(value.as_bytes()))
            }
            Kind::By(value) => value(request).map(|value| ScopeId::of(value.as_bytes())),
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Upstream => f.write_str("Upstream"),
            Kind::BearerToken => f.write_str("BearerToken"),
            Kind::Header(name) => write!(f, "Header({name})"),
            Kind::Query(name) => write!(f, "Query({name})"),
            Kind::By(_) => f.write_str("By(…)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str, headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::new(reqwest::Method::GET, url.parse().unwrap());
        for &(name, value) in headers {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        request
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
            (Scope::query("other"), &plain, None),
            (header.clone(), &plain, None),
            (header, &request("http://h/", &[("x-merchant", "m1")]), digest("m1")),
            (Scope::by(|request| request.url().host_str().map(str::to_owned)), &plain, digest("h")),
        ];
        for (scope, request, expected) in cases {
            assert_eq!(scope.of(request), expected, "{scope:?} {request:?}");
        }
    }
}
