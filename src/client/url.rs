//! Whether a response came from where its request went: redirects happen below every middleware.

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

use reqwest::Url;

use crate::config::host;

/// The host that stands in the URL of a response which was not made from a call: by a cache, a mock.
const NO_HOST: &str = "no.url.provided.local";

/// Where a request goes. Of one without a host it is known of which upstream it is.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a>(Cow<'a, Url>, Option<Arc<str>>);

impl<'a> Target<'a> {
    pub(crate) const fn of(url: &'a Url) -> Self {
        Self(Cow::Borrowed(url), None)
    }

    /// That of a request to an upstream which says no host.
    #[cfg(feature = "tower")]
    pub(crate) const fn somewhere(url: &'a Url, upstream: Arc<str>) -> Self {
        Self(Cow::Borrowed(url), Some(upstream))
    }

    /// That of a request which is given away.
    pub(crate) fn kept(url: &Url) -> Self {
        Self(Cow::Owned(url.clone()), None)
    }

    /// The host and port that it connects to, or the upstream where nobody knows.
    pub(crate) fn server(&self) -> impl Hash + '_ {
        (host_and_port(&self.0), &self.1)
    }

    /// The same for errors and traces.
    pub(crate) fn shown(&self) -> Arc<str> {
        self.1.as_ref().map_or_else(|| host::with_port(&self.0), Arc::clone)
    }

    /// Whether an error may be about this server. One of a client that a middleware further in calls another server by, as for a token, has
    /// the URL of that one; where redirects are followed it has that of the first call, wherever they led.
    pub(crate) fn is_failed_by(&self, error: &reqwest_middleware::Error) -> bool {
        error.url().is_none_or(|url| self.is_on_server_of(url))
    }

    /// Whether an error is about this very URL: one of building a request may be about that of a redirect, and one of connecting about that of
    /// another call to this server, by a middleware further in.
    pub(crate) fn is_meant_by(&self, error: &reqwest_middleware::Error) -> bool {
        error.url().is_some_and(|url| self.is_answered_by(url))
    }

    /// Whether a response of this URL may speak for the upstream that was called: it comes from the same host and port, where the way from one
    /// URL to the other `leaves` it not; or nobody knows from where.
    pub(crate) fn is_spoken_for_by(&self, url: &Url, leaves: impl FnOnce(&Url, &Url) -> bool) -> bool {
        self.is_on_server_of(url) && !leaves(&self.0, url) || url.host_str() == Some(NO_HOST)
    }

    /// Whether a response of this URL comes from the very URL that was called: else the call was redirected, so it was executed.
    #[inline]
    pub(crate) fn is_answered_by(&self, url: &Url) -> bool {
        let own = &*self.0;
        // Neither a fragment nor a name and password reach the response's URL for certain.
        let is_same = || (own.scheme(), own.path(), own.query()) == (url.scheme(), url.path(), url.query());
        own == url || self.is_on_server_of(url) && is_same()
    }

    fn is_on_server_of(&self, url: &Url) -> bool {
        host_and_port(&self.0) == host_and_port(url)
    }
}

fn host_and_port(url: &Url) -> (Option<&str>, Option<u16>) {
    (url.host_str(), url.port_or_known_default())
}

#[cfg(test)]
mod tests {
    use reqwest::Response;

    use super::*;

    #[test]
    fn a_response_speaks_for_its_server_and_answers_its_url() {
        const URL: &str = "http://user:word@api.example/pay?id=1#part";
        let cases = [
            ("http://api.example/pay?id=1", true, true),
            ("http://user:word@api.example:80/pay?id=1#other", true, true),
            ("http://api.example/pay", true, false),
            ("http://api.example/pay?id=2", true, false),
            ("http://api.example/paid?id=1", true, false),
            ("http://api.example:8080/pay?id=1", false, false),
            ("https://api.example/pay?id=1", false, false),
            ("http://www.api.example/pay?id=1", false, false),
            ("http://10.0.0.1/pay?id=1", false, false),
            ("http://no.url.provided.local/", true, false),
        ];
        let target = Target::kept(&URL.parse().unwrap());
        for (url, speaks, answers) in cases {
            let response = http::Response::builder();
            let response = reqwest::ResponseBuilderExt::url(response, url.parse().unwrap()).body("").unwrap();
            let response = Response::from(response);
            let from = response.url();
            assert_eq!(
                (target.is_spoken_for_by(from, |_, _| false), target.is_answered_by(from)),
                (speaks, answers),
                "{url}"
            );
        }
    }

    #[test]
    fn a_response_that_was_made_from_no_call_speaks_but_answers_no_url() {
        let target = Target::kept(&"http://api.example/".parse().unwrap());
        let response = Response::from(http::Response::new(""));
        assert!(target.is_spoken_for_by(response.url(), |_, _| true) && !target.is_answered_by(response.url()));
    }
}
