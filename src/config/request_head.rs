//! What a request says of itself before its body.

use std::fmt;

use http::{HeaderMap, Method};
use reqwest::{Request, Url};

/// Method, URL and headers of a request: what the closures of an [`Upstream`](crate::Upstream) and a [`Scope`](crate::Scope)
/// see of it, whatever client makes the call. Headers that reqwest adds below every middleware, by `default_headers`, are not among them.
///
/// ```
/// use http::{HeaderMap, Method};
/// use outgate::RequestHead;
///
/// let (url, headers) = ("https://api.example.com/things".parse().unwrap(), HeaderMap::new());
/// let head = RequestHead::new(&Method::GET, &url, &headers);
/// assert_eq!((head.method(), head.url().path(), head.headers().len()), (&Method::GET, "/things", 0));
/// ```
///
/// `Debug` shows no more than the method, the host and the names of headers: tokens may stand in all else.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    method: &'a Method,
    url: &'a Url,
    headers: &'a HeaderMap,
}

impl<'a> RequestHead<'a> {
    /// The head of a request of this method, URL and headers.
    #[must_use]
    pub const fn new(method: &'a Method, url: &'a Url, headers: &'a HeaderMap) -> Self {
        Self { method, url, headers }
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The URL.
    #[must_use]
    pub const fn url(&self) -> &'a Url {
        self.url
    }

    /// The headers.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}

impl<'a> From<&'a Request> for RequestHead<'a> {
    fn from(request: &'a Request) -> Self {
        Self::new(request.method(), request.url(), request.headers())
    }
}

impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.keys().collect();
        f.debug_struct("RequestHead")
            .field("method", self.method)
            .field("host", &self.url.host_str())
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    #[test]
    fn what_debug_shows_of_a_request_has_no_secret_in_it() {
        let url = "https://user:secret@api.example.com/botsecret/send?key=secret#secret".parse().unwrap();
        let headers = HeaderMap::from_iter([(AUTHORIZATION, "Bearer secret".parse().unwrap())]);
        let shown = format!("{:?}", RequestHead::new(&Method::POST, &url, &headers));
        let expected = r#"RequestHead { method: POST, host: Some("api.example.com"), headers: ["authorization"], .. }"#;
        assert_eq!(shown, expected);
    }
}
